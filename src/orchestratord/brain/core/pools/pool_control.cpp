// Drain, reload and purge of a pool, and its health. A drain is durable before it begins: what an operator was told holds
// over a restart. A reload and a purge are not; after a restart the pool serves with the workers it has.
#include "orchestratord/brain/core/pools/pool_control.h"

#include <fmt/core.h>

#include <algorithm>

#include "contract/json.h"
#include "orchestratord/brain/core/state.h"

namespace llorch::orchestratord::brain {

using base::Error;
using base::ErrorCode;
using contract::PoolControlReply;
using contract::PoolOperation;
using contract::PoolOperationKind;
using contract::PoolOperationState;
using contract::WorkerStatus;
using pool_registry::Pool;

namespace {

// A start is tried twice, as for a waiting job (C-48), and each may wait for the memory of the last worker.
constexpr int kTriesMax = 2;
constexpr std::int64_t kPhaseStarts = kTriesMax + 1;

Error not_found(const base::PoolId& id) {
  return Error{ErrorCode::kPoolNotFound, "No pool has this id.", {}}.with("pool_id", id.value);
}

Error conflict(const base::PoolId& id, std::string message) {
  return Error{ErrorCode::kConflict, std::move(message), {}}.with("pool_id", id.value);
}

bool leaves(const Worker& w) {
  return w.info.status == WorkerStatus::kDraining || w.info.status == WorkerStatus::kFailed;
}

std::vector<std::string> ids_of(const Pool& pool) {
  std::vector<std::string> ids;
  for (const auto& [id, w] : pool.workers) ids.push_back(id.value);
  return ids;
}

}  // namespace

bool Brain::State::pool_open(const base::PoolId& id) const {
  const Pool* pool = registry.find_pool(id);
  if (!pool || pool->status != contract::PoolStatus::kHealthy) return false;
  const auto control = controls.find(id);
  return control == controls.end() || control->second.open();
}

// ---- drain ----------------------------------------------------------------------------------------------------------

void Brain::State::on(DrainPool& e) {
  const Pool* pool = registry.find_pool(e.pool_id);
  if (!pool) return emit(AnswerPoolControl{e.request, base::fail(not_found(e.pool_id))});
  PoolControl& control = controls[e.pool_id];
  if (control.reload || control.commit_pending) {
    return emit(AnswerPoolControl{e.request, base::fail(conflict(e.pool_id,
                                                                 "The pool is being reloaded or drained. "
                                                                 "Try again when that is over."))});
  }
  if (control.draining && !control.unsettled) {  // only the deadline is new
    arm_deadline(e.pool_id, control, e.deadline_ms);
    return emit(AnswerPoolControl{e.request, PoolControlReply{e.pool_id.value, "draining", ids_of(*pool)}});
  }
  commit_draining(e.pool_id,
                  {.request = e.request, .pool_id = e.pool_id, .draining = true, .deadline_ms = e.deadline_ms});
}

void Brain::State::on(UndrainPool& e) {
  const auto it = controls.find(e.pool_id);
  if (!registry.find_pool(e.pool_id) && it == controls.end()) {
    return emit(AnswerPoolControl{e.request, base::fail(not_found(e.pool_id))});
  }
  if (it != controls.end() && (it->second.reload || it->second.commit_pending)) {
    return emit(AnswerPoolControl{e.request, base::fail(conflict(e.pool_id,
                                                                 "The pool is being reloaded or drained. "
                                                                 "Try again when that is over."))});
  }
  if (it == controls.end() || (!it->second.draining && !it->second.unsettled)) {
    return emit(AnswerPoolControl{e.request, PoolControlReply{e.pool_id.value, "serving", {}}});
  }
  commit_draining(e.pool_id, {.request = e.request, .pool_id = e.pool_id, .draining = false, .deadline_ms = 0});
}

void Brain::State::commit_draining(const base::PoolId& id, DrainCommit commit) {
  controls[id].commit_pending = true;
  const CommitId commit_id{++commit_count};
  const Pool* pool = registry.find_pool(id);
  emit(CommitDraining{commit_id, id, pool ? pool->endpoint : std::string(), commit.draining});
  drain_commits.emplace(commit_id, std::move(commit));
}

// True if the commit was one of these.
bool Brain::State::draining_committed(CommitId id, const Error* error) {
  const auto node = drain_commits.extract(id);
  if (node.empty()) return false;
  const DrainCommit& commit = node.mapped();
  const auto it = controls.find(commit.pool_id);
  if (it == controls.end()) {  // the pool left meanwhile
    emit(AnswerPoolControl{commit.request, base::fail(not_found(commit.pool_id))});
    return true;
  }
  PoolControl& control = it->second;
  control.commit_pending = false;
  control.unsettled = error != nullptr;
  if (error) {
    emit(AnswerPoolControl{
        commit.request,
        base::fail(Error{ErrorCode::kStoreUnavailable,
                         "The job store cannot write now, so nothing changes before a restart. Free disk "
                         "space or repair the state directory, then try again.",
                         {}})});
    return true;
  }
  dirty = true;
  control.draining = commit.draining;
  const Pool* pool = registry.find_pool(commit.pool_id);
  if (commit.draining) {
    control.operation =
        PoolOperation{.kind = PoolOperationKind::kDrain, .step = {}, .model_ref = {}, .deadline_ms = {}};
    arm_deadline(commit.pool_id, control, commit.deadline_ms);
    emit(Count{Metric::kDrains, "drain", {}, 1, commit.pool_id.value});
  } else {
    const bool undone = control.operation && control.operation->state == PoolOperationState::kRunning;
    end_operation(commit.pool_id, control, undone ? PoolOperationState::kRolledBack : PoolOperationState::kDone);
  }
  emit(Log{base::LogLevel::kInfo,
           commit.draining ? "pool.draining" : "pool.undrained",
           {},
           commit.draining ? "A pool takes no more jobs." : "A pool takes jobs again.",
           {{"pool_id", commit.pool_id}, {"deadline_ms", commit.deadline_ms}}});
  PoolControlReply reply{commit.pool_id.value, commit.draining ? "draining" : "serving", {}};
  if (pool && commit.draining) reply.workers = ids_of(*pool);
  emit(AnswerPoolControl{commit.request, std::move(reply)});
  return true;
}

void Brain::State::restore_drains(const std::vector<base::PoolId>& pools) {
  for (const base::PoolId& id : pools) {
    PoolControl& control = controls[id];
    control.draining = control.forced = true;  // nothing of this process runs there
    control.operation =
        PoolOperation{.kind = PoolOperationKind::kDrain, .step = {}, .model_ref = {}, .deadline_ms = {}};
  }
}

void Brain::State::arm_deadline(const base::PoolId& id, PoolControl& control, std::int64_t deadline_ms) {
  timers.cancel(control.deadline_timer);
  control.deadline_ms = now.mono_ms + deadline_ms;
  control.deadline_timer =
      timers.arm(control.deadline_ms, {.kind = TimerKind::kPoolDeadline, .number = 0, .name = id.value});
}

// What still runs goes back to the queue, its attempt uncounted, and runs again from the start elsewhere or later.
void Brain::State::deadline_over(const base::PoolId& id) {
  const auto it = controls.find(id);
  if (it == controls.end()) return;
  it->second.deadline_timer.reset();
  it->second.forced = true;
  dirty = true;
  std::int64_t count = 0;
  for (auto& [execution_id, x] : executions) {
    if (x.aborted || jobs.at(x.job).pool_id != id) continue;
    abort(x);
    ++count;
  }
  if (count == 0) return;
  emit(Log{base::LogLevel::kInfo,
           "pool.deadline",
           {},
           "The deadline of a drain is over; what runs there goes back to the queue.",
           {{"pool_id", id}, {"jobs", count}}});
}

void Brain::State::end_operation(const base::PoolId& id, PoolControl& control, PoolOperationState state) {
  timers.cancel(control.deadline_timer);
  control.forced = false;
  if (control.operation) control.operation->state = state;
  if (control.reload) {
    if (control.reload->error) {
      control.last_error = fmt::format("{}: {}", control.reload->error->name(), control.reload->error->message);
    }
    emit(Log{state == PoolOperationState::kDone ? base::LogLevel::kInfo : base::LogLevel::kWarn,
             "pool.reloaded",
             {},
             "The reload of a pool is over.",
             {{"pool_id", id},
              {"state", contract::enum_name(state)},
              {"code", control.reload->error ? control.reload->error->name() : std::string_view("")}}});
    control.reload.reset();
  }
  dirty = true;
}

void Brain::State::forget_control(const base::PoolId& id) {
  const auto it = controls.find(id);
  if (it == controls.end()) return;
  timers.cancel(it->second.deadline_timer);
  controls.erase(it);
}

// ---- reload ---------------------------------------------------------------------------------------------------------

void Brain::State::on(ReloadPool& e) {
  const auto refuse_with = [&](Error error) { emit(AnswerPoolControl{e.request, base::fail(std::move(error))}); };
  Pool* pool = registry.find_pool(e.pool_id);
  if (!pool) return refuse_with(not_found(e.pool_id));
  PoolControl& control = controls[e.pool_id];
  if (!control.open() || control.commit_pending) {
    return refuse_with(conflict(e.pool_id, control.draining ? "The pool is draining. Take the drain back first."
                                                            : "The pool is being reloaded or drained already."));
  }
  if (pool->status != contract::PoolStatus::kHealthy) {
    return refuse_with(Error{ErrorCode::kPoolUnready, "The pool is out of reach. Try again when it is back.", {}});
  }
  std::int64_t potential_max = 0;
  for (const auto& [gpu_id, device] : pool->devices) potential_max = std::max(potential_max, device.potential_bytes());
  if (potential_max < e.model.memory_bytes) {
    return refuse_with(Error{
        ErrorCode::kInsufficientVram,
        fmt::format("A worker of this model needs {} bytes; the largest device of the pool can give {}. Nothing was "
                    "changed.",
                    e.model.memory_bytes, potential_max),
        {}}.with("required_bytes", e.model.memory_bytes)
                           .with("available_bytes", potential_max));
  }
  Reload reload{.to = intern(e.model), .before = {}, .places = {}, .error = {}};
  for (const auto& [id, w] : pool->workers) {
    if (w.info.status != WorkerStatus::kReady || w.info.model_digest.empty()) continue;
    reload.before.push_back({.gpu_id = w.info.gpu_id, .model = model_held_by(w), .worker = {}});
  }
  control.reload = std::move(reload);
  control.operation =
      PoolOperation{.kind = PoolOperationKind::kReload, .step = {}, .model_ref = e.model.model_ref, .deadline_ms = {}};
  control.forced = false;
  arm_deadline(e.pool_id, control, e.deadline_ms);
  emit(Count{Metric::kDrains, "reload", {}, 1, e.pool_id.value});
  emit(Log{base::LogLevel::kInfo,
           "pool.reloading",
           {},
           "A pool changes its model.",
           {{"pool_id", e.pool_id}, {"model_digest", e.model.digest}, {"workers", pool->workers.size()}}});
  emit(AnswerPoolControl{e.request, PoolControlReply{e.pool_id.value, "reloading", ids_of(*pool)}});
  dirty = true;
}

// A worker of an earlier process may hold what nobody asked this one for.
ModelIndex Brain::State::model_held_by(const Worker& w) {
  if (const auto known = model_of.find(w.info.model_digest); known != model_of.end()) return known->second;
  contract::ModelFacts facts;
  facts.model_ref = w.info.model_ref;
  facts.digest = w.info.model_digest;
  facts.context_length = w.info.context_length;
  facts.memory_bytes = w.bytes();
  return intern(facts);
}

void Brain::State::advance_controls() {
  for (auto& [id, control] : controls) {
    const Pool* pool = registry.find_pool(id);
    if (control.reload) {
      advance_reload(id, control);
    } else if (control.draining && control.operation->state == PoolOperationState::kRunning && pool &&
               pool->workers.empty()) {
      // The deadline stays armed: an attempt may still wait for the connection of a dead worker to break.
      control.operation->state = PoolOperationState::kDone;
      emit(Log{base::LogLevel::kInfo, "pool.drained", {}, "A pool is empty.", {{"pool_id", id}}});
    }
  }
}

void Brain::State::advance_reload(const base::PoolId& id, PoolControl& control) {
  Reload& reload = *control.reload;
  Pool* pool = registry.find_pool(id);
  if (!pool) {
    reload.error = Error{ErrorCode::kPoolUnready, "The pool was lost during the reload.", {}};
    return end_operation(id, control, PoolOperationState::kFailed);
  }
  if (reload.empties()) {
    if (!pool->workers.empty()) return;
    const bool undone = reload.phase == Reload::Phase::kUndoing;
    reload.phase = undone ? Reload::Phase::kRefilling : Reload::Phase::kFilling;
    reload.places = undone ? reload.before : places_for(*pool, reload);
    reload.until_ms = now.mono_ms + kPhaseStarts * config.worker_start_timeout_ms;
    timers.cancel(control.deadline_timer);
    control.forced = false;
    timers.arm(reload.until_ms, {.kind = TimerKind::kSchedule});
  }
  const auto filled = fill(*pool, reload);
  if (filled && !*filled) return;  // not yet
  if (filled) {
    return end_operation(
        id, control,
        reload.phase == Reload::Phase::kFilling ? PoolOperationState::kDone : PoolOperationState::kRolledBack);
  }
  if (!reload.error) reload.error = filled.error();
  if (reload.phase == Reload::Phase::kRefilling) return end_operation(id, control, PoolOperationState::kFailed);
  emit(Log{base::LogLevel::kWarn,
           "pool.reload_failed",
           {},
           "The new model did not start; the old one comes back.",
           {{"pool_id", id}, {"code", reload.error->name()}}});
  reload.phase = Reload::Phase::kUndoing;
  dirty = true;
}

// The devices that held a worker and can hold the new model, else the one with most memory.
std::vector<Reload::Place> Brain::State::places_for(const Pool& pool, const Reload& reload) const {
  const std::int64_t bytes = models[reload.to.value].facts.memory_bytes;
  std::set<std::string> held;
  for (const Reload::Place& place : reload.before) held.insert(place.gpu_id);
  std::vector<Reload::Place> places;
  const std::string* largest = nullptr;
  std::int64_t largest_bytes = -1;
  for (const auto& [gpu_id, device] : pool.devices) {
    if (held.contains(gpu_id) && device.potential_bytes() >= bytes) {
      places.push_back({.gpu_id = gpu_id, .model = reload.to, .worker = {}});
    }
    if (device.potential_bytes() <= largest_bytes) continue;
    largest = &gpu_id;
    largest_bytes = device.potential_bytes();
  }
  if (places.empty() && largest) places.push_back({.gpu_id = *largest, .model = reload.to, .worker = {}});
  return places;
}

// True once a worker is ready at every place; an error once that will not be.
base::Result<bool> Brain::State::fill(Pool& pool, Reload& reload) {
  bool all_ready = true;
  for (Reload::Place& place : reload.places) {
    Model& m = model(place.model);
    if (place.worker) {
      const Worker* w = registry.find_worker(*place.worker);
      const bool here = w && !leaves(*w);
      if (here && w->info.status == WorkerStatus::kReady && w->info.model_digest == m.facts.digest) continue;
      if (here && w->info.status == WorkerStatus::kReady) {
        return base::fail(ErrorCode::kModelNotFound, "The model file was replaced by other bytes.");
      }
      all_ready = false;
      if (here) continue;
      place.worker.reset();
      if (++place.tries >= kTriesMax) {
        return base::fail(m.starts.last_error().value_or(
            Error{ErrorCode::kWorkerStartFailed, "The worker ended before it was ready.", {}}));
      }
    }
    all_ready = false;
    const auto device = pool.devices.find(place.gpu_id);
    // One load per model and device at a time.
    const bool loads_there =
        device != pool.devices.end() &&
        std::any_of(device->second.workers.begin(), device->second.workers.end(), [&](const Worker* w) {
          return w->info.status == WorkerStatus::kStarting && w->info.model_digest == m.facts.digest;
        });
    const bool can = !loads_there && pool.status == contract::PoolStatus::kHealthy && device != pool.devices.end() &&
                     device->second.info.healthy && !device->second.doubted &&
                     device->second.room_bytes() >= m.facts.memory_bytes &&
                     static_cast<std::int64_t>(device->second.workers.size()) < config.workers_per_gpu;
    if (can) place.worker = start_worker({place.model, {}}, pool.id, place.gpu_id);
  }
  if (all_ready || now.mono_ms < reload.until_ms) return all_ready;
  return base::fail(ErrorCode::kWorkerStartTimeout, "The pool did not get its workers in time.");
}

// ---- purge ----------------------------------------------------------------------------------------------------------

void Brain::State::on(PurgePool& e) {
  Pool* pool = registry.find_pool(e.pool_id);
  if (!pool) return emit(AnswerPoolControl{e.request, base::fail(not_found(e.pool_id))});
  if (const auto it = controls.find(e.pool_id); it != controls.end() && it->second.reload) {
    return emit(AnswerPoolControl{
        e.request, base::fail(conflict(e.pool_id, "The pool is being reloaded. Try again when that is over."))});
  }
  std::vector<Worker*> going;
  std::int64_t busy = 0;
  for (auto& [id, w] : pool->workers) {
    const auto is_it = [&](const std::string& name) { return name == w.info.model_ref || name == w.info.model_digest; };
    if (leaves(w) || (!e.models.empty() && std::none_of(e.models.begin(), e.models.end(), is_it))) continue;
    going.push_back(&w);
    busy += w.slots_in_use > 0;
  }
  if (busy > 0 && !e.drain_first && !e.force) {
    return emit(AnswerPoolControl{
        e.request,
        base::fail(conflict(e.pool_id, fmt::format("{} of {} workers are busy, so none is stopped. Let their "
                                                   "jobs finish (drain_first) or send them back to the "
                                                   "queue (force).",
                                                   busy, going.size()))
                       .with("busy", busy))});
  }
  PoolControlReply reply{e.pool_id.value, "purging", {}};
  for (Worker* w : going) {
    reply.workers.push_back(w->id.value);
    retire(*w);
    for (auto& [id, x] : executions) {
      if (e.force && x.worker_id == w->id && !x.aborted) abort(x);
    }
  }
  emit(Count{Metric::kDrains, "purge", {}, 1, e.pool_id.value});
  emit(Log{base::LogLevel::kInfo,
           "pool.purging",
           {},
           "Workers of a pool leave because an operator said so.",
           {{"pool_id", e.pool_id}, {"workers", going.size()}, {"busy", busy}, {"force", e.force}}});
  emit(AnswerPoolControl{e.request, std::move(reply)});
}

// ---- health ---------------------------------------------------------------------------------------------------------

std::string Brain::State::step_of(const PoolControl& control, std::int64_t leases) const {
  if (!control.operation || control.operation->state != PoolOperationState::kRunning) return {};
  if (control.empties()) {
    if (leases > 0) return fmt::format("{} jobs run on its workers", leases);
    return control.reload && control.reload->phase == Reload::Phase::kUndoing ? "what was started leaves"
                                                                              : "its workers leave";
  }
  return control.reload && control.reload->phase == Reload::Phase::kRefilling ? "workers of the old model start"
                                                                              : "workers of the new model start";
}

void Brain::State::on(QueryPoolHealth& e) {
  const Pool* pool = registry.find_pool(e.pool_id);
  const auto it = controls.find(e.pool_id);
  if (!pool && it == controls.end()) return emit(AnswerPoolHealth{e.request, std::nullopt});
  contract::PoolHealthReport h{.pool_id = e.pool_id.value,
                               .metrics = {},
                               .last_heartbeat_ms = {},
                               .version = {},
                               .operation = {},
                               .last_error = {}};
  auto& m = h.metrics;
  if (pool) {
    h.live = pool->status == contract::PoolStatus::kHealthy;
    h.last_heartbeat_ms = now.mono_ms - pool->last_seen_ms;
    h.version = pool->version;
    bool device_healthy = false;
    for (const auto& [gpu_id, device] : pool->devices) {
      device_healthy |= device.info.healthy;
      m.vram_total_bytes += device.info.vram_total_bytes;
      m.vram_available_bytes += device.info.vram_available_bytes;
    }
    for (const auto& [id, w] : pool->workers) {
      ++m.workers_total;
      m.active_leases += w.slots_in_use;
      m.workers_starting += w.info.status == WorkerStatus::kStarting;
      if (w.info.status != WorkerStatus::kReady) continue;
      ++m.workers_ready;
      m.slots_total += w.info.slots_total;
      m.slots_free += w.slots_free();
    }
    h.ready = device_healthy && pool_open(e.pool_id);
  }
  if (it != controls.end()) {
    const PoolControl& control = it->second;
    h.draining = control.draining;
    h.operation = control.operation;
    h.last_error = control.last_error;
    m.worker_failures = control.worker_failures;
    if (h.operation) h.operation->step = step_of(control, m.active_leases);
    if (h.operation && h.operation->state == PoolOperationState::kRunning && control.deadline_timer) {
      h.operation->deadline_ms = std::max<std::int64_t>(0, control.deadline_ms - now.mono_ms);
    }
  }
  emit(AnswerPoolHealth{e.request, std::move(h)});
}

void Brain::State::note_failure(const base::PoolId& id, const Error& error) {
  PoolControl& control = controls[id];
  ++control.worker_failures;
  control.last_error = fmt::format("{}: {}", error.name(), error.message);
}

}  // namespace llorch::orchestratord::brain
