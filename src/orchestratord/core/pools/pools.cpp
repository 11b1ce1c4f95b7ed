// Registration, heartbeats, silence and goodbye of pools.
#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/core/state.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using pools::Changes;
using pools::Pool;

namespace {
// After a failed call the pool is asked again this soon: most are back within moments.
constexpr std::int64_t kAskAgainMs = 2000;
// A stop the pool does not seem to have heard is sent again.
constexpr std::int64_t kRepeatStopMs = 5000;
}  // namespace

void Core::State::expect_endpoint(const std::string& endpoint, std::int64_t until_ms) {
  if (!expected_endpoints.emplace(endpoint, until_ms).second) return;
  emit(AskPoolState{endpoint});
  timers.arm(now.mono_ms + std::min(kAskAgainMs, config.heartbeat.interval_ms),
             {.kind = TimerKind::kEndpoint, .number = 0, .name = endpoint});
}

void Core::State::check_endpoint(const std::string& endpoint) {
  const auto it = expected_endpoints.find(endpoint);
  if (it == expected_endpoints.end()) return;
  const bool configured =
      std::find(config.pool_endpoints.begin(), config.pool_endpoints.end(), endpoint) != config.pool_endpoints.end();
  const bool expired = now.mono_ms >= it->second;
  if (expired) dirty = true;  // what waited for it may now be told that nobody can serve it
  if (expired && !configured) {
    expected_endpoints.erase(it);
    return;
  }
  emit(AskPoolState{endpoint});
  timers.arm(
      now.mono_ms + (expired ? config.heartbeat.interval_ms : std::min(kAskAgainMs, config.heartbeat.interval_ms)),
      {.kind = TimerKind::kEndpoint, .number = 0, .name = endpoint});
}

bool Core::State::pools_expected() const {
  return std::any_of(expected_endpoints.begin(), expected_endpoints.end(),
                     [&](const auto& item) { return now.mono_ms < item.second; });
}

void Core::State::arm_pool_timer(const base::PoolId& id, std::int64_t when_ms) {
  std::optional<TimerQueue::Handle> old;
  if (const auto it = pool_timers.find(id); it != pool_timers.end()) old = it->second;
  timers.cancel(old);
  pool_timers[id] = timers.arm(when_ms, {.kind = TimerKind::kPool, .number = 0, .name = id.value});
}

void Core::State::on(PoolSeen& e) {
  const base::PoolId id(e.state.pool_id);
  const Changes changes = registry.apply(e.state, now);
  if (changes.taken == Changes::Taken::kConflict) return pool_conflict(e, changes.conflicting_endpoint);
  const auto answer = [&] {
    if (e.request) emit(AnswerPool{*e.request, config.heartbeat.interval_ms});
  };
  count(Metric::kHeartbeatsReceived, id.value);
  if (changes.taken == Changes::Taken::kStale) return answer();
  dirty = true;
  expected_endpoints.erase(e.state.endpoint);
  if (e.asked_endpoint) expected_endpoints.erase(*e.asked_endpoint);
  for (const base::PoolId& other : changes.replaced) pool_left(other, controls[other]);
  pool_back(id, changes.rebooted);
  if (changes.is_new || changes.moved || changes.rebooted) emit(RememberPool{id, e.state.endpoint});
  answer();  // by now it is known where the pool is, for what it says next
  if (changes.is_new || changes.moved || changes.rebooted || changes.recovered) {
    emit(Log{base::LogLevel::kInfo,
             "pool.registered",
             {},
             "A pool is here.",
             {{"pool_id", id},
              {"gpus", e.state.gpus.size()},
              {"workers", e.state.workers.size()},
              {"rebooted", changes.rebooted},
              {"recovered", changes.recovered}}});
  }
  for (const GoneWorker& gone : changes.gone) worker_gone(gone, std::nullopt);
  for (const base::WorkerId& worker : changes.adopted) worker_adopted(worker);
  for (const base::WorkerId& worker : changes.became_ready) worker_ready(worker);
  if (Pool* pool = registry.find_pool(id)) repeat_stops(*pool);
  arm_pool_timer(id, now.mono_ms + config.heartbeat.interval_ms * 3 / 2);
}

void Core::State::pool_back(const base::PoolId& id, bool rebooted) {
  const auto control = controls.find(id);
  if (control == controls.end()) return;
  // The process that said goodbye is over, and with it what was on its way to it.
  if (control->second.leaving && rebooted) pool_left(id, control->second);
  // Its row may not have gone yet: it is written over then, and with it what was asked of the pool before.
  control->second.left = false;
}

void Core::State::pool_conflict(const PoolSeen& e, const std::string& holder) {
  emit(Log{base::LogLevel::kWarn,
           "pool.conflict",
           {},
           "Another process claims the id or the address of a healthy pool.",
           {{"pool_id", e.state.pool_id}, {"endpoint", e.state.endpoint}, {"holder", holder}}});
  // If the holder is dead this finds out, and the newcomer's next try succeeds.
  emit(AskPoolState{holder});
  if (!e.request) return;
  emit(AnswerPool{*e.request, base::fail(Error{
                                  ErrorCode::kConflict,
                                  holder == e.state.endpoint
                                      ? "Another healthy pool is registered from this address. Set "
                                        "pool-managerd.advertise to the pool's own host, or stop the other one."
                                      : "A healthy pool with this pool_id is registered from another address. Give "
                                        "each pool its own pool-managerd.pool_id, or stop the other one.",
                                  {}}.with("pool_id", e.state.pool_id))});
}

void Core::State::repeat_stops(Pool& pool) {
  for (auto& [id, worker] : pool.workers) {
    if (!worker.stop_sent_ms || worker.told_gone || now.mono_ms - *worker.stop_sent_ms < kRepeatStopMs) continue;
    worker.stop_sent_ms = now.mono_ms;
    emit(StopWorker{pool.id, pool.endpoint, id});
  }
}

void Core::State::pool_lost_contact(Pool& pool, std::string_view why) {
  if (!registry.mark_unhealthy(pool.id)) return;
  dirty = true;
  emit(Log{base::LogLevel::kWarn,
           "pool.unavailable",
           {},
           "A pool is out of reach and gets no new work.",
           {{"pool_id", pool.id}, {"reason", why}, {"last_heartbeat_ms", now.mono_ms - pool.last_seen_ms}}});
}

void Core::State::on(PoolUnreachable& e) {
  Pool* pool = registry.pool_at(e.endpoint);
  if (!pool) return;
  const bool was_healthy = pool->status == wire::PoolStatus::kHealthy;
  pool_lost_contact(*pool, "unreachable");
  if (was_healthy) arm_pool_timer(pool->id, now.mono_ms + std::min(kAskAgainMs, config.heartbeat.interval_ms));
}

void Core::State::on(PoolLeft& e) {
  const auto control = controls.find(e.pool_id);
  if (control != controls.end() && control->second.left) {
    if (e.request) control->second.leavers.push_back(*e.request);
    return;
  }
  if (!registry.find_pool(e.pool_id) && control == controls.end()) {
    if (e.request) emit(AnswerPool{*e.request, base::fail(pool_not_found(e.pool_id))});
    return;
  }
  PoolControl& leaver = controls[e.pool_id];
  leaver.leaving = true;
  if (e.request) leaver.leavers.push_back(*e.request);
  dirty = true;
  let_go(e.pool_id, leaver);
}

// Of a pool that is forgotten with a start on its way nobody would know that it loads a worker.
void Core::State::let_go(const base::PoolId& id, PoolControl& control) {
  if (!control.leaving) return;
  if (const Pool* pool = registry.find_pool(id)) {
    const auto on_its_way = [](const auto& item) { return !item.second.answered; };
    if (std::any_of(pool->workers.begin(), pool->workers.end(), on_its_way)) return;
  }
  for (const GoneWorker& gone : registry.drop_pool(id)) worker_gone(gone, std::nullopt);
  dirty = true;
  pool_left(id, control);
}

// Silent for one and a half intervals: ask. For the threshold: unhealthy. For the grace beyond: forgotten.
void Core::State::check_pool(const base::PoolId& id) {
  pool_timers.erase(id);
  Pool* pool = registry.find_pool(id);
  if (!pool) return;
  const std::int64_t interval_ms = config.heartbeat.interval_ms;
  const std::int64_t unhealthy_at_ms = pool->last_seen_ms + interval_ms * config.heartbeat.missed_threshold;
  const std::int64_t gone_at_ms = unhealthy_at_ms + config.pool_offline_grace_ms;
  if (now.mono_ms >= gone_at_ms) {
    emit(Log{base::LogLevel::kWarn,
             "pool.offline",
             {},
             "A pool was silent for too long and is forgotten.",
             {{"pool_id", id}}});
    for (const GoneWorker& gone : registry.drop_pool(id)) worker_gone(gone, std::nullopt);
    dirty = true;
    return;
  }
  if (now.mono_ms >= unhealthy_at_ms && pool->status == wire::PoolStatus::kHealthy) {
    emit(Log{base::LogLevel::kWarn,
             "pool.heartbeat_missed",
             {},
             "A pool missed its heartbeats.",
             {{"pool_id", id}, {"missed", config.heartbeat.missed_threshold}}});
    pool_lost_contact(*pool, "heartbeats");
  }
  emit(AskPoolState{pool->endpoint});
  std::int64_t next_ms = now.mono_ms + interval_ms;
  if (now.mono_ms < unhealthy_at_ms) next_ms = std::min(next_ms, unhealthy_at_ms);
  arm_pool_timer(id, std::min(next_ms, gone_at_ms));
}

}  // namespace llorch::orchestratord::core
