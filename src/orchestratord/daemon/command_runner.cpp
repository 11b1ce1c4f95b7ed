#include "orchestratord/daemon/command_runner.h"

#include <algorithm>

#include "base/assert.h"
#include "base/log.h"
#include "orchestratord/http/tasks/job_view.h"
#include "orchestratord/models/catalog.h"
#include "orchestratord/store/rows/job_row.h"
#include "wire/json.h"

namespace llorch::orchestratord::daemon {
namespace {

static_assert(store::kEventsBeforeTokens == streams::kFirstTokenSeq);

// In the words that its row and its stream have.
wire::ErrorBody told(const base::Error& error, const http::LiveJobData& live) {
  return wire::error_body(streams::with_pause(error, live.stream->paused_ms()), live.record.correlation_id);
}

store::JobProgress progress_of(const core::jobs::JobRecord& record, const http::LiveJobData& live) {
  store::JobProgress p;
  p.status = record.status;
  p.attempts = record.attempts;
  if (record.worker_id) p.worker_id = record.worker_id->value;
  p.worker_version = record.worker_version;
  if (record.pool_id) p.pool_id = record.pool_id->value;
  p.dispatched_unix_ms = record.dispatched_unix_ms;
  p.started_unix_ms = record.started_unix_ms;
  p.finished_unix_ms = record.finished_unix_ms;
  p.tokens_in = record.tokens_in;
  p.tokens_out = record.tokens_out;
  p.decode_time_ms = record.decode_time_ms;
  p.end = record.end;
  if (record.error) p.error = told(*record.error, live);
  if (wire::is_terminal(record.status)) {
    // The stream is sealed or its worker has ended: what it holds is what there was.
    p.last_event_id = streams::to_string(live.stream->terminal_id());
    const streams::Stream::Progress held = live.stream->progress();
    p.tokens_out = held.tokens_count - held.prompt_tokens_count;
    // What was told before a restart counts, also where the job ends before it is told again.
    if (!p.end) p.tokens_out = std::max(p.tokens_out, live.record.progress.tokens_out);
  }
  return p;
}

traces::FinishedJob finished_job(const core::Finish& command, const store::JobRecord& record) {
  return {.correlation_id = record.correlation_id,
          .model = record.model,
          .model_digest = record.facts.digest,
          .priority = record.priority,
          .status = command.status,
          .error_code = command.error ? std::string(command.error->name()) : "",
          .end = command.end,
          .pool_id = command.pool_id ? command.pool_id->value : "",
          .attempts = command.attempts,
          .tokens_in = record.tokens_in,
          .tokens_out = command.tokens_out,
          .submitted_ms = record.submitted_unix_ms,
          .dispatched_ms = command.dispatched_unix_ms,
          .started_ms = command.started_unix_ms,
          .finished_ms = command.finished_unix_ms};
}

}  // namespace

void CommandRunner::execute(core::Command command) {
  std::visit([this](auto& c) { run(c); }, command);
}

store::Store::Done CommandRunner::committed(core::CommitId id) {
  return [core = context_.core, id](base::Result<> result) {
    if (result) return core->post(core::Committed{{id}});
    core->post(core::CommitFailed{{id}, std::move(result).error()});
  };
}

void CommandRunner::run(core::CommitAdmission& command) {
  const http::LiveJobPtr live = context_.jobs->find(command.job_id);
  ASSERT(live != nullptr, "job {}", command.job_id.value);
  store::Admission admission{live->record, std::nullopt, std::move(command.session)};
  if (admission.session) admission.job.session_key = admission.session->key;
  if (context_.config->orchestratord.persistence.payload_spool == config::PayloadSpool::kEncrypted) {
    admission.payload = live->payload;
  }
  context_.store->admit(std::move(admission), committed(command.commit));
}

void CommandRunner::run(core::CommitTransition& command) {
  const http::LiveJobPtr live = context_.jobs->find(command.record.job_id);
  ASSERT(live != nullptr, "job {}", command.record.job_id.value);
  store::JobProgress progress = progress_of(command.record, *live);
  if (wire::is_terminal(progress.status)) {
    context_.jobs->note_end(command.record.job_id);
    context_.core->post(core::StreamCounted{command.record.job_id, progress.tokens_out.value_or(0)});
  }
  context_.store->transition({command.record.job_id, std::move(progress)}, committed(command.commit));
}

void CommandRunner::run(core::CommitSession& command) {
  context_.store->remember_session(std::move(command.session), committed(command.commit));
}

void CommandRunner::run(core::ForgetSession& command) { context_.store->forget_session(command.session_key); }

void CommandRunner::run(core::RememberPool& command) {
  const auto old = context_.pools->endpoint_of(command.pool_id);
  if (old && *old != command.endpoint) context_.catalog->pool_lost(*old);
  if (command.endpoint.empty()) {  // another pool has its address
    context_.pools->forget(command.pool_id);
  } else {
    context_.pools->remember(command.pool_id, command.endpoint);
    // Of a pool that has not announced it with its present credential, the next process would send that one's token there.
    if (context_.pools->endpoint_of(command.pool_id) != command.endpoint) return;
  }
  context_.store->remember_pool({command.pool_id, command.endpoint});
}

void CommandRunner::run(core::ForgetPool& command) {
  if (const auto endpoint = context_.pools->endpoint_of(command.pool_id)) context_.catalog->pool_lost(*endpoint);
  context_.pools->forget(command.pool_id);
  context_.store->forget_pool(command.pool_id, committed(command.commit));
}

void CommandRunner::run(core::CommitDesiredState& command) {
  context_.store->set_desired_state({command.pool_id, command.endpoint, std::move(command.desired)},
                                    committed(command.commit));
}

void CommandRunner::run(core::PublishQueued& command) {
  if (const http::LiveJobPtr live = context_.jobs->find(command.job_id)) {
    live->stream->queued({.job_id = command.job_id.value,
                          .queue_position = command.queue_position,
                          .predicted_start_ms = command.predicted_start_ms});
  }
}

void CommandRunner::run(core::PublishMetrics& command) {
  if (const http::LiveJobPtr live = context_.jobs->find(command.job_id)) {
    live->stream->metrics(command.metrics, context_.clock->now().mono_ms);
  }
}

void CommandRunner::run(core::ReleaseStream& command) {
  if (const http::LiveJobPtr live = context_.jobs->find(command.job_id)) live->stream->release();
}

void CommandRunner::run(core::SealStream& command) {
  if (const http::LiveJobPtr live = context_.jobs->find(command.job_id)) live->stream->seal();
}

void CommandRunner::run(core::Finish& command) {
  const http::LiveJobPtr live = context_.jobs->find(command.job_id);
  ASSERT(live != nullptr, "job {}", command.job_id.value);
  if (options_.spans != nullptr) options_.spans->add(finished_job(command, live->record));
  store::JobProgress progress;
  progress.end = std::move(command.end);
  if (command.error) {
    context_.metrics->error(command.error->name());
    progress.error = told(*command.error, *live);
  }
  live->stream->finish(http::tasks::terminal_event(progress), context_.clock->now().mono_ms);
  context_.jobs->remove(command.job_id);
}

void CommandRunner::run(core::Execute& command) {
  const http::LiveJobPtr live = context_.jobs->find(command.job_id);
  ASSERT(live != nullptr, "job {}", command.job_id.value);
  const auto execution = command.execution;
  http::CorePort* core = context_.core;
  auto token = context_.pools->token_for_worker(command.pool_id, command.uri);
  if (!token) {  // unpaired or paired anew since the core decided
    return core->post(core::ExecuteEnded{
        .execution = execution,
        .tokens_out = 0,
        .end = {},
        .error = base::Error{base::ErrorCode::kUnreachable, "the worker's pool is not paired any more", {}}.with(
            "reason", std::string("POOL_NOT_PAIRED"))});
  }
  options_.relay->execute({.execution = execution.value,
                           .stream = live->stream,
                           .worker_uri = command.uri,
                           .bearer = std::move(*token),
                           .payload = live->payload,
                           .timeout_ms = command.timeout_ms,
                           .correlation_id = live->record.correlation_id,
                           .worker_id = command.worker_id.value,
                           .model = live->record.model,
                           .queue_wait_ms = command.queue_wait_ms,
                           .queue_position = command.queue_position,
                           .predicted_start_ms = command.predicted_start_ms,
                           .holds_stream = command.holds_stream,
                           .tokens_max = live->record.max_tokens,
                           .prompt_events = live->prompt_events,
                           .workload = models::workload_of(live->record.facts),
                           .expected = {.seed = live->record.seed,
                                        .prompt_sha256 = live->record.prompt_sha256,
                                        .parameters_sha256 = live->parameters_sha256,
                                        .model_digest = live->record.facts.digest}},
                          {.started =
                               [core, execution, scheduling_ms = command.scheduling_ms] {
                                 core->post(core::ExecuteStarted{execution, scheduling_ms});
                               },
                           .progress =
                               [core, execution](std::int64_t tokens) {
                                 core->post(core::ExecuteProgress{execution, tokens});
                               },
                           .ended =
                               [core, execution](streams::Relay::Reports::Outcome outcome) {
                                 core->post(core::ExecuteEnded{.execution = execution,
                                                               .tokens_out = outcome.tokens_out,
                                                               .end = std::move(outcome.end),
                                                               .error = std::move(outcome.error)});
                               }});
}

void CommandRunner::run(core::AbortExecute& command) { options_.relay->abort(command.execution.value); }

// Neither the core nor the relays wait for it.
void CommandRunner::run(core::ReviewQueue& command) {
  const auto until_ms = context_.clock->now().mono_ms + command.max_runtime_ms;
  options_.aside->post([core = context_.core, clock = context_.clock, snapshot = std::move(command.snapshot), until_ms,
                        stopping = stopping_] {
    core->post(core::QueueReviewed{
        core::queue::review(snapshot, [&] { return *stopping || clock->now().mono_ms >= until_ms; })});
  });
}

void CommandRunner::run(core::Log& command) {
  base::log_event(command.level, command.event, command.correlation_id, command.human,
                  std::span<const base::LogField>(command.fields));
}

}  // namespace llorch::orchestratord::daemon
