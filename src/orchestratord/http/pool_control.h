#pragma once
// /v2/pools/{id}/drain, reload, purge and health: an operator's levers.
#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class PoolControl {
 public:
  explicit PoolControl(const Context& context) : context_(context) {}

  // 202 once the drain is on disk.
  void drain(const net::Request& request, const net::ExchangePtr& exchange);
  void undrain(const net::Request& request, const net::ExchangePtr& exchange);
  // Answers 202 when the order is on disk; the pool's health shows how far it is. A pool must have described the model.
  void reload(const net::Request& request, const net::ExchangePtr& exchange);
  void purge(const net::Request& request, const net::ExchangePtr& exchange);
  void health(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  template <class Event>
  void ask(Event event, int http_status, const net::ExchangePtr& exchange);

  const Context& context_;
};

}  // namespace llorch::orchestratord::http
