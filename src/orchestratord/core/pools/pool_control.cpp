// Drain and purge of a pool, and its health. A desired state is durable before anything is done for it: what an operator was told holds over a
// restart.
#include "orchestratord/core/pools/pool_control.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "orchestratord/core/state.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using pools::GoneWorker;
using pools::Pool;
using wire::PoolControlReply;
using wire::PoolOperation;
using wire::PoolOperationKind;
using wire::PoolOperationState;
using wire::WorkerStatus;

namespace {

using Kind = PoolCommit::Kind;

// Purged workers remembered per pool at least: an order to start one may arrive after the purge, however late.
constexpr std::size_t kPurgedKeptMax = 64;
constexpr const char* kBusy = "The pool is being reloaded or drained, or leaves. Try again when that is over.";

Error conflict(const base::PoolId& id, std::string message) {
  return Error{ErrorCode::kConflict, std::move(message), {}}.with("pool_id", id.value);
}

std::vector<std::string> ids_of(const Pool& pool) {
  std::vector<std::string> ids;
  for (const auto& [id, w] : pool.workers) ids.push_back(id.value);
  return ids;
}

PoolOperation drain_operation() {
  return {.kind = PoolOperationKind::kDrain, .step = {}, .model_ref = {}, .deadline_ms = {}};
}

}  // namespace

base::Error pool_not_found(const base::PoolId& id) {
  return Error{ErrorCode::kPoolNotFound, "No pool has this id; `llorch ls` and GET /v2/pools list what there is.", {}}
      .with("pool_id", id.value);
}

std::string unreadable_desired_state(const base::PoolId& id) {
  return fmt::format(
      "What an operator asked of pool {0} before orchestratord was started cannot be read, so the pool takes no job. "
      "`llorch pool undrain {0}` drops it and opens the pool.",
      id.value);
}

bool DesiredStates::pool_open(const base::PoolId& id) const {
  const Pool* pool = registry_.find_pool(id);
  if (!pool || pool->status != wire::PoolStatus::kHealthy) return false;
  const PoolControl* control = find(id);
  return !control || control->open();
}

const PoolControl* DesiredStates::find(const base::PoolId& id) const {
  const auto it = controls_.find(id);
  return it == controls_.end() ? nullptr : &it->second;
}

bool DesiredStates::all_open() const {
  return std::ranges::all_of(controls_, [](const auto& item) { return item.second.open(); });
}

// ---- desired state and the disk ---------------------------------------------------------------------------------------

void DesiredStates::refuse_request(RequestId request, Error error) {
  emit(AnswerPoolControl{request, base::fail(std::move(error))});
}

void DesiredStates::commit_desired_state(PoolCommit commit) {
  PoolControl& control = controls_[commit.pool_id];
  (commit.is_ours() ? control.settling : control.commit_pending) = true;
  const CommitId commit_id = commits_.number();
  const Pool* pool = registry_.find_pool(commit.pool_id);
  if (commit.kind == Kind::kForget) {
    emit(ForgetPool{commit_id, commit.pool_id});
  } else {
    emit(CommitDesiredState{commit_id, commit.pool_id, pool ? pool->endpoint : std::string(), commit.desired});
  }
  pool_commits_.emplace(commit_id, std::move(commit));
}

bool DesiredStates::desired_state_committed(CommitId id, const Error* error) {
  auto node = pool_commits_.extract(id);
  if (node.empty()) return false;
  PoolCommit& commit = node.mapped();
  PoolControl& control = controls_.at(commit.pool_id);
  (commit.is_ours() ? control.settling : control.commit_pending) = false;
  control.unsettled = error != nullptr;
  recheck_.all();
  if (error) {
    control.settle_at_ms = now_.mono_ms + config_.store_retry_ms;
    recheck_all_at(control.settle_at_ms);
    if (commit.is_ours()) return true;
    refuse_request(commit.request, {ErrorCode::kStoreUnavailable,
                                    "The job store cannot write now, so nothing changes before a restart. Free disk "
                                    "space or repair the state directory, then try again.",
                                    {}});
    return true;
  }
  if (!control.leaving) tell_leavers(control);
  if (commit.kind == Kind::kForget) {
    if (control.left) controls_.erase(commit.pool_id);
    return true;
  }
  control.desired = std::move(commit.desired);
  switch (commit.kind) {
    case Kind::kDrain: drain_begins(commit, control); break;
    case Kind::kUndrain: drain_ends(commit, control); break;
    case Kind::kReload: reload_begins(commit, control); break;
    case Kind::kPurge: purge_begins(commit); break;
    case Kind::kSettle: reload_ends(commit.pool_id, control); break;
    case Kind::kForget: break;
  }
  return true;
}

void DesiredStates::tell_leavers(PoolControl& control) {
  for (const RequestId request : std::exchange(control.leavers, {})) {
    emit(AnswerPool{request, config_.heartbeat.interval_ms});
  }
}

// The disk may hold what was refused, or not yet what was decided. Until it does, a restart would find something else.
void DesiredStates::settle_desired_state(const base::PoolId& id, PoolControl& control) {
  if (!control.unsettled || control.settling || control.commit_pending || now_.mono_ms < control.settle_at_ms) return;
  commit_desired_state({control.left ? Kind::kForget : Kind::kSettle, {}, id, control.desired});
}

void DesiredStates::restore_desired_states(std::map<base::PoolId, wire::PoolDesiredState>& pools) {
  for (auto& [id, desired] : pools) {
    PoolControl& control = controls_[id];
    control.desired = std::move(desired);
    if (control.desired.reload) restore_reload(id, control);
    if (control.desired.unreadable) {
      // Whatever it was, a pool without jobs does nothing against it.
      control.desired.draining = true;
      log(base::LogLevel::kError, "pool.desired_state_unreadable",
          "What was asked of a pool cannot be read; it takes no job until an operator takes that back.",
          {{"pool_id", id}});
    }
    if (!control.draining()) continue;
    control.forced = true;  // nothing of this process runs there
    control.operation = drain_operation();
  }
}

// Its row goes; whoever asked for that is told when it has gone. Until then nothing else is left of the pool here.
void DesiredStates::pool_deregistered(const base::PoolId& id, PoolControl& control) {
  if (control.reload) {
    control.reload->error = Error{ErrorCode::kPoolUnready, "The pool left during the reload.", {}};
    end_operation(id, control, PoolOperationState::kFailed);
  }
  timers_.cancel(control.deadline_timer);
  // What is on its way to the disk goes with the pool's row, and is not for a pool that comes back under this id.
  std::erase_if(pool_commits_, [&](const auto& item) {
    const PoolCommit& commit = item.second;
    if (commit.pool_id != id) return false;
    if (!commit.is_ours()) refuse_request(commit.request, pool_not_found(id));
    return true;
  });
  std::vector<RequestId> leavers = std::move(control.leavers);
  control = {};
  control.left = control.unsettled = true;
  control.leavers = std::move(leavers);
  log_limited(base::LogLevel::kInfo, "pool.left", nullptr, "A pool has left.", {{"pool_id", id}});
  settle_desired_state(id, control);
}

// ---- deregistration -------------------------------------------------------------------------------------------------

void DesiredStates::on(PoolDeregistered& e) {
  const auto control = controls_.find(e.pool_id);
  if (control != controls_.end() && control->second.left) {
    if (e.request) control->second.leavers.push_back(*e.request);
    return;
  }
  if (!registry_.find_pool(e.pool_id) && control == controls_.end()) {
    if (e.request) emit(AnswerPool{*e.request, base::fail(pool_not_found(e.pool_id))});
    return;
  }
  PoolControl& leaver = controls_[e.pool_id];
  leaver.leaving = true;
  if (e.request) leaver.leavers.push_back(*e.request);
  recheck_.all();
  let_go(e.pool_id, leaver);
}

// Of a pool that is forgotten with a start on its way nobody would know that it loads a worker.
void DesiredStates::let_go(const base::PoolId& id, PoolControl& control) {
  if (!control.leaving) return;
  if (const Pool* pool = registry_.find_pool(id)) {
    const auto on_its_way = [](const auto& item) { return !item.second.answered; };
    if (std::any_of(pool->workers.begin(), pool->workers.end(), on_its_way)) return;
  }
  const bool was_registered = registry_.find_pool(id) != nullptr;
  for (const GoneWorker& gone : registry_.drop_pool(id)) s_.workers.worker_gone(gone, std::nullopt);
  if (was_registered && !control.leavers.empty()) {
    s_.pools.pool_left(id);
  } else {
    s_.attempts.forget_refusals(id);  // it was unpaired
  }
  recheck_.all();
  pool_deregistered(id, control);
}

// What an operator asked of a pool is not for another one to take back: only its address is gone. A reload that is over asks nothing,
// and the workers of a purge went with the pool.
void DesiredStates::pool_replaced(const base::PoolId& id) {
  const PoolControl* control = find(id);
  const auto asks = [](const wire::PoolDesiredState& desired) {
    return desired.draining || desired.unreadable ||
           (desired.reload && desired.reload->state == PoolOperationState::kRunning);
  };
  const bool is_kept = control && !control->left && !control->leaving && (asks(control->desired) || control->busy());
  if (!is_kept) return pool_deregistered(id, controls_[id]);
  emit(RememberPool{id, ""});
  log_limited(base::LogLevel::kWarn, "pool.replaced", nullptr,
              "Another pool has the address of a pool that is out of reach.", {{"pool_id", id}});
}

void DesiredStates::pool_back(const base::PoolId& id, bool rebooted) {
  const auto control = controls_.find(id);
  if (control == controls_.end()) return;
  // The process that deregistered is over, and with it what was on its way to it.
  if (control->second.leaving && rebooted) pool_deregistered(id, control->second);
  // Its row may not have gone yet: it is written over then, and with it what was asked of the pool before.
  control->second.left = false;
}

// ---- drain ----------------------------------------------------------------------------------------------------------

void DesiredStates::on(DrainPool& e) {
  const Pool* pool = registry_.find_pool(e.pool_id);
  if (!pool) return refuse_request(e.request, pool_not_found(e.pool_id));
  PoolControl& control = controls_[e.pool_id];
  if (control.busy()) return refuse_request(e.request, conflict(e.pool_id, kBusy));
  if (control.draining() && !control.unsettled) {  // only the deadline is new
    arm_deadline(e.pool_id, control, e.deadline_ms);
    return emit(AnswerPoolControl{e.request, PoolControlReply{e.pool_id.value, "draining", ids_of(*pool)}});
  }
  wire::PoolDesiredState desired = control.desired;
  desired.draining = true;
  desired.reload.reset();  // it was the last operation until now
  commit_desired_state({Kind::kDrain, e.request, e.pool_id, std::move(desired), e.deadline_ms});
}

void DesiredStates::on(UndrainPool& e) {
  const PoolControl* control = find(e.pool_id);
  if (!registry_.find_pool(e.pool_id) && (!control || control->left)) {
    return refuse_request(e.request, pool_not_found(e.pool_id));
  }
  if (control && control->busy()) return refuse_request(e.request, conflict(e.pool_id, kBusy));
  if (!control || (!control->draining() && !control->unsettled)) {
    return emit(AnswerPoolControl{e.request, PoolControlReply{e.pool_id.value, "serving", {}}});
  }
  wire::PoolDesiredState desired = control->desired;
  desired.draining = false;
  desired.unreadable.reset();
  commit_desired_state({Kind::kUndrain, e.request, e.pool_id, std::move(desired)});
}

void DesiredStates::drain_begins(const PoolCommit& commit, PoolControl& control) {
  control.operation = drain_operation();
  arm_deadline(commit.pool_id, control, commit.deadline_ms);
  emit(Count{Metric::kDrains, "drain", {}, 1, commit.pool_id.value});
  log(base::LogLevel::kInfo, "pool.draining", "A pool takes no more jobs.",
      {{"pool_id", commit.pool_id}, {"deadline_ms", commit.deadline_ms}});
  const Pool* pool = registry_.find_pool(commit.pool_id);
  emit(AnswerPoolControl{commit.request, PoolControlReply{commit.pool_id.value, "draining",
                                                          pool ? ids_of(*pool) : std::vector<std::string>()}});
}

void DesiredStates::drain_ends(const PoolCommit& commit, PoolControl& control) {
  const bool undone = control.operation && control.operation->state == PoolOperationState::kRunning;
  end_operation(commit.pool_id, control, undone ? PoolOperationState::kRolledBack : PoolOperationState::kDone);
  log(base::LogLevel::kInfo, "pool.undrained", "A pool takes jobs again.", {{"pool_id", commit.pool_id}});
  emit(AnswerPoolControl{commit.request, PoolControlReply{commit.pool_id.value, "serving", {}}});
}

void DesiredStates::arm_deadline(const base::PoolId& id, PoolControl& control, std::int64_t deadline_ms) {
  timers_.cancel(control.deadline_timer);
  control.deadline_ms = now_.mono_ms + deadline_ms;
  control.deadline_timer = timers_.arm(control.deadline_ms, {.kind = TimerKind::kPoolDeadline, .name = id.value});
}

// What still runs goes back to the queue, its attempt uncounted, and runs again from the start elsewhere or later.
void DesiredStates::deadline_over(const base::PoolId& id) {
  const auto it = controls_.find(id);
  if (it == controls_.end()) return;
  it->second.deadline_timer.reset();
  it->second.forced = true;
  recheck_.all();
  std::int64_t count = 0;
  for (Execution& x : jobs_.executions()) {
    if (x.aborted || jobs_.of(x).pool_id != id) continue;
    s_.attempts.abort(x);
    ++count;
  }
  if (count == 0) return;
  log(base::LogLevel::kInfo, "pool.deadline",
      "The deadline of a drain is over; what runs there goes back to the queue.", {{"pool_id", id}, {"jobs", count}});
}

void DesiredStates::end_operation(const base::PoolId& id, PoolControl& control, PoolOperationState state) {
  timers_.cancel(control.deadline_timer);
  control.forced = false;
  if (control.operation) control.operation->state = state;
  if (control.reload) {
    if (control.reload->error) {
      control.last_error = fmt::format("{}: {}", control.reload->error->name(), control.reload->error->message);
    }
    log(state == PoolOperationState::kDone ? base::LogLevel::kInfo : base::LogLevel::kWarn, "pool.reloaded",
        "The reload of a pool is over.",
        {{"pool_id", id},
         {"state", wire::enum_name(state)},
         {"code", control.reload->error ? control.reload->error->name() : std::string_view("")}});
    control.reload.reset();
  }
  recheck_.all();
}

void DesiredStates::advance_controls() {
  for (auto& [id, control] : controls_) {
    let_go(id, control);
    settle_desired_state(id, control);
    const Pool* pool = registry_.find_pool(id);
    if (control.reload) {
      advance_reload(id, control);
    } else if (control.draining() && pool) {
      advance_drain(*pool, control);
    }
  }
}

// Workers of a pool that is being emptied leave as they become idle.
void DesiredStates::empty_pools() {
  for (const auto& [pool_id, control] : controls_) {
    Pool* pool = control.empties() ? registry_.find_pool(pool_id) : nullptr;
    if (!pool) continue;
    for (auto& [id, w] : pool->workers) {
      const bool ready = w.info.status == WorkerStatus::kReady;
      // The deadline of a drain is for what loads, too; nobody's job depends on it.
      const bool given_up = w.info.status == WorkerStatus::kStarting && control.draining() && control.forced;
      if ((ready && w.slots_in_use == 0) || given_up)
        s_.workers.stop_worker(w, control.draining() ? "drain" : "reload");
    }
  }
}

std::string DesiredStates::wait_for_pool(std::string_view where) const {
  for (const auto& [id, control] : controls_) {
    if (control.desired.unreadable) return unreadable_desired_state(id);
    if (control.draining()) {
      return fmt::format(
          "No open pool{} can hold this model now, and pool {} is draining. The job goes on when `llorch pool undrain "
          "{}` "
          "takes that back or another pool comes.",
          where, id.value, id.value);
    }
    if (control.reload) return fmt::format("Pool {} is being reloaded; the job goes on when that is over.", id.value);
  }
  return fmt::format("No healthy pool{} can hold this model now; the job goes on when one is back.", where);
}

// True once nothing of all this is on its way any more.
bool DesiredStates::settle_all() {
  bool pending = false;
  for (auto& [id, control] : controls_) {
    let_go(id, control);
    settle_desired_state(id, control);
    pending |= control.leaving || control.unsettled || control.settling;
  }
  return !pending && pool_commits_.empty();
}

void DesiredStates::advance_drain(const Pool& pool, PoolControl& control) {
  PoolOperationState& state = control.operation->state;
  if (state == PoolOperationState::kRunning && is_empty(pool)) {
    // The deadline stays armed: an attempt may still wait for the connection of a dead worker to break.
    state = PoolOperationState::kDone;
    log(base::LogLevel::kInfo, "pool.drained", "A pool is empty.", {{"pool_id", pool.id}});
  } else if (state == PoolOperationState::kDone && !pool.workers.empty()) {
    state = PoolOperationState::kRunning;  // a start that nobody expected any more; its worker leaves as well
  }
}

// ---- purge ----------------------------------------------------------------------------------------------------------

void DesiredStates::on(PurgePool& e) {
  const Pool* pool = registry_.find_pool(e.pool_id);
  if (!pool) return refuse_request(e.request, pool_not_found(e.pool_id));
  PoolControl& control = controls_[e.pool_id];
  if (control.busy()) return refuse_request(e.request, conflict(e.pool_id, kBusy));
  if (control.desired.unreadable)
    return refuse_request(e.request, conflict(e.pool_id, unreadable_desired_state(e.pool_id)));
  PoolCommit commit{Kind::kPurge, e.request, e.pool_id, control.desired};
  commit.force = e.force;
  std::int64_t busy = 0;
  for (const auto& [id, w] : pool->workers) {
    const auto is_it = [&](const std::string& name) { return name == w.info.model_ref || name == w.info.model_digest; };
    if (leaves(w) || (!e.models.empty() && std::none_of(e.models.begin(), e.models.end(), is_it))) continue;
    commit.workers.push_back(id.value);
    if (!w.retiring) commit.desired.purged.push_back(id.value);
    busy += w.slots_in_use > 0;
  }
  auto& purged = commit.desired.purged;
  const std::size_t kept = std::min(purged.size(), std::max(kPurgedKeptMax, commit.workers.size()));
  purged.erase(purged.begin(), purged.end() - static_cast<std::ptrdiff_t>(kept));
  if (busy > 0 && !e.drain_first && !e.force) {
    return refuse_request(e.request,
                          conflict(e.pool_id, fmt::format("{} of {} workers are busy, so none is stopped. Let their "
                                                          "jobs finish (drain_first) or send them back to the "
                                                          "queue (force).",
                                                          busy, commit.workers.size()))
                              .with("busy", busy));
  }
  commit_desired_state(std::move(commit));
}

void DesiredStates::purge_begins(const PoolCommit& commit) {
  std::int64_t busy = 0;
  for (const std::string& id : commit.workers) {
    Worker* w = registry_.find_worker(base::WorkerId(id));
    if (!w || leaves(*w)) continue;  // went by itself meanwhile
    busy += w->slots_in_use > 0;
    s_.workers.retire(*w);
    for (Execution& x : jobs_.executions()) {
      if (commit.force && x.worker_id == w->id && !x.aborted) s_.attempts.abort(x);
    }
  }
  emit(Count{Metric::kDrains, "purge", {}, 1, commit.pool_id.value});
  log(base::LogLevel::kInfo, "pool.purging", "Workers of a pool leave because an operator said so.",
      {{"pool_id", commit.pool_id}, {"workers", commit.workers.size()}, {"busy", busy}, {"force", commit.force}});
  emit(AnswerPoolControl{commit.request, PoolControlReply{commit.pool_id.value, "purging", commit.workers}});
}

bool DesiredStates::is_purged(const Worker& w) const {
  const PoolControl* control = find(w.pool_id);
  return control && std::ranges::find(control->desired.purged, w.id.value) != control->desired.purged.end();
}

// ---- health ---------------------------------------------------------------------------------------------------------

std::string DesiredStates::step_of(const PoolControl& control, const Pool* pool, std::int64_t leases) const {
  if (!control.operation || control.operation->state != PoolOperationState::kRunning) return {};
  if (!pool) return "the pool has not been heard of since a restart";
  if (pool->status != wire::PoolStatus::kHealthy) return "the pool is out of reach";
  if (control.reload && control.reload->phase == Reload::Phase::kEnding) return "its end is being written";
  if (control.empties()) {
    if (leases > 0) return fmt::format("{} jobs run on its workers", leases);
    return control.reload && control.reload->phase == Reload::Phase::kUndoing ? "what was started leaves"
                                                                              : "its workers leave";
  }
  return control.reload && control.reload->phase == Reload::Phase::kRefilling ? "workers of the old model start"
                                                                              : "workers of the new model start";
}

void DesiredStates::on(QueryPoolHealth& e) {
  const Pool* pool = registry_.find_pool(e.pool_id);
  const PoolControl* control = find(e.pool_id);
  if (!pool && (!control || control->left)) return emit(AnswerPoolHealth{e.request, std::nullopt});
  wire::PoolHealthReport h;
  h.pool_id = e.pool_id.value;
  auto& m = h.metrics;
  if (pool) {
    h.live = pool->status == wire::PoolStatus::kHealthy;
    h.last_heartbeat_ms = now_.mono_ms - pool->last_seen_ms;
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
  if (control) {
    h.draining = control->draining();
    h.operation = control->operation;
    h.last_error = control->desired.unreadable ? unreadable_desired_state(e.pool_id) : control->last_error;
    m.worker_failures = control->worker_failures;
    if (h.operation) h.operation->step = step_of(*control, pool, m.active_leases);
    if (h.operation && h.operation->state == PoolOperationState::kRunning && control->deadline_timer) {
      h.operation->deadline_ms = std::max<std::int64_t>(0, control->deadline_ms - now_.mono_ms);
    }
  }
  emit(AnswerPoolHealth{e.request, std::move(h)});
}

void DesiredStates::note_failure(const base::PoolId& id, const Error& error) {
  PoolControl& control = controls_[id];
  ++control.worker_failures;
  control.last_error = fmt::format("{}: {}", error.name(), error.message);
}

void DesiredStates::verify() const {
  for (const auto& [commit_id, commit] : pool_commits_) {
    const PoolControl* control = find(commit.pool_id);
    ASSERT(control && (commit.is_ours() ? control->settling : control->commit_pending), "pool {}",
           commit.pool_id.value);
  }
  for (const auto& [id, control] : controls_) {
    ASSERT(!control.reload || control.desired.reload, "pool {} is reloaded and nobody asked for it", id.value);
    ASSERT(!control.draining() || control.operation, "pool {} drains without an operation", id.value);
  }
}

}  // namespace llorch::orchestratord::core
