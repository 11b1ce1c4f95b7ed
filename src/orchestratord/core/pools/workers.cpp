// Worker processes: start, ready, failure, stop.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/error_detail.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using placement::StartRound;
using pools::GoneWhy;
using pools::GoneWorker;
using pools::Pool;
using wire::WorkerStatus;

namespace {
// When a start failed for reasons outside the model: long enough not to spin, short enough not to be felt.
constexpr std::int64_t kPostponeStartMs = 1000;
// So a disk that stalls is asked for a model twice a minute where another pool could run the jobs.
constexpr std::int64_t kPutOffPoolMs = 30'000;

// The pool has a start of ours, or of the process before us, that we do not know of yet.
bool is_loading_there(const Error& error) { return base::has_detail(error, "reason", "MODEL_LOADING"); }

// The disk of its file is slow, or does not answer: that says nothing of the model. The message has the pool's path.
bool is_being_read(const Error& error) { return base::has_detail(error, "reason", "MODEL_BEING_READ"); }
}  // namespace

base::WorkerId Workers::start_worker(const StartOrder& order, const base::PoolId& pool_id, const std::string& gpu_id) {
  const wire::ModelFacts& facts = order.group ? group(*order.group).facts : model(order.model).facts;
  Pool& pool = *registry_.find_pool(pool_id);
  std::optional<std::int64_t> context_tokens = config_.worker_context_tokens;
  if (context_tokens && facts.context_length > 0) *context_tokens = std::min(*context_tokens, facts.context_length);
  wire::StartWorkerRequest request{.worker_id = "worker-" + base::uuid_v4(entropy_),
                                   .model_ref = facts.model_ref,
                                   .gpu_id = gpu_id,
                                   .context_tokens = context_tokens,
                                   .slots = config_.worker_slots,
                                   .kv_tokens = config_.worker_kv_tokens,
                                   .kv_dtype = config_.kv_dtype,
                                   .image_tokens_max = config_.worker_image_tokens_max};
  wire::WorkerInfo info{.worker_id = request.worker_id,
                        .model_ref = facts.model_ref,
                        .model_digest = facts.digest,
                        .gpu_id = gpu_id,
                        .slots_total = config_.worker_slots,
                        .kv_dtype = config_.kv_dtype};
  Worker& worker = registry_.add_starting(pool_id, std::move(info), facts.memory_bytes, now_);
  if (order.group) worker.started_for = order.group->value;
  for (const auto* device : registry_.devices_at(pool, gpu_id)) {
    ASSERT(device->accounted_bytes() <= device->info.vram_total_bytes, "gpu {}: {} of {} bytes accounted",
           device->info.gpu_id, device->accounted_bytes(), device->info.vram_total_bytes);
  }
  timers_.arm(now_.mono_ms + config_.worker_start_timeout_ms,
              {.kind = TimerKind::kWorkerStart, .name = request.worker_id});
  log(base::LogLevel::kInfo, "worker.start", "Starts a worker.",
      {{"worker_id", request.worker_id},
       {"pool_id", pool_id},
       {"gpu_id", gpu_id},
       {"model_digest", facts.digest},
       {"memory_bytes", facts.memory_bytes}});
  base::WorkerId id(request.worker_id);
  emit(StartWorker{pool_id, pool.endpoint, std::move(request), order.correlation_id});
  return id;
}

// Its replica set may have another version from now on.
void Workers::serves_no_more(const Worker& worker) {
  if (registry_.versions_count(worker.info.model_digest) > 1) recheck_.all();
}

void Workers::stop_worker(Worker& worker, std::string_view why) {
  serves_no_more(worker);
  Pool& pool = *registry_.find_pool(worker.pool_id);
  const bool ready = worker.info.status == WorkerStatus::kReady;
  registry_.set_status(worker, ready ? WorkerStatus::kDraining : WorkerStatus::kFailed);
  worker.stop_sent_ms = now_.mono_ms;
  worker.reserved_by.reset();
  reserved_workers_.erase(worker.id);
  worker.retiring = false;
  retiring_.erase(worker.id);
  count(Metric::kWorkerStops, why);
  log_limited(base::LogLevel::kInfo, "worker.stop", nullptr, "Stops a worker.",
              {{"worker_id", worker.id}, {"pool_id", worker.pool_id}, {"reason", why}});
  emit(StopWorker{pool.id, pool.endpoint, worker.id});
}

void Workers::on(StartWorkerAnswered& e) {
  Worker* worker = registry_.find_worker(e.worker_id);
  if (!worker || worker->answered) return;  // settled otherwise meanwhile
  worker->answered = true;
  if (s_.desired.is_leaving(worker->pool_id)) recheck_.all();  // it was waited for
  if (!e.error || worker->info.status == WorkerStatus::kReady) {
    for (auto* device : registry_.devices_at(*registry_.find_pool(worker->pool_id), worker->info.gpu_id)) {
      device->disagreed_ms.reset();
    }
    return;
  }
  recheck_.all();
  const bool timed_out = worker->info.status == WorkerStatus::kFailed;
  const FailedStart start = failed_start(*worker, models_.find(worker->wanted_digest)->index);
  const std::int64_t asked_ms = worker->started_ms;
  Pool& pool = *registry_.find_pool(start.pool_id);
  const ErrorCode code = e.error->code;
  const bool lost = code == ErrorCode::kUnreachable || code == ErrorCode::kShuttingDown;
  const bool runs_there = lost && worker->listed;  // its pool has reported it: only the answer was lost
  if (!runs_there) {
    registry_.forget_start(e.worker_id);
    retiring_.erase(e.worker_id);
  }
  if (lost) {
    s_.pools.pool_unreachable(pool);
    s_.pools.arm_pool_timer(start.pool_id, now_.mono_ms + kPostponeStartMs);
  }
  if (runs_there) return;
  if (timed_out) return;  // counted as a failure then
  if (lost) return postpone_start(start.model);
  if (is_being_read(*e.error)) {
    s_.desired.put_start_off(start.pool_id, e.worker_id, now_.mono_ms + kPostponeStartMs);
    model(start.model).starts.put_off(start.pool_id, now_.mono_ms, now_.mono_ms + kPutOffPoolMs);
    recheck_all_at(now_.mono_ms + kPutOffPoolMs);
    return postpone_start(start.model);
  }
  s_.pools.ask_state(pool.endpoint);  // it sees its device differently than we do
  const auto devices = registry_.devices_at(pool, start.gpu_id);
  if (!devices.empty() && (code == ErrorCode::kInsufficientVram || code == ErrorCode::kConflict)) {
    // The report in hand was too old. Nothing is started before the next report, so only a start that was asked for after a
    // refusal has one to rest on: if it is refused too, that is a failure.
    bool passes = is_loading_there(*e.error);
    for (auto* device : devices) {
      device->doubted = true;
      const auto before_ms = std::exchange(device->disagreed_ms, now_.mono_ms);
      passes = passes || !before_ms || asked_ms <= *before_ms || in_motion(*device, asked_ms);
    }
    if (passes) return put_last(start);
  }
  start_failed(start, std::move(*e.error));
}

// A pool that goes on refusing so holds up no job that another place could run.
void Workers::put_last(const FailedStart& start) {
  for (const GroupIndex index : model(start.model).groups.get()) {
    if (counts_for(start, index)) group(index).start_round.put_last(start.pool_id, start.gpu_id);
  }
  postpone_start(start.model);
}

// Workers that start or leave make a device look fuller or emptier than it will be; both pass. One that became ready since
// was still starting when the pool looked.
bool Workers::in_motion(const pools::Device& device, std::int64_t since_ms) {
  return std::any_of(device.workers.begin(), device.workers.end(), [&](const Worker* w) {
    return w->info.status != WorkerStatus::kReady || w->ready_ms >= since_ms;
  });
}

void Workers::postpone_start(ModelIndex model_index) {
  model(model_index).starts.postpone(now_.mono_ms + kPostponeStartMs);
  recheck_all_at(now_.mono_ms + kPostponeStartMs);
}

void Workers::on(WorkerReady& e) {
  const auto changes = registry_.worker_ready(e.ready, now_);
  recheck_.all();
  for (const base::WorkerId& id : changes.adopted) worker_adopted(id);
  for (const base::WorkerId& id : changes.became_ready) worker_ready(id);
}

// Its pool may have been given up while attempts were running on it: they hold its slots still.
void Workers::worker_adopted(const base::WorkerId& id) {
  Worker* worker = registry_.find_worker(id);
  if (!worker) return;
  for (const Execution& x : jobs_.executions()) worker->slots_in_use += x.worker_id == id;
  if (worker->info.status == WorkerStatus::kStarting) {
    timers_.arm(now_.mono_ms + config_.worker_start_timeout_ms, {.kind = TimerKind::kWorkerStart, .name = id.value});
  }
  if (worker->info.status != WorkerStatus::kFailed && s_.desired.is_purged(*worker)) retire(*worker);
}

void Workers::worker_ready(const base::WorkerId& id) {
  Worker* worker = registry_.find_worker(id);
  if (!worker) return;
  recheck_.all();
  worker->answered = true;
  worker->ready_ms = worker->last_used_ms = now_.mono_ms;
  log_limited(base::LogLevel::kInfo, "worker.ready", nullptr, "A worker is ready.",
              {{"worker_id", id},
               {"pool_id", worker->pool_id},
               {"gpu_id", worker->info.gpu_id},
               {"model_digest", worker->info.model_digest}});
  const Model* held = models_.find(worker->info.model_digest);
  if (held) s_.replicas.tell_other_version(*worker, *held);
  if (worker->is_foreign()) {
    registry_.find_pool(worker->pool_id)->starts_hang = false;
    if (held) start_succeeded(held->index, *worker);
    return;
  }
  const ModelIndex wanted = models_.find(worker->wanted_digest)->index;
  if (worker->info.model_digest != worker->wanted_digest) {
    start_failed(failed_start(*worker, wanted),
                 {ErrorCode::kModelNotFound,
                  "The model file was replaced by other bytes after the job was accepted. Submit the job again.",
                  {}});
    return;
  }
  count(Metric::kWorkerStarts, "success");
  worker->start_took_ms = now_.mono_ms - worker->started_ms;
  if (worker->start_took_ms > 0) {
    recheck_all_at(placement::kept_until_ms(worker->ready_ms, worker->start_took_ms));
  }
  model(wanted).start_ms.add(now_.mono_ms - worker->started_ms);
  start_succeeded(wanted, *worker);
}

void Workers::start_succeeded(ModelIndex model_index, const Worker& worker) {
  Model& m = model(model_index);
  m.starts.ready();
  for (const GroupIndex index : m.groups.get()) {
    if (accepts(group(index), worker)) group(index).start_round = {};
  }
}

void Workers::on(WorkerFailed& e) {
  const auto why = e.failed.category == wire::FailureCategory::kExplicitStop ? GoneWhy::kStopped : GoneWhy::kFailed;
  // A pool speaks of its own workers only.
  const Worker* known = registry_.find_worker(base::WorkerId(e.failed.worker_id));
  if (!known || known->pool_id.value != e.failed.pool_id) return;
  const auto gone = registry_.worker_failed(base::WorkerId(e.failed.worker_id), why);
  if (!gone) return;
  const ErrorCode code = base::error_code_from_name(e.failed.error_code).value_or(ErrorCode::kWorkerStartFailed);
  worker_gone(*gone, Error{code, e.failed.error_message, {}}.with("exit_code", e.failed.exit_code));
  // Its memory counts as free only when the pool says so.
  if (const Pool* pool = registry_.find_pool(gone->pool_id)) s_.pools.ask_state(pool->endpoint);
}

void Workers::log_gone(const GoneWorker& gone, const std::optional<Error>& error) {
  if (gone.why == GoneWhy::kStopped) {
    return log_limited(base::LogLevel::kInfo, "worker.gone", nullptr, "A worker has stopped, as it was asked to.",
                       {{"worker_id", gone.id}, {"pool_id", gone.pool_id}, {"gpu_id", gone.gpu_id}});
  }
  log_limited(base::LogLevel::kWarn, "worker.gone", nullptr,
              gone.why == GoneWhy::kPoolLost ? "A worker is gone with its pool." : "A worker is gone.",
              {{"worker_id", gone.id},
               {"pool_id", gone.pool_id},
               {"gpu_id", gone.gpu_id},
               {"code", error ? error->name() : std::string_view("")}});
}

void Workers::worker_gone(const GoneWorker& gone, std::optional<Error> error) {
  recheck_.all();
  reserved_workers_.erase(gone.id);
  retiring_.erase(gone.id);
  if (gone.reported_before) return;
  log_gone(gone, error);
  // The relay usually says at once that the connection broke; if it does not, its attempts are given up.
  for (Execution& x : jobs_.executions()) {
    if (x.worker_id != gone.id || x.aborted || x.gone_timer) continue;
    x.gone_timer = timers_.arm(now_.mono_ms + config_.timeout.cancellation_deadline_ms,
                               {.kind = TimerKind::kExecutionGone, .number = x.id.value});
  }
  Model* known = models_.find(gone.model_digest);
  if (gone.why == GoneWhy::kFailed && gone.was == WorkerStatus::kReady) {
    const Error crash = error.value_or(Error{ErrorCode::kWorkerReset, "The worker was lost.", {}});
    s_.desired.note_failure(gone.pool_id, crash);
    if (known && !gone.is_foreign) worker_crashed(*known, crash);
  }
  // What becomes of workers that nobody here asked for is no failure of their model: a pool may tell of any number of them.
  if (gone.was != WorkerStatus::kStarting || !known || gone.is_foreign) return;
  if (gone.why == GoneWhy::kPoolLost) return postpone_start(known->index);
  const auto group_index = gone.started_for ? std::optional(GroupIndex{*gone.started_for}) : std::nullopt;
  start_failed({known->index, group_index, gone.pool_id, gone.gpu_id},
               error.value_or(Error{ErrorCode::kWorkerStartFailed, "The worker ended before it was ready.", {}}));
}

// It had been ready: the next start is free, but a worker that crashes again and again is not started again and again.
void Workers::worker_crashed(Model& m, const Error& error) {
  const placement::StartControl::CrashLimits limits{.crashes_max = config_.restart.worker_crashes_max,
                                                    .window_ms = config_.restart.worker_crash_window_ms};
  m.starts.crashed(error, limits, config_.retry, now_.mono_ms, entropy_);
  if (!m.starts.backing_off(now_.mono_ms)) return;
  recheck_all_at(m.starts.not_before_ms());
  log(base::LogLevel::kWarn, "worker.crashes", "Workers of a model crash; the next one waits.",
      {{"model_digest", m.facts.digest}, {"backoff_ms", m.starts.not_before_ms() - now_.mono_ms}});
}

void Workers::start_timed_out(const base::WorkerId& id) {
  Worker* worker = registry_.find_worker(id);
  if (!worker || worker->info.status != WorkerStatus::kStarting) return;
  if (worker->is_foreign() && now_.mono_ms - worker->started_ms >= config_.worker_start_timeout_ms) {
    // Nobody's start failed. But no job waits for it any more, nor for the next one that its pool tells of.
    registry_.find_pool(worker->pool_id)->starts_hang = true;
    recheck_.all();
    return stop_worker(*worker, "start_timeout");
  }
  // A start whose answer was lost comes back through a report, without what we wanted of it.
  const Model* known = models_.find(worker->is_foreign() ? worker->info.model_digest : worker->wanted_digest);
  if (!known) return;
  const FailedStart start = failed_start(*worker, known->index);
  count(Metric::kTimeouts, "startup");
  stop_worker(*worker, "start_timeout");
  start_failed(start, Error{ErrorCode::kWorkerStartTimeout,
                            fmt::format("The worker was not ready within {} ms.", config_.worker_start_timeout_ms),
                            {}}
                          .with("timeout_ms", config_.worker_start_timeout_ms));
}

Workers::FailedStart Workers::failed_start(const Worker& worker, ModelIndex model_index) {
  const auto group_index = worker.started_for ? std::optional(GroupIndex{*worker.started_for}) : std::nullopt;
  return {model_index, group_index, worker.pool_id, worker.info.gpu_id};
}

bool Workers::counts_for(const FailedStart& start, GroupIndex index) {
  if (start.group) return index == *start.group;
  return tier(group(index), start.pool_id, start.gpu_id) != placement::Tier::kExcluded;
}

void Workers::start_failed(const FailedStart& start, Error error) {
  Model& m = model(start.model);
  count(Metric::kWorkerStarts, "failure");
  std::vector<GroupIndex> given_up;
  bool goes_on_elsewhere = false;
  for (const GroupIndex index : m.groups.get()) {
    JobGroup& l = group(index);
    if (!counts_for(start, index)) continue;
    const bool other_pool = has_other_pool(l, s_.replicas.replica_rule(m, &l), start.pool_id, When::kEver);
    if (l.start_round.failed(start.pool_id, start.gpu_id, error, other_pool) == StartRound::Verdict::kGiveUp) {
      given_up.push_back(index);
    } else {
      goes_on_elsewhere |= l.start_round.is_ruled_out(start.pool_id);
    }
  }
  if (goes_on_elsewhere) {
    m.starts.ruled_out(start.pool_id, error, config_.retry, now_.mono_ms, entropy_);
  } else {
    m.starts.failed(error, config_.retry, now_.mono_ms, entropy_);
  }
  s_.desired.note_failure(start.pool_id, error);
  recheck_all_at(m.starts.not_before_ms());
  recheck_.all();
  log(base::LogLevel::kWarn, "worker.start_failed", "A worker could not be started.",
      {{"pool_id", start.pool_id},
       {"gpu_id", start.gpu_id},
       {"model_digest", m.facts.digest},
       {"code", error.name()},
       {"backoff_ms", std::max<std::int64_t>(0, m.starts.not_before_ms() - now_.mono_ms)}});
  const Error told = Error(error).with("gpu_id", start.gpu_id);
  for (const GroupIndex index : given_up) {
    if (s_.replicas.has_serving_worker(group(index))) continue;  // its jobs have somewhere to go
    for (const Arrival arrival : queue_.waiting_in(index)) s_.attempts.fail_unplaced(jobs_.at(arrival), told);
  }
}

bool Workers::has_other_pool(const JobGroup& l, const ReplicaRule& rule, const std::optional<base::PoolId>& failed,
                             When when) {
  const wire::ModelFacts& facts = l.facts;
  const placement::StartControl& starts = model(l.model).starts;
  return std::ranges::any_of(registry_.pools(), [&](const auto& item) {
    const auto& [pool_id, pool] = item;
    if (pool_id == failed || l.start_round.is_ruled_out(pool_id) || s_.desired.is_closed(pool_id)) return false;
    if (when == When::kNow && (!s_.desired.pool_open(pool_id) || starts.is_put_off(pool_id, now_.mono_ms)))
      return false;
    const auto places = pools::places_for(pool, facts.devices, l.placement.require_device_mask);
    return std::ranges::any_of(places, [&](const pools::Place& place) {
      return place.is_healthy() && place.potential_bytes() >= facts.memory_bytes &&
             tier(l, pool.id, place.mask) != placement::Tier::kExcluded && rule.allows(pool, place.mask);
    });
  });
}

}  // namespace llorch::orchestratord::core
