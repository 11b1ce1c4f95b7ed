#include "bench/serve/worker/mock_pool.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/clock.h"
#include "bench/serve/io/sockets.h"
#include "bench/serve/worker/mock_worker.h"
#include "wire/json.h"
#include "wire/pool_control.h"
#include "text/test_vocabularies.h"

namespace llorch::bench {
namespace {

constexpr std::int64_t kSlotsOfAWorkerMax = 1024;
constexpr std::int64_t kHeartbeatMs = 5000;
constexpr std::int64_t kModelBytes = 1 << 20;
constexpr std::int64_t kContextTokens = 1 << 20;
constexpr std::string_view kPoolId = "relay-bench";

// orchestratord listens on loopback without a token: whoever asks is its operator.
config::PoolCredential pair(const std::string& orchestrator_url) {
  net::IoRuntime runtime;
  net::Client client(runtime);
  const auto reply =
      client.call({.method = "POST", .url = fmt::format("{}/v2/pools/{}/credential", orchestrator_url, kPoolId)});
  if (!reply) fail("pairing: " + reply.error().message);
  const auto paired = wire::decode<wire::PoolCredentialReply>(reply->body);
  if (!paired) fail("pairing was refused: " + reply->body);
  return config::PoolCredential::parse(paired->credential).value();
}

net::ServerOptions server_options(const config::PoolCredential& credential) {
  net::ServerOptions out{.component = "mock-pool"};
  out.auth.credentials = {net::http::make_credential(credential.control_token(), net::http::Role::kOperator).value()};
  return out;
}

}  // namespace

MockPool::MockPool(Options options)
    : options_(std::move(options)),
      credential_(pair(options_.orchestrator_url)),
      server_(runtime_, server_options(credential_)) {
  add_routes();
  if (const auto started = server_.start(); !started) fail(started.error().message);
}

MockPool::~MockPool() {
  heartbeat_.cancel();
  server_.stop(0);
}

void MockPool::register_now() {
  const auto reply = client_.call(report("/v2/pools/register"));
  if (!reply) fail("registration: " + reply.error().message);
  if (reply->status != 200) fail("registration was refused: " + reply->body);
  heartbeat_ = runtime_.every(kHeartbeatMs, [this] {
    client_.request(report("/v2/pools/" + std::string(kPoolId) + "/heartbeat"),
                    [](const base::Result<net::Response>&) {});
  });
}

net::ClientRequest MockPool::report(const std::string& path) const {
  net::ClientRequest request;
  request.method = "POST";
  request.url = options_.orchestrator_url + path;
  request.headers.add("Content-Type", "application/json");
  request.bearer = credential_.node_token();
  request.body = wire::encode(state());
  return request;
}

wire::PoolState MockPool::state() const {
  wire::PoolState s;
  s.pool_id = kPoolId;
  s.endpoint = server_.url();
  s.version = "bench";
  s.boot_id = "relay-bench-boot";
  s.timestamp_ms = base::SystemClock().now().unix_ms;
  wire::GpuInfo gpu;
  gpu.gpu_id = "cpu";
  gpu.vram_total_bytes = kModelBytes;
  gpu.vram_allocated_bytes = kModelBytes;
  s.gpus.push_back(gpu);
  // A worker has 1,024 slots at most; all of these are the one process.
  std::int64_t number = 0;
  for (std::int64_t left = options_.slots; left > 0; left -= kSlotsOfAWorkerMax) s.workers.push_back(worker(++number, left));
  return s;
}

wire::WorkerInfo MockPool::worker(std::int64_t number, std::int64_t slots) const {
  wire::WorkerInfo worker;
  worker.worker_id = fmt::format("worker-00000000-0000-4000-8000-{:012}", number);
  worker.model_ref = "file:/models/relay-bench.gguf";
  worker.model_digest = kModelDigest;
  worker.gpu_id = "cpu";
  worker.status = wire::WorkerStatus::kReady;
  worker.uri = options_.worker_uri;
  worker.slots_total = std::min(slots, kSlotsOfAWorkerMax);
  worker.context_length = kContextTokens;
  worker.kv_dtype = "f16";
  worker.engine_build = "mock";
  worker.vram_bytes = kModelBytes;
  return worker;
}

void MockPool::add_routes() {
  server_.route("GET", "/v2/state", net::Scope::kOperator,
                [this](const net::Request&, const net::ExchangePtr& exchange) {
                  exchange->respond(net::http::json_response(200, wire::encode(state())));
                });
  server_.route("GET", "/v2/models/describe", net::Scope::kOperator,
                [](const net::Request& request, const net::ExchangePtr& exchange) {
                  wire::ModelFacts facts;
                  facts.model_ref = std::string(request.query_param("ref").value_or(""));
                  facts.digest = kModelDigest;
                  facts.context_length = kContextTokens;
                  facts.memory_bytes = kModelBytes;
                  exchange->respond(net::http::json_response(200, wire::encode(facts)));
                });
  server_.route("GET", "/v2/models/{digest}/tokenizer", net::Scope::kOperator,
                [](const net::Request&, const net::ExchangePtr& exchange) {
                  exchange->respond({200, {}, text::serialize(text::byte_bpe_data({})).value()});
                });
  server_.route(
      "POST", "/v2/workers/start", net::Scope::kOperator, [](const net::Request&, const net::ExchangePtr& exchange) {
        exchange->respond_error({base::ErrorCode::kPoolUnready, "the mock has one worker, which is ready", {}});
      });
  server_.route("POST", "/v2/workers/stop", net::Scope::kOperator,
                [](const net::Request&, const net::ExchangePtr& exchange) {
                  exchange->respond_error({base::ErrorCode::kPoolUnready, "the mock's worker stays", {}});
                });
}

}  // namespace llorch::bench
