#pragma once
// /v2/pools and /v2/internal/workers: what pool managers tell, and what is known of them.
#include "orchestratord/api/context.h"

namespace llorch::orchestratord::api {

// Thread-safe. REQUIRES: `context` outlives it.
class Pools {
 public:
  explicit Pools(const Context& context) : context_(context) {}

  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void register_pool(const net::Request& request, const net::ExchangePtr& exchange);
  void heartbeat(const net::Request& request, const net::ExchangePtr& exchange);
  void leave(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_ready(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_failed(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  const Context& context_;
};

contract::PoolInfo pool_info(const brain::PoolView& view);

}  // namespace llorch::orchestratord::api
