// One attempt of a job on a worker: dispatch, progress, end, abort, and what follows a failure.
#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "orchestratord/core/jobs/backoff.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;

namespace {
constexpr std::int64_t kLatePart = 5;  // a run is told of when the last fifth of its time begins
}  // namespace

void Core::State::dispatch(Job& job, Worker& worker) {
  ASSERT(job.admitted && !job.ending && !job.execution && jobs::is_legal(job.status, JobStatus::kDispatched), "job {}",
         job.spec.job_id.value);
  ASSERT(worker.takes_work() && worker.slots_free() > 0, "worker {}", worker.id.value);
  queue.remove(job.arrival);
  timers.cancel(job.queue_timer);
  if (!job.resumes_attempt) ++job.attempts;
  job.resumes_attempt = false;
  job.status = JobStatus::kDispatched;
  job.dispatched_ms = now.mono_ms;
  job.dispatched_unix_ms = now.unix_ms;
  job.worker_id = worker.id;
  job.pool_id = worker.pool_id;
  job.tokens_out = 0;

  const ExecutionId id{++execution_count};
  Execution& x = executions.emplace_hint(executions.end(), id, Execution{})->second;
  x.id = id;
  x.job = job.arrival;
  x.job_id = job.spec.job_id;
  x.worker_id = worker.id;
  x.worker_version = worker.version;
  x.tenant_id = job.spec.tenant_id;
  quotas.began(x.tenant_id);
  x.uri = worker.info.uri;
  x.dispatched_ms = x.last_progress_ms = now.mono_ms;
  x.timeout_ms = demand(job.spec).timeout_ms;
  if (job.session && job.session->reservation.time_ms.value_or(x.timeout_ms) < x.timeout_ms) {
    x.timeout_ms = *job.session->reservation.time_ms;
    x.session_limit = true;
  }
  x.wall_timer = timers.arm(now.mono_ms + x.timeout_ms, {.kind = TimerKind::kExecutionWall, .number = id.value});
  x.late_timer = timers.arm(now.mono_ms + x.timeout_ms - x.timeout_ms / kLatePart,
                            {.kind = TimerKind::kExecutionLate, .number = id.value});
  x.idle_timer =
      timers.arm(now.mono_ms + config.timeout.idle_ms, {.kind = TimerKind::kExecutionIdle, .number = id.value});
  job.execution = id;
  ++worker.slots_in_use;
  worker.last_used_ms = now.mono_ms;
  model(job.model).frequency.used(now.mono_ms);

  std::int64_t budget_ms = x.timeout_ms;
  if (job.spec.deadline_ms) {
    budget_ms = std::min(budget_ms, std::max<std::int64_t>(1, job.submitted_ms + *job.spec.deadline_ms - now.mono_ms));
  }
  const std::int64_t queue_wait_ms = now.mono_ms - job.queued_ms;
  auto share = session_share(job, worker.id);
  job.kv_warmth = share && share->kv_warmth;
  commit_progress(job);
  emit(Execute{.execution = id,
               .job_id = job.spec.job_id,
               .pool_id = worker.pool_id,
               .worker_id = worker.id,
               .uri = x.uri,
               .attempt = job.attempts,
               .timeout_ms = budget_ms,
               .queue_wait_ms = queue_wait_ms,
               .queue_position = job.queue_position,
               .predicted_start_ms = job.predicted_start_ms,
               .session = std::move(share)});
  count(Metric::kDispatched, worker.id.value, 1, job.spec.priority);
  count(Metric::kQueueWaitMs, {}, queue_wait_ms, job.spec.priority);
  log(base::LogLevel::kDebug, "dispatch.sent", &job, "Sends a job to a worker.",
      {{"worker_id", worker.id},
       {"pool_id", worker.pool_id},
       {"attempt", job.attempts},
       {"queue_time_ms", queue_wait_ms}});
}

void Core::State::on(ExecuteStarted& e) {
  Execution* x = find_execution(e.execution);
  if (!x || x->aborted || x->started) return;
  x->started = true;
  x->last_progress_ms = now.mono_ms;
  Job& job = jobs.at(x->job);
  ASSERT(jobs::is_legal(job.status, JobStatus::kRunning), "job {}", job.spec.job_id.value);
  job.status = JobStatus::kRunning;
  job.worker_version = x->worker_version;
  if (!job.started_unix_ms) job.started_unix_ms = now.unix_ms;
  commit_progress(job);
  log(base::LogLevel::kDebug, "stream.started", &job, "A worker has begun a job.", {{"worker_id", x->worker_id}});
}

void Core::State::on(ExecuteProgress& e) {
  Execution* x = find_execution(e.execution);
  if (!x || x->aborted) return;
  x->last_progress_ms = now.mono_ms;
  jobs.at(x->job).tokens_out = e.tokens_out;
}

void Core::State::on(ExecuteEnded& e) {
  Execution* found = find_execution(e.execution);
  if (!found) return;  // given up on before, or said twice
  ASSERT(e.end.has_value() != e.error.has_value(), "execution {}", e.execution.value);
  const Execution x = *found;
  release(*found);
  count(Metric::kDispatchEnded, e.end ? "success" : "failure");
  Job* job = find_job(x.job);
  if (!job || job->execution != x.id) return;  // its fate was decided when it was aborted
  job->execution.reset();
  job->tokens_out = e.tokens_out;
  if (e.end) return completed(*job, x, std::move(*e.end));
  if (x.retry_error) return retry(*job, *x.retry_error);
  if (x.aborted) return put_back(*job);
  // If the worker is dead its pool knows first: nothing more goes there before the pool has spoken.
  if (const auto* pool = job->pool_id ? registry.find_pool(*job->pool_id) : nullptr) {
    Worker* worker = registry.find_worker(x.worker_id);
    const ErrorCode code = e.error->code;
    if (worker && (code == ErrorCode::kUnreachable || code == ErrorCode::kWorkerReset)) worker->doubted = true;
    emit(AskPoolState{pool->endpoint});
  }
  attempt_failed(*job, std::move(*e.error));
}

void Core::State::completed(Job& job, const Execution& x, wire::EndEvent end) {
  const std::int64_t ran_ms = now.mono_ms - x.dispatched_ms;
  Model& m = model(job.model);
  m.run_ms.add(ran_ms);
  run_ms.add(ran_ms);
  m.tokens_out.add(end.tokens_out);
  if (const Worker* worker = registry.find_worker(x.worker_id)) measure(m, *worker, end);
  job.tokens_out = end.tokens_out;
  count(Metric::kTokensOut, {}, end.tokens_out);
  count(Metric::kFirstTokenMs, {}, x.dispatched_ms - job.submitted_ms + end.first_token_ms, job.spec.priority);
  count(Metric::kDecodeMs, {}, end.decode_time_ms, job.spec.priority);
  if (const auto share = session_share(job, x.worker_id)) {
    end.budget = sessions::after(*share, end.tokens_out, end.decode_time_ms);
  }
  finish(job, {.status = JobStatus::kCompleted, .end = std::move(end), .error = {}});
}

// A run of one token says nothing about the speed of the next ones.
void Core::State::measure(Model& m, const Worker& worker, const wire::EndEvent& end) {
  if (end.tokens_out < 2) return;
  Performance& p = m.performance[{worker.pool_id, worker.info.gpu_id}];
  p.first_token_ms.add(end.first_token_ms);
  p.us_per_token.add(end.decode_time_ms * 1000 / (end.tokens_out - 1));
}

void Core::State::attempt_failed(Job& job, Error error) {
  // A worker only says CANCELLED without being asked when it is being stopped under the job.
  if (error.code == ErrorCode::kCancelled) error = {ErrorCode::kWorkerReset, "The worker stopped during the job.", {}};
  if (jobs::is_transient(error.code)) return retry(job, std::move(error));
  log(base::LogLevel::kWarn, "job.failed", &job, "A job failed on its worker.",
      {{"code", error.name()}, {"message", error.message}});
  fail(job, std::move(error));
}

void Core::State::retry(Job& job, Error error) {
  if (!config.retry.enabled) return fail(job, std::move(error));
  if (job.attempts >= config.retry.max_attempts) {
    log(base::LogLevel::kWarn, "job.failed", &job, "A job has used up its attempts.",
        {{"attempts", job.attempts}, {"code", error.name()}, {"message", error.message}});
    return fail(job, Error{ErrorCode::kRetryExhausted,
                           fmt::format("All {} attempts failed; the last one with {}: {}", job.attempts, error.name(),
                                       error.message),
                           {}}
                         .with("attempts", job.attempts)
                         .with("last_code", std::string(error.name())));
  }
  const std::int64_t delay_ms = jobs::backoff_ms(config.retry, job.attempts, entropy);
  count(Metric::kRetries, error.name());
  log(base::LogLevel::kWarn, "job.retry", &job, "An attempt failed and the job goes back to the queue.",
      {{"attempt", job.attempts}, {"backoff_ms", delay_ms}, {"code", error.name()}, {"message", error.message}});
  back_to_queue(job, now.mono_ms + delay_ms);
  commit_progress(job);
}

void Core::State::back_to_queue(Job& job, std::int64_t ready_at_ms) {
  ASSERT(jobs::is_legal(job.status, JobStatus::kQueued), "job {}", job.spec.job_id.value);
  job.status = JobStatus::kQueued;
  job.queued_ms = now.mono_ms;
  job.worker_id.reset();
  job.pool_id.reset();
  if (job.worker_version != group(job.group).version) {
    const GroupIndex bound = intern_group(job.model, job.spec, job.worker_version);
    leave_group(job);
    job.group = bound;
    ++group(bound).jobs;
  }
  queue.put_back({.arrival = job.arrival,
                  .group = job.group,
                  .priority = job.spec.priority,
                  .queued_ms = job.submitted_ms,
                  .displaceable = false},
                 ready_at_ms, now.mono_ms);
  dirty = true;
}

// Its attempt was cut short by an operator or by our own end: it does not count, also after a restart.
void Core::State::put_back(Job& job) {
  --job.attempts;
  back_to_queue(job, now.mono_ms);
  if (draining) return;  // the row says "running", and the next process replays it as this attempt
  log(base::LogLevel::kDebug, "job.put_back", &job, "A running job goes back to the queue.");
  commit_progress(job);
}

void Core::State::abort(Execution& x) {
  x.aborted = true;
  timers.cancel(x.wall_timer);
  timers.cancel(x.late_timer);
  timers.cancel(x.idle_timer);
  timers.cancel(x.gone_timer);
  x.abort_timer = timers.arm(now.mono_ms + config.timeout.cancellation_deadline_ms,
                             {.kind = TimerKind::kAbort, .number = x.id.value});
  emit(AbortExecute{x.id, x.job_id, x.uri});
}

// The job goes back to the queue only once this attempt is over: never two attempts of one job at a time.
void Core::State::abort_and_retry(Execution& x, Error error) {
  if (x.aborted) return;
  x.retry_error = std::move(error);
  abort(x);
}

void Core::State::release(Execution& x) {
  timers.cancel(x.wall_timer);
  timers.cancel(x.late_timer);
  timers.cancel(x.idle_timer);
  timers.cancel(x.gone_timer);
  timers.cancel(x.abort_timer);
  if (Worker* worker = registry.find_worker(x.worker_id)) {
    if (worker->slots_in_use > 0) --worker->slots_in_use;
    worker->last_used_ms = now.mono_ms;
  }
  quotas.ended(x.tenant_id);
  touch_groups_of(x);
  executions.erase(ExecutionId{x.id});
}

void Core::State::wall_timer(Execution& x) {
  x.wall_timer.reset();
  if (x.aborted) return;
  time_out(jobs.at(x.job), {.stage = "execution",
                            .limit = x.session_limit ? "session_time_budget" : "wall",
                            .timeout_ms = x.timeout_ms,
                            .execution_time_ms = now.mono_ms - x.dispatched_ms});
}

// Said before it is too late, to who may raise the limit for the next ones.
void Core::State::late_timer(Execution& x) {
  x.late_timer.reset();
  if (x.aborted) return;
  const Job& job = jobs.at(x.job);
  log(base::LogLevel::kWarn, "job.late", &job, "A job has used most of its time.",
      {{"timeout_ms", x.timeout_ms},
       {"execution_time_ms", now.mono_ms - x.dispatched_ms},
       {"tokens_out", job.tokens_out},
       {"max_tokens", job.spec.max_tokens}});
}

void Core::State::idle_timer(Execution& x) {
  x.idle_timer.reset();
  if (x.aborted) return;
  const std::int64_t due_ms = x.last_progress_ms + config.timeout.idle_ms;
  if (due_ms > now.mono_ms) {
    x.idle_timer = timers.arm(due_ms, {.kind = TimerKind::kExecutionIdle, .number = x.id.value});
    return;
  }
  if (!x.started) {  // the worker never took it up: another one may
    return abort_and_retry(x, {ErrorCode::kWorkerTimeout, "The worker did not begin the job in time.", {}});
  }
  time_out(jobs.at(x.job), {.stage = "execution",
                            .limit = "idle",
                            .timeout_ms = config.timeout.idle_ms,
                            .execution_time_ms = now.mono_ms - x.dispatched_ms});
}

// Nobody confirmed the abort. The slot counts as free again; a worker that disagrees answers WORKER_BUSY.
void Core::State::abort_timer(Execution& found) {
  const Execution x = found;
  release(found);
  Job* job = find_job(x.job);
  log(base::LogLevel::kWarn, "cancel.deadline_exceeded", job, "A worker did not confirm an abort in time.",
      {{"worker_id", x.worker_id}});
  if (!job || job->execution != x.id) return;
  job->execution.reset();
  if (x.retry_error) return retry(*job, *x.retry_error);
  put_back(*job);
}

}  // namespace llorch::orchestratord::core
