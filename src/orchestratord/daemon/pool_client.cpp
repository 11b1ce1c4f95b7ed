#include "orchestratord/daemon/pool_client.h"

#include <algorithm>

#include "net/http/error_response.h"
#include "orchestratord/http/pools.h"
#include "wire/json.h"

namespace llorch::orchestratord::daemon {
namespace {

constexpr std::int64_t kStateTimeoutMs = 5000;
// Pools have fewer, but for those that announce one address after the other.
constexpr std::size_t kEndpointsMax = 1024;

net::ClientRequest json_post(std::string url, std::string body) {
  net::ClientRequest request;
  request.method = "POST";
  request.url = std::move(url);
  request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  return request;
}

}  // namespace

void PoolClient::note_answer(const std::string& endpoint, std::int64_t asked_ms) {
  const std::lock_guard lock(mutex_);
  if (answered_ms_.size() >= kEndpointsMax && !answered_ms_.contains(endpoint)) answered_ms_.clear();
  std::int64_t& newest_ms = answered_ms_[endpoint];
  newest_ms = std::max(newest_ms, asked_ms);
}

bool PoolClient::is_overtaken(const std::string& endpoint, std::int64_t asked_ms) {
  const std::lock_guard lock(mutex_);
  const auto it = answered_ms_.find(endpoint);
  return it != answered_ms_.end() && asked_ms < it->second;
}

void PoolClient::ask_state(const core::AskPoolState& command) {
  const auto pool = options_.access->at(command.endpoint);
  const auto lost = [this, endpoint = command.endpoint, asked_ms = command.asked_ms] {
    if (!is_overtaken(endpoint, asked_ms)) options_.catalog->pool_lost(endpoint);
    options_.post(core::PoolUnreachable{endpoint, asked_ms});
  };
  if (!pool) return lost();
  net::ClientRequest request;
  request.url = command.endpoint + "/v2/state";
  request.bearer = pool->token;
  request.timeout_ms = kStateTimeoutMs;
  options_.client->request(std::move(request), [this, lost, asked = *pool, endpoint = command.endpoint,
                                                asked_ms = command.asked_ms](base::Result<net::Response> response) {
    const auto there = options_.access->at(endpoint);
    if (!there) {
      options_.catalog->pool_lost(endpoint);
      return lost();
    }
    // Paired anew meanwhile: an answer to the last credential, which may be a stranger's by now, says nothing of the pool.
    if (there->pool_id != asked.pool_id || there->token != asked.token) return;
    auto state = response && response->status == 200 ? http::parse_pool_state(response->body, endpoint)
                                                     : base::fail(base::ErrorCode::kUnreachable, "");
    // Another pool, and one that is announced elsewhere by now, says so itself, with its credential.
    if (!state || state->pool_id != asked.pool_id.value || state->endpoint != endpoint) return lost();
    note_answer(endpoint, asked_ms);
    options_.catalog->pool_seen(endpoint);
    options_.catalog->devices_seen(endpoint, models::largest_device_bytes(state->gpus));
    options_.post(
        core::PoolSeen{.request = {}, .state = std::move(*state), .asked_endpoint = endpoint, .asked_ms = asked_ms});
  });
}

void PoolClient::start_worker(const core::StartWorker& command) {
  const auto answered = [this,
                         worker_id = base::WorkerId(command.request.worker_id)](std::optional<base::Error> error) {
    options_.post(core::StartWorkerAnswered{.worker_id = worker_id, .error = std::move(error)});
  };
  const auto pool = options_.access->at(command.endpoint);
  if (!pool) return answered(base::Error{base::ErrorCode::kUnreachable, "the pool is not paired any more", {}});
  net::ClientRequest request = json_post(command.endpoint + "/v2/workers/start", wire::encode(command.request));
  request.bearer = pool->token;
  request.correlation_id = command.correlation_id;
  options_.client->request(std::move(request), [answered](const base::Result<net::Response>& response) {
    if (!response) {
      answered(base::Error{base::ErrorCode::kUnreachable, "the pool manager did not answer", {}});
    } else if (response->status >= 300) {
      answered(net::http::error_of(*response));
    } else {
      answered(std::nullopt);
    }
  });
}

void PoolClient::stop_worker(const core::StopWorker& command) {
  const auto pool = options_.access->at(command.endpoint);
  if (!pool) return;
  net::ClientRequest request =
      json_post(command.endpoint + "/v2/workers/stop", wire::encode(wire::StopWorkerRequest{command.worker_id.value}));
  request.bearer = pool->token;
  // Whether it stopped is seen in the pool's state; the core repeats a stop that was not heard.
  options_.client->request(std::move(request), [](const base::Result<net::Response>&) {});
}

void PoolClient::stage_model(const core::StageModel& command) {
  const auto pool = options_.access->at(command.endpoint);
  if (!pool) return;
  net::ClientRequest request =
      json_post(command.endpoint + "/v2/models/staged", wire::encode(wire::StageRequest{command.model_ref}));
  if (!command.stage) request.method = "DELETE";
  request.bearer = pool->token;
  // A model that could not be staged starts from the disk.
  options_.client->request(std::move(request), [](const base::Result<net::Response>&) {});
}

}  // namespace llorch::orchestratord::daemon
