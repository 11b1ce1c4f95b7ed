#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

CoreConfig CoreConfig::from(const config::OrchestratordConfig& c) {
  CoreConfig b;
  b.queue = c.queue;
  b.scheduling = c.scheduling;
  b.eviction = c.eviction;
  b.queue_optimizer = c.queue_optimizer;
  b.timeout = c.timeout;
  b.heartbeat = c.heartbeat;
  b.retry = c.retry;
  b.restart = c.restart;
  b.sessions = c.sessions;
  b.throttle = c.throttle;
  b.quotas = c.quotas;
  b.tenants = c.tenants;
  b.workers_per_gpu = c.limits.workers_per_gpu;
  b.worker_start_timeout_ms = c.worker_start_timeout_ms;
  b.worker_slots = c.worker_slots;
  b.worker_context_tokens = c.worker_context_tokens;
  b.worker_kv_tokens = c.worker_kv_tokens;
  b.worker_image_tokens_max = c.worker_image_tokens_max;
  b.kv_dtype = c.kv_dtype;
  return b;
}

Core::Core(CoreConfig config, base::Entropy& entropy) : state_(std::make_unique<State>(std::move(config), entropy)) {}
Core::~Core() = default;

void Core::step(Event event, base::Time now, std::vector<Command>& out) {
  State& s = *state_;
  ASSERT(now.mono_ms >= s.now.mono_ms, "time went back from {} to {}", s.now.mono_ms, now.mono_ms);
  ASSERT(s.restored != std::holds_alternative<Restored>(event), "Restored comes first, and once");
  s.now = now;
  s.out = &out;
  // The event first: what arrived in time is not to lose against a timer that was read late.
  std::visit([&](auto& e) { s.on(e); }, event);
  s.run_timers();
  s.expire_sessions();
  if (s.queue.advance(now.mono_ms)) s.dirty = true;
  if (s.dirty || !s.touched.empty()) s.schedule();
  s.publish_queue_room();
  s.watch_queue();
  s.check_drained();
}

std::int64_t Core::next_wakeup_ms() const { return state_->next_wakeup_ms(); }

std::int64_t Core::State::next_wakeup_ms() const {
  return std::min({timers.next_ms(), queue.next_due_ms(), sessions.next_expiry_ms()});
}

void Core::State::run_timers() {
  while (const auto timer = timers.pop_due(now.mono_ms)) fire(*timer);
}

void Core::State::fire(const Timer& timer) {
  const auto with_job = [&](auto&& then) {
    if (Job* job = find_job(Arrival{timer.number})) then(*job);
  };
  const auto with_execution = [&](auto&& then) {
    if (Execution* execution = find_execution(ExecutionId{timer.number})) then(*execution);
  };
  switch (timer.kind) {
    case TimerKind::kJobDeadline:
      return with_job([&](Job& job) {
        job.deadline_timer.reset();
        if (job.ending) return;
        const bool queued = job.status == JobStatus::kQueued;
        time_out(job, {.stage = queued ? "queue" : "execution",
                       .limit = "deadline",
                       .timeout_ms = job.spec.deadline_ms.value_or(0),
                       .execution_time_ms = queued ? 0 : now.mono_ms - job.dispatched_ms});
      });
    case TimerKind::kJobQueue:
      return with_job([&](Job& job) {
        job.queue_timer.reset();
        if (job.ending || job.status != JobStatus::kQueued) return;
        time_out(job, {.stage = "queue", .limit = "queue", .timeout_ms = config.timeout.queue_ms});
      });
    case TimerKind::kCancelAnswer:
      return with_job([&](Job& job) {
        job.answer_timer.reset();
        log(base::LogLevel::kWarn, "job.cancel_slow", &job, "The store has not confirmed a cancellation in time.");
        answer_cancels(job, JobStatus::kRunning);
      });
    case TimerKind::kStoreRetry: return with_job([&](Job& job) { commit_ending(job); });
    case TimerKind::kExecutionWall: return with_execution([&](Execution& x) { wall_timer(x); });
    case TimerKind::kExecutionLate: return with_execution([&](Execution& x) { late_timer(x); });
    case TimerKind::kExecutionIdle: return with_execution([&](Execution& x) { idle_timer(x); });
    case TimerKind::kExecutionGone:
      return with_execution([&](Execution& x) {
        x.gone_timer.reset();
        abort_and_retry(x, {base::ErrorCode::kWorkerReset, "The worker is gone and its connection stayed silent.", {}});
      });
    case TimerKind::kAbort: return with_execution([&](Execution& x) { abort_timer(x); });
    case TimerKind::kPool: return check_pool(base::PoolId(timer.name));
    case TimerKind::kEndpoint: return check_endpoint(timer.name);
    case TimerKind::kWorkerStart: return start_timed_out(base::WorkerId(timer.name));
    case TimerKind::kPoolDeadline: return deadline_over(base::PoolId(timer.name));
    case TimerKind::kSchedule: dirty = true; return;
    case TimerKind::kReviewQueue: return review_queue();
    case TimerKind::kShutdownGrace: return shutdown_grace_over();
    case TimerKind::kShutdownEnd: end_forced = true; return;
  }
}

void Core::State::on(Shutdown& e) {
  if (draining) return;
  draining = true;
  log(base::LogLevel::kInfo, "shutdown.draining", nullptr,
      "Takes no new work; what does not finish in time runs again in the next process.",
      {{"executions", executions.size()}, {"queued", queue.depth()}, {"grace_ms", e.grace_ms}});
  timers.arm(now.mono_ms + e.grace_ms, {.kind = TimerKind::kShutdownGrace});
}

// What still runs is stopped without a verdict: its row stays, and the next process replays it.
void Core::State::shutdown_grace_over() {
  grace_over = true;
  for (auto& [id, execution] : executions) {
    if (!execution.aborted) abort(execution);
  }
  timers.arm(now.mono_ms + config.timeout.cancellation_deadline_ms, {.kind = TimerKind::kShutdownEnd});
}

void Core::State::check_drained() {
  if (!draining || drained) return;
  bool orders_pending = false;
  for (auto& [id, control] : controls) {
    let_go(id, control);  // scheduling does neither any more
    settle_orders(id, control);
    orders_pending |= control.leaving || control.unsettled || control.settling;
  }
  orders_pending |= !pool_commits.empty();
  if (!end_forced && (!executions.empty() || commits_awaited > 0 || orders_pending)) return;
  drained = true;
  emit(Drained{});
}

void Core::State::log(base::LogLevel level, std::string_view event, const Job* job, std::string human,
                      std::vector<base::LogField> fields) {
  base::CorrelationId correlation_id;
  if (job) {
    correlation_id = job->spec.correlation_id;
    fields.emplace_back("job_id", job->spec.job_id);
    fields.emplace_back("model_digest", job->spec.model.digest);
    if (job->spec.session_id) fields.emplace_back("session_id", *job->spec.session_id);
  }
  emit(Log{level, event, std::move(correlation_id), std::move(human), std::move(fields)});
}

void Core::State::count(Metric metric, std::string_view label, std::int64_t value, Priority priority) {
  emit(Count{metric, std::string(label), priority, value});
}

Job* Core::State::find_job(Arrival arrival) {
  const auto it = jobs.find(arrival);
  return it == jobs.end() ? nullptr : &it->second;
}

Job* Core::State::find_job(const base::JobId& id) {
  const auto it = arrival_of.find(id);
  return it == arrival_of.end() ? nullptr : &jobs.at(it->second);
}

Execution* Core::State::find_execution(ExecutionId id) {
  const auto it = executions.find(id);
  return it == executions.end() ? nullptr : &it->second;
}

ModelIndex Core::State::intern(const wire::ModelFacts& facts) {
  const auto [it, is_new] = model_of.try_emplace(facts.digest, ModelIndex{models.size()});
  if (is_new) models.emplace_back();
  models[it->second.value].facts = facts;  // the newest reference to the same bytes
  return it->second;
}

}  // namespace llorch::orchestratord::core
