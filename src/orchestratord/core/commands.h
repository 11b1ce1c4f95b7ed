#pragma once
// Everything the core asks for. The shell carries commands out in the order given; commands of one step that go to the
// same place (store, one stream, one pool) must keep that order.
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "orchestratord/core/answers.h"
#include "orchestratord/core/counts.h"
#include "orchestratord/core/jobs/ids.h"
#include "orchestratord/core/jobs/job.h"
#include "orchestratord/core/queue/optimizer.h"
#include "orchestratord/core/sessions/session.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::orchestratord::core {

using jobs::CommitId;
using jobs::ExecutionId;
using jobs::RequestId;

// ---- store --------------------------------------------------------------------------------------------------------
// Write the job's row, queue entry and sealed payload (the shell kept them under job_id since Submit).
struct CommitAdmission {
  CommitId commit;
  base::JobId job_id;
  std::int64_t submitted_unix_ms = 0;
  std::optional<sessions::SessionRecord> session;  // whose turn it is; its row is written as well if it is not there
};
// Update the job's row. A terminal status also drops the queue entry and, after the commit, destroys the payload key.
struct CommitTransition {
  CommitId commit;
  jobs::JobRecord record;
};
// A session that a client made or touched.
struct CommitSession {
  CommitId commit;
  sessions::SessionRecord session;
};
struct ForgetSession {
  std::int64_t session_key = 0;
};
// Endpoints outlive the process so that every pool is asked at start.
struct RememberPool {
  base::PoolId pool_id;
  std::string endpoint;
};
// The pool has left: remove its row, and with it what the operator desired.
struct ForgetPool {
  CommitId commit;
  base::PoolId pool_id;
};
// All that an operator has asked of a pool.
struct CommitDesiredState {
  CommitId commit;
  base::PoolId pool_id;
  std::string endpoint;  // "" if it is not known
  wire::PoolDesiredState desired;
};

// ---- streams ------------------------------------------------------------------------------------------------------
// Event `queued`, id 0. Once per job and process, before its first Execute.
struct PublishQueued {
  base::JobId job_id;
  std::int64_t queue_position = 0;
  std::int64_t predicted_start_ms = 0;
};
// Event `metrics`, without an id: how the job stands while it runs. Clients that are behind do not get it.
struct PublishMetrics {
  base::JobId job_id;
  wire::MetricsEvent metrics;
};
// The row of an attempt that holds its stream says `running`: what was held back goes out, and what follows at once.
struct ReleaseStream {
  base::JobId job_id;
};
// From here on no token of this job reaches a client; the terminal event follows with Finish.
struct SealStream {
  base::JobId job_id;
};
// The terminal row is durable: publish the terminal event. The last command about this job, exactly once per job.
struct Finish {
  base::JobId job_id;
  wire::JobStatus status = wire::JobStatus::kCompleted;
  std::int64_t finished_unix_ms = 0;
  std::optional<wire::EndEvent> end;  // kCompleted
  std::optional<base::Error> error;   // kFailed, kCancelled
  // Of its last attempt.
  std::int64_t attempts = 0;
  std::optional<base::PoolId> pool_id;
  std::optional<std::int64_t> dispatched_unix_ms, started_unix_ms;
  std::int64_t tokens_out = 0;
};

// ---- workers ------------------------------------------------------------------------------------------------------
// POST {uri}/execute and relay. ExecuteStarted, ExecuteProgress and one ExecuteEnded come back.
struct Execute {
  ExecutionId execution;
  base::JobId job_id;
  base::PoolId pool_id;
  base::WorkerId worker_id;
  std::string uri;
  std::int64_t attempt = 1;
  std::int64_t timeout_ms = 0;     // what is left of the job's budget, for the worker's own limit
  std::int64_t queue_wait_ms = 0;  // of this stay in the queue, for `started`
  std::int64_t queue_position = 0, predicted_start_ms = 0;  // as they were told at admission, likewise
  // No client is told of a token before ReleaseStream: who restarts must find that this job may not run again.
  bool holds_stream = false;
  double scheduling_ms = 0;  // how long the step took that made it: set by whoever runs the core, which has no clock
};
// POST {uri}/cancel and close the connection. ExecuteEnded still comes.
struct AbortExecute {
  ExecutionId execution;
  base::JobId job_id;
  std::string uri;
};

// ---- pools --------------------------------------------------------------------------------------------------------
struct StartWorker {
  base::PoolId pool_id;
  std::string endpoint;
  wire::StartWorkerRequest request;
  base::CorrelationId correlation_id{};  // of the job that asks for it; empty: an operator does
};
struct StopWorker {
  base::PoolId pool_id;
  std::string endpoint;
  base::WorkerId worker_id;
};
// Have the pool read the files of a model into its host's memory, or let go of them. Nothing comes back but its reports.
struct StageModel {
  base::PoolId pool_id;
  std::string endpoint;
  std::string model_ref;
  bool stage = true;
};
// GET {endpoint}/v2/state; comes back as PoolSeen or PoolUnreachable.
struct AskPoolState {
  std::string endpoint;
  std::int64_t asked_ms = 0;  // now; comes back with either
};

// ---- queue optimizer ------------------------------------------------------------------------------------------------
// Look over this copy of the queue, elsewhere and for no longer than max_runtime_ms; QueueReviewed comes back.
struct ReviewQueue {
  queue::Snapshot snapshot;
  std::int64_t max_runtime_ms = 0;
};

// ---- records ------------------------------------------------------------------------------------------------------
struct Log {
  base::LogLevel level = base::LogLevel::kInfo;
  std::string_view event;  // stable code
  base::CorrelationId correlation_id;
  std::string human;
  std::vector<base::LogField> fields;
};

// Shutdown is complete: nothing runs and every commit was answered.
struct Drained {};

using Command = std::variant<CommitAdmission, CommitTransition, CommitSession, ForgetSession, RememberPool, ForgetPool,
                             CommitDesiredState, AnswerSubmit, AnswerCancel, AnswerQueryJob, AnswerQueryJobs,
                             AnswerQueryPools, AnswerQueryGauges, AnswerQueryPlacement, AnswerQueryPreview,
                             AnswerArrival, AnswerSession, AnswerQuerySessions, AnswerPool, AnswerPoolControl,
                             AnswerPoolHealth, PublishStanding, PublishQueueRoom, PublishQueued, PublishMetrics,
                             ReleaseStream, SealStream, Finish, Execute, AbortExecute, StartWorker, StopWorker,
                             StageModel, AskPoolState, ReviewQueue, Log, Count, CountPlacement, Drained>;

}  // namespace llorch::orchestratord::core
