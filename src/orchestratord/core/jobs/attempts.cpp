// One attempt of a job on a worker: dispatch, progress, end, abort, and what follows a failure.
#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "base/error_detail.h"
#include "orchestratord/core/jobs/backoff.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;

namespace {
constexpr std::int64_t kLatePart = 5;  // a run is told of when the last fifth of its time begins
// No token takes longer, whatever a worker says: so that times of any number of tokens can be added up.
constexpr std::int64_t kTokenMsMax = 3'600'000;

// Its worker was not even called.
bool is_unpaired(const Error& error) { return base::has_detail(error, "reason", "POOL_NOT_PAIRED"); }
}  // namespace

void Attempts::dispatch(Job& job, Worker& worker) {
  Execution& x = jobs_.begin_attempt(job, worker);
  queue_.remove(job.arrival);
  timers_.cancel(job.queue_timer);
  job.dispatched_ms = now_.mono_ms;
  job.dispatched_unix_ms = now_.unix_ms;
  ledger_.began(x);
  x.dispatched_ms = x.last_progress_ms = now_.mono_ms;
  const auto [timeout_ms, is_session] = ledger_.run_limit(job);
  x.timeout_ms = timeout_ms;
  x.session_limit = is_session;
  x.holds_stream = !job.spec.model.replayable;
  x.wall_timer = timers_.arm(now_.mono_ms + x.timeout_ms, {.kind = TimerKind::kExecutionWall, .number = x.id.value});
  x.late_timer = timers_.arm(now_.mono_ms + x.timeout_ms - x.timeout_ms / kLatePart,
                             {.kind = TimerKind::kExecutionLate, .number = x.id.value});
  x.idle_timer =
      timers_.arm(now_.mono_ms + config_.timeout.idle_ms, {.kind = TimerKind::kExecutionIdle, .number = x.id.value});
  ++worker.slots_in_use;
  worker.last_used_ms = now_.mono_ms;
  model(job.model).frequency.used(now_.mono_ms);

  std::int64_t budget_ms = x.timeout_ms;
  if (const auto due_ms = job.due_ms()) {
    budget_ms = std::min(budget_ms, std::max<std::int64_t>(1, *due_ms - now_.mono_ms));
  }
  const std::int64_t queue_wait_ms = now_.mono_ms - job.queued_ms;
  const auto share = ledger_.share(job, worker.id);
  job.kv_warmth = share && share->kv_warmth;
  commit_progress(job);
  emit(Execute{.execution = x.id,
               .job_id = job.spec.job_id,
               .pool_id = worker.pool_id,
               .worker_id = worker.id,
               .uri = x.uri,
               .attempt = job.attempts,
               .timeout_ms = budget_ms,
               .queue_wait_ms = queue_wait_ms,
               .queue_position = job.queue_position,
               .predicted_start_ms = job.predicted_start_ms,
               .holds_stream = x.holds_stream});
  count(Metric::kDispatched, worker.id.value, 1, job.spec.priority);
  count(Metric::kQueueWaitMs, {}, queue_wait_ms, job.spec.priority);
  log(base::LogLevel::kDebug, "dispatch.sent", &job, "Sends a job to a worker.",
      {{"worker_id", worker.id},
       {"pool_id", worker.pool_id},
       {"attempt", job.attempts},
       {"queue_time_ms", queue_wait_ms}});
}

void Attempts::on(ExecuteStarted& e) {
  Execution* x = jobs_.find(e.execution);
  if (!x || x->aborted || x->started) return;
  x->started = true;
  if (Worker* worker = registry_.find_worker(x->worker_id)) worker->connected();
  x->last_progress_ms = now_.mono_ms;
  Job& job = jobs_.at(x->job);
  Jobs::move(job, JobStatus::kRunning);
  job.worker_version = x->worker_version;
  job.scheduling_ms = e.scheduling_ms;
  if (!job.started_unix_ms) job.started_unix_ms = now_.unix_ms;
  if (x->holds_stream) {
    commit_running(*x);
  } else {
    commit_progress(job);
  }
  log(base::LogLevel::kDebug, "stream.started", &job, "A worker has begun a job.", {{"worker_id", x->worker_id}});
}

void Attempts::on(ExecuteProgress& e) {
  Execution* x = jobs_.find(e.execution);
  if (!x || x->aborted) return;
  x->last_progress_ms = now_.mono_ms;
  Job& job = jobs_.at(x->job);
  job.tokens_out = e.tokens_out;
  if (e.tokens_out == 0) return;
  if (!x->first_token_ms) x->first_token_ms = now_.mono_ms;
  publish_metrics(job, *x);
}

// How long a token of this run takes; before its second one, of earlier runs of the model there. Absent: nobody knows.
std::optional<double> Attempts::ms_per_token(const Job& job, const Execution& x) {
  const std::int64_t decode_ms = now_.mono_ms - *x.first_token_ms;
  if (job.tokens_out > 1 && decode_ms > 0)
    return static_cast<double>(decode_ms) / static_cast<double>(job.tokens_out - 1);
  const Worker* worker = registry_.find_worker(x.worker_id);
  if (worker == nullptr) return std::nullopt;
  const auto speed = model(job.model).speed_on(*worker);
  return speed ? std::optional(static_cast<double>(speed->us_per_token) / 1000) : std::nullopt;
}

void Attempts::publish_metrics(const Job& job, const Execution& x) {
  wire::MetricsEvent event;
  event.queue_depth = queue_.depth();
  event.tokens_out = job.tokens_out;
  event.decode_time_ms = now_.mono_ms - *x.first_token_ms;
  if (const Worker* worker = registry_.find_worker(x.worker_id)) event.vram_bytes = worker->info.vram_bytes;
  const std::int64_t limit_ms = x.dispatched_ms + x.timeout_ms;
  const std::int64_t until_ms = std::min(limit_ms, job.due_ms().value_or(limit_ms));
  if (const auto token_ms = ms_per_token(job, x)) {
    event.on_time_probability =
        jobs::on_time_probability(job.spec.max_tokens - job.tokens_out, *token_ms, until_ms - now_.mono_ms);
  }
  if (const auto share = ledger_.share(job, x.worker_id)) {
    event.kv_warmth = job.kv_warmth;
    event.kv_migrated = false;
    event.budget = sessions::after(*share, job.tokens_out, *event.decode_time_ms);
  }
  emit(PublishMetrics{job.spec.job_id, std::move(event)});
}

void Attempts::on(ExecuteEnded& e) {
  Execution* found = jobs_.find(e.execution);
  if (!found) return;  // given up on before, or said twice
  ASSERT(e.end.has_value() != e.error.has_value(), "execution {}", e.execution.value);
  const Execution x = *found;
  release(*found);
  count(Metric::kDispatchEnded, e.end ? "success" : "failure");
  Job* job = jobs_.find(x.job);
  if (!job || job->execution.get() != x.id) return;  // its fate was decided when it was aborted
  Jobs::detach(*job);
  job->tokens_out = e.tokens_out;
  if (e.end) return completed(*job, x, std::move(*e.end));
  if (x.retry_error) return retry(*job, *x.retry_error);
  if (x.aborted) return put_back(*job);
  // It counts the same time as our timer does, and may be the first to see that it is over.
  if (e.error->code == ErrorCode::kTimeout) {
    if (const auto passed = limit_passed(*job, x)) return time_out(*job, *passed);
  }
  // If the worker is dead its pool knows first: nothing more goes there before the pool has spoken.
  if (const auto* pool = job->pool_id ? registry_.find_pool(*job->pool_id) : nullptr) {
    if (Worker* worker = registry_.find_worker(x.worker_id)) doubt(*worker, x, *e.error);
    s_.pools.ask_state(pool->endpoint);
  }
  attempt_failed(*job, std::move(*e.error));
}

void Attempts::doubt(Worker& worker, const Execution& x, Error& error) {
  if (error.code != ErrorCode::kUnreachable) {
    worker.connected();
    if (error.code == ErrorCode::kWorkerReset) worker.doubt(now_.mono_ms);
    return;
  }
  if (!is_unpaired(error)) {
    worker.connect_failed(x.dispatched_ms);
    if (worker.port_is_closed()) error.message += fmt::format(" ({})", kPortIsClosed);
  }
  worker.doubt(now_.mono_ms);
}

void Attempts::completed(Job& job, const Execution& x, wire::EndEvent end) {
  const std::int64_t ran_ms = now_.mono_ms - x.dispatched_ms;
  Model& m = model(job.model);
  m.run_ms.add(ran_ms);
  run_ms_.add(ran_ms);
  m.tokens_out.add(end.tokens_out);
  if (const Worker* worker = registry_.find_worker(x.worker_id)) measure(m, *worker, end);
  job.tokens_out = end.tokens_out;
  count(Metric::kTokensOut, {}, end.tokens_out);
  count(Metric::kFirstTokenMs, {}, x.dispatched_ms - job.submitted_ms + end.first_token_ms, job.spec.priority);
  count(Metric::kDecodeMs, {}, end.decode_time_ms, job.spec.priority);
  if (const auto share = ledger_.share(job, x.worker_id)) {
    end.budget = sessions::after(*share, end.tokens_out, end.decode_time_ms);
  }
  finish(job, {.status = JobStatus::kCompleted, .end = std::move(end), .error = {}});
}

// A run of one token says nothing about the speed of the next ones.
void Attempts::measure(Model& m, const Worker& worker, const wire::EndEvent& end) {
  if (end.tokens_out < 2) return;
  const auto is_place = [&](const base::PoolId& pool_id, const std::string& mask) {
    const pools::Pool* pool = registry_.find_pool(pool_id);
    return pool && (pool->devices.contains(mask) || pool->mask_versions.contains(mask));
  };
  const std::pair place(worker.pool_id, worker.info.gpu_id);
  if (!is_place(place.first, place.second)) return;
  if (!m.performance.contains(place)) {
    std::erase_if(m.performance, [&](const auto& item) { return !is_place(item.first.first, item.first.second); });
  }
  Performance& p = m.performance[place];
  p.first_token_ms.add(std::min(end.first_token_ms, kTokenMsMax));
  const auto us_per_token = end.decode_time_ms / static_cast<double>(end.tokens_out - 1) * 1000;
  p.us_per_token.add(static_cast<std::int64_t>(std::min(us_per_token, kTokenMsMax * 1000.0)));
}

void Attempts::attempt_failed(Job& job, Error error) {
  // A worker only says CANCELLED without being asked when it is being stopped under the job.
  if (error.code == ErrorCode::kCancelled) error = {ErrorCode::kWorkerReset, "The worker stopped during the job.", {}};
  if (jobs::is_transient(error.code)) return retry(job, std::move(error));
  if (error.code == ErrorCode::kVersionMismatch) {
    std::string pools;
    for (const std::string& pool : refused_by(group(job.group), job.spec)) pools += pool + ", ";
    error.message = fmt::format("Pool {}: {}", pools + job.pool_id->value, error.message);
    error = std::move(error).with("pool_id", job.pool_id->value);
    if (go_elsewhere(job, error)) return;
  }
  log_limited(base::LogLevel::kWarn, "job.failed", &job, "A job failed on its worker.",
              {{"code", error.name()}, {"message", error.message}});
  fail(job, std::move(error));
}

// Closed, unhealthy and full ones, too, and those that are being restarted: its jobs wait for these with a reason. In a pool that can never
// run them they end with the refusal.
bool Attempts::has_pool_left(const JobGroup& l, const std::optional<base::PoolId>& refuser) const {
  const auto may_run_them = [&](const base::PoolId& id) {
    return id != refuser && tier(l, id, l.placement.require_device_mask.value_or("")) != placement::Tier::kExcluded;
  };
  if (std::ranges::any_of(s_.pools.awaited(), may_run_them)) return true;
  return std::ranges::any_of(registry_.pools(), [&](const auto& item) {
    const auto& [pool_id, pool] = item;
    const auto accepts = [&, id = pool_id](const pools::Place& place) {
      return tier(l, id, place.mask) != placement::Tier::kExcluded;
    };
    return pool_id != refuser &&
           std::ranges::any_of(pools::places_for(pool, l.facts.devices, l.placement.require_device_mask), accepts);
  });
}

// Workers of its pool have a version that does not know all that the job asks for; those of another pool may have a newer one.
bool Attempts::go_elsewhere(Job& job, const Error& error) {
  if (job.status != JobStatus::kDispatched) return false;  // it was begun
  const JobGroup& refused = group(job.group);
  if (!has_pool_left(refused, job.pool_id)) {
    if (!s_.pools.pools_expected()) return false;
    retry(job, error);
    return true;
  }
  log_limited(base::LogLevel::kWarn, "job.worker_too_old", &job,
              "A worker does not know all that a job asks for: another pool gets it.",
              {{"pool_id", *job.pool_id}, {"message", error.message}});
  jobs::JobSpec elsewhere = job.spec;
  elsewhere.placement = refused.placement;
  elsewhere.placement.avoid_pools.push_back(job.pool_id->value);
  groups_.regroup(job, groups_.intern(job.model, elsewhere, job.worker_version));
  job.refusal = error;
  --job.attempts;
  back_to_queue(job, now_.mono_ms);
  commit_progress(job);
  return true;
}

void Attempts::forget_refusals(const base::PoolId& pool) {
  forgotten_pools_.push_back(pool);
  recheck_.all();
}

// Back in the group of what they ask for, they are placed as they were at first: a worker that does not know all of it yet refuses them
// once more, and where no other pool is left that ends them.
void Attempts::regroup_refused() {
  const std::vector<base::PoolId> pools = std::exchange(forgotten_pools_, {});
  if (pools.empty()) return;
  for (const auto& [arrival, refused] : jobs_.all()) {
    if (!refused.refusal || refused.outcome) continue;
    const auto is_forgotten = [&](const std::string& id) {
      return std::ranges::find(pools, base::PoolId(id)) != pools.end();
    };
    if (std::ranges::none_of(refused_by(group(refused.group), refused.spec), is_forgotten) &&
        has_pool_left(group(refused.group), std::nullopt)) {
      continue;
    }
    Job& job = jobs_.at(arrival);
    job.refusal.reset();
    groups_.regroup(job, groups_.intern(job.model, job.spec, job.worker_version));
  }
}

void Attempts::fail_unplaced(Job& job, Error error) {
  if (!job.refusal) return fail(job, std::move(error));
  if (base::info(error.code).retriable) {  // what passes by itself is told first
    error.message += " " + job.refusal->message;
    return fail(job, std::move(error));
  }
  Error told = *job.refusal;
  told.message += fmt::format(". No other pool can run the job: {}: {}", error.name(), error.message);
  fail(job, std::move(told).with("cause", std::string(error.name())));
}

Error Attempts::not_replayable(std::string_view what_happened) {
  return Error{
      ErrorCode::kWorkerReset,
      fmt::format("{} after its first token, and its model's engine does not repeat a run; submit the job again.",
                  what_happened),
      {}}
      .with("reason", std::string("NOT_REPLAYABLE"));
}

void Attempts::retry(Job& job, Error error) {
  if (!may_run_again(job))
    return fail(job, not_replayable("The worker was lost").with("cause", std::string(error.name())));
  if (!config_.retry.enabled) return fail(job, std::move(error));
  if (job.attempts >= config_.retry.max_attempts) {
    log_limited(base::LogLevel::kWarn, "job.failed", &job, "A job has used up its attempts.",
                {{"attempts", job.attempts}, {"code", error.name()}, {"message", error.message}});
    return fail(job, Error{ErrorCode::kRetryExhausted,
                           fmt::format("All {} attempts failed; the last one with {}: {}", job.attempts, error.name(),
                                       error.message),
                           {}}
                         .with("attempts", job.attempts)
                         .with("last_code", std::string(error.name())));
  }
  const std::int64_t delay_ms = jobs::backoff_ms(config_.retry, job.attempts, entropy_);
  count(Metric::kRetries, error.name());
  log_limited(
      base::LogLevel::kWarn, "job.retry", &job, "An attempt failed and the job goes back to the queue.",
      {{"attempt", job.attempts}, {"backoff_ms", delay_ms}, {"code", error.name()}, {"message", error.message}});
  back_to_queue(job, now_.mono_ms + delay_ms);
  commit_progress(job);
}

void Attempts::back_to_queue(Job& job, std::int64_t ready_at_ms) {
  Jobs::move(job, JobStatus::kQueued);
  job.queued_ms = now_.mono_ms;
  job.worker_id.reset();
  job.pool_id.reset();
  if (job.worker_version != group(job.group).version) {
    job.refusal.reset();
    groups_.regroup(job, groups_.intern(job.model, job.spec, job.worker_version));
  }
  groups_.put_back(job, ready_at_ms, false);
  recheck_.all();
}

// Its attempt was cut short by an operator or by our own end: it does not count, also after a restart.
void Attempts::put_back(Job& job) {
  if (!may_run_again(job) && !env_.draining()) return fail(job, not_replayable("The run was cut short"));
  --job.attempts;
  back_to_queue(job, now_.mono_ms);
  if (env_.draining()) return;  // the row says "running", and the next process replays it as this attempt
  log(base::LogLevel::kDebug, "job.put_back", &job, "A running job goes back to the queue.");
  commit_progress(job);
}

void Attempts::cancel_timers(Execution& x) {
  for (auto* timer : {&x.wall_timer, &x.late_timer, &x.idle_timer, &x.gone_timer, &x.abort_timer})
    timers_.cancel(*timer);
}

void Attempts::abort(Execution& x) {
  x.aborted = true;
  cancel_timers(x);
  x.abort_timer = timers_.arm(now_.mono_ms + config_.timeout.cancellation_deadline_ms,
                              {.kind = TimerKind::kAbort, .number = x.id.value});
  emit(AbortExecute{x.id, x.job_id, x.uri});
}

// The job goes back to the queue only once this attempt is over: never two attempts of one job at a time.
void Attempts::abort_and_retry(Execution& x, Error error) {
  if (x.aborted) return;
  x.retry_error = std::move(error);
  abort(x);
}

void Attempts::release(Execution& x) {
  cancel_timers(x);
  if (Worker* worker = registry_.find_worker(x.worker_id)) {
    if (worker->slots_in_use > 0) --worker->slots_in_use;
    worker->last_used_ms = now_.mono_ms;
  }
  ledger_.ended(x);
  touch_groups_of(x);
  jobs_.end_attempt(x);
}

// It gives back a slot of its worker and a place in its tenant's quota.
void Attempts::touch_groups_of(const Execution& x) {
  const Worker* worker = registry_.find_worker(x.worker_id);
  const Model* known = worker ? models_.find(worker->info.model_digest) : nullptr;
  if (!known || ledger_.concurrent_max(x.tenant_id) > 0) {
    recheck_.all();
  } else {
    recheck_.groups(known->groups);
  }
}

void Attempts::wall_timer(Execution& x) {
  x.wall_timer.reset();
  if (x.aborted) return;
  Job& job = jobs_.of(x);
  time_out(job, *limit_passed(job, x));
}

// The limit of a run's time that has passed by now.
std::optional<Attempts::TimedOut> Attempts::limit_passed(const Job& job, const Execution& x) const {
  const std::int64_t ran_ms = now_.mono_ms - x.dispatched_ms;
  if (const auto due_ms = job.due_ms(); due_ms && now_.mono_ms >= *due_ms)
    return TimedOut{"execution", "deadline", *job.spec.deadline_ms, ran_ms};
  if (ran_ms >= x.timeout_ms)
    return TimedOut{"execution", x.session_limit ? "session_time_budget" : "wall", x.timeout_ms, ran_ms};
  return std::nullopt;
}

// Said before it is too late, to who may raise the limit for the next ones.
void Attempts::late_timer(Execution& x) {
  x.late_timer.reset();
  if (x.aborted) return;
  const Job& job = jobs_.at(x.job);
  log_limited(base::LogLevel::kWarn, "job.late", &job, "A job has used most of its time.",
              {{"timeout_ms", x.timeout_ms},
               {"execution_time_ms", now_.mono_ms - x.dispatched_ms},
               {"tokens_out", job.tokens_out},
               {"max_tokens", job.spec.max_tokens}});
}

void Attempts::idle_timer(Execution& x) {
  x.idle_timer.reset();
  if (x.aborted) return;
  const std::int64_t due_ms = x.last_progress_ms + config_.timeout.idle_ms;
  if (due_ms > now_.mono_ms) {
    x.idle_timer = timers_.arm(due_ms, {.kind = TimerKind::kExecutionIdle, .number = x.id.value});
    return;
  }
  if (!x.started) {  // the worker never took it up: another one may
    return abort_and_retry(x, {ErrorCode::kWorkerTimeout, "The worker did not begin the job in time.", {}});
  }
  time_out(jobs_.of(x), {"execution", "idle", config_.timeout.idle_ms, now_.mono_ms - x.dispatched_ms});
}

// Nobody confirmed the abort. The slot counts as free again; a worker that disagrees answers WORKER_BUSY.
void Attempts::abort_timer(Execution& found) {
  const Execution x = found;
  release(found);
  Job* job = jobs_.find(x.job);
  log_limited(base::LogLevel::kWarn, "cancel.deadline_exceeded", job, "A worker did not confirm an abort in time.",
              {{"worker_id", x.worker_id}});
  if (!job || job->execution.get() != x.id) return;
  Jobs::detach(*job);
  if (x.retry_error) return retry(*job, *x.retry_error);
  put_back(*job);
}

}  // namespace llorch::orchestratord::core
