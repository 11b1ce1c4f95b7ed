#include "orchestratord/http/pool_control.h"

#include <string>
#include <utility>
#include <vector>

#include "wire/json.h"
#include "wire/pool_control.h"

namespace llorch::orchestratord::http {
namespace {

using base::Error;
using base::ErrorCode;

// A pool hashes a new file before it can say what it is.
constexpr std::int64_t kModelWaitMs = 10'000;

Error not_served(std::string field, std::string message) {
  return Error{ErrorCode::kInvalidParams, std::move(message), {}}
      .with("field", std::move(field))
      .with("reason", std::string("not_served"));
}

base::PoolId pool_of(const net::Request& request) { return base::PoolId(request.path_param("id")); }

}  // namespace

template <class Event>
void PoolControl::ask(Event event, int http_status, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerPoolControl>(
      std::move(event), [this, http_status, exchange](core::AnswerPoolControl answer) {
        if (!answer.result) return refuse(context_, exchange, std::move(answer.result).error());
        exchange->respond(net::http::json_response(http_status, wire::encode(*answer.result)));
      });
}

void PoolControl::drain(const net::Request& request, const net::ExchangePtr& exchange) {
  const auto wanted = wire::decode<wire::DrainRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, wanted.error());
  ask(core::DrainPool{.request = {}, .pool_id = pool_of(request), .deadline_ms = wanted->deadline_ms}, 202, exchange);
}

void PoolControl::undrain(const net::Request& request, const net::ExchangePtr& exchange) {
  ask(core::UndrainPool{.request = {}, .pool_id = pool_of(request)}, 200, exchange);
}

void PoolControl::reload(const net::Request& request, const net::ExchangePtr& exchange) {
  auto wanted = wire::decode<wire::ReloadRequest>(request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, std::move(wanted).error());
  auto found = context_.names->resolve(wanted->new_model_ref);
  if (!found) return refuse(context_, exchange, std::move(found).error());
  context_.catalog->find(
      {found->model_ref, kModelWaitMs, request.correlation_id},
      [this, pool_id = pool_of(request), deadline_ms = wanted->deadline_ms,
       exchange](base::Result<models::KnownModel> model) {
        if (!model) return refuse(context_, exchange, std::move(model).error());
        ask(
            core::ReloadPool{
                .request = {}, .pool_id = pool_id, .model = std::move(model->facts), .deadline_ms = deadline_ms},
            202, exchange);
      });
}

void PoolControl::purge(const net::Request& request, const net::ExchangePtr& exchange) {
  auto wanted =
      wire::decode<wire::PurgeRequest>(request.body.empty() ? "{}" : request.body, wire::UnknownKeys::kRefuse);
  if (!wanted) return refuse(context_, exchange, std::move(wanted).error());
  if (wanted->purge_engine) {
    return refuse(context_, exchange,
                  not_served("purge_engine", "engines belong to the installation; remove them with its package"));
  }
  if (wanted->delete_cache_dirs) {
    return refuse(context_, exchange,
                  not_served("delete_cache_dirs", "a purge frees device memory; files on disk are yours to delete"));
  }
  std::vector<std::string> models;
  for (std::string& name : wanted->purge_models) {
    if (name.starts_with("sha256:")) {
      models.push_back(std::move(name));
      continue;
    }
    auto found = context_.names->resolve(name);
    if (!found) return refuse(context_, exchange, std::move(found).error());
    // Jobs of several names share a worker where the bytes are the same: it has the name that started it.
    if (const auto facts = context_.catalog->known_facts(found->model_ref)) models.push_back(facts->digest);
    models.push_back(std::move(found->model_ref));
  }
  ask(core::PurgePool{.request = {},
                      .pool_id = pool_of(request),
                      .models = std::move(models),
                      .drain_first = wanted->drain_first,
                      .force = wanted->force},
      202, exchange);
}

void PoolControl::health(const net::Request& request, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerPoolHealth>(
      core::QueryPoolHealth{.request = {}, .pool_id = pool_of(request)},
      [this, exchange](const core::AnswerPoolHealth& answer) {
        if (!answer.health) {
          return refuse(context_, exchange,
                        Error{ErrorCode::kPoolNotFound,
                              "No pool has this id; `llorch ls` and GET /v2/pools list what there is.",
                              {}});
        }
        wire::PoolHealthReport health = *answer.health;
        for (const wire::PreloadStatus& preload : preloads_.status()) {  // until they are there, nothing is ready
          if (preload.state == wire::PreloadState::kReady) continue;
          health.ready = false;
          if (preload.error_message) health.last_error = preload.error_message;
        }
        exchange->respond(net::http::json_response(200, wire::encode(health)));
      });
}

}  // namespace llorch::orchestratord::http
