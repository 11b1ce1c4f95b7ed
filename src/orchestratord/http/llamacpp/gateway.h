#pragma once
// What llama.cpp's server tells of prompts: /tokenize, /detokenize, /apply-template. No job comes of them.
#include <functional>
#include <optional>
#include <string>

#include "orchestratord/http/context.h"
#include "orchestratord/http/tasks/prompt.h"

namespace llorch::orchestratord::http::llamacpp {

// Thread-safe. All take long for a long text. REQUIRES: on the desk's thread, and `context` outlives it.
class Gateway {
 public:
  explicit Gateway(const Context& context) : context_(context) {}

  void tokenize(const net::Request& request, const net::ExchangePtr& exchange);
  void detokenize(const net::Request& request, const net::ExchangePtr& exchange);
  void apply_template(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  using Answer = std::function<base::Result<std::string>(const models::KnownModel&)>;  // a body
  void answer(const net::Request& request, const std::optional<std::string>& model, Answer answer,
              const net::ExchangePtr& exchange) const;

  const Context& context_;
};

}  // namespace llorch::orchestratord::http::llamacpp
