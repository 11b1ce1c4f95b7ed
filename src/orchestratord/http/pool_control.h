#pragma once
// /v2/pools/{id}/drain, reload, purge and health: an operator's levers (control-plane §2.2, §5.9).
#include "orchestratord/api/context.h"

namespace llorch::orchestratord::api {

// Thread-safe. REQUIRES: `context` outlives it.
class PoolControl {
 public:
  explicit PoolControl(const Context& context) : context_(context) {}

  // 202 once the drain is on disk.
  void drain(const net::Request& request, const net::ExchangePtr& exchange);
  void undrain(const net::Request& request, const net::ExchangePtr& exchange);
  // 202: how it goes on is in the health. The model is known to a pool before anything is stopped.
  void reload(const net::Request& request, const net::ExchangePtr& exchange);
  void purge(const net::Request& request, const net::ExchangePtr& exchange);
  void health(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  template <class Event>
  void ask(Event event, int http_status, const net::ExchangePtr& exchange);

  const Context& context_;
};

}  // namespace llorch::orchestratord::api
