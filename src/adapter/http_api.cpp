#include "adapter/http_api.h"

#include <fmt/core.h>

#include <memory>
#include <mutex>

#include "base/log.h"
#include "wire/json.h"

namespace llorch::adapter {

std::string metrics_text(jobs::Service& service, std::int64_t uptime_seconds) {
  const auto& options = service.options();
  const jobs::Counts& counts = service.counts();
  const std::string labels = fmt::format(R"(component="worker-adapterd",worker_id="{}",engine="{}")",
                                         options.identity.worker_id, options.engine->kind());
  std::string out;
  const auto family = [&](std::string_view name, std::string_view help, std::string_view type) {
    out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n", name, help, type);
  };
  const auto value = [&](std::string_view name, std::string_view more, std::int64_t v) {
    out += fmt::format("{}{{{}{}}} {}\n", name, labels, more, v);
  };
  family("worker_requests_total", "Jobs that the worker ended, by outcome.", "counter");
  value("worker_requests_total", R"(,outcome="completed")", counts.completed);
  value("worker_requests_total", R"(,outcome="failed")", counts.failed);
  value("worker_requests_total", R"(,outcome="cancelled")", counts.cancelled);
  value("worker_requests_total", R"(,outcome="refused")", counts.refused);
  family("worker_tokens_generated_total", "Tokens of completed jobs, as the engine counts them.", "counter");
  value("worker_tokens_generated_total", "", counts.tokens);
  family("worker_upstream_retries_total", "Times that the engine was asked again for a job.", "counter");
  value("worker_upstream_retries_total", "", counts.retries);
  family("worker_first_token_ms_total", "Milliseconds from a job's acceptance to its first token, summed.", "counter");
  value("worker_first_token_ms_total", "", counts.first_token_ms);
  family("worker_first_tokens_total", "First tokens that jobs waited for, in worker_first_token_ms_total.", "counter");
  value("worker_first_tokens_total", "", counts.first_tokens);
  family("worker_slots", "Jobs that this worker can run at a time.", "gauge");
  value("worker_slots", "", options.slots);
  family("worker_slots_free", "Slots that no job holds.", "gauge");
  value("worker_slots_free", "", service.slots_free());
  family("worker_upstream_up", "Whether the engine answers.", "gauge");
  value("worker_upstream_up", "", service.is_well() ? 1 : 0);
  family("worker_upstream_breaker_open", "Whether the engine is left alone after failures in a row.", "gauge");
  value("worker_upstream_breaker_open", "", service.breaker_open() ? 1 : 0);
  family("worker_log_lines_dropped_total", "Log lines that nobody read in time.", "counter");
  value("worker_log_lines_dropped_total", "", base::log_lines_dropped());
  family("worker_uptime_seconds", "Seconds since the worker became ready.", "counter");
  value("worker_uptime_seconds", "", uptime_seconds);
  return out;
}

namespace {

class HttpApi {
 public:
  explicit HttpApi(HttpApiContext context) : c_(std::move(context)) {}

  void execute(const net::Request& request, const net::ExchangePtr& exchange) {
    auto wanted = wire::decode<wire::ExecuteRequest>(request.body, wire::UnknownKeys::kRefuse);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    c_.service.execute(std::move(*wanted), request.correlation_id, exchange);
  }
  void cancel(const net::Request& request, const net::ExchangePtr& exchange) {
    const auto wanted = wire::decode<wire::WorkerCancelRequest>(request.body, wire::UnknownKeys::kRefuse);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    const bool found = c_.service.cancel(*wanted);
    exchange->respond(net::http::json_response(
        202,
        wire::encode(wire::WorkerCancelReply{.job_id = wanted->job_id, .status = found ? "cancelling" : "unknown"})));
  }
  void health(const net::ExchangePtr& exchange) {
    wire::WorkerHealth now = c_.health;
    now.status = c_.service.is_well() ? "healthy" : "unhealthy";
    now.slots_free = c_.service.slots_free();
    now.uptime_seconds = uptime_seconds();
    exchange->respond(net::http::json_response(200, wire::encode(now)));
  }
  void metrics(const net::ExchangePtr& exchange) {
    net::Response response = net::http::text_response(200, metrics_text(c_.service, uptime_seconds()));
    response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
    exchange->respond(std::move(response));
  }
  void shutdown(const net::ExchangePtr& exchange) {
    exchange->respond(net::http::json_response(202, R"({"status":"stopping"})"));
    std::call_once(shutdown_once_, c_.on_shutdown);
  }
  // It holds no cache of its own; that of the engine is the engine's.
  void clear_cache(const net::ExchangePtr& exchange) {
    exchange->respond(net::http::json_response(202, R"({"status":"clearing"})"));
  }

 private:
  std::int64_t uptime_seconds() const { return (c_.service.options().clock->now().mono_ms - c_.ready_mono_ms) / 1000; }
  HttpApiContext c_;
  std::once_flag shutdown_once_;
};

}  // namespace

void add_routes(net::Server& server, HttpApiContext context) {
  using net::ExchangePtr;
  using net::Request;
  using net::Scope;
  auto api = std::make_shared<HttpApi>(std::move(context));
  server.route("POST", "/execute", Scope::kOperator, [api](Request r, ExchangePtr x) { api->execute(r, x); });
  server.route("POST", "/cancel", Scope::kOperator, [api](Request r, ExchangePtr x) { api->cancel(r, x); });
  server.route("GET", "/health", Scope::kPublic, [api](Request, ExchangePtr x) { api->health(x); });
  server.route("GET", "/metrics", Scope::kReader, [api](Request, ExchangePtr x) { api->metrics(x); });
  server.route("POST", "/cache/clear", Scope::kOperator, [api](Request, ExchangePtr x) { api->clear_cache(x); });
  server.route("POST", "/shutdown", Scope::kOperator, [api](Request, ExchangePtr x) { api->shutdown(x); });
}

}  // namespace llorch::adapter
