// What others see: copies, and sentences that say why a job waits.
#include <fmt/core.h>

#include <algorithm>

#include "base/join.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using placement::WaitCode;

std::optional<std::int64_t> Views::predicted_start(const Job& job) const {
  return predicted_start(job, groups_.ahead_of(job));
}

std::optional<std::int64_t> Views::predicted_start(const Job& job, std::int64_t ahead) const {
  const Model& m = model(job.model);
  placement::EstimateInput input{.slots_of_new_worker = config_.worker_slots};
  input.ahead = ahead;
  input.run_ms = m.run_ms.get();
  if (!input.run_ms) input.run_ms = s_.attempts.run_ms().get();
  input.start_ms = m.start_ms.get();
  for (const Worker* w : registry_.workers_of(m.facts.digest)) {
    if (placement::tier_of(job.spec.placement, w->pool_id, w->info.gpu_id) == placement::Tier::kExcluded) continue;
    if (s_.replicas.serves(*w, m.facts)) {
      input.slots_total += w->info.slots_total;
      input.slots_free += w->slots_free();
    } else if (w->info.status == wire::WorkerStatus::kStarting && input.start_ms) {
      input.start_ms = std::max<std::int64_t>(0, *m.start_ms.get() - (now_.mono_ms - w->started_ms));
    }
  }
  return placement::predicted_start_ms(input);
}

std::optional<std::int64_t> Views::foreseen_start(const Job& job, const Ahead& ahead) const {
  const auto& wait = group(job.group).wait;
  if (!wait) return predicted_start(job, ahead.of_model);
  if (wait->code == WaitCode::kQuota) return start_within_quota(job, ahead.in_group);
  // Nobody knows when a pool comes back or an operator makes room.
  if (wait->code == WaitCode::kPool || wait->code == WaitCode::kEviction) return std::nullopt;
  return predicted_start(job, ahead.of_model);
}

// Of a job whose tenant runs as many as it may: as if these were its slots.
std::optional<std::int64_t> Views::start_within_quota(const Job& job, std::int64_t ahead) const {
  return placement::predicted_start_ms({.ahead = ahead,
                                        .slots_free = 0,
                                        .slots_total = ledger_.concurrent_max(job.spec.tenant_id),
                                        .slots_of_new_worker = config_.worker_slots,
                                        .run_ms = model(job.model).run_ms.get(),
                                        .start_ms = {}});
}

std::string Views::no_room(const wire::ModelFacts& facts, std::string_view where, std::int64_t free_bytes_max) const {
  if (free_bytes_max >= facts.memory_bytes) {
    return fmt::format(
        "Every device{} holds as many workers as it may (orchestratord.limits.workers_per_gpu is {}), or is "
        "being cleared",
        where, config_.workers_per_gpu);
  }
  if (facts.devices == 1) {
    return fmt::format("No device{} has room now: the model needs {} bytes, the freest one has {}", where,
                       facts.memory_bytes, free_bytes_max);
  }
  return fmt::format("No {} devices{} have room now: the model needs {} bytes of each, the freest ones have {} each",
                     facts.devices, where, facts.memory_bytes, free_bytes_max);
}

// Of the worker that has come furthest.
std::optional<std::int64_t> Views::load_percent_for(const JobGroup& l) const {
  std::optional<std::int64_t> most;
  for (const auto* list : {&registry_.loading_of(l.facts.model_ref), &registry_.workers_of(l.facts.digest)}) {
    for (const Worker* w : *list) {
      if (w->info.status == wire::WorkerStatus::kStarting && accepts(l, *w))
        most = std::max(most, w->info.load_percent);
    }
  }
  return most;
}

// A pool that calls do not reach takes no job, though it may say of itself that it is well.
std::string Views::wait_for_pool(const JobGroup& l, std::string_view where) const {
  for (const auto& [id, pool] : registry_.pools()) {
    if (!pool.unreachable_since_ms || s_.desired.is_closed(id)) continue;
    if (tier(l, id, l.placement.require_device_mask.value_or("")) == placement::Tier::kExcluded) continue;
    const std::int64_t since_ms = *pool.unreachable_since_ms;
    return fmt::format("orchestratord has not reached pool {} for {} s{}; the job goes on when it answers.", id.value,
                       (now_.mono_ms - since_ms) / 1000,
                       pool.last_seen_ms > since_ms ? ", though what the pool sends arrives" : "");
  }
  return s_.desired.wait_for_pool(where);
}

wire::WaitReason Views::wait_reason(const Job& job, const std::optional<placement::Wait>& of_group) const {
  return wait_reason(job, of_group, groups_.ahead_in_group(job));
}

wire::WaitReason Views::wait_reason(const Job& job, const std::optional<placement::Wait>& of_group,
                                    std::int64_t ahead) const {
  const Model& m = model(job.model);
  const JobGroup& l = group(job.group);
  WaitCode wait = of_group ? of_group->code : WaitCode::kTurn;
  const auto until_ms = queue_.delayed_until_ms(job.arrival);
  if (env_.draining()) {
    wait = WaitCode::kRestart;
  } else if (until_ms) {
    wait = WaitCode::kRetry;
  } else if (ahead > 0) {
    wait = WaitCode::kTurn;
  }
  const std::string_view where = l.anywhere ? "" : " that its placement accepts";
  std::string human;
  std::optional<std::int64_t> load_percent;
  switch (wait) {
    case WaitCode::kTurn:
      human = ahead == 0 ? "The job is next for its model."
                         : fmt::format("{} job{} for the same model go{} first.", ahead, ahead == 1 ? "" : "s",
                                       ahead == 1 ? "es" : "");
      break;
    case WaitCode::kSlot:
      human =
          fmt::format("Every worker of this model{} is busy; the job takes the next free slot.{}", where,
                      of_group->other_version ? " A free worker of another engine version gets no job of this model "
                                                "before those in use have gone: versions are not mixed."
                                              : "");
      break;
    case WaitCode::kWorkerCheck:
      human = fmt::format(
          "The connection to every worker of this model{} broke; the job goes on when a pool has said "
          "whether its worker still runs.",
          where);
      for (const Worker* w : registry_.workers_of(m.facts.digest)) {
        if (!w->doubted() || !w->port_is_closed() || !accepts(l, *w)) continue;
        human += fmt::format(" Of {} on pool {}: {}.", w->id.value, w->pool_id.value, kPortIsClosed);
        break;
      }
      break;
    case WaitCode::kQuota:
      human = fmt::format(
          "This tenant runs {} jobs, as many as its quota allows (max_concurrent_jobs); the job goes on "
          "when one of them ends.",
          ledger_.running(l.tenant_id));
      break;
    case WaitCode::kWorkerStart:
      load_percent = load_percent_for(l);
      human = load_percent
                  ? fmt::format("A worker for this model is starting: {} % of the model is loaded.", *load_percent)
                  : "A worker for this model is starting.";
      break;
    case WaitCode::kStartRetry:
      human =
          fmt::format("{} ({}); the next start follows in {} ms.",
                      m.starts.crashes_count() > 1 ? "Workers of this model crashed" : "The last worker start failed",
                      m.starts.last_error() ? m.starts.last_error()->name() : "pool out of reach",
                      std::max<std::int64_t>(0, m.starts.not_before_ms() - now_.mono_ms));
      break;
    case WaitCode::kMemory:
      human = fmt::format("{}.{}", no_room(l.facts, where, of_group->free_bytes_max),
                          of_group->kept ? " A model that was just loaded stays for as long as its load took." : "");
      break;
    case WaitCode::kEviction:
      human = fmt::format(
          "{}, and eviction.worker_policy is manual. Make room with `llorch pool purge POOL --model MODEL`.",
          no_room(l.facts, where, of_group->free_bytes_max));
      break;
    case WaitCode::kPool: human = wait_for_pool(l, where); break;
    case WaitCode::kRetry:
      human = fmt::format("Attempt {} failed; the next one follows in {} ms.", job.attempts,
                          std::max<std::int64_t>(0, *until_ms - now_.mono_ms));
      break;
    case WaitCode::kRestart: human = "orchestratord is stopping; the job goes on when it is back."; break;
  }
  if (const auto pools = refused_by(l, job.spec); !pools.empty()) {
    human += fmt::format(" Workers of pool{} {} have a version that does not know all that the job asks for.",
                         pools.size() == 1 ? "" : "s", base::join(pools, ", "));
  }
  if (l.advice) human += " " + s_.review.advice_text(*l.advice);
  return {std::string(placement::code(wait)), std::move(human), load_percent};
}

LiveJob Views::live_job(const Job& job, const Ahead& ahead) const {
  LiveJob live{.job_id = job.spec.job_id,
               .status = job.status,
               .priority = job.spec.priority,
               .attempts = job.attempts,
               .queue_position = {},
               .predicted_start_ms = {},
               .reason = {},
               .worker_id = job.worker_id,
               .pool_id = job.pool_id,
               .started_unix_ms = job.started_unix_ms,
               .tokens_out = job.tokens_out};
  if (job.outcome && commits_.store_failing(now_.mono_ms)) {
    live.reason = wire::WaitReason{"WAITING_FOR_STORE",
                                   "The job has ended, and the job store cannot write how; that is told as soon as "
                                   "it can. Free disk space or repair "
                                   "the state directory.",
                                   {}};
  }
  if (job.status != JobStatus::kQueued) return live;
  live.queue_position = ahead.of_all;
  live.predicted_start_ms = foreseen_start(job, ahead);
  live.reason = wait_reason(job, group(job.group).wait, ahead.in_group);
  return live;
}

void Views::on(QueryJob& e) {
  const Job* job = jobs_.find(e.job_id);
  // Before its row is durable a job does not exist for anybody else.
  if (!job || !job->admitted) return emit(AnswerQueryJob{e.request, std::nullopt});
  emit(AnswerQueryJob{e.request, live_job(*job, ahead_of(*job))});
}

Views::Ahead Views::ahead_of(const Job& job) const {
  if (job.status != JobStatus::kQueued) return {};
  return {queue_.position(job.arrival), groups_.ahead_of(job), groups_.ahead_in_group(job)};
}

// One walk counts for all jobs what ahead_of() counts for one.
void Views::on(QueryJobs& e) {
  std::map<Arrival, Ahead> ahead;
  std::map<ModelIndex, std::int64_t> of_model;
  std::map<GroupIndex, std::int64_t> in_group;
  std::int64_t position = 0;
  for (const Priority priority : {Priority::kInteractive, Priority::kBatch}) {
    for (const Arrival arrival : queue_.snapshot(priority)) {
      const GroupIndex group_index = queue_.find(arrival)->group;
      std::int64_t &model_count = of_model[group(group_index).model], &group_count = in_group[group_index];
      ahead[arrival] = {position++, model_count, group_count};
      if (queue_.is_delayed(arrival)) continue;
      ++model_count;
      ++group_count;
    }
  }
  AnswerQueryJobs answer{.request = e.request, .jobs = {}};
  for (const auto& [arrival, job] : jobs_.all()) {
    if (job.admitted) answer.jobs.push_back(live_job(job, ahead[arrival]));
  }
  emit(std::move(answer));
}

void Views::on(QueryPools& e) {
  AnswerQueryPools answer{.request = e.request, .pools = {}, .store_failing = commits_.store_failing(now_.mono_ms)};
  for (const auto& [id, pool] : registry_.pools()) {
    PoolView view{.pool_id = id,
                  .status = pool.status,
                  .endpoint = pool.endpoint,
                  .version = pool.version,
                  .last_heartbeat_ms = now_.mono_ms - pool.last_seen_ms,
                  .registered_unix_ms = pool.registered_unix_ms,
                  .gpus = {},
                  .workers = {}};
    if (s_.desired.is_draining(id) && view.status == wire::PoolStatus::kHealthy) {
      view.status = wire::PoolStatus::kDraining;
    }
    for (const auto& [gpu_id, device] : pool.devices) view.gpus.push_back(device.info);
    for (const auto& [worker_id, worker] : pool.workers) {
      view.workers.push_back(worker.info);
      const bool busy = worker.info.status == wire::WorkerStatus::kReady && worker.slots_free() == 0;
      if (busy) view.workers.back().status = wire::WorkerStatus::kBusy;
    }
    answer.pools.push_back(std::move(view));
  }
  emit(std::move(answer));
}

namespace {
std::vector<std::pair<std::string, std::int64_t>> utilization_of(const pools::Pool& pool, const pools::Worker& worker) {
  std::vector<std::pair<std::string, std::int64_t>> out;
  for (const std::string& gpu_id : worker.devices) {
    const auto device = pool.devices.find(gpu_id);
    if (device == pool.devices.end() || !device->second.info.utilization_percent) continue;
    out.emplace_back(gpu_id, *device->second.info.utilization_percent);
  }
  return out;
}
}  // namespace

void Views::on(QueryGauges& e) {
  Gauges g;
  g.queue_depth = {queue_.depth(Priority::kInteractive), queue_.depth(Priority::kBatch)};
  g.jobs_live = static_cast<std::int64_t>(jobs_.all().size());
  g.executions_active = static_cast<std::int64_t>(jobs_.executions().size());
  for (const auto& [id, pool] : registry_.pools()) {
    ++(pool.status == wire::PoolStatus::kHealthy ? g.pools_healthy : g.pools_unhealthy);
    g.workers_total += static_cast<std::int64_t>(pool.workers.size());
    g.pools.push_back({id, s_.desired.pool_open(id), 0});
    for (const auto& [worker_id, w] : pool.workers) {
      g.worker_connections.push_back({.worker_id = worker_id,
                                      .pool_id = id,
                                      .active = w.slots_in_use,
                                      .engine_version = w.info.engine_build,
                                      .gpu_id = w.info.gpu_id,
                                      .vram_bytes = w.info.vram_bytes,
                                      .utilization_percent = utilization_of(pool, w),
                                      .kv_pages_total = w.info.kv_pages_total,
                                      .kv_pages_used = w.info.kv_pages_used});
      g.pools.back().leases += w.slots_in_use;
    }
  }
  emit(AnswerQueryGauges{e.request, std::move(g)});
}

}  // namespace llorch::orchestratord::core
