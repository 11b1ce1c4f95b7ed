#pragma once
// The live jobs, their attempts, and the writes that are on their way to the store.
#include <map>
#include <optional>
#include <ranges>
#include <string>
#include <unordered_map>
#include <vector>

#include "orchestratord/core/env.h"
#include "orchestratord/core/pools/pool_registry.h"
#include "orchestratord/core/sessions/session_table.h"

namespace llorch::orchestratord::core {

using jobs::Arrival;
using jobs::ModelIndex;
using pools::Worker;
using wire::JobStatus;

struct Outcome {
  JobStatus status = JobStatus::kFailed;
  std::optional<wire::EndEvent> end;
  std::optional<base::Error> error;
};

class Jobs;
struct Job {
  jobs::JobSpec spec;
  Arrival arrival;
  ModelIndex model;
  GroupIndex group;
  WrittenBy<JobStatus, Jobs> status;
  bool admitted = false;  // its row is durable; nothing of it leaves the process before
  RequestId submit_request;
  std::int64_t attempts = 0;
  bool resumes_attempt = false;  // interrupted by our own restart: the next dispatch counts as the same attempt
  std::int64_t submitted_ms = 0, submitted_unix_ms = 0;
  std::int64_t deadline_from_ms = 0;  // submitted_ms, or later where the wall clock may have been set forward
  std::int64_t queued_ms = 0;         // begin of the present stay in the queue
  std::int64_t dispatched_ms = 0;
  std::optional<std::int64_t> dispatched_unix_ms, started_unix_ms, finished_unix_ms;
  std::int64_t tokens_out = 0;
  std::int64_t queue_position = 0, predicted_start_ms = 0;  // as told at admission
  std::optional<sessions::SessionTable::Admitted> session;
  std::int64_t decode_time_ms = 0;  // charged to it; known with the outcome
  std::optional<base::WorkerId> worker_id;
  double scheduling_ms = 0;    // how long the decision took that led to the last attempt
  bool kv_warmth = false;      // the last attempt went where its session's last job ended
  std::string worker_version;  // of the worker that last began it: what a client holds is its bytes
  // Of the last worker that did not know all that it asks for: its group avoids the pools that have such workers.
  std::optional<base::Error> refusal;
  std::string gpu_id, engine;  // where and by what it was last run; empty until then, and after a restart
  std::optional<base::PoolId> pool_id;
  WrittenBy<std::optional<ExecutionId>, Jobs> execution;  // the attempt that may still decide this job's fate
  WrittenBy<std::optional<Outcome>, Jobs> outcome;        // decided, not yet durable
  std::optional<jobs::CancelReason> cancel_when_admitted;
  std::vector<RequestId> cancel_requests;  // answered once the outcome is durable
  std::optional<TimerQueue::Handle> deadline_timer, queue_timer, answer_timer;

  // When its deadline passes, of Time::mono_ms; absent: it has none.
  std::optional<std::int64_t> due_ms() const {
    return spec.deadline_ms ? std::optional(deadline_from_ms + *spec.deadline_ms) : std::nullopt;
  }
};

struct Execution {
  ExecutionId id;
  Arrival job;
  base::JobId job_id;
  base::WorkerId worker_id;
  std::string worker_version;
  std::string tenant_id;  // whose quota it takes
  std::string uri;
  std::int64_t dispatched_ms = 0, last_progress_ms = 0, timeout_ms = 0;
  std::optional<std::int64_t> first_token_ms;
  bool session_limit = false;  // timeout_ms is what was left of a session's time
  bool holds_stream = false;   // until the row of the job says that it runs
  bool started = false;
  bool aborted = false;
  std::optional<base::Error> retry_error;  // aborted in favour of another attempt, because of this
  std::optional<TimerQueue::Handle> wall_timer, late_timer, idle_timer, gone_timer, abort_timer;
};

// Keeps each live job and its attempts. A job changes its phase through move() alone.
class Jobs {
 public:
  // Null: it is over, or never was.
  Job* find(Arrival arrival);
  Job* find(const base::JobId& id);
  Execution* find(ExecutionId id);
  // Null also: it decides nothing about its job any more.
  Execution* find_deciding(ExecutionId id);
  Job& at(Arrival arrival) { return jobs_.at(arrival); }
  const Job& at(Arrival arrival) const { return jobs_.at(arrival); }
  Job& of(const Execution& execution) { return at(execution.job); }
  const std::map<Arrival, Job>& all() const { return jobs_; }
  // Each may be changed, and ended by nobody but end_attempt().
  auto executions() { return std::views::values(executions_); }
  auto executions() const { return std::views::values(executions_); }

  Arrival next_arrival() const { return {arrivals_ + 1}; }
  Job& add(jobs::JobSpec spec, base::Time now);
  void erase(const Job& job);
  // REQUIRES: legal.
  static void move(Job& job, JobStatus to);
  // Its attempt decides nothing about it any more. A move follows.
  static void detach(Job& job) { job.execution = std::nullopt; }
  // REQUIRES: it has no attempt and no outcome.
  static void conclude(Job& job, Outcome outcome);
  // The job is on the worker from here on. REQUIRES: it waits, and the worker has a free slot.
  Execution& begin_attempt(Job& job, const Worker& worker);
  void end_attempt(const Execution& execution) { executions_.erase(ExecutionId{execution.id}); }

  void verify() const;

 private:
  std::map<Arrival, Job> jobs_;
  std::unordered_map<base::JobId, Arrival> arrival_of_;  // look-ups only
  std::map<ExecutionId, Execution> executions_;
  std::uint64_t arrivals_ = 0, execution_count_ = 0;
};

struct PendingSession {
  RequestId request;
  std::int64_t key = 0;
  bool created = false;
};
struct PendingCommit {
  enum class Kind : std::uint8_t { kAdmission, kProgress, kRunning, kTerminal, kSession } kind = Kind::kProgress;
  Arrival job;
  PendingSession session{};  // kSession
  ExecutionId execution{};   // kRunning: its stream waits for this write
};

// Numbers the writes, and remembers those whose answer decides something.
class Commits {
 public:
  CommitId add(PendingCommit commit);
  // Of a write that its sender remembers itself.
  CommitId number() { return CommitId{++count_}; }
  // It was answered. Nullopt: it is not one of these, or was answered before.
  std::optional<PendingCommit> take(CommitId id);
  // Whether nothing is on its way but progress, which may be lost.
  bool settled() const { return awaited_ == 0; }

  void store_failed(std::int64_t now_ms) { failed_ms_ = now_ms; }
  void store_wrote() { failed_ms_.reset(); }
  bool store_failing(std::int64_t now_ms) const;

  void verify() const;

 private:
  std::map<CommitId, PendingCommit> commits_;
  std::int64_t awaited_ = 0;               // those that are not kProgress
  std::optional<std::int64_t> failed_ms_;  // the last write failed, then
  std::uint64_t count_ = 0;
};

}  // namespace llorch::orchestratord::core
