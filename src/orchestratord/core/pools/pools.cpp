// Registration, heartbeats, silence and deregistration of pools.

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "orchestratord/core/state.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using pools::Changes;
using pools::GoneWorker;
using pools::Pool;
using pools::PoolRegistry;

namespace {
// After a failed call the pool is asked again this soon: most are back within moments.
constexpr std::int64_t kAskAgainMs = 2000;
// A stop the pool does not seem to have heard is sent again.
constexpr std::int64_t kRepeatStopMs = 5000;
}  // namespace

void Pools::expect_endpoint(const std::string& endpoint, std::int64_t until_ms) {
  if (!expected_endpoints_.emplace(endpoint, until_ms).second) return;
  ask_state(endpoint);
  timers_.arm(now_.mono_ms + std::min(kAskAgainMs, config_.heartbeat.interval_ms),
              {.kind = TimerKind::kEndpoint, .name = endpoint});
}

void Pools::check_endpoint(const std::string& endpoint) {
  const auto it = expected_endpoints_.find(endpoint);
  if (it == expected_endpoints_.end()) return;
  const bool configured =
      std::find(config_.pool_endpoints.begin(), config_.pool_endpoints.end(), endpoint) != config_.pool_endpoints.end();
  const bool expired = now_.mono_ms >= it->second;
  if (expired) recheck_.all();  // what waited for it may now be told that nobody can serve it
  if (expired && !configured) {
    expected_endpoints_.erase(it);
    return;
  }
  ask_state(endpoint);
  timers_.arm(
      now_.mono_ms + (expired ? config_.heartbeat.interval_ms : std::min(kAskAgainMs, config_.heartbeat.interval_ms)),
      {.kind = TimerKind::kEndpoint, .name = endpoint});
}

bool Pools::pools_expected() const {
  return std::any_of(expected_endpoints_.begin(), expected_endpoints_.end(),
                     [&](const auto& item) { return now_.mono_ms < item.second; });
}

void Pools::arm_pool_timer(const base::PoolId& id, std::int64_t when_ms) {
  std::optional<TimerQueue::Handle> old;
  if (const auto it = pool_timers_.find(id); it != pool_timers_.end()) old = it->second;
  timers_.cancel(old);
  pool_timers_[id] = timers_.arm(when_ms, {.kind = TimerKind::kPool, .name = id.value});
}

void Pools::pool_left(const base::PoolId& id) {
  awaited_.insert(id);
  arm_pool_timer(id, now_.mono_ms + config_.pool_offline_grace_ms);
}

void Pools::on(PoolSeen& e) {
  const base::PoolId id(e.state.pool_id);
  const Changes changes = registry_.apply(e.state, e.request ? std::nullopt : std::optional(e.asked_ms), now_);
  if (changes.taken == Changes::Taken::kConflict) return pool_conflict(e, changes);
  const auto answer = [&] {
    if (e.request) emit(AnswerPool{*e.request, config_.heartbeat.interval_ms});
  };
  count(Metric::kHeartbeatsReceived, id.value);
  if (changes.taken == Changes::Taken::kStale && !changes.recovered) return answer();
  recheck_.all();
  expected_endpoints_.erase(e.state.endpoint);
  if (e.asked_endpoint) expected_endpoints_.erase(*e.asked_endpoint);
  for (const base::PoolId& other : changes.replaced) {
    s_.desired.pool_replaced(other);
    s_.attempts.forget_refusals(other);
  }
  const bool was_awaited = awaited_.erase(id) > 0;
  if (changes.rebooted || was_awaited) s_.attempts.forget_refusals(id);  // its workers may have another version now
  s_.desired.pool_back(id, changes.rebooted);
  const bool is_news = changes.is_new || changes.moved || changes.rebooted || changes.recovered;
  // Of a pool that was removed while it was asked, only its own report names an address that calls may go to. So the first one
  // counts, and the first one while calls to it fail.
  Pool& pool = *registry_.find_pool(id);
  const bool tells_address = e.request && std::exchange(pool.address_is_due, false);
  if (changes.is_new) pool.address_is_due = !e.request;
  if (is_news || tells_address) emit(RememberPool{id, e.state.endpoint});
  answer();  // by now it is known where the pool is, for what it says next
  if (is_news) {
    log_limited(base::LogLevel::kInfo, "pool.registered", nullptr, "A pool is here.",
                {{"pool_id", id},
                 {"gpus", e.state.gpus.size()},
                 {"workers", e.state.workers.size()},
                 {"rebooted", changes.rebooted},
                 {"recovered", changes.recovered}});
  }
  for (const GoneWorker& gone : changes.gone) s_.workers.worker_gone(gone, std::nullopt);
  for (const base::WorkerId& worker : changes.adopted) s_.workers.worker_adopted(worker);
  for (const base::WorkerId& worker : changes.became_ready) s_.workers.worker_ready(worker);
  repeat_stops(pool);
  arm_pool_timer(id, now_.mono_ms + config_.heartbeat.interval_ms * 3 / 2);
  if (changes.rebooted || changes.moved) pool.asked_ms = 0;  // another one was asked
  if (pool.unreachable_since_ms) ask_again(pool);
}

void Pools::ask_state(const std::string& endpoint) { emit(AskPoolState{endpoint, now_.mono_ms}); }

// It is there, and calls to it have failed: whether they still do is asked with each of its reports, and not more often.
void Pools::ask_again(Pool& pool) {
  const std::int64_t due_ms = pool.asked_ms + std::min(kAskAgainMs, config_.heartbeat.interval_ms);
  if (pool.asked_ms > 0 && now_.mono_ms < due_ms) return arm_pool_timer(pool.id, due_ms);
  pool.asked_ms = now_.mono_ms;
  ask_state(pool.endpoint);
}

void Pools::pool_conflict(const PoolSeen& e, const Changes& changes) {
  const std::string& holder = changes.conflicting_endpoint;
  if (const auto left_out = conflict_lines_.admit(now_.mono_ms)) {
    log(base::LogLevel::kWarn, "pool.conflict", "Another process claims the id or the address of a healthy pool.",
        {{"pool_id", e.state.pool_id},
         {"endpoint", e.state.endpoint},
         {"holder", holder},
         {"left_out_before", *left_out}});
  }
  // If the holder is dead this finds out, and the newcomer's next try succeeds. At the address of one that was replaced it may be
  // itself that answers, and being asked it registers again.
  if (!changes.was_replaced) ask_state(holder);
  if (!e.request) return;
  std::string_view message =
      "A healthy pool with this pool_id is registered from another address. Give each pool its own "
      "pool-managerd.pool_id, or stop the other one.";
  if (changes.was_replaced) {
    message =
        "Another process has registered with this pool's credential and address since this one did. Stop one of the "
        "two, or pair the other machine as a pool of its own.";
  } else if (holder == e.state.endpoint) {
    message =
        "Another healthy pool is registered from this address. Set pool-managerd.advertise to the pool's own host, or "
        "stop the other one.";
  }
  emit(AnswerPool{*e.request,
                  base::fail(Error{ErrorCode::kConflict, std::string(message), {}}.with("pool_id", e.state.pool_id))});
}

void Pools::repeat_stops(Pool& pool) {
  for (auto& [id, worker] : pool.workers) {
    if (!worker.stop_sent_ms || worker.reported_gone || now_.mono_ms - *worker.stop_sent_ms < kRepeatStopMs) continue;
    worker.stop_sent_ms = now_.mono_ms;
    emit(StopWorker{pool.id, pool.endpoint, id});
  }
}

void Pools::pool_lost_contact(Pool& pool, std::string_view why) {
  if (!registry_.mark_unhealthy(pool.id)) return;
  recheck_.all();
  log(base::LogLevel::kWarn, "pool.unavailable", "A pool is out of reach and gets no new work.",
      {{"pool_id", pool.id}, {"reason", why}, {"last_heartbeat_ms", now_.mono_ms - pool.last_seen_ms}});
}

void Pools::pool_unreachable(Pool& pool) {
  PoolRegistry::mark_unreachable(pool, now_);
  pool_lost_contact(pool, "unreachable");
}

void Pools::on(PoolUnreachable& e) {
  Pool* pool = registry_.pool_at(e.endpoint);
  if (!pool || e.asked_ms < pool->answered_ms) return;
  const bool was_healthy = pool->status == wire::PoolStatus::kHealthy;
  pool_unreachable(*pool);
  if (was_healthy) arm_pool_timer(pool->id, now_.mono_ms + std::min(kAskAgainMs, config_.heartbeat.interval_ms));
}

// Silent for one and a half intervals: ask. For the threshold: unhealthy. For the grace beyond: forgotten.
void Pools::check_pool(const base::PoolId& id) {
  pool_timers_.erase(id);
  Pool* pool = registry_.find_pool(id);
  if (!pool) {
    if (awaited_.erase(id) > 0) s_.attempts.forget_refusals(id);
    return;
  }
  const std::int64_t interval_ms = config_.heartbeat.interval_ms;
  const std::int64_t unhealthy_at_ms = pool->last_seen_ms + interval_ms * config_.heartbeat.missed_threshold;
  const std::int64_t gone_at_ms = unhealthy_at_ms + config_.pool_offline_grace_ms;
  if (now_.mono_ms >= gone_at_ms) {
    log(base::LogLevel::kWarn, "pool.offline", "A pool was silent for too long and is forgotten.", {{"pool_id", id}});
    for (const GoneWorker& gone : registry_.drop_pool(id)) s_.workers.worker_gone(gone, std::nullopt);
    s_.attempts.forget_refusals(id);
    recheck_.all();
    return;
  }
  if (now_.mono_ms >= unhealthy_at_ms && pool->status == wire::PoolStatus::kHealthy) {
    log(base::LogLevel::kWarn, "pool.heartbeat_missed", "A pool missed its heartbeats.",
        {{"pool_id", id}, {"missed", config_.heartbeat.missed_threshold}});
    pool_lost_contact(*pool, "heartbeats");
  }
  pool->asked_ms = now_.mono_ms;
  ask_state(pool->endpoint);
  std::int64_t next_ms = now_.mono_ms + interval_ms;
  if (now_.mono_ms < unhealthy_at_ms) next_ms = std::min(next_ms, unhealthy_at_ms);
  arm_pool_timer(id, std::min(next_ms, gone_at_ms));
}

void Pools::verify() const {
  for (const auto& [id, pool] : registry_.pools())
    ASSERT(pool_timers_.contains(id) && !awaited_.contains(id), "pool {} is not watched", id.value);
  for (const base::PoolId& id : awaited_) ASSERT(pool_timers_.contains(id), "pool {} is awaited for ever", id.value);
}

}  // namespace llorch::orchestratord::core
