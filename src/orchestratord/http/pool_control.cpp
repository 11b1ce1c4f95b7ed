#include "orchestratord/http/pool_control.h"

#include <deque>
#include <utility>

#include "orchestratord/http/tasks/prompt.h"
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
  tasks::resolve(
      context_, wanted->new_model_ref, tasks::Naming::kLook,
      [this, pool_id = pool_of(request), correlation_id = request.correlation_id, deadline_ms = wanted->deadline_ms,
       exchange](base::Result<models::ModelNames::Resolved> found) {
        if (!found) return refuse(context_, exchange, std::move(found).error());
        context_.catalog->find(
            {.model_ref = found->model_ref,
             .wait_ms = kModelWaitMs,
             .correlation_id = correlation_id,
             .checksum = found->checksum},
            [this, pool_id, deadline_ms, exchange](base::Result<models::KnownModel> model) {
              if (!model) return refuse(context_, exchange, std::move(model).error());
              ask(
                  core::ReloadPool{
                      .request = {}, .pool_id = pool_id, .model = std::move(model->facts), .deadline_ms = deadline_ms},
                  202, exchange);
            });
      });
}

struct PoolControl::Purging {
  std::deque<std::string> names;  // not looked for yet
  core::PurgePool event;
  net::ExchangePtr exchange;
};

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
  purge(std::make_shared<Purging>(Purging{.names = {wanted->purge_models.begin(), wanted->purge_models.end()},
                                          .event = {.request = {},
                                                    .pool_id = pool_of(request),
                                                    .models = {},
                                                    .drain_first = wanted->drain_first,
                                                    .force = wanted->force},
                                          .exchange = exchange}));
}

void PoolControl::purge(const std::shared_ptr<Purging>& purging) {
  while (!purging->names.empty()) {
    const std::string name = std::move(purging->names.front());
    purging->names.pop_front();
    if (name.starts_with("sha256:")) {
      purging->event.models.push_back(name);
    } else if (context_.names->has(name)) {
      // Of no interest is where its link leads by now: its workers are of where it led when they started.
      auto ref = context_.names->reference_of(name);
      if (!ref) return refuse(context_, purging->exchange, std::move(ref).error());
      purge_reference(*purging, *std::move(ref));
    } else {
      return tasks::resolve(context_, name, tasks::Naming::kLook,
                            [this, purging](base::Result<models::ModelNames::Resolved> found) {
                              if (!found) return refuse(context_, purging->exchange, std::move(found).error());
                              purge_reference(*purging, std::move(found->model_ref));
                              purge(purging);
                            });
    }
  }
  ask(std::move(purging->event), 202, purging->exchange);
}

// Jobs of several names share a worker where the bytes are the same: it has the name that started it.
void PoolControl::purge_reference(Purging& purging, std::string model_ref) const {
  if (const auto facts = context_.catalog->known_facts(model_ref)) purging.event.models.push_back(facts->digest);
  purging.event.models.push_back(std::move(model_ref));
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
