#include "orchestratord/http/pools.h"

#include <memory>
#include <mutex>

#include "base/log.h"
#include "orchestratord/pool_access/pool_address.h"
#include "wire/json.h"
#include "wire/pool_control.h"

namespace llorch::orchestratord::http {
namespace {

using base::Error;
using base::ErrorCode;

tl::unexpected<Error> invalid(std::string field, std::string reason, std::string message) {
  return base::fail(Error{ErrorCode::kInvalidParams, std::move(message), {}}
                        .with("field", std::move(field))
                        .with("reason", std::move(reason)));
}

Error ended_credential() {
  return {ErrorCode::kBadToken, "the credential of this pool was taken back or made anew; pair the pool again", {}};
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
    if (--left_ == 0) exchange_->respond(net::http::json_response(200, wire::encode(reply_)));
  }

 private:
  std::mutex mutex_;
  net::ExchangePtr exchange_;
  std::size_t left_;
  wire::CacheCleared reply_;
};

}  // namespace

base::Result<wire::PoolState> parse_pool_state(const std::string& body, const std::string& endpoint_asked,
                                               std::string_view peer_address) {
  auto state = TRY(wire::decode<wire::PoolState>(body));
  if (state.endpoint.empty()) state.endpoint = endpoint_asked;
  if (!base::is_valid_identifier(state.pool_id)) {
    return invalid("pool_id", "charset", "pool_id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -");
  }
  TRY(pool_access::check_addresses(state, peer_address));
  while (state.endpoint.ends_with('/')) state.endpoint.pop_back();
  return state;
}

wire::PoolInfo pool_info(const core::PoolView& view) {
  return {.pool_id = view.pool_id.value,
          .status = view.status,
          .endpoint = view.endpoint,
          .version = view.version,
          .last_heartbeat_ms = view.last_heartbeat_ms,
          .gpus = view.gpus,
          .workers = view.workers};
}

void Pools::list(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(core::QueryPools{}, [exchange](const core::AnswerQueryPools& answer) {
    wire::PoolList out;
    for (const core::PoolView& view : answer.pools) out.pools.push_back(pool_info(view));
    exchange->respond(net::http::json_response(200, wire::encode(out)));
  });
}

void Pools::clear_caches(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange](const core::AnswerQueryPools& answer) {
        struct Worker {
          std::string id, uri, token;
        };
        std::vector<Worker> workers;
        for (const core::PoolView& pool : answer.pools) {
          for (const wire::WorkerInfo& worker : pool.workers) {
            auto token = context_.pools->token_for_worker(pool.pool_id, worker.uri);
            if (token) workers.push_back({worker.worker_id, worker.uri, std::move(*token)});
          }
        }
        if (workers.empty()) {
          exchange->respond(net::http::json_response(200, wire::encode(wire::CacheCleared{})));
          return;
        }
        const auto clearing = std::make_shared<Clearing>(exchange, workers.size());
        for (const Worker& worker : workers) {
          net::ClientRequest request;
          request.method = "POST";
          request.url = worker.uri + "/cache/clear";
          request.bearer = worker.token;
          request.timeout_ms = kClearTimeoutMs;
          context_.client->request(std::move(request),
                                   [clearing, id = worker.id](const base::Result<net::Response>& response) {
                                     clearing->answered(id, response && response->status < 300);
                                   });
        }
      });
}

// A node credential is that of one pool, and good for nothing that another one says, nor when it has ended since the head of
// the request was read.
base::Result<> Pools::check_own(const net::Request& request, const std::string& pool_id) const {
  const std::string& own = request.peer.principal.name;
  if (!context_.pools->is_current(request.peer.principal)) return base::fail(ended_credential());
  if (pool_id == own) return {};
  return base::fail(Error{
      ErrorCode::kForbidden,
      "the credential that was sent is another pool's; pool_id must be the one it was made for",
      {}}.with("pool_id", own));
}

// Requests overtake each other on their way.
bool Pools::is_news(const base::PoolId& pool_id, const ReportPlace& place) {
  ReportPlace& last = last_[pool_id.value];
  if (last.boot_id == place.boot_id && place.sequence < last.sequence) return false;
  last = place;
  return true;
}

// `reply` is what an accepted report is answered with.
void Pools::take_state(const net::Request& request, const net::ExchangePtr& exchange, wire::PoolState state,
                       std::function<std::string(std::int64_t interval_ms)> reply) {
  if (auto own = check_own(request, state.pool_id); !own) return refuse(context_, exchange, std::move(own).error());
  std::string endpoint = state.endpoint;
  base::PoolId pool_id(state.pool_id);
  auto watched = std::move(state.watched_models);
  const ReportPlace place{.boot_id = state.boot_id, .sequence = state.sequence};
  const std::int64_t device_bytes = models::largest_device_bytes(state.gpus);
  if (!context_.pools->announce(request.peer.principal, endpoint)) {
    return refuse(context_, exchange, ended_credential());
  }
  context_.core->ask<core::AnswerPool>(
      core::PoolSeen{.request = {}, .state = std::move(state), .asked_endpoint = {}},
      [this, pool_id = std::move(pool_id), endpoint = std::move(endpoint), reply = std::move(reply),
       watched = std::move(watched), place, device_bytes, exchange](core::AnswerPool answer) mutable {
        if (!answer.heartbeat_interval_ms) {
          return refuse(context_, exchange, std::move(answer.heartbeat_interval_ms).error());
        }
        context_.request_executor->post([this, pool_id, place, watched = std::move(watched)] {
          if (is_news(pool_id, place)) on_watched_(pool_id, watched);
        });
        // An old report is taken, and moves nobody.
        if (context_.pools->endpoint_of(pool_id) == endpoint) {
          context_.catalog->pool_seen(endpoint);
          context_.catalog->devices_seen(endpoint, device_bytes);
        }
        exchange->respond(net::http::json_response(200, reply(*answer.heartbeat_interval_ms)));
      });
}

void Pools::register_pool(const net::Request& request, const net::ExchangePtr& exchange) {
  auto state = parse_pool_state(request.body, {}, request.peer.address);
  if (!state) return refuse(context_, exchange, std::move(state).error());
  wire::RegisterReply reply{.pool_id = state->pool_id, .status = "registered"};
  take_state(request, exchange, std::move(*state), [reply](std::int64_t interval_ms) mutable {
    reply.heartbeat_interval_ms = interval_ms;
    return wire::encode(reply);
  });
}

void Pools::heartbeat(const net::Request& request, const net::ExchangePtr& exchange) {
  auto state = parse_pool_state(request.body, {}, request.peer.address);
  if (!state) return refuse(context_, exchange, std::move(state).error());
  if (state->pool_id != request.path_param("id")) {
    return refuse(context_, exchange, invalid("pool_id", "mismatch", "pool_id must be the one of the path").value());
  }
  take_state(request, exchange, std::move(*state), [](std::int64_t interval_ms) {
    return wire::encode(wire::HeartbeatReply{.status = "healthy", .next_heartbeat_ms = interval_ms});
  });
}

void Pools::leave(const net::Request& request, const net::ExchangePtr& exchange) {
  const std::string& pool_id = request.path_param("id");
  if (auto own = check_own(request, pool_id); !own) return refuse(context_, exchange, std::move(own).error());
  context_.core->ask<core::AnswerPool>(
      core::PoolDeregistered{{}, base::PoolId(pool_id)}, [this, exchange](core::AnswerPool answer) {
        if (!answer.heartbeat_interval_ms) {
          return refuse(context_, exchange, std::move(answer.heartbeat_interval_ms).error());
        }
        exchange->respond({.status = 204, .headers = {}, .body = {}});
      });
}

void Pools::worker_ready(const net::Request& request, const net::ExchangePtr& exchange) {
  auto ready = wire::decode<wire::WorkerReady>(request.body);
  if (!ready) return refuse(context_, exchange, std::move(ready).error());
  if (auto own = check_own(request, ready->pool_id); !own) return refuse(context_, exchange, std::move(own).error());
  const auto endpoint = context_.pools->endpoint_of(base::PoolId(ready->pool_id));
  if (!endpoint) {
    return refuse(
        context_, exchange,
        Error{ErrorCode::kPoolNotFound, "the pool is not registered; its workers are told with its state", {}});
  }
  if (auto there = pool_access::check_worker_uri(ready->worker.uri, *endpoint); !there) {
    return refuse(context_, exchange, std::move(there).error());
  }
  context_.core->post(core::WorkerReady{std::move(*ready)});
  exchange->respond(net::http::json_response(200, wire::encode(wire::ReadyReply{"ready"})));
}

void Pools::worker_failed(const net::Request& request, const net::ExchangePtr& exchange) {
  auto failed = wire::decode<wire::WorkerFailed>(request.body);
  if (!failed) return refuse(context_, exchange, std::move(failed).error());
  if (auto own = check_own(request, failed->pool_id); !own) return refuse(context_, exchange, std::move(own).error());
  wire::WorkerStatusReply reply{.worker_id = failed->worker_id, .status = "failed"};
  context_.core->post(core::WorkerFailed{std::move(*failed)});
  exchange->respond(net::http::json_response(200, wire::encode(reply)));
}

// The disk is waited for, and the request executor may wait.
void Pools::pair(const net::Request& request, const net::ExchangePtr& exchange) {
  const base::PoolId pool_id(request.path_param("id"));
  if (!base::is_valid_identifier(pool_id.value)) {
    return refuse(context_, exchange,
                  invalid("id", "charset", "a pool's id is 1 to 256 characters of A-Z, a-z, 0-9, _ and -").value());
  }
  context_.request_executor->post([this, exchange, pool_id, caller = request.peer.principal.identity] {
    const auto lost = context_.pools->endpoint_of(pool_id);
    const auto credential = context_.pools->pair(pool_id);
    if (!credential) return refuse(context_, exchange, credential.error());
    base::log_event(base::LogLevel::kInfo, "pool.paired", {}, "A pool has a new credential.",
                    {{"pool_id", pool_id}, {"by", caller}});
    end_of(pool_id, lost, exchange, [exchange, reply = wire::PoolCredentialReply{pool_id.value, credential->text()}] {
      exchange->respond(net::http::json_response(201, wire::encode(reply)));
    });
  });
}

void Pools::unpair(const net::Request& request, const net::ExchangePtr& exchange) {
  const base::PoolId pool_id(request.path_param("id"));
  context_.request_executor->post([this, exchange, pool_id, caller = request.peer.principal.identity] {
    const auto lost = context_.pools->endpoint_of(pool_id);
    const auto unpaired = context_.pools->unpair(pool_id);
    if (!unpaired) return refuse(context_, exchange, unpaired.error());
    if (!*unpaired) return refuse(context_, exchange, {ErrorCode::kPoolNotFound, "no pool of this id is paired", {}});
    base::log_event(base::LogLevel::kInfo, "pool.unpaired", {}, "A pool's credential is refused from now on.",
                    {{"pool_id", pool_id}, {"by", caller}});
    end_of(pool_id, lost, exchange, [this, pool_id, exchange] {
      context_.request_executor->post([this, pool_id, exchange] {
        last_.erase(pool_id.value);
        on_unpaired_(pool_id);
        exchange->respond({.status = 204, .headers = {}, .body = {}});
      });
    });
  });
}

// Whoever came with the credential of before is no pool of ours: as if it had deregistered. It is answered once its
// address is off the disk as well, from where a later process would take it for that of the next credential.
void Pools::end_of(const base::PoolId& pool_id, const std::optional<std::string>& endpoint,
                   const net::ExchangePtr& exchange, std::function<void()> answer) {
  if (endpoint) context_.catalog->pool_lost(*endpoint);
  context_.core->post(core::PoolDeregistered{.request = {}, .pool_id = pool_id});
  context_.store->forget_pool(pool_id, [this, exchange, answer = std::move(answer)](base::Result<> forgotten) {
    if (!forgotten) return refuse(context_, exchange, std::move(forgotten).error());
    answer();
  });
}

}  // namespace llorch::orchestratord::http
