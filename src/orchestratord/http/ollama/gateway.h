#pragma once
// The Ollama API under /api: decoders in front of the submission of jobs, a renderer behind their streams, and what is told of
// models.
#include "orchestratord/http/context.h"
#include "orchestratord/http/ollama/request.h"
#include "orchestratord/http/tasks/submit.h"

namespace llorch::orchestratord::http::ollama {

// Thread-safe. REQUIRES: `context` and `submitter` outlive it.
class Gateway {
 public:
  Gateway(const Context& context, tasks::Submitter& submitter) : context_(context), submitter_(submitter) {}

  // These two take long for a long prompt. REQUIRES: on the desk's thread.
  void chat(const net::Request& request, const net::ExchangePtr& exchange);
  void generate(const net::Request& request, const net::ExchangePtr& exchange);

  void tags(const net::Request& request, const net::ExchangePtr& exchange);
  void show(const net::Request& request, const net::ExchangePtr& exchange);
  void ps(const net::Request& request, const net::ExchangePtr& exchange);
  void version(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  struct Caller {
    net::http::Principal principal;
    base::CorrelationId correlation_id;
    net::ExchangePtr exchange;
  };
  void serve(base::Result<Request> decoded, Caller caller);
  void submit(Request request, Caller caller);
  std::int64_t started_unix_ms() const;

  const Context& context_;
  tasks::Submitter& submitter_;
};

}  // namespace llorch::orchestratord::http::ollama
