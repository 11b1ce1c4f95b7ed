#include "orchestratord/http/routes.h"

namespace llorch::orchestratord::http {
namespace {

using net::Scope;

constexpr std::int64_t kRetryAfterMs = 1000;

template <class Part>
net::Handler handler(Part& part, void (Part::*method)(const net::Request&, const net::ExchangePtr&)) {
  return [&part, method](const net::Request& request, const net::ExchangePtr& exchange) {
    (part.*method)(request, exchange);
  };
}

}  // namespace

void refuse(const Context& context, const net::ExchangePtr& exchange, base::Error error) {
  const base::ErrorInfo& row = base::info(error.code);
  context.metrics->error(row.name);
  bool says_when = false;
  for (const auto& [key, value] : error.details) says_when = says_when || key == "retry_after_ms";
  if (row.http_status == 503 && !says_when) error = std::move(error).with("retry_after_ms", kRetryAfterMs);
  exchange->respond_error(error);
}

std::vector<Api::Route> Api::routes() {
  return {
      {"POST", "/v2/tasks", Scope::kTenant,
       [this](net::Request request, net::ExchangePtr exchange) {
         context_.desk->post([this, request = std::move(request), exchange = std::move(exchange)] {
           tasks_.submit(request, exchange);
         });
       },
       [this](const net::http::Principal& caller) { return submitter_.check(caller); }},
      {"GET", "/v2/tasks", Scope::kTenant, handler(tasks_, &tasks::Tasks::list)},
      {"GET", "/v2/tasks/{id}", Scope::kTenant, handler(tasks_, &tasks::Tasks::show)},
      {"DELETE", "/v2/tasks/{id}", Scope::kTenant, handler(tasks_, &tasks::Tasks::cancel)},
      {"POST", "/v2/tasks/{id}/cancel", Scope::kTenant, handler(tasks_, &tasks::Tasks::cancel)},
      {"GET", "/v2/tasks/{id}/events", Scope::kTenant, handler(tasks_, &tasks::Tasks::events)},
      {"GET", "/v2/tasks/{id}/stream", Scope::kTenant, handler(tasks_, &tasks::Tasks::events)},
      {"POST", "/v2/sessions", Scope::kTenant, handler(sessions_, &Sessions::create)},
      {"GET", "/v2/sessions", Scope::kTenant, handler(sessions_, &Sessions::list)},
      {"GET", "/v2/sessions/{id}", Scope::kTenant, handler(sessions_, &Sessions::show)},
      {"DELETE", "/v2/sessions/{id}", Scope::kTenant, handler(sessions_, &Sessions::remove)},
      {"GET", "/v2/pools", Scope::kReader, handler(pools_, &Pools::list)},
      {"POST", "/v2/cache/clear", Scope::kOperator, handler(pools_, &Pools::clear_caches)},
      {"POST", "/v2/pools/register", Scope::kNode, handler(pools_, &Pools::register_pool)},
      {"POST", "/v2/pools/{id}/heartbeat", Scope::kNode, handler(pools_, &Pools::heartbeat)},
      {"DELETE", "/v2/pools/{id}", Scope::kNode, handler(pools_, &Pools::leave)},
      {"POST", "/v2/pools/{id}/drain", Scope::kOperator, handler(pool_control_, &PoolControl::drain)},
      {"DELETE", "/v2/pools/{id}/drain", Scope::kOperator, handler(pool_control_, &PoolControl::undrain)},
      {"POST", "/v2/pools/{id}/reload", Scope::kOperator, handler(pool_control_, &PoolControl::reload)},
      {"POST", "/v2/pools/{id}/purge", Scope::kOperator, handler(pool_control_, &PoolControl::purge)},
      {"POST", "/v2/pools/{id}/credential", Scope::kOperator, handler(pools_, &Pools::pair)},
      {"DELETE", "/v2/pools/{id}/credential", Scope::kOperator, handler(pools_, &Pools::unpair)},
      {"GET", "/v2/pools/{id}/health", Scope::kReader, handler(pool_control_, &PoolControl::health)},
      {"POST", "/v2/store/backup", Scope::kOperator, handler(backups_, &Backups::make)},
      {"POST", "/v2/internal/workers/ready", Scope::kNode, handler(pools_, &Pools::worker_ready)},
      {"POST", "/v2/internal/workers/failed", Scope::kNode, handler(pools_, &Pools::worker_failed)},
      {"GET", "/v2/catalog/models", Scope::kPublic, handler(meta_, &Meta::models)},
      {"GET", "/v2/meta/capabilities", Scope::kPublic, handler(meta_, &Meta::capabilities)},
      {"GET", "/v2/meta/version", Scope::kPublic, handler(meta_, &Meta::version)},
      {"GET", "/v2/debug/snapshot", Scope::kOperator, handler(meta_, &Meta::placement_snapshot)},
      {"GET", "/v2/health", Scope::kPublic, handler(meta_, &Meta::health)},
      {"GET", "/health", Scope::kPublic, handler(meta_, &Meta::health)},
      {"GET", "/metrics", Scope::kReader, handler(meta_, &Meta::metrics)},
  };
}

std::vector<Api::Route> Api::openai_routes() {
  using openai::Gateway;
  const auto submits = [this](void (Gateway::*method)(const net::Request&, const net::ExchangePtr&)) {
    return [this, method](net::Request request, net::ExchangePtr exchange) {
      context_.desk->post([this, method, request = std::move(request), exchange = std::move(exchange)] {
        (openai_.*method)(request, exchange);
      });
    };
  };
  const auto may_submit = [this](const net::http::Principal& caller) { return submitter_.check(caller); };
  return {
      {"POST", "/v1/chat/completions", Scope::kTenant, submits(&Gateway::chat_completions), may_submit},
      {"POST", "/v1/completions", Scope::kTenant, submits(&Gateway::completions), may_submit},
      {"POST", "/v1/responses", Scope::kTenant, submits(&Gateway::responses), may_submit},
      {"POST", "/v1/embeddings", Scope::kTenant, submits(&Gateway::embeddings), may_submit},
      {"GET", "/v1/models", Scope::kTenant, handler(openai_, &Gateway::models)},
      {"GET", "/v1/models/{id}", Scope::kTenant, handler(openai_, &Gateway::model)},
  };
}

}  // namespace llorch::orchestratord::http
