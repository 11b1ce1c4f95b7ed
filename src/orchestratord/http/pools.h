#pragma once
// /v2/pools, /v2/cache and /v2/internal/workers: what pool managers tell, and what is known of them.
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
  // Asks every worker to forget its prefix cache; answers when all have answered or their time is over.
  void clear_caches(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_ready(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_failed(const net::Request& request, const net::ExchangePtr& exchange);
  // Makes the credential of a pool, or takes it back: the one of before is refused, and its pool is forgotten.
  void pair(const net::Request& request, const net::ExchangePtr& exchange);
  void unpair(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  base::Result<> check_own(const net::Request& request, const std::string& pool_id) const;
  void take_state(const net::Request& request, const net::ExchangePtr& exchange, contract::PoolState state,
                  std::function<std::string(std::int64_t interval_ms)> reply);
  void end_of(const base::PoolId& pool_id, const std::optional<std::string>& endpoint, const net::ExchangePtr& exchange,
              std::function<void()> answer);

  const Context& context_;
};

// What a pool manager says of itself, wherever it says it: decoded and checked, its endpoint without a trailing slash.
// `endpoint_asked`: where it was asked, for one that does not name its own; `peer_address`: of one that came by itself.
// Errors: INVALID_PARAMS.
base::Result<contract::PoolState> parse_pool_state(const std::string& body, const std::string& endpoint_asked,
                                                   std::string_view peer_address = {});

contract::PoolInfo pool_info(const brain::PoolView& view);

}  // namespace llorch::orchestratord::api
