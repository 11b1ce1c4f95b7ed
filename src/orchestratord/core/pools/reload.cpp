// Reload of a pool: another model in the place of its workers, or the old ones again.
#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "base/assert.h"
#include "orchestratord/core/state.h"
#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using pools::Pool;
using wire::PoolControlReply;
using wire::PoolOperation;
using wire::PoolOperationKind;
using wire::PoolOperationState;
using wire::WorkerStatus;

namespace {
// A start is tried twice, as for a waiting job, and each may wait for the memory of the last worker.
constexpr int kTriesMax = 2;
constexpr std::int64_t kPhaseStarts = kTriesMax + 1;

std::set<std::string> devices_in(const std::string& mask) {
  const auto by_rank = wire::devices_of(mask);
  return {by_rank.begin(), by_rank.end()};
}

PoolOperation operation_of(const wire::DesiredReload& order) {
  return {.kind = PoolOperationKind::kReload,
          .state = order.state,
          .step = {},
          .model_ref = order.model.model_ref,
          .deadline_ms = {}};
}
}  // namespace

void DesiredStates::on(ReloadPool& e) {
  const auto refuse_with = [&](Error error) {
    refuse_request(e.request, std::move(error).with("pool_id", e.pool_id.value));
  };
  Pool* pool = registry_.find_pool(e.pool_id);
  if (!pool) return refuse_request(e.request, pool_not_found(e.pool_id));
  PoolControl& control = controls_[e.pool_id];
  if (!control.open() || control.commit_pending) {
    return refuse_with({ErrorCode::kConflict,
                        control.draining() ? "The pool is draining. Take the drain back first."
                                           : "The pool is being reloaded or drained already, or leaves.",
                        {}});
  }
  if (pool->status != wire::PoolStatus::kHealthy) {
    return refuse_with({ErrorCode::kPoolUnready, "The pool is out of reach. Try again when it is back.", {}});
  }
  std::int64_t potential_max = 0;
  for (const auto& place : pools::places_for(*pool, e.model.devices, {})) {
    potential_max = std::max(potential_max, place.potential_bytes());
  }
  if (potential_max < e.model.memory_bytes) {
    return refuse_with(Error{
        ErrorCode::kInsufficientVram,
        e.model.devices == 1
            ? fmt::format("A worker of this model needs {} bytes; the largest device of the pool can give {}. Nothing "
                          "was changed.",
                          e.model.memory_bytes, potential_max)
            : fmt::format(
                  "A worker of this model needs {} bytes of each of {} devices; the best of the pool can give {} "
                  "each. Nothing was changed.",
                  e.model.memory_bytes, e.model.devices, potential_max),
        {}}.with("required_bytes", e.model.memory_bytes)
                           .with("available_bytes", potential_max));
  }
  PoolCommit commit{PoolCommit::Kind::kReload, e.request, e.pool_id, control.desired, e.deadline_ms};
  wire::DesiredReload& order = commit.desired.reload.emplace();
  order.model = e.model;
  for (const auto& [id, w] : pool->workers) {
    if (w.info.status != WorkerStatus::kReady || w.info.model_digest.empty()) continue;
    order.before.push_back({.gpu_id = w.info.gpu_id, .model = model(s_.filling.model_held_by(w)).facts});
  }
  commit_desired_state(std::move(commit));
}

Reload Filling::reload_of(const wire::DesiredReload& order) {
  Reload reload{.to = models_.renew(order.model), .before = {}, .places = {}, .error = {}};
  for (const wire::DesiredReload::Place& place : order.before) {
    reload.before.push_back({.gpu_id = place.gpu_id, .model = models_.renew(place.model), .worker = {}});
  }
  return reload;
}

void DesiredStates::reload_begins(const PoolCommit& commit, PoolControl& control) {
  const wire::DesiredReload& order = *control.desired.reload;
  control.reload = s_.filling.reload_of(order);
  control.operation = operation_of(order);
  control.forced = false;
  arm_deadline(commit.pool_id, control, commit.deadline_ms);
  PoolControlReply reply{commit.pool_id.value, "reloading", {}};
  if (const Pool* pool = registry_.find_pool(commit.pool_id)) {
    for (const auto& [id, w] : pool->workers) reply.workers.push_back(id.value);
  }
  emit(Count{Metric::kDrains, "reload", {}, 1, commit.pool_id.value});
  log(base::LogLevel::kInfo, "pool.reloading", "A pool changes its model.",
      {{"pool_id", commit.pool_id}, {"model_digest", order.model.digest}, {"workers", reply.workers.size()}});
  emit(AnswerPoolControl{commit.request, std::move(reply)});
}

// What a restart found. One that was not over begins again, with whatever workers its pool has by then.
void DesiredStates::restore_reload(const base::PoolId& id, PoolControl& control) {
  const wire::DesiredReload& order = *control.desired.reload;
  control.operation = operation_of(order);
  control.last_error = order.error;
  if (order.state != PoolOperationState::kRunning) return;
  control.reload = s_.filling.reload_of(order);
  control.reload->pool_until_ms = now_.mono_ms + config_.pool_offline_grace_ms;
  recheck_all_at(control.reload->pool_until_ms);
  log(base::LogLevel::kInfo, "pool.reloading", "The reload of a pool was cut off by a restart and begins again.",
      {{"pool_id", id}, {"model_digest", order.model.digest}});
}

ModelIndex Filling::model_held_by(const Worker& w) {
  if (const Model* known = models_.find(w.info.model_digest)) return known->index;
  wire::ModelFacts facts;
  facts.model_ref = w.info.model_ref;
  facts.digest = w.info.model_digest;
  facts.context_length = w.info.context_length;
  facts.devices = std::ssize(w.devices);
  for (const std::string& gpu_id : w.devices) facts.memory_bytes = std::max(facts.memory_bytes, w.bytes_on(gpu_id));
  return models_.intern(facts);
}

void DesiredStates::advance_reload(const base::PoolId& id, PoolControl& control) {
  Reload& reload = *control.reload;
  if (reload.phase == Reload::Phase::kEnding) return;
  Pool* pool = registry_.find_pool(id);
  if (!pool) {
    if (now_.mono_ms < reload.pool_until_ms) return;
    reload.error = Error{ErrorCode::kPoolUnready, "The pool was lost during the reload.", {}};
    return conclude_reload(id, control, PoolOperationState::kFailed);
  }
  if (reload.empties()) {
    if (!is_empty(*pool)) return;
    const bool undone = reload.phase == Reload::Phase::kUndoing;
    reload.phase = undone ? Reload::Phase::kRefilling : Reload::Phase::kFilling;
    reload.places = undone ? reload.before : s_.filling.places_for(*pool, reload);
    reload.until_ms = now_.mono_ms + kPhaseStarts * config_.worker_start_timeout_ms;
    timers_.cancel(control.deadline_timer);
    control.forced = false;
    recheck_all_at(reload.until_ms);
  }
  const auto filled = s_.filling.fill(*pool, reload);
  if (filled && !*filled) return;  // not yet
  if (filled) {
    return conclude_reload(
        id, control,
        reload.phase == Reload::Phase::kFilling ? PoolOperationState::kDone : PoolOperationState::kRolledBack);
  }
  if (!reload.error) reload.error = filled.error();
  if (reload.phase == Reload::Phase::kRefilling) return conclude_reload(id, control, PoolOperationState::kFailed);
  log(base::LogLevel::kWarn, "pool.reload_failed", "The new model did not start; the old one comes back.",
      {{"pool_id", id}, {"code", reload.error->name()}});
  reload.phase = Reload::Phase::kUndoing;
  recheck_.all();
}

// Told, and the pool opened, once the disk has it: a restart must not begin again what somebody was told is over.
void DesiredStates::conclude_reload(const base::PoolId& id, PoolControl& control, PoolOperationState state) {
  Reload& reload = *control.reload;
  ASSERT(!control.settling && !control.commit_pending,
         "pool {}: a reload ends while its desired state is being written", id.value);
  reload.phase = Reload::Phase::kEnding;
  control.desired.reload->state = state;
  if (reload.error) {
    control.desired.reload->error = fmt::format("{}: {}", reload.error->name(), reload.error->message);
  }
  control.unsettled = true;
  settle_desired_state(id, control);
}

void DesiredStates::reload_ends(const base::PoolId& id, PoolControl& control) {
  if (!control.reload || control.reload->phase != Reload::Phase::kEnding) return;
  end_operation(id, control, control.desired.reload->state);
}

void DesiredStates::put_start_off(const base::PoolId& id, const base::WorkerId& worker, std::int64_t until_ms) {
  const auto control = controls_.find(id);
  if (control == controls_.end() || !control->second.reload) return;
  for (Reload::Place& place : control->second.reload->places) {
    if (place.worker != worker) continue;
    place.worker.reset();
    place.not_before_ms = until_ms;
  }
}

std::vector<Reload::Place> Filling::places_for(const Pool& pool, const Reload& reload) const {
  const wire::ModelFacts& facts = model(reload.to).facts;
  std::set<std::string> held;  // taken out as they are given to the new model
  for (const Reload::Place& place : reload.before) held.merge(devices_in(place.gpu_id));
  std::vector<Reload::Place> places;
  std::string largest;
  std::int64_t largest_bytes = -1;
  for (const auto& place : pools::places_for(pool, facts.devices, {})) {
    const std::int64_t bytes = place.potential_bytes();
    const std::set<std::string> devices = devices_in(place.mask);
    if (bytes >= facts.memory_bytes && std::ranges::includes(held, devices)) {
      places.push_back({.gpu_id = place.mask, .model = reload.to, .worker = {}});
      for (const std::string& gpu_id : devices) held.erase(gpu_id);
    }
    if (bytes <= largest_bytes) continue;
    largest = place.mask;
    largest_bytes = bytes;
  }
  if (places.empty() && !largest.empty()) places.push_back({.gpu_id = largest, .model = reload.to, .worker = {}});
  return places;
}

bool Filling::may_start(const Pool& pool, const std::string& mask, const wire::ModelFacts& facts) const {
  const auto devices_count = std::ssize(wire::devices_of(mask));
  const auto places = pools::places_for(pool, devices_count, mask);
  if (places.empty() || pool.status != wire::PoolStatus::kHealthy) return false;
  const pools::Place& place = places.front();
  // One load per model and device at a time.
  const auto loads_it = [&](const Worker* w) {
    return w->info.status == WorkerStatus::kStarting && w->info.model_digest == facts.digest;
  };
  const auto takes_one_more = [&](const pools::Device* device) {
    return !device->doubted && !device->is_overfull() && std::ssize(device->workers) < config_.workers_per_gpu &&
           std::ranges::none_of(device->workers, loads_it);
  };
  return place.is_healthy() && place.free_bytes() >= facts.memory_bytes &&
         std::ranges::all_of(place.devices, takes_one_more);
}

base::Result<bool> Filling::fill(Pool& pool, Reload& reload) {
  bool all_ready = true;
  for (Reload::Place& place : reload.places) {
    Model& m = model(place.model);
    if (place.worker) {
      const Worker* w = registry_.find_worker(*place.worker);
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
    if (now_.mono_ms >= place.not_before_ms && may_start(pool, place.gpu_id, m.facts))
      place.worker = s_.workers.start_worker({place.model, {}}, pool.id, place.gpu_id);
  }
  if (all_ready || now_.mono_ms < reload.until_ms) return all_ready;
  return base::fail(ErrorCode::kWorkerStartTimeout, "The pool did not get its workers in time.");
}

}  // namespace llorch::orchestratord::core
