#pragma once
// /v2/pools, /v2/cache and /v2/internal/workers: pool managers report here, and clients ask what is known of pools.
#include <map>
#include <string>

#include "orchestratord/http/context.h"

namespace llorch::orchestratord::http {

// Thread-safe. REQUIRES: `context` outlives it.
class Pools {
 public:
  // `on_watched` is told, on the request executor's thread, what lies in the directories that a pool watches, with each of its
  // reports that is not older than the one before.
  using OnWatched = std::function<void(const base::PoolId&, const std::vector<wire::WatchedModel>&)>;
  // `on_unpaired` is told, on the same thread, of a pool that is forgotten for good.
  using OnUnpaired = std::function<void(const base::PoolId&)>;
  Pools(const Context& context, OnWatched on_watched, OnUnpaired on_unpaired)
      : context_(context), on_watched_(std::move(on_watched)), on_unpaired_(std::move(on_unpaired)) {}

  void list(const net::Request& request, const net::ExchangePtr& exchange);
  void register_pool(const net::Request& request, const net::ExchangePtr& exchange);
  void heartbeat(const net::Request& request, const net::ExchangePtr& exchange);
  void leave(const net::Request& request, const net::ExchangePtr& exchange);
  // Asks every worker to forget its prefix cache; answers when all have answered or their time is over.
  void clear_caches(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_ready(const net::Request& request, const net::ExchangePtr& exchange);
  void worker_failed(const net::Request& request, const net::ExchangePtr& exchange);
  // pair() makes a new credential for a pool, unpair() ends the one it has. Either way the old credential is refused
  // from then on, and the pool that used it is forgotten.
  void pair(const net::Request& request, const net::ExchangePtr& exchange);
  void unpair(const net::Request& request, const net::ExchangePtr& exchange);

 private:
  struct ReportPlace {
    std::string boot_id;
    std::int64_t sequence = 0;  // of that boot
  };
  bool is_news(const base::PoolId& pool_id, const ReportPlace& place);
  base::Result<> check_own(const net::Request& request, const std::string& pool_id) const;
  void take_state(const net::Request& request, const net::ExchangePtr& exchange, wire::PoolState state,
                  std::function<std::string(std::int64_t interval_ms)> reply);
  void end_of(const base::PoolId& pool_id, const std::optional<std::string>& endpoint, const net::ExchangePtr& exchange,
              std::function<void()> answer);

  const Context& context_;
  const OnWatched on_watched_;
  const OnUnpaired on_unpaired_;
  std::map<std::string, ReportPlace> last_;  // by pool; on the request executor's thread
};

// Decodes and checks a pool manager's report on itself and drops a trailing slash of its endpoint. `endpoint_asked`:
// the endpoint that we asked for the report, used if it names none; `peer_address`: of a pool manager that sent the
// report by itself. Errors: INVALID_PARAMS.
base::Result<wire::PoolState> parse_pool_state(const std::string& body, const std::string& endpoint_asked,
                                               std::string_view peer_address = {});

wire::PoolInfo pool_info(const core::PoolView& view);

}  // namespace llorch::orchestratord::http
