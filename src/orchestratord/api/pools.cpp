#include "orchestratord/api/pools.h"

#include <memory>
#include <mutex>

#include "contract/json.h"
#include "net/http/url.h"

namespace llorch::orchestratord::api {
namespace {

using base::Error;
using base::ErrorCode;

tl::unexpected<Error> invalid(std::string field, std::string reason, std::string message) {
  return base::fail(Error{ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::move(reason)));
}

constexpr std::int64_t kClearTimeoutMs = 5000;

// Collects the answers of several workers for one exchange.
class Clearing {
 public:
  Clearing(net::ExchangePtr exchange, std::size_t workers_count)
      : exchange_(std::move(exchange)), left_(workers_count) {}
  void answered(const std::string& worker_id, bool ok) {
    const std::lock_guard lock(mutex_);
    (ok ? reply_.cleared : reply_.failed).push_back(worker_id);
    if (--left_ == 0) exchange_->respond(net::http::json_response(200, contract::encode(reply_)));
  }

 private:
  std::mutex mutex_;
  net::ExchangePtr exchange_;
  std::size_t left_;
  contract::CacheCleared reply_;
};

}  // namespace

base::Result<contract::PoolState> parse_pool_state(const std::string& body, const std::string& endpoint_asked) {
  auto state = TRY(contract::decode<contract::PoolState>(body));
  if (state.endpoint.empty()) state.endpoint = endpoint_asked;
  if (!base::is_valid_identifier(state.pool_id)) {
    return invalid("pool_id", "charset", "pool_id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  if (const auto url = net::http::parse_url(state.endpoint); !url) {
    return invalid("endpoint", "url", "endpoint must be the pool manager's base URL, http://host:port");
  }
  while (state.endpoint.ends_with('/')) state.endpoint.pop_back();
  return state;
}

contract::PoolInfo pool_info(const brain::PoolView& view) {
  return {.pool_id = view.pool_id.value,
          .status = view.status,
          .endpoint = view.endpoint,
          .version = view.version,
          .last_heartbeat_ms = view.last_heartbeat_ms,
          .gpus = view.gpus,
          .workers = view.workers};
}

void Pools::list(const net::Request&, const net::ExchangePtr& exchange) {
  context_.brain->ask<brain::AnswerQueryPools>(brain::QueryPools{}, [exchange](const brain::AnswerQueryPools& answer) {
    contract::PoolList out;
    for (const brain::PoolView& view : answer.pools) out.pools.push_back(pool_info(view));
    exchange->respond(net::http::json_response(200, contract::encode(out)));
  });
}

void Pools::clear_caches(const net::Request&, const net::ExchangePtr& exchange) {
  context_.brain->ask<brain::AnswerQueryPools>(
      brain::QueryPools{}, [this, exchange](const brain::AnswerQueryPools& answer) {
        std::vector<contract::WorkerInfo> workers;
        for (const brain::PoolView& pool : answer.pools) {
          for (const contract::WorkerInfo& worker : pool.workers)
            if (!worker.uri.empty()) workers.push_back(worker);
        }
        if (workers.empty()) {
          exchange->respond(net::http::json_response(200, contract::encode(contract::CacheCleared{})));
          return;
        }
        const auto clearing = std::make_shared<Clearing>(exchange, workers.size());
        for (const contract::WorkerInfo& worker : workers) {
          net::ClientRequest request;
          request.method = "POST";
          request.url = worker.uri + "/cache/clear";
          request.timeout_ms = kClearTimeoutMs;
          context_.client->request(std::move(request),
                                   [clearing, id = worker.worker_id](const base::Result<net::Response>& response) {
                                     clearing->answered(id, response && response->status < 300);
                                   });
        }
      });
}

void Pools::register_pool(const net::Request& request, const net::ExchangePtr& exchange) {
  auto state = parse_pool_state(request.body);
  if (!state) return refuse(context_, exchange, std::move(state).error());
  context_.catalog->pool_seen(state->endpoint);
  contract::RegisterReply reply{.pool_id = state->pool_id, .status = "registered"};
  context_.brain->ask<brain::AnswerPool>(
      brain::PoolSeen{.request = {}, .state = std::move(*state), .asked_endpoint = {}},
      [this, reply = std::move(reply), exchange](brain::AnswerPool answer) mutable {
        if (!answer.heartbeat_interval_ms) {
          return refuse(context_, exchange, std::move(answer.heartbeat_interval_ms).error());
        }
        reply.heartbeat_interval_ms = *answer.heartbeat_interval_ms;
        exchange->respond(net::http::json_response(200, contract::encode(reply)));
      });
}

void Pools::heartbeat(const net::Request& request, const net::ExchangePtr& exchange) {
  auto state = parse_pool_state(request.body);
  if (!state) return refuse(context_, exchange, std::move(state).error());
  if (state->pool_id != request.path_param("id")) {
    return refuse(context_, exchange, invalid("pool_id", "mismatch", "pool_id must be the one of the path").value());
  }
  context_.catalog->pool_seen(state->endpoint);
  context_.brain->ask<brain::AnswerPool>(
      brain::PoolSeen{.request = {}, .state = std::move(*state), .asked_endpoint = {}},
      [this, exchange](brain::AnswerPool answer) {
        if (!answer.heartbeat_interval_ms) {
          return refuse(context_, exchange, std::move(answer.heartbeat_interval_ms).error());
        }
        const contract::HeartbeatReply reply{.status = "healthy", .next_heartbeat_ms = *answer.heartbeat_interval_ms};
        exchange->respond(net::http::json_response(200, contract::encode(reply)));
      });
}

void Pools::leave(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.brain->ask<brain::AnswerPool>(
      brain::PoolLeft{.request = {}, .pool_id = base::PoolId(request.path_param("id"))},
      [this, exchange](brain::AnswerPool answer) {
        if (!answer.heartbeat_interval_ms) {
          return refuse(context_, exchange, std::move(answer.heartbeat_interval_ms).error());
        }
        exchange->respond({.status = 204, .headers = {}, .body = {}});
      });
}

void Pools::worker_ready(const net::Request& request, const net::ExchangePtr& exchange) {
  auto ready = contract::decode<contract::WorkerReady>(request.body);
  if (!ready) return refuse(context_, exchange, std::move(ready).error());
  if (const auto url = net::http::parse_url(ready->worker.uri); !url) {
    return refuse(context_, exchange, invalid("worker.uri", "url", "uri must be the worker's base URL").value());
  }
  context_.brain->post(brain::WorkerReady{std::move(*ready)});
  exchange->respond(net::http::json_response(200, contract::encode(contract::ReadyReply{"ready"})));
}

void Pools::worker_failed(const net::Request& request, const net::ExchangePtr& exchange) {
  auto failed = contract::decode<contract::WorkerFailed>(request.body);
  if (!failed) return refuse(context_, exchange, std::move(failed).error());
  contract::WorkerStatusReply reply{.worker_id = failed->worker_id, .status = "failed"};
  context_.brain->post(brain::WorkerFailed{std::move(*failed)});
  exchange->respond(net::http::json_response(200, contract::encode(reply)));
}

}  // namespace llorch::orchestratord::api
