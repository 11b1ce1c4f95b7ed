// Cancellation and the way to a terminal state: decided, sealed, made durable, then told.
#include <fmt/core.h>

#include "base/assert.h"
#include "orchestratord/core/state.h"
#include "wire/json.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;

void Attempts::on(CancelRequested& e) {
  Job* job = jobs_.find(e.job_id);
  if (!job) {
    if (e.request) emit(AnswerCancel{*e.request, e.job_id, std::nullopt});
    return;
  }
  if (e.request) {
    job->cancel_requests.push_back(*e.request);
    if (!job->answer_timer) {
      job->answer_timer = timers_.arm(now_.mono_ms + config_.timeout.cancellation_deadline_ms,
                                      {.kind = TimerKind::kCancelAnswer, .number = job->arrival.value});
    }
  }
  if (job->outcome) return;
  if (!job->admitted) {
    if (!job->cancel_when_admitted) job->cancel_when_admitted = e.reason;
    return;
  }
  cancel(*job, e.reason);
}

namespace {
std::string_view why_cancelled(jobs::CancelReason reason) {
  if (reason != jobs::CancelReason::kStreamMemory) return "The job was cancelled.";
  return "The job was cancelled: all streams together held twice orchestratord.stream.buffer_bytes_max, its tenant's "
         "more than their share, and its worker had been paused for orchestratord.stream.slow_client_timeout_ms. Read "
         "streams as they come, run fewer jobs with large outputs at a time, or raise buffer_bytes_max.";
}
}  // namespace

void Attempts::cancel(Job& job, jobs::CancelReason reason) {
  count(Metric::kCancelled, jobs::name(reason));
  log(base::LogLevel::kDebug, "job.cancelled", &job, "Cancels a job.", {{"reason", jobs::name(reason)}});
  finish(job, {.status = JobStatus::kCancelled,
               .end = {},
               .error = Error{ErrorCode::kCancelled, std::string(why_cancelled(reason)), {}}.with(
                   "reason", std::string(jobs::name(reason)))});
}

namespace {
std::string_view advice_for(std::string_view limit) {
  if (limit == "deadline") return "Give a later deadline_ms, or submit it when less waits.";
  if (limit == "queue") return "Submit it when less waits, or raise orchestratord.timeout.queue_ms.";
  if (limit == "idle")
    return "Its worker gave no token for so long; submit it again, or raise orchestratord.timeout.idle_ms.";
  if (limit == "session_time_budget") return "Use another session, or one with a larger time budget.";
  return "Ask for more with timeout_ms (up to orchestratord.timeout.max_ms), or for fewer tokens.";
}
}  // namespace

void Attempts::time_out(Job& job, const TimedOut& what) {
  count(Metric::kTimeouts, what.stage);
  log_limited(base::LogLevel::kWarn, "job.timeout", &job, "A job ran out of time.",
              {{"stage", what.stage}, {"limit", what.limit}, {"timeout_ms", what.timeout_ms}});
  fail(job, Error{what.limit == "queue" ? ErrorCode::kQueueTimeout : ErrorCode::kTimeout,
                  fmt::format("The {} limit of {} ms ran out in the {} stage. {}", what.limit, what.timeout_ms,
                              what.stage, advice_for(what.limit)),
                  {}}
                .with("stage", std::string(what.stage))
                .with("limit", std::string(what.limit))
                .with("timeout_ms", what.timeout_ms)
                .with("execution_time_ms", what.execution_time_ms));
}

void Attempts::finish(Job& job, Outcome outcome) {
  job.decode_time_ms = ledger_.time_taken_ms(job, outcome);
  queue_.remove(job.arrival);
  if (job.execution) {
    emit(SealStream{job.spec.job_id});
    Execution& execution = *jobs_.find(*job.execution);
    execution.retry_error.reset();
    if (!execution.aborted) abort(execution);
    Jobs::detach(job);
  }
  timers_.cancel(job.deadline_timer);
  timers_.cancel(job.queue_timer);
  job.finished_unix_ms = now_.unix_ms;
  Jobs::conclude(job, std::move(outcome));
  commit_outcome(job);
  recheck_.groups(model(job.model).groups);
}

jobs::JobRecord Attempts::record(const Job& job) const {
  jobs::JobRecord r{.job_id = job.spec.job_id,
                    .status = job.status,
                    .attempts = job.attempts,
                    .worker_id = job.worker_id,
                    .worker_version = {},
                    .pool_id = job.pool_id,
                    .dispatched_unix_ms = job.dispatched_unix_ms,
                    .started_unix_ms = job.started_unix_ms,
                    .finished_unix_ms = job.finished_unix_ms,
                    .tokens_in = {},
                    .tokens_out = job.tokens_out,
                    .decode_time_ms = {},
                    .end = {},
                    .error = {}};
  if (!job.worker_version.empty()) r.worker_version = job.worker_version;
  if (job.outcome) {
    r.decode_time_ms = job.decode_time_ms;
    r.end = job.outcome->end;
    const std::int64_t counted = jobs::prompt_tokens(job.spec, r.end);
    if (counted != job.spec.tokens_in) r.tokens_in = counted;
    r.error = job.outcome->error;
  }
  return r;
}

void Attempts::commit_progress(const Job& job) {
  emit(CommitTransition{commits_.add({.kind = PendingCommit::Kind::kProgress, .job = job.arrival}), record(job)});
}

// Of a job that does not run again once a token of it was told.
void Attempts::commit_running(const Execution& x) {
  emit(CommitTransition{commits_.add({.kind = PendingCommit::Kind::kRunning, .job = x.job, .execution = x.id}),
                        record(jobs_.at(x.job))});
}

void Attempts::running_committed(Execution& x) {
  x.holds_stream = false;
  emit(ReleaseStream{x.job_id});
}

// A row that is gone comes back by no repetition: a database that lost commits has lost the job, and its client is told all the same.
void Attempts::running_failed(const Execution& x, const Error& error) {
  if (error.code == ErrorCode::kNotFound) return running_committed(*jobs_.find(x.id));
  log(base::LogLevel::kError, "store.retry", jobs_.find(x.job),
      "Cannot store that a job runs, holds its tokens back and tries again.", {{"code", error.name()}});
  timers_.arm(now_.mono_ms + config_.store_retry_ms, {.kind = TimerKind::kRunningRetry, .number = x.id.value});
}

void Attempts::commit_outcome(Job& job) {
  emit(CommitTransition{commits_.add({.kind = PendingCommit::Kind::kTerminal, .job = job.arrival}), record(job)});
}

void Attempts::outcome_committed(Job& job) {
  const Outcome& outcome = *job.outcome;
  ledger_.settle(job);
  count(Metric::kFinished, wire::enum_name(outcome.status));
  log_outcome(job);
  emit(Finish{.job_id = job.spec.job_id,
              .status = outcome.status,
              .finished_unix_ms = *job.finished_unix_ms,
              .end = outcome.end,
              .error = outcome.error,
              .attempts = job.attempts,
              .pool_id = job.pool_id,
              .dispatched_unix_ms = job.dispatched_unix_ms,
              .started_unix_ms = job.started_unix_ms,
              .tokens_out = job.tokens_out});
  answer_cancels(job, outcome.status);
  forget(job);
}

void Attempts::outcome_failed(const Job& job, const Error& error) {
  if (error.code == ErrorCode::kNotFound) {
    log(base::LogLevel::kError, "store.row_lost", &job,
        "The job store has lost a committed job; its client is told how it ended.", {{"code", error.name()}});
    return outcome_committed(jobs_.at(job.arrival));
  }
  log(base::LogLevel::kError, "store.retry", &job, "Cannot store how a job ended and tries again.",
      {{"code", error.name()}});
  timers_.arm(now_.mono_ms + config_.store_retry_ms, {.kind = TimerKind::kStoreRetry, .number = job.arrival.value});
}

// The one line per job at info: it says everything countable about it, and why it failed.
void Attempts::log_outcome(const Job& job) {
  const Outcome& outcome = *job.outcome;
  const auto& receipt = outcome.end ? outcome.end->receipt : std::nullopt;
  log(base::LogLevel::kInfo, "stream.ended", &job, "A job has ended.",
      {{"status", wire::enum_name(outcome.status)},
       {"code", outcome.error ? outcome.error->name() : std::string_view("")},
       {"message", outcome.error ? outcome.error->message : ""},
       {"tenant", sessions::tenant_of(job.spec.tenant_id)},
       {"engine", job.engine},
       {"engine_version", receipt ? receipt->engine_build : ""},
       {"pool_id", job.pool_id ? job.pool_id->value : ""},
       {"replica_id", job.worker_id ? job.worker_id->value : ""},
       {"worker_id", job.worker_id ? job.worker_id->value : ""},
       {"gpu_id", job.gpu_id},
       {"model_id", job.spec.model.digest},
       {"model_ref", job.spec.model.model_ref},
       {"quant", job.spec.model.quant_kind},
       {"ctx", s_.admissions.context_tokens(job.spec.model)},
       {"kv_warmth", job.kv_warmth},
       {"attempts", job.attempts},
       {"queue_position", job.queue_position},
       {"predicted_start_ms", job.predicted_start_ms},
       {"queue_time_ms", job.dispatched_unix_ms.value_or(*job.finished_unix_ms) - job.submitted_unix_ms},
       {"scheduling_latency_ms", job.scheduling_ms},
       {"execution_latency_ms", job.dispatched_unix_ms ? *job.finished_unix_ms - *job.dispatched_unix_ms : 0},
       {"decode_time_ms", outcome.end ? outcome.end->decode_time_ms : 0},
       {"tokens_in", jobs::prompt_tokens(job.spec, outcome.end)},
       {"tokens_out", job.tokens_out}});
}

// What the shell knows better: what the stream of a job that is about to end holds.
void Attempts::on(StreamCounted& e) {
  if (Job* job = jobs_.find(e.job_id)) job->tokens_out = e.tokens_out;
}

void Attempts::answer_cancels(Job& job, JobStatus status) {
  for (const RequestId request : job.cancel_requests) emit(AnswerCancel{request, job.spec.job_id, status});
  job.cancel_requests.clear();
}

void Attempts::forget(Job& job) {
  timers_.cancel(job.deadline_timer);
  timers_.cancel(job.queue_timer);
  timers_.cancel(job.answer_timer);
  groups_.leave(job);
  jobs_.erase(job);
}

}  // namespace llorch::orchestratord::core
