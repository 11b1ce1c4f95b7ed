#include "orchestratord/daemon/testing/fake_pool.h"

#include <fmt/core.h>

#include "base/clock.h"
#include "net/sse/sse.h"
#include "text/test_vocabularies.h"
#include "wire/json.h"
#include "wire/task.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

std::string event(std::string_view name, const std::string& data) {
  std::string out;
  net::sse::append_event(out, {.event = name, .id = {}, .data = data});
  return out;
}

std::string word(std::uint64_t seed, std::int64_t i) { return fmt::format(" w{}-{}", seed % 1000, i * 7919 % 1000); }

}  // namespace

config::PoolCredential FakePool::credential() {
  base::SeededEntropy entropy(1);
  return config::PoolCredential::make(base::PoolId("pool-1"), entropy);
}

namespace {
// Lets in whoever is paired with this pool.
net::ServerOptions server_options() {
  net::ServerOptions out{.component = "fake-pool"};
  out.auth.credentials = {
      net::http::make_credential(FakePool::credential().control_token(), net::http::Role::kOperator).value()};
  return out;
}
}  // namespace

FakePool::FakePool(int slots) : slots_(slots), server_(runtime_, server_options()) {
  add_routes();
  if (!server_.start()) std::abort();
  timer_ = runtime_.every(1, [this] { step(); });
}

FakePool::~FakePool() {
  timer_.cancel();
  {
    const std::lock_guard lock(mutex_);
    running_.clear();
  }
  server_.stop(0);
}

std::vector<std::string> FakePool::expected_tokens(std::uint64_t seed, std::int64_t max_tokens) {
  std::vector<std::string> out;
  for (std::int64_t i = 0; i < max_tokens; ++i) out.push_back(word(seed, i));
  return out;
}

void FakePool::register_at(const std::string& orchestrator_url) {
  {
    const std::lock_guard lock(mutex_);
    orchestrator_url_ = orchestrator_url;
  }
  net::ClientRequest request;
  request.method = "POST";
  request.url = orchestrator_url + "/v2/pools/register";
  request.bearer = credential().node_token();
  request.body = wire::encode(state());
  const auto reply = client_.call(std::move(request));
  if (!reply || reply->status != 200) std::abort();
}

int FakePool::running() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(running_.size());
}
std::map<std::string, int> FakePool::completed() const {
  const std::lock_guard lock(mutex_);
  return completed_;
}
wire::ExecuteRequest FakePool::last_request() const {
  const std::lock_guard lock(mutex_);
  return last_request_;
}
std::string FakePool::last_correlation_id() const {
  const std::lock_guard lock(mutex_);
  return last_correlation_id_;
}

// POST /v2/internal/workers/ready, as a pool manager sends it the moment its worker calls back.
void FakePool::announce_worker() {
  wire::WorkerReady ready{.pool_id = "pool-1", .worker = state().workers.at(0)};
  net::ClientRequest request;
  request.method = "POST";
  {
    const std::lock_guard lock(mutex_);
    request.url = orchestrator_url_ + "/v2/internal/workers/ready";
  }
  request.bearer = credential().node_token();
  request.body = wire::encode(ready);
  client_.request(std::move(request), [](const base::Result<net::Response>&) {});
}

// Its process ends at once, and with it what runs there; POST /v2/internal/workers/failed says so.
void FakePool::stop_worker(const std::string& worker_id) {
  wire::WorkerFailed failed{
      .worker_id = worker_id, .pool_id = "pool-1", .category = wire::FailureCategory::kExplicitStop};
  net::ClientRequest request;
  request.method = "POST";
  {
    const std::lock_guard lock(mutex_);
    if (worker_id_ != worker_id) return;
    worker_id_.clear();
    for (const Running& job : running_) job.exchange->abort();
    running_.clear();
    request.url = orchestrator_url_ + "/v2/internal/workers/failed";
  }
  request.bearer = credential().node_token();
  ++stops_;
  request.body = wire::encode(failed);
  client_.request(std::move(request), [](const base::Result<net::Response>&) {});
}

wire::PoolState FakePool::state() const {
  const std::lock_guard lock(mutex_);
  wire::PoolState s;
  s.pool_id = "pool-1";
  s.endpoint = server_.url();
  s.version = "test";
  s.boot_id = "boot-1";
  s.timestamp_ms = base::SystemClock().now().unix_ms;
  wire::GpuInfo gpu;
  gpu.gpu_id = "cpu";
  gpu.vram_total_bytes = 1 << 20;
  gpu.vram_available_bytes = worker_id_.empty() ? 1 << 20 : 1 << 19;
  gpu.vram_allocated_bytes = worker_id_.empty() ? 0 : 1 << 19;
  s.gpus.push_back(gpu);
  if (!worker_id_.empty()) {
    wire::WorkerInfo worker;
    worker.worker_id = worker_id_;
    worker.model_ref = "file:/models/demo.gguf";
    worker.model_digest = "sha256:demo";
    worker.gpu_id = "cpu";
    worker.status = wire::WorkerStatus::kReady;
    worker.uri = server_.url();
    worker.slots_total = slots_;
    worker.context_length = 4096;
    worker.kv_dtype = "f16";
    worker.engine_build = "fake-1";
    worker.vram_bytes = 1 << 19;
    s.workers.push_back(worker);
  }
  return s;
}

void FakePool::add_routes() {
  server_.route("GET", "/v2/state", net::Scope::kOperator,
                [this](const net::Request&, const net::ExchangePtr& exchange) {
                  exchange->respond(net::http::json_response(200, wire::encode(state())));
                });
  server_.route("GET", "/v2/models/describe", net::Scope::kOperator,
                [](const net::Request& request, const net::ExchangePtr& exchange) {
                  wire::ModelFacts facts;
                  facts.model_ref = std::string(request.query_param("ref").value_or(""));
                  facts.digest = "sha256:demo";
                  facts.context_length = 4096;
                  facts.memory_bytes = 1 << 19;
                  exchange->respond(net::http::json_response(200, wire::encode(facts)));
                });
  server_.route("GET", "/v2/models/{digest}/tokenizer", net::Scope::kOperator,
                [](const net::Request&, const net::ExchangePtr& exchange) {
                  auto data = text::byte_bpe_data({});
                  data.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
                  exchange->respond({200, {}, text::serialize(data).value()});
                });
  server_.route("POST", "/v2/workers/start", net::Scope::kOperator,
                [this](const net::Request& request, const net::ExchangePtr& exchange) {
                  const auto start = wire::decode<wire::StartWorkerRequest>(request.body).value();
                  ++starts_;
                  {
                    const std::lock_guard lock(mutex_);
                    worker_id_ = start.worker_id;
                  }
                  exchange->respond(
                      net::http::json_response(202, wire::encode(wire::StartWorkerReply{start.worker_id, "starting"})));
                  announce_worker();
                });
  server_.route("POST", "/v2/workers/stop", net::Scope::kOperator,
                [this](const net::Request& request, const net::ExchangePtr& exchange) {
                  const auto stop = wire::decode<wire::StopWorkerRequest>(request.body).value();
                  exchange->respond(net::http::json_response(202, "{}"));
                  stop_worker(stop.worker_id);
                });
  server_.route("POST", "/execute", net::Scope::kOperator,
                [this](const net::Request& request, const net::ExchangePtr& exchange) { execute(request, exchange); });
  server_.route("POST", "/cancel", net::Scope::kOperator,
                [this](const net::Request&, const net::ExchangePtr& exchange) {
                  ++cancels_;
                  exchange->respond(net::http::json_response(202, R"({"job_id":"","status":"cancelling"})"));
                });
}

void FakePool::execute(const net::Request& request, const net::ExchangePtr& exchange) {
  auto decoded = wire::decode<wire::ExecuteRequest>(request.body);
  if (!decoded) return void(exchange->respond_error(decoded.error()));
  ++executions_;
  net::Exchange* const raw = exchange.get();
  {
    const std::lock_guard lock(mutex_);
    last_request_ = *decoded;
    last_correlation_id_ = request.correlation_id.value;
    if (!refuse_with_.empty()) {
      return void(
          exchange->respond_error({base::error_code_from_name(refuse_with_).value(), "refused by the test", {}}));
    }
    if (static_cast<int>(running_.size()) >= slots_) {
      return void(exchange->respond_error({base::ErrorCode::kWorkerBusy, "no free slot", {}}));
    }
    exchange->start_stream(200, net::http::sse_headers());
    wire::StartedEvent started;
    started.job_id = decoded->job_id;
    started.seed = decoded->seed.value_or(0);
    exchange->write(event("started", wire::encode(started)));
    running_.push_back({.request = std::move(*decoded),
                        .exchange = exchange,
                        .break_after = break_after_.exchange(-1),
                        .diverge_at = diverge_at_});
  }
  exchange->on_close([this, raw](net::CloseReason) {
    const std::lock_guard lock(mutex_);
    std::erase_if(running_, [raw](const Running& job) { return job.exchange.get() == raw; });
  });
}

void FakePool::step() {
  if (held_) return;
  const std::lock_guard lock(mutex_);
  std::erase_if(running_, [this](Running& job) { return !step_one(job); });
}

bool FakePool::step_one(Running& job) {
  const std::uint64_t seed = job.request.seed.value_or(0);
  if (job.break_after >= 0 && job.next >= job.break_after) {
    job.exchange->abort();
    return false;
  }
  if (job.next < job.request.max_tokens) {
    const std::uint64_t wrong = job.diverge_at >= 0 && job.next >= job.diverge_at ? 1 : 0;
    const wire::WorkerTokenEvent token{
        .t = word(seed + wrong, job.next), .i = job.next, .id = job.next, .logprobs = {}};
    job.output.update(token.t);
    job.exchange->write(event("token", wire::encode(token)));
    ++job.next;
    return true;
  }
  wire::EndEvent end;
  end.job_id = job.request.job_id;
  end.tokens_in = static_cast<std::int64_t>(job.request.prompt_tokens->size());
  end.tokens_out = job.next;
  end.stop_reason = wire::StopReason::kMaxTokens;
  wire::Receipt receipt;
  receipt.model_digest = "sha256:demo";
  receipt.seed = seed;
  receipt.prompt_sha256 = job.request.prompt_sha256.value_or("");
  receipt.output_sha256 = base::to_hex(job.output.digest());
  receipt.tokens_out = job.next;
  end.receipt = receipt;
  job.exchange->write(event("end", wire::encode(end)));
  job.exchange->end();
  ++completed_[job.request.job_id];
  return false;
}

}  // namespace llorch::orchestratord::daemon::testing
