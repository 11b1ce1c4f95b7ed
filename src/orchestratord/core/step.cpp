
#include <algorithm>

#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

namespace {
template <class T, class E>
concept Takes = requires(T& owner, E& event) {
  owner.on(event);
};

// Every event goes to the one owner that takes it.
template <class E, class... Owners>
void route(E& event, Owners&... owners) {
  static_assert((0 + ... + int{Takes<Owners, E>}) == 1);
  const auto offer = [&](auto& owner) {
    if constexpr (Takes<decltype(owner), E>) owner.on(event);
  };
  (offer(owners), ...);
}
}  // namespace

namespace {
// Moves what stands from `middle` on before what stands from `first` on. Without an assignment: that of commands is a function for
// each of their kinds, and compiling those takes seconds.
void put_first(std::vector<Command>& out, std::size_t first, std::size_t middle) {
  if (middle == out.size()) return;
  std::vector<Command> moved;
  moved.reserve(out.size() - first);
  for (std::size_t i = middle; i < out.size(); ++i) moved.push_back(std::move(out[i]));
  for (std::size_t i = first; i < middle; ++i) moved.push_back(std::move(out[i]));
  while (out.size() > first) out.pop_back();
  for (Command& command : moved) out.push_back(std::move(command));
}
}  // namespace

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
  // Its own are forgotten with its entry, and they were there to hold it.
  b.former_tenants = c.quotas;
  b.former_tenants->max_concurrent_jobs = 1;
  b.workers_per_gpu = c.limits.workers_per_gpu;
  b.worker_start_timeout_ms = c.worker_start_timeout_ms;
  b.worker_slots = c.worker_slots;
  b.worker_context_tokens = c.worker_context_tokens;
  b.worker_kv_tokens = c.worker_kv_tokens;
  b.worker_image_tokens_max = c.worker_image_tokens_max;
  b.stage_models = c.stage_models;
  b.kv_dtype = c.kv_dtype;
  return b;
}

SetLimits SetLimits::from(const config::OrchestratordConfig& config) {
  CoreConfig c = CoreConfig::from(config);
  return {.throttle = c.throttle,
          .quotas = c.quotas,
          .tenants = std::move(c.tenants),
          .former_tenants = std::move(c.former_tenants)};
}

Handler::Handler(State& s)
    : Owner(static_cast<Env&>(s)),
      s_(s),
      jobs_(s.jobs),
      commits_(s.commits),
      ledger_(s.ledger),
      models_(s.models),
      groups_(s.groups),
      queue_(s.groups.queue()),
      registry_(s.registry) {}

void Env::begin_step(base::Time now, std::vector<Command>& out) {
  ASSERT(now.mono_ms >= now_.mono_ms, "time went back from {} to {}", now_.mono_ms, now.mono_ms);
  now_ = now;
  out_ = &out;
}

Core::Core(CoreConfig config, base::Entropy& entropy) : state_(std::make_unique<State>(std::move(config), entropy)) {}
Core::~Core() = default;

void Core::step(Event event, base::Time now, std::vector<Command>& out) {
  State& s = *state_;
  ASSERT(s.restored != std::holds_alternative<Restored>(event), "Restored comes first, and once");
  s.begin_step(now, out);
  const std::size_t first = out.size();
  // The event first: what arrived in time is not to lose against a timer that was read late.
  std::visit(
      [&](auto& e) {
        route(e, s, s.ledger, s.workers, s.pools, s.desired, s.attempts, s.admissions, s.scheduler, s.review, s.views);
      },
      event);
  s.run_timers();
  s.ledger.expire_sessions();
  if (s.groups.queue().advance(now.mono_ms)) s.recheck_.all();
  if (s.recheck_.is_due()) s.scheduler.schedule();
  // Told before this step answers anybody: who submits upon an answer finds the room that there is.
  const std::size_t room = out.size();
  s.admissions.publish_queue_room();
  put_first(out, first, room);
  s.review.watch_queue();
  s.check_drained();
}

std::int64_t Core::next_wakeup_ms() const { return state_->next_wakeup_ms(); }

std::int64_t State::next_wakeup_ms() const {
  return std::min({timers_.next_ms(), groups.queue().next_due_ms(), ledger.next_expiry_ms()});
}

void State::run_timers() {
  while (const auto timer = timers_.pop_due(now_.mono_ms)) fire(*timer);
}

void State::fire(const Timer& timer) {
  const auto with_job = [&](auto&& then) {
    if (Job* job = jobs.find(Arrival{timer.number})) then(*job);
  };
  const auto with_execution = [&](auto&& then) {
    if (Execution* execution = jobs.find(ExecutionId{timer.number})) then(*execution);
  };
  switch (timer.kind) {
    case TimerKind::kJobDeadline:
      return with_job([&](Job& job) {
        job.deadline_timer.reset();
        if (job.outcome) return;
        const bool queued = job.status == JobStatus::kQueued;
        attempts.time_out(job, {.stage = queued ? "queue" : "execution",
                                .limit = "deadline",
                                .timeout_ms = job.spec.deadline_ms.value_or(0),
                                .execution_time_ms = queued ? 0 : now_.mono_ms - job.dispatched_ms});
      });
    case TimerKind::kJobQueue:
      return with_job([&](Job& job) {
        job.queue_timer.reset();
        if (job.outcome || job.status != JobStatus::kQueued) return;
        attempts.time_out(job, {.stage = "queue", .limit = "queue", .timeout_ms = config_.timeout.queue_ms});
      });
    case TimerKind::kCancelAnswer:
      return with_job([&](Job& job) {
        job.answer_timer.reset();
        log_limited(base::LogLevel::kWarn, "job.cancel_slow", &job,
                    "The store has not confirmed a cancellation in time.");
        attempts.answer_cancels(job, JobStatus::kRunning);
      });
    case TimerKind::kRunningRetry:
      if (const Execution* x = jobs.find_deciding(ExecutionId{timer.number})) attempts.commit_running(*x);
      return;
    case TimerKind::kStoreRetry: return with_job([&](Job& job) { attempts.commit_outcome(job); });
    case TimerKind::kExecutionWall: return with_execution([&](Execution& x) { attempts.wall_timer(x); });
    case TimerKind::kExecutionLate: return with_execution([&](Execution& x) { attempts.late_timer(x); });
    case TimerKind::kExecutionIdle: return with_execution([&](Execution& x) { attempts.idle_timer(x); });
    case TimerKind::kExecutionGone:
      return with_execution([&](Execution& x) {
        x.gone_timer.reset();
        attempts.abort_and_retry(
            x, {base::ErrorCode::kWorkerReset, "The worker is gone and its connection stayed silent.", {}});
      });
    case TimerKind::kAbort: return with_execution([&](Execution& x) { attempts.abort_timer(x); });
    case TimerKind::kPool: return pools.check_pool(base::PoolId(timer.name));
    case TimerKind::kEndpoint: return pools.check_endpoint(timer.name);
    case TimerKind::kWorkerStart: return workers.start_timed_out(base::WorkerId(timer.name));
    case TimerKind::kPoolDeadline: return desired.deadline_over(base::PoolId(timer.name));
    case TimerKind::kSchedule: recheck_.all(); return;
    case TimerKind::kReviewQueue: return review.review_queue();
    case TimerKind::kShutdownGrace: return shutdown_grace_over();
    case TimerKind::kShutdownEnd: end_forced = true; return;
  }
}

void State::on(Committed& e) {
  commits.store_wrote();
  for (const CommitId id : e.commits) {
    if (desired.desired_state_committed(id, nullptr)) continue;
    const auto commit = commits.take(id);
    if (!commit) continue;  // said twice
    switch (commit->kind) {
      case PendingCommit::Kind::kProgress: break;
      case PendingCommit::Kind::kRunning:
        if (Execution* x = jobs.find_deciding(commit->execution)) attempts.running_committed(*x);
        break;
      case PendingCommit::Kind::kSession: ledger.session_committed(commit->session); break;
      case PendingCommit::Kind::kAdmission: admissions.admitted(jobs.at(commit->job)); break;
      case PendingCommit::Kind::kTerminal: attempts.outcome_committed(jobs.at(commit->job)); break;
    }
  }
}

void State::on(CommitFailed& e) {
  if (e.error.code == base::ErrorCode::kStoreUnavailable) commits.store_failed(now_.mono_ms);
  for (const CommitId id : e.commits) {
    if (desired.desired_state_committed(id, &e.error)) continue;
    const auto commit = commits.take(id);
    if (!commit) continue;
    switch (commit->kind) {
      // A row that still says "queued" while the job runs is harmless: after a restart both are replayed.
      case PendingCommit::Kind::kProgress: break;
      case PendingCommit::Kind::kRunning:
        if (const Execution* x = jobs.find_deciding(commit->execution)) attempts.running_failed(*x, e.error);
        break;
      case PendingCommit::Kind::kSession: ledger.session_commit_failed(commit->session); break;
      case PendingCommit::Kind::kAdmission: admissions.admission_failed(jobs.at(commit->job), e.error); break;
      case PendingCommit::Kind::kTerminal: attempts.outcome_failed(jobs.at(commit->job), e.error); break;
    }
  }
}

void State::on(Restored& e) {
  restored = true;
  const std::int64_t grace_until_ms = now_.mono_ms + config_.pool_offline_grace_ms;
  for (const std::string& endpoint : config_.pool_endpoints) pools.expect_endpoint(endpoint, grace_until_ms);
  for (const std::string& endpoint : e.pool_endpoints) pools.expect_endpoint(endpoint, grace_until_ms);
  ledger.restore(std::move(e.sessions), e.tenants);
  desired.restore_desired_states(e.desired_states);
  for (const sessions::TenantUse& use : e.tenants) ledger.publish_standing(use.tenant_id);
  admissions.restore(e.jobs, e.settled_unix_ms.value_or(now_.unix_ms));
  recheck_.all();
}

void State::on(SetLimits& e) {
  if (draining()) return;  // nobody is let in any more, and nothing starts
  ledger.set_limits(e);
  for (const auto& [arrival, job] : jobs.all()) groups.regroup_by_quota(jobs.at(arrival));
  groups.queue().set_tenants(e.tenants,
                             [this](Arrival arrival) -> std::string_view { return jobs.at(arrival).spec.tenant_id; });
  admissions.forget_queue_room();
  recheck_.all();
}

void State::on(Shutdown& e) {
  if (draining()) return;
  begin_draining();
  log(base::LogLevel::kInfo, "shutdown.draining",
      "Takes no new work; what does not finish in time runs again in the next process.",
      {{"executions", jobs.executions().size()}, {"queued", groups.queue().depth()}, {"grace_ms", e.grace_ms}});
  timers_.arm(now_.mono_ms + e.grace_ms, {.kind = TimerKind::kShutdownGrace});
}

// What still runs is stopped without a verdict: its row stays, and the next process replays it.
void State::shutdown_grace_over() {
  for (Execution& execution : jobs.executions()) {
    if (!execution.aborted) attempts.abort(execution);
  }
  timers_.arm(now_.mono_ms + config_.timeout.cancellation_deadline_ms, {.kind = TimerKind::kShutdownEnd});
}

void State::check_drained() {
  if (!draining() || drained) return;
  const bool desired_states_settled = desired.settle_all();  // scheduling does not any more
  if (!end_forced && (!jobs.executions().empty() || !commits.settled() || !desired_states_settled)) return;
  drained = true;
  emit(Drained{});
}

namespace {
std::string pool_of(const std::vector<base::LogField>& fields) {
  const auto field = std::ranges::find(fields, "pool_id", &base::LogField::name);
  return field == fields.end() ? std::string() : std::get<std::string>(field->value);
}
}  // namespace

void Owner::log_limited(base::LogLevel level, std::string_view event, const Job* job, std::string human,
                        std::vector<base::LogField> fields) const {
  constexpr std::int64_t kLinesMax = 100, kPeriodMs = 10'000;  // a pool that comes back tells of all its workers
  constexpr std::size_t kKindsMax = 10'000;
  Env::LineKind kind{event, level, job ? std::string() : pool_of(fields)};
  // Beyond that, pools that have come and gone: they share one.
  if (env_.limited_lines_.size() >= kKindsMax && !env_.limited_lines_.contains(kind)) kind.pool_id.clear();
  base::LogLimiter& lines = env_.limited_lines_.try_emplace(std::move(kind), kLinesMax, kPeriodMs).first->second;
  const auto left_out = lines.admit(now_.mono_ms);
  if (!left_out) return;
  if (*left_out > 0) fields.emplace_back("left_out_before", *left_out);
  log(level, event, job, std::move(human), std::move(fields));
}

void Owner::log(base::LogLevel level, std::string_view event, const Job* job, std::string human,
                std::vector<base::LogField> fields) const {
  base::CorrelationId correlation_id;
  if (job) {
    correlation_id = job->spec.correlation_id;
    fields.emplace_back("job_id", job->spec.job_id);
    fields.emplace_back("model_digest", job->spec.model.digest);
    if (job->spec.session_id) fields.emplace_back("session_id", *job->spec.session_id);
  }
  emit(Log{level, event, std::move(correlation_id), std::move(human), std::move(fields)});
}

}  // namespace llorch::orchestratord::core
