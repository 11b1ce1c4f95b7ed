#include "worker/http_api.h"

#include <fmt/core.h>

#include <mutex>

#include "base/log.h"
#include "base/task_thread.h"
#include "net/sse/sse.h"
#include "wire/json.h"
#include "worker/metrics.h"
#include "worker/sampling/constraint.h"

namespace llorch::worker {
namespace {

using base::LogLevel;

// Bytes a slow reader may leave unread before its job pauses.
constexpr std::size_t kQueuedBytesMax = 256 << 10;

void append(std::string& out, std::string_view event, std::string_view json) {
  net::sse::append_event(out, {.event = event, .data = json});
}

// One /execute answer. Called on the loop's thread; the exchange is thread-safe.
class ExecuteStream final : public JobSink, public std::enable_shared_from_this<ExecuteStream> {
 public:
  ExecuteStream(net::ExchangePtr exchange, EngineLoop& loop, base::CorrelationId correlation_id)
      : exchange_(std::move(exchange)), loop_(loop), correlation_id_(std::move(correlation_id)) {}

  void begin(const wire::StartedEvent& started) {
    exchange_->start_stream(200, net::http::sse_headers());
    std::string bytes;
    append(bytes, "started", wire::encode(started));
    exchange_->write(std::move(bytes));
  }
  void token(const TokenOut& token) override {
    std::string bytes;
    append(bytes, "token",
           wire::encode(wire::WorkerTokenEvent{.t = token.text,
                                               .i = token.index,
                                               .id = base::index(token.token),
                                               .logprobs = token.logprobs,
                                               .prompt_logprobs = token.prompt_logprobs}));
    exchange_->write(std::move(bytes));
  }
  void vector(const embedding::VectorOut& vector) override {
    std::string bytes;
    append(bytes, "token", wire::encode(wire::WorkerTokenEvent{.t = vector.text, .i = vector.index}));
    exchange_->write(std::move(bytes));
  }
  void end(wire::EndEvent end) override {
    std::string bytes;
    append(bytes, "end", wire::encode(end));
    exchange_->write(std::move(bytes));
    exchange_->end();
    base::log_event(LogLevel::kDebug, "execute_end", correlation_id_, "The job ended.",
                    {{"job_id", end.job_id},
                     {"tokens_in", end.tokens_in},
                     {"tokens_out", end.tokens_out},
                     {"decode_time_ms", end.decode_time_ms}});
  }
  void error(const base::Error& error) override {
    std::string bytes;
    append(bytes, "error", wire::encode(wire::error_body(error, correlation_id_)));
    exchange_->write(std::move(bytes));
    exchange_->end();
    base::log_event(error.code == base::ErrorCode::kCancelled ? LogLevel::kDebug : LogLevel::kError, "execute_end",
                    correlation_id_, "The job ended early.", {{"code", error.name()}, {"message", error.message}});
  }
  bool congested() override {
    if (exchange_->queued_bytes() <= kQueuedBytesMax) return false;
    exchange_->on_drain(kQueuedBytesMax / 2, [loop = &loop_] { loop->wake(); });
    return true;
  }

 private:
  net::ExchangePtr exchange_;
  EngineLoop& loop_;
  base::CorrelationId correlation_id_;
};

// A request that only has to start.
struct Accepted {
  JobSpec spec;
  wire::StartedEvent started;
  std::int64_t timeout_ms = 0;
  base::CorrelationId correlation_id;
  net::ExchangePtr exchange;
};

class HttpApi {
 public:
  explicit HttpApi(HttpApiContext context)
      : c_(std::move(context)),
        constraints_(c_.tokenizer),
        image_thread_(static_cast<std::size_t>(c_.loop.slots_total())) {}

  net::IoRuntime& request_runtime() { return c_.request_runtime; }

  void execute(const net::Request& request, const net::ExchangePtr& exchange) {
    auto decoded = wire::decode<wire::ExecuteRequest>(request.body, wire::UnknownKeys::kRefuse);
    if (!decoded) return void(exchange->respond_error(decoded.error()));
    const bool wants_scores = decoded->embedding && decoded->embedding->scores.value_or(false);
    if (decoded->embedding.has_value() != (c_.dimensions != 0) || wants_scores != c_.scores)
      return void(exchange->respond_error(other_workload()));
    if (decoded->embedding) return embed(*decoded, request, exchange);
    auto spec = make_sequence_spec(*decoded, c_.tokenizer, c_.context_tokens, fresh_seed());
    if (!spec) return void(exchange->respond_error(spec.error()));
    auto constraint = constraints_.matcher(decoded->sampling);
    if (!constraint) return void(exchange->respond_error(constraint.error()));
    spec->constraint = std::move(*constraint);
    auto job = std::make_shared<Accepted>(accepted(*decoded, request, exchange, spec->sampling.seed));
    if (decoded->images.empty()) {
      job->spec = std::move(*spec);
      return run(std::move(*job));
    }
    // Decoding takes too long even for the request_runtime.
    const bool taken = image_thread_.post(
        [this, job, spec = std::make_shared<SequenceSpec>(std::move(*spec)), wanted = std::move(*decoded)] {
          if (job->exchange->closed()) return;
          auto prepared = images::prepare_images(wanted, spec->prompt, c_.vision);
          if (!prepared) return void(job->exchange->respond_error(prepared.error()));
          spec->images = std::move(*prepared);
          job->spec = std::move(*spec);
          run(std::move(*job));
        });
    if (!taken) {
      exchange->respond_error({base::ErrorCode::kWorkerBusy, "as many images as jobs can run wait to be decoded", {}});
    }
  }

  void run(Accepted job) {
    const net::ExchangePtr& exchange = job.exchange;
    const auto tokens_in =
        static_cast<std::int64_t>(std::visit([](const auto& s) { return s.prompt.size(); }, job.spec));
    auto stream = std::make_shared<ExecuteStream>(exchange, c_.loop, job.correlation_id);
    // The loop starts the job only after the stream's head and `started` are queued.
    const auto run = c_.loop.start(std::move(job.spec), stream, job.timeout_ms, [&] { stream->begin(job.started); });
    if (!run) return void(exchange->respond_error(run.error()));
    // This run and no later one of the same job.
    exchange->on_close([loop = &c_.loop, run = *run](net::CloseReason reason) {
      if (reason != net::CloseReason::kFinished) loop->cancel(run);
    });
    base::log_event(LogLevel::kDebug, "execute_start", job.correlation_id, "A job started.",
                    {{"job_id", job.started.job_id}, {"tokens_in", tokens_in}});
  }

  void cancel(const net::Request& request, const net::ExchangePtr& exchange) {
    auto decoded = wire::decode<wire::WorkerCancelRequest>(request.body, wire::UnknownKeys::kRefuse);
    if (!decoded) return void(exchange->respond_error(decoded.error()));
    const bool known = c_.loop.cancel(base::JobId(decoded->job_id), decoded->execution_id);
    exchange->respond(net::http::json_response(
        202,
        wire::encode(wire::WorkerCancelReply{.job_id = decoded->job_id, .status = known ? "cancelling" : "unknown"})));
  }

  void health(const net::ExchangePtr& exchange) {
    wire::WorkerHealth health = c_.health;
    health.status = c_.loop.healthy() ? "healthy" : "unhealthy";
    health.resident = c_.loop.resident();
    health.slots_total = c_.loop.slots_total();
    health.slots_free = c_.loop.slots_free();
    health.uptime_seconds = uptime_seconds();
    const auto usage = c_.loop.usage();
    health.vram_bytes_used = static_cast<std::int64_t>(usage.memory_bytes);
    health.kv_pages_total = static_cast<std::int64_t>(usage.pages_total);
    health.kv_pages_used = static_cast<std::int64_t>(usage.pages_used);
    health.prefix_hit_tokens = static_cast<std::int64_t>(usage.counts.prefix_tokens_hit);
    health.prefix_miss_tokens = static_cast<std::int64_t>(usage.counts.prefix_tokens_missed);
    exchange->respond(net::http::json_response(200, wire::encode(health)));
  }

  void metrics(const net::ExchangePtr& exchange) {
    net::Response response = net::http::text_response(200, metrics_text({.worker_id = c_.health.worker_id,
                                                                         .quant_kind = c_.health.quant_kind,
                                                                         .uptime_seconds = uptime_seconds(),
                                                                         .slots_total = c_.loop.slots_total(),
                                                                         .slots_free = c_.loop.slots_free(),
                                                                         .log_lines_dropped = base::log_lines_dropped(),
                                                                         .counts = c_.loop.counts(),
                                                                         .usage = c_.loop.usage(),
                                                                         .devices = c_.loop.measures()}));
    response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    exchange->respond(std::move(response));
  }

  void clear_cache(const net::ExchangePtr& exchange) {
    c_.loop.clear_cache();
    exchange->respond(net::http::json_response(202, R"({"status":"clearing"})"));
  }

  void shutdown(const net::ExchangePtr& exchange) {
    exchange->respond(net::http::json_response(202, R"({"status":"stopping"})"));
    std::call_once(shutdown_once_, c_.on_shutdown);
  }

 private:
  void embed(const wire::ExecuteRequest& wanted, const net::Request& request, const net::ExchangePtr& exchange) {
    auto spec = embedding::make_embedding_spec(wanted, {.vocab = c_.tokenizer.facts().vocab_size,
                                                        .context_tokens = c_.context_tokens,
                                                        .dimensions = c_.dimensions,
                                                        .token_types = c_.token_types});
    if (!spec) return void(exchange->respond_error(spec.error()));
    Accepted job = accepted(wanted, request, exchange, spec->seed);
    job.spec = std::move(*spec);
    run(std::move(job));
  }

  // All of it but the spec.
  Accepted accepted(const wire::ExecuteRequest& wanted, const net::Request& request, const net::ExchangePtr& exchange,
                    std::uint64_t seed) const {
    return {.spec = {},
            .started = {.job_id = wanted.job_id,
                        .worker_id = c_.health.worker_id,
                        .model = c_.health.model,
                        .started_at = base::rfc3339(c_.clock.now().unix_ms),
                        .seed = seed},
            .timeout_ms = std::min(wanted.timeout_ms.value_or(c_.timeout_ms_max), c_.timeout_ms_max),
            .correlation_id = request.correlation_id,
            .exchange = exchange};
  }

  base::Error other_workload() const {
    return {base::ErrorCode::kInvalidParams,
            c_.scores ? "this worker's model judges documents and does nothing else; send `embedding` with `scores`"
            : c_.dimensions != 0 ? "this worker's model makes embeddings and nothing else; send `embedding`"
                                 : "this worker's model writes text and makes no embeddings; leave out `embedding`",
            {}};
  }

  // 63 bits, so that every JSON reader keeps the number whole.
  std::uint64_t fresh_seed() { return c_.entropy.next_u64() >> 1; }
  std::int64_t uptime_seconds() const { return (c_.clock.now().mono_ms - c_.ready_mono_ms) / 1000; }

  HttpApiContext c_;
  sampling::Constraints constraints_;
  std::once_flag shutdown_once_;
  base::TaskThread image_thread_;  // last: it uses the others
};

}  // namespace

void add_routes(net::Server& server, HttpApiContext context) {
  auto api = std::make_shared<HttpApi>(std::move(context));
  server.route("POST", "/execute", net::Scope::kOperator, [api](net::Request r, net::ExchangePtr x) {
    api->request_runtime().post([api, r = std::move(r), x = std::move(x)] { api->execute(r, x); });
  });
  server.route("POST", "/cancel", net::Scope::kOperator,
               [api](net::Request r, net::ExchangePtr x) { api->cancel(r, x); });
  server.route("GET", "/health", net::Scope::kPublic, [api](net::Request, net::ExchangePtr x) { api->health(x); });
  server.route("GET", "/metrics", net::Scope::kReader, [api](net::Request, net::ExchangePtr x) { api->metrics(x); });
  server.route("POST", "/cache/clear", net::Scope::kOperator,
               [api](net::Request, net::ExchangePtr x) { api->clear_cache(x); });
  server.route("POST", "/shutdown", net::Scope::kOperator,
               [api](net::Request, net::ExchangePtr x) { api->shutdown(x); });
}

}  // namespace llorch::worker
