#pragma once
// What the service says about itself: health, version, capabilities, metrics, what placement looks at.
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

inline constexpr std::string_view kApiVersion = "2.0.0";  // info.version of the OpenAPI file (ORCH-3096)

// Thread-safe. REQUIRES: `context` outlives it.
class Meta {
 public:
  explicit Meta(const Context& context) : context_(context) {}

  void health(const net::Request& request, const net::ExchangePtr& exchange);
  void version(const net::Request& request, const net::ExchangePtr& exchange);
  void capabilities(const net::Request& request, const net::ExchangePtr& exchange);
  void settings(const net::Request& request, const net::ExchangePtr& exchange);
  void metrics(const net::Request& request, const net::ExchangePtr& exchange);
  void placement_snapshot(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  const Context& context_;
};

}  // namespace llorch::orchestratord::http
