#include "pool_managerd/control_api/routes.h"

#include <fmt/core.h>

#include <charconv>
#include <memory>
#include <utility>

#include "config/config.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::pool_managerd::control_api {
namespace {

using base::Error;
using base::ErrorCode;
using model_catalog::WorkerShape;
using net::ExchangePtr;
using net::Request;
using net::Scope;

struct Range {
  std::int64_t min = 1;
  std::int64_t max = 1;
};
base::Result<std::int64_t> number(std::string_view name, std::string_view text, const Range& range) {
  std::int64_t value = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc() || end != text.data() + text.size() || value < range.min || value > range.max) {
    return base::fail(Error{
        ErrorCode::kInvalidParams,
        fmt::format("{} must be between {} and {}", name, range.min, range.max),
        {}}.with("field", std::string(name)));
  }
  return value;
}

base::Result<WorkerShape> shape_of(const Request& request, WorkerShape shape) {
  if (const auto text = request.query_param("context_tokens")) {
    shape.context_tokens = TRY(number("context_tokens", *text, {.max = 1LL << 31}));
  }
  if (const auto text = request.query_param("slots")) shape.slots = TRY(number("slots", *text, {.max = 1024}));
  if (const auto text = request.query_param("kv_tokens")) {
    shape.kv_tokens = TRY(number("kv_tokens", *text, {.max = 1'000'000'000'000}));
  }
  if (const auto text = request.query_param("kv_dtype")) shape.kv_dtype = *text;
  if (const auto text = request.query_param("devices")) {
    shape.devices = TRY(number("devices", *text, {.max = wire::kMaskDevicesMax}));
  }
  if (const auto text = request.query_param("image_tokens_max"))
    shape.image_tokens_max = TRY(number("image_tokens_max", *text, {.min = 0, .max = config::kImageTokensMax}));
  return shape;
}

}  // namespace

void add_routes(net::Server& server, Operations operations, WorkerShape shape) {
  const auto ops = std::make_shared<const Operations>(std::move(operations));
  server.route("POST", "/v2/workers/start", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    auto wanted = wire::decode<wire::StartWorkerRequest>(request.body, wire::UnknownKeys::kIgnore);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    ops->start(std::move(*wanted), request.correlation_id, std::move(exchange));
  });
  server.route("POST", "/v2/workers/stop", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    const auto wanted = wire::decode<wire::StopWorkerRequest>(request.body, wire::UnknownKeys::kIgnore);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    ops->stop(base::WorkerId(wanted->worker_id), false, std::move(exchange));
  });
  server.route("POST", "/v2/workers/{id}/drain", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->stop(base::WorkerId(request.path_param("id")), true, std::move(exchange));
  });
  server.route("GET", "/v2/workers/{id}", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->worker(base::WorkerId(request.path_param("id")), std::move(exchange));
  });
  server.route("POST", "/v2/internal/workers/ready", Scope::kNode, [ops](Request request, ExchangePtr exchange) {
    auto callback = wire::decode<wire::ReadyCallback>(request.body, wire::UnknownKeys::kIgnore);
    if (!callback) return void(exchange->respond_error(callback.error()));
    ops->ready(std::move(*callback), std::move(exchange));
  });
  server.route("POST", "/v2/internal/workers/progress", Scope::kNode, [ops](Request request, ExchangePtr exchange) {
    auto progress = wire::decode<wire::LoadProgress>(request.body, wire::UnknownKeys::kIgnore);
    if (!progress) return void(exchange->respond_error(progress.error()));
    ops->progress(std::move(*progress), std::move(exchange));
  });
  server.route("GET", "/v2/models/describe", Scope::kOperator, [ops, shape](Request request, ExchangePtr exchange) {
    const auto ref = request.query_param("ref");
    if (!ref || ref->empty()) {
      return void(
          exchange->respond_error(Error{ErrorCode::kInvalidParams, "the query needs ref=file:/absolute/path", {}}.with(
              "field", std::string("ref"))));
    }
    auto wanted = shape_of(request, shape);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    ops->describe(std::string(*ref), std::move(*wanted), request.query_param("reread") == "true", std::move(exchange));
  });
  server.route("GET", "/v2/models/{digest}/tokenizer", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->tokenizer(request.path_param("digest"), std::move(exchange));
  });
  server.route("POST", "/v2/models/pull", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    auto wanted = wire::decode<wire::PoolPullRequest>(request.body, wire::UnknownKeys::kIgnore);
    if (!wanted) return void(exchange->respond_error(wanted.error()));
    ops->pull(std::move(*wanted), request.correlation_id, std::move(exchange));
  });
  server.route("GET", "/v2/models/pulls/{id}", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->pull_status(request.path_param("id"), std::move(exchange));
  });
  server.route("DELETE", "/v2/models/pulls/{id}", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->cancel_pull(request.path_param("id"), std::move(exchange));
  });
  server.route("DELETE", "/v2/models/{digest}", Scope::kOperator, [ops](Request request, ExchangePtr exchange) {
    ops->remove_model(request.path_param("digest"), request.query_param("unless_loaded") == "true",
                      std::move(exchange));
  });
  server.route("GET", "/v2/models/{digest}/files", Scope::kOpen,
               [ops](const Request& request, const ExchangePtr& exchange) { ops->model_files(request, exchange); });
  server.route("GET", "/v2/models/{digest}/files/{name}", Scope::kOpen,
               [ops](const Request& request, const ExchangePtr& exchange) { ops->model_file(request, exchange); });
  for (const bool stage : {true, false}) {
    server.route(stage ? "POST" : "DELETE", "/v2/models/staged", Scope::kOperator,
                 [ops, stage](const Request& request, ExchangePtr exchange) {
                   auto wanted = wire::decode<wire::StageRequest>(request.body, wire::UnknownKeys::kIgnore);
                   if (!wanted) return void(exchange->respond_error(wanted.error()));
                   ops->stage_model(std::move(wanted->model_ref), stage, std::move(exchange));
                 });
  }
  server.route("GET", "/v2/state", Scope::kOperator,
               [ops](Request, ExchangePtr exchange) { ops->state(std::move(exchange)); });
  server.route("GET", "/health", Scope::kPublic,
               [ops](Request, ExchangePtr exchange) { ops->health(std::move(exchange)); });
  server.route("GET", "/metrics", Scope::kReader,
               [ops](Request, ExchangePtr exchange) { ops->metrics(std::move(exchange)); });
}

}  // namespace llorch::pool_managerd::control_api
