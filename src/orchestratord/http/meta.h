#pragma once
// What the service says about itself: health, version, capabilities, metrics, what placement looks at.
#include "orchestratord/http/context.h"
#include "orchestratord/http/preloads.h"

namespace llorch::orchestratord::http {

inline constexpr std::string_view kApiVersion = "2.0.0";  // info.version of the OpenAPI file (ORCH-3096)

// Thread-safe. REQUIRES: `context` and `preloads` outlive it.
class Meta {
 public:
  Meta(const Context& context, const Preloads& preloads) : context_(context), preloads_(preloads) {}

  void health(const net::Request& request, const net::ExchangePtr& exchange);
  void version(const net::Request& request, const net::ExchangePtr& exchange);
  void capabilities(const net::Request& request, const net::ExchangePtr& exchange);
  void settings(const net::Request& request, const net::ExchangePtr& exchange);
  void metrics(const net::Request& request, const net::ExchangePtr& exchange);
  void placement_snapshot(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  const Context& context_;
  const Preloads& preloads_;
};

}  // namespace llorch::orchestratord::http
