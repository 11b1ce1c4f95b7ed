#pragma once
// /v2/pools and /v2/internal/workers: what pool managers tell, and what is known of them.
#include "orchestratord/api/context.h"

namespace llorch::orchestratord::api {

// Thread-safe. REQUIRES: `context` outlives it.
class Pools {
 public:
  explicit Pools(const Context& context) : context_(context) {}

  void list(net::Request request, net::ExchangePtr exchange);
  void register_pool(net::Request request, net::ExchangePtr exchange);
  void heartbeat(net::Request request, net::ExchangePtr exchange);
  void leave(net::Request request, net::ExchangePtr exchange);
  void worker_ready(net::Request request, net::ExchangePtr exchange);
  void worker_failed(net::Request request, net::ExchangePtr exchange);

 private:
  const Context& context_;
};

contract::PoolInfo pool_info(const brain::PoolView& view);

}  // namespace llorch::orchestratord::api
