#include "orchestratord/app/brain_host/pool_client.h"

#include "contract/json.h"
#include "net/http/error_response.h"
#include "orchestratord/api/pools.h"

namespace llorch::orchestratord::app::brain_host {
namespace {

constexpr std::int64_t kStateTimeoutMs = 5000;

net::ClientRequest json_post(std::string url, std::string body) {
  net::ClientRequest request;
  request.method = "POST";
  request.url = std::move(url);
  request.headers.add("Content-Type", "application/json");
  request.body = std::move(body);
  return request;
}

}  // namespace

void PoolClient::ask_state(const brain::AskPoolState& command) {
  net::ClientRequest request;
  request.url = command.endpoint + "/v2/state";
  request.timeout_ms = kStateTimeoutMs;
  options_.client->request(
      std::move(request), [this, endpoint = command.endpoint](base::Result<net::Response> response) {
        auto state = response && response->status == 200 ? api::parse_pool_state(response->body, endpoint)
                                                         : base::fail(base::ErrorCode::kUnreachable, "");
        if (!state) {
          options_.catalog->pool_lost(endpoint);
          return options_.post(brain::PoolUnreachable{endpoint});
        }
        options_.catalog->pool_seen(state->endpoint);
        options_.post(brain::PoolSeen{.request = {}, .state = std::move(*state), .asked_endpoint = endpoint});
      });
}

void PoolClient::start_worker(const brain::StartWorker& command) {
  options_.client->request(
      json_post(command.endpoint + "/v2/workers/start", contract::encode(command.request)),
      [this, worker_id = base::WorkerId(command.request.worker_id)](base::Result<net::Response> response) {
        brain::StartWorkerAnswered answer{.worker_id = worker_id, .error = {}};
        if (!response) {
          answer.error = base::Error{base::ErrorCode::kUnreachable, "the pool manager did not answer", {}};
        } else if (response->status >= 400) {
          answer.error = net::http::error_of(*response);
        }
        options_.post(std::move(answer));
      });
}

void PoolClient::stop_worker(const brain::StopWorker& command) {
  // Whether it stopped is seen in the pool's state; the brain repeats a stop that was not heard.
  options_.client->request(json_post(command.endpoint + "/v2/workers/stop",
                                     contract::encode(contract::StopWorkerRequest{command.worker_id.value})),
                           [](const base::Result<net::Response>&) {});
}

}  // namespace llorch::orchestratord::app::brain_host
