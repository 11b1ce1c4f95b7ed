#pragma once
// Everything the core hears. Each comes from another thread; order between two sources does not matter to correctness,
// duplicates and late messages are recognised by their ids.
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "config/config.h"
#include "orchestratord/core/jobs/ids.h"
#include "orchestratord/core/jobs/job.h"
#include "orchestratord/core/queue/optimizer.h"
#include "orchestratord/core/sessions/session.h"
#include "wire/pool.h"
#include "wire/pool_control.h"
#include "wire/task.h"

namespace llorch::orchestratord::core {

using jobs::CommitId;
using jobs::ExecutionId;
using jobs::RequestId;

// ---- clients ------------------------------------------------------------------------------------------------------
// A validated request (model resolved, tokens counted, parameters in range). Answered by exactly one AnswerSubmit.
// REQUIRES: a job_id never used before.
struct Submit {
  RequestId request;
  jobs::JobSpec job;
  bool counted = false;  // CountArrival has taken its request
};
// A client's cancel (with `request`; answered by exactly one AnswerCancel), or the shell's own decision, e.g. that all
// stream clients are gone and the job asked for on_disconnect: cancel (without). Idempotent.
struct CancelRequested {
  std::optional<RequestId> request;
  base::JobId job_id;
  jobs::CancelReason reason = jobs::CancelReason::kClientRequest;
};
struct QueryJob {
  RequestId request;
  base::JobId job_id;
};
struct QueryJobs {
  RequestId request;
};
struct QueryPools {
  RequestId request;
};
struct QueryGauges {
  RequestId request;
};
struct QueryPlacement {
  RequestId request;
};
// What would become of this job if it were submitted now. Nothing is admitted, counted or started.
struct QueryPreview {
  RequestId request;
  jobs::JobSpec job;
};
// Work arrives, whether or not it becomes a job. It counts as a request, unless AnswerArrival refuses it.
struct CountArrival {
  RequestId request;
  std::string tenant_id;
};
// Make a session, or touch it. Each of these is answered by exactly one AnswerSession (AnswerQuerySessions).
struct OpenSession {
  RequestId request;
  wire::CreateSessionRequest session;
};
struct QuerySession {
  RequestId request;
  base::SessionId session_id;
};
struct QuerySessions {
  RequestId request;
  std::string prefix{};  // of their ids; "": all of them
};
// Its jobs run on and are charged to nobody.
struct CloseSession {
  RequestId request;
  base::SessionId session_id;
};
// A job is about to end and its stream holds this many tokens: what the client got, and what it is charged. Comes before
// the answer to the commit of its terminal row.
struct StreamCounted {
  base::JobId job_id;
  std::int64_t tokens_out = 0;
};

// ---- store --------------------------------------------------------------------------------------------------------
// First event of a process: what the store holds, oldest admission first, and the pools it remembers.
struct Restored {
  std::vector<jobs::RestoredJob> jobs;
  std::vector<std::string> pool_endpoints;
  std::vector<sessions::RestoredSession> sessions{};                // in order of creation
  std::map<base::PoolId, wire::PoolDesiredState> desired_states{};  // of operators
  std::vector<sessions::TenantUse> tenants{};                       // of this day
  // Now, by a clock that no jump sets forward at once. Absent: the wall clock's time.
  std::optional<std::int64_t> settled_unix_ms{};
};
// Outcome of one group commit. Every command that has a CommitId is named in exactly one of these.
struct Committed {
  std::vector<CommitId> commits;
};
struct CommitFailed {
  std::vector<CommitId> commits;
  base::Error error;
};

// ---- pools --------------------------------------------------------------------------------------------------------
// Registration (with `request`; answered by AnswerPool), heartbeat (likewise) or the answer to AskPoolState (without).
// REQUIRES: the state passed contract validation and pool_id matches the path it came by.
struct PoolSeen {
  std::optional<RequestId> request;
  wire::PoolState state;
  std::optional<std::string>
      asked_endpoint;         // of the AskPoolState this answers; the pool may spell its own differently
  std::int64_t asked_ms = 0;  // likewise: what failed since is not known to work again
};
// A call to this endpoint found nobody, or did not answer in time.
struct PoolUnreachable {
  std::string endpoint;
  std::int64_t asked_ms = 0;  // of its AskPoolState: what the pool has answered since is newer
};
// The pool deregistered (or an operator removed it). Answered by AnswerPool if `request` is set, once the disk has
// forgotten it too.
struct PoolDeregistered {
  std::optional<RequestId> request;
  base::PoolId pool_id;
};
struct WorkerReady {
  wire::WorkerReady ready;
};
struct WorkerFailed {
  wire::WorkerFailed failed;
};
// The pool's answer to StartWorker; UNREACHABLE if there was none.
struct StartWorkerAnswered {
  base::WorkerId worker_id;
  std::optional<base::Error> error;
};

// ---- operator -----------------------------------------------------------------------------------------------------
// Each is answered by exactly one AnswerPoolControl, and once it was accepted it holds over restarts of both sides.
// The pool takes no job any more; what runs may go on for deadline_ms, then it goes back to the queue. Its workers are
// stopped when they are idle. Holds until UndrainPool or until the pool deregisters.
struct DrainPool {
  RequestId request;
  base::PoolId pool_id;
  std::int64_t deadline_ms = 0;
};
struct UndrainPool {
  RequestId request;
  base::PoolId pool_id;
};
// The pool's workers leave as with a drain and workers of `model` come; if they do not, the old ones come back.
struct ReloadPool {
  RequestId request;
  base::PoolId pool_id;
  wire::ModelFacts model;
  std::int64_t deadline_ms = 0;
};
// Workers of these models leave; the pool goes on taking jobs.
struct PurgePool {
  RequestId request;
  base::PoolId pool_id;
  std::vector<std::string> models;  // references or digests; none: every model
  bool drain_first = true;          // without it and without force a busy worker is a conflict
  bool force = false;               // running jobs go back to the queue at once
};
struct QueryPoolHealth {
  RequestId request;
  base::PoolId pool_id;
};
// Other tenants and limits from now on; see the members of CoreConfig. Nothing that was accepted ends by it, and nothing that was
// counted is forgotten.
struct SetLimits {
  config::ThrottleConfig throttle;
  config::QuotaConfig quotas;
  std::vector<config::TenantConfig> tenants;
  std::optional<config::QuotaConfig> former_tenants;

  static SetLimits from(const config::OrchestratordConfig& config);
};

// ---- relay --------------------------------------------------------------------------------------------------------
// The worker's `started` event.
struct ExecuteStarted {
  ExecutionId execution;
  double scheduling_ms = 0;  // of its Execute
};
// Tokens came since the last report. At most one per second and execution: it feeds the idle timeout, nothing finer.
struct ExecuteProgress {
  ExecutionId execution;
  std::int64_t tokens_out = 0;
};
// Exactly one per Execute, also after AbortExecute, once the worker ended or the connection is closed.
// `end` set: the worker's end event. Otherwise `error`: the worker's own code, UNREACHABLE / WORKER_RESET when the
// connection could not be made / broke, WORKER_BUSY, REPLAY_DIVERGED, ...
struct ExecuteEnded {
  ExecutionId execution;
  std::int64_t tokens_out = 0;
  std::optional<wire::EndEvent> end;
  std::optional<base::Error> error;  // REQUIRES: exactly one of end and error
};

// ---- queue optimizer ------------------------------------------------------------------------------------------------
// Exactly one per ReviewQueue.
struct QueueReviewed {
  queue::Report report;
};

// ---- process ------------------------------------------------------------------------------------------------------
// Time passed. Core::next_wakeup_ms() says when one is needed at the latest.
struct Tick {};
// No admissions and no dispatches from now on; what runs may finish within grace_ms. Ends with the command Drained.
// Jobs not finished by then keep their rows and are replayed by the next process.
struct Shutdown {
  std::int64_t grace_ms = 0;
};

using Event =
    std::variant<Submit, CancelRequested, QueryJob, QueryJobs, QueryPools, QueryGauges, QueryPlacement, QueryPreview,
                 CountArrival, OpenSession, QuerySession, QuerySessions, CloseSession, StreamCounted, Restored,
                 Committed, CommitFailed, PoolSeen, PoolUnreachable, PoolDeregistered, WorkerReady, WorkerFailed,
                 StartWorkerAnswered, DrainPool, UndrainPool, ReloadPool, PurgePool, QueryPoolHealth, SetLimits,
                 ExecuteStarted, ExecuteProgress, ExecuteEnded, QueueReviewed, Tick, Shutdown>;

}  // namespace llorch::orchestratord::core
