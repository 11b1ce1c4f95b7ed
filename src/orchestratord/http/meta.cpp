#include "orchestratord/http/meta.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "base/build_id.h"
#include "base/log.h"
#include "base/version.h"
#include "config/config.h"
#include "wire/json.h"
#include "wire/meta.h"
#include "wire/placement_snapshot.h"

namespace llorch::orchestratord::http {
namespace {

using wire::WorkerStatus;

// One entry per engine build, in order of its name.
std::vector<wire::EngineCapability> engines_of(const std::vector<core::PoolView>& pools, std::int64_t max_tokens) {
  std::map<std::string, wire::EngineCapability> engines;
  for (const core::PoolView& pool : pools) {
    for (const wire::WorkerInfo& worker : pool.workers) {
      if (worker.status != WorkerStatus::kReady && worker.status != WorkerStatus::kBusy) continue;
      wire::EngineCapability& engine = engines[worker.engine_build];
      engine.engine = wire::engine_of(worker.engine_build);
      engine.engine_version = worker.engine_build;
      engine.sampler_profile_version = worker.sampler;
      engine.ctx_max = std::max(engine.ctx_max, worker.context_length);
      engine.max_tokens_out = max_tokens;
      engine.slots_total += worker.slots_total;
      engine.batching = engine.batching || worker.slots_total > 1;
      engine.supported_workloads = {"completion"};
      if (engine.engine == wire::kOwnEngine)
        engine.supported_workloads.insert(engine.supported_workloads.end(), {"embedding", "rerank"});
      if (engine.pools.empty() || engine.pools.back() != pool.pool_id.value) engine.pools.push_back(pool.pool_id.value);
    }
  }
  std::vector<wire::EngineCapability> out;
  out.reserve(engines.size());
  for (auto& [build, engine] : engines) out.push_back(std::move(engine));
  return out;
}

// One entry per model, in order of its digest.
std::vector<wire::ModelCapability> models_of(const std::vector<core::PoolView>& pools, std::int64_t max_tokens,
                                             const std::vector<wire::CatalogModel>& named) {
  std::map<std::string, wire::ModelCapability> models;
  for (const core::PoolView& pool : pools) {
    for (const wire::WorkerInfo& worker : pool.workers) {
      if (worker.status != WorkerStatus::kReady && worker.status != WorkerStatus::kBusy) continue;
      wire::ModelCapability& model = models[worker.model_digest];
      model.model_digest = worker.model_digest;
      model.ctx_max = std::max(model.ctx_max, worker.context_length);
      model.max_tokens_out = std::min(max_tokens, model.ctx_max);
      model.slots_total += worker.slots_total;
      model.image_tokens_max = std::max(model.image_tokens_max, worker.image_tokens_max);
      for (const wire::CatalogModel& name : named) {
        const bool is_new = std::ranges::find(model.model_ids, name.model_id) == model.model_ids.end();
        if (name.model_ref == worker.model_ref && is_new) model.model_ids.push_back(name.model_id);
      }
    }
  }
  std::vector<wire::ModelCapability> out;
  out.reserve(models.size());
  for (auto& [digest, model] : models) out.push_back(std::move(model));
  return out;
}

// Absent where a pool takes jobs.
std::optional<wire::HealthReason> why_no_job_can_run(const std::vector<core::PoolView>& pools) {
  const auto is_healthy = [](const core::PoolView& pool) { return pool.status == wire::PoolStatus::kHealthy; };
  const auto is_draining = [](const core::PoolView& pool) { return pool.status == wire::PoolStatus::kDraining; };
  if (std::ranges::any_of(pools, is_healthy)) return {};
  wire::HealthReason out{std::string(base::info(base::ErrorCode::kPoolUnready).name),
                         "No pool is healthy, so no job can run. Start pool-managerd, or see why it is lost: "
                         "`llorch pool health POOL`."};
  if (const auto drained = std::ranges::find_if(pools, is_draining); drained != pools.end()) {
    out.human = fmt::format("No pool takes jobs, as an operator drains {} of {}: `llorch pool undrain {}` ends that.",
                            std::ranges::count_if(pools, is_draining), pools.size(), drained->pool_id.value);
  }
  return out;
}

}  // namespace

void Meta::health(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange](const core::AnswerQueryPools& answer) {
        wire::HealthReply out;
        out.uptime_seconds = (context_.clock->now().mono_ms - context_.started_mono_ms) / 1000;
        for (const core::PoolView& pool : answer.pools) {
          out.pools.push_back({.pool_id = pool.pool_id.value,
                               .status = std::string(wire::enum_name(pool.status)),
                               .gpus = static_cast<std::int64_t>(pool.gpus.size()),
                               .workers = static_cast<std::int64_t>(pool.workers.size())});
        }
        auto no_pool = why_no_job_can_run(answer.pools);
        const bool is_pool_ready = !no_pool;
        if (no_pool) out.reasons.push_back(*std::move(no_pool));
        const auto is_unpaired = [this](const base::PoolId& id) { return !context_.pools->is_paired(id); };
        const auto first = std::ranges::find_if(context_.unpaired_pools, is_unpaired);
        if (first != context_.unpaired_pools.end()) {
          out.reasons.push_back(
              {std::string(base::info(base::ErrorCode::kPoolUnready).name),
               fmt::format(
                   "{} of the pools that the job store knew at the start are not paired with this state "
                   "directory, so that they are refused; {} is one. Pair each anew on its node: `llorch pool pair {}`.",
                   std::ranges::count_if(context_.unpaired_pools, is_unpaired), first->value, first->value)});
        }
        out.preloads = preloads_.status();
        bool preloaded = true;
        for (const wire::PreloadStatus& preload : out.preloads) {
          if (preload.state == wire::PreloadState::kReady) continue;
          preloaded = false;
          out.reasons.push_back(
              {preload.error_code.value_or(std::string(base::info(base::ErrorCode::kPoolUnready).name)),
               fmt::format("Model {} of models.preload is not loaded yet (attempt {}){}{}", preload.model,
                           preload.attempts, preload.error_message ? ": " : ".", preload.error_message.value_or(""))});
        }
        out.ready = is_pool_ready && preloaded && !answer.store_failing && !*context_.stopping;
        if (answer.store_failing) {
          out.reasons.push_back({std::string(base::info(base::ErrorCode::kStoreUnavailable).name),
                                 "The job store cannot write, so no job is accepted and no end of a job is told. Free "
                                 "disk space or repair the state directory."});
        }
        out.status = *context_.stopping ? "stopping" : out.reasons.empty() ? "healthy" : "degraded";
        exchange->respond(net::http::json_response(200, wire::encode(out)));
      });
}

void Meta::version(const net::Request&, const net::ExchangePtr& exchange) {
  const wire::VersionReply out{
      .api_version = std::string(kApiVersion), .version = std::string(base::kVersion), .build = base::build_id()};
  exchange->respond(net::http::json_response(200, wire::encode(out)));
}

void Meta::capabilities(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPools>(
      core::QueryPools{}, [this, exchange](const core::AnswerQueryPools& answer) {
        const auto snapshot = context_.live_config->get();
        const config::OrchestratordConfig& config = snapshot->orchestratord;
        wire::CapabilitiesReply out;
        out.api_version = std::string(kApiVersion);
        out.version = std::string(base::kVersion);
        out.engines = engines_of(answer.pools, config.limits.max_tokens);
        out.limits = {.max_batch_size = config.worker_slots,
                      .queue_capacity = config.queue.capacity,
                      .max_tokens = config.limits.max_tokens,
                      .prompt_bytes_max = config.limits.prompt_bytes_max,
                      .request_bytes_max = config.limits.request_bytes_max,
                      .session_ttl_ms = config.sessions.ttl_ms,
                      .session_turns_max = config.sessions.turns_max,
                      .sessions_max = config.sessions.count_max,
                      .requests_per_second = config.throttle.requests_per_second,
                      .tokens_per_second = config.throttle.tokens_per_second};
        out.models = models_of(answer.pools, config.limits.max_tokens, context_.names->list());
        for (const auto& engine : out.engines) {
          out.limits.max_context_length = std::max(out.limits.max_context_length, engine.ctx_max);
        }
        exchange->respond(net::http::json_response(200, wire::encode(out)));
      });
}

void Meta::settings(const net::Request&, const net::ExchangePtr& exchange) {
  exchange->respond(net::http::json_response(200, R"({"settings":)" +
                                                      config::redacted_json(*context_.live_config->get()) +
                                                      R"(,"schema":)" + config::config_json_schema() + "}"));
}

void Meta::metrics(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryGauges>(core::QueryGauges{}, [this, exchange](core::AnswerQueryGauges answer) {
    // Rendering walks every stream: not on the core's thread.
    context_.request_executor->post([this, exchange, gauges = std::move(answer.gauges)] {
      const auto streams = context_.hub->gauges();
      net::Response response =
          net::http::text_response(200, context_.metrics->render(gauges,
                                                                 {.streams = streams.streams,
                                                                  .clients = streams.clients,
                                                                  .bytes_held = streams.bytes_held,
                                                                  .relays_paused = streams.relays_paused},
                                                                 context_.names->list(), base::log_lines_dropped()));
      response.headers.set("Content-Type", "text/plain; version=0.0.4; charset=utf-8");
      exchange->respond(std::move(response));
    });
  });
}

void Meta::placement_snapshot(const net::Request&, const net::ExchangePtr& exchange) {
  context_.core->ask<core::AnswerQueryPlacement>(
      core::QueryPlacement{}, [this, exchange](core::AnswerQueryPlacement answer) {
        // A large text, and the core has other things to do.
        context_.request_executor->post([exchange, snapshot = std::move(answer.snapshot)] {
          exchange->respond(net::http::json_response(200, wire::encode(snapshot)));
        });
      });
}

}  // namespace llorch::orchestratord::http
