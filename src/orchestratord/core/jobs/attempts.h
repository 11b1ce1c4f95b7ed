#pragma once
// The way of a job: admitted, run in attempts, ended. The tables are those of Jobs, JobGroups, Ledger and Commits.
#include <array>

#include "base/log_limiter.h"
#include "orchestratord/core/queue/job_groups.h"

namespace llorch::orchestratord::core {

base::Error too_large(const jobs::JobSpec& spec, std::int64_t potential_bytes_max);
base::Error too_few_devices(const wire::ModelFacts& facts);

class Admissions : Handler {
 public:
  using Handler::Handler;

  void on(Submit& e);
  void on(QueryPreview& e);
  void restore(std::vector<jobs::RestoredJob>& restored, std::int64_t settled_unix_ms);
  void admitted(Job& job);
  void admission_failed(Job& job, const base::Error& error);
  void publish_queue_room();
  // The next publish_queue_room() tells it whatever was told before: numbers of tenants mean others now.
  void forget_queue_room() { room_published_.reset(); }
  std::int64_t context_tokens(const wire::ModelFacts& facts) const;

 private:
  std::optional<base::Error> refusal(const Submit& e, ModelIndex model_index);
  // The same but for the throttle, which counts who asks.
  std::optional<base::Error> lasting_refusal(const jobs::JobSpec& spec, ModelIndex model_index);
  wire::JobPreview preview(const jobs::JobSpec& spec, ModelIndex model_index);
  std::optional<base::Error> context_error(const jobs::JobSpec& spec) const;
  std::optional<base::Error> placement_error(const jobs::JobSpec& spec) const;
  std::optional<base::Error> memory_error(const jobs::JobSpec& spec) const;
  std::optional<base::Error> deadline_error(const jobs::JobSpec& spec, ModelIndex model_index);
  // Jobs of this group wait for too long already.
  std::optional<base::Error> shed_error(GroupIndex group, wire::Priority priority) const;
  base::Error queue_full_error(std::size_t tenant) const;
  // The same with the numbers of the queue; with tenants without how many jobs others have in it.
  base::Error with_queue(base::Error error) const;
  std::int64_t queue_retry_ms() const;
  void refuse(const Submit& e, base::Error error);
  void restore(jobs::RestoredJob& restored_job, std::int64_t settled_unix_ms);
  void arm_job_timers(Job& job);

  base::LogLimiter refusal_lines_{10, 10'000};  // clients decide how often one is refused; the metrics count all
  // Of a full queue that refuses somebody.
  struct Room {
    std::int64_t depth = 0, retry_ms = 0;
    struct Refused {
      std::size_t tenant = 0;
      std::int64_t count = 0;
      std::array<bool, 2> refuses{};
      bool operator==(const Refused&) const = default;
    };
    std::vector<Refused> refused;
    bool operator==(const Room&) const = default;
  };
  Room queue_room() const;
  std::optional<Room> room_published_ = Room{};
};

// Of a worker that its pool reports as running.
inline constexpr std::string_view kPortIsClosed =
    "its pool answers and the worker's own port does not; workers listen on the ports of pool-managerd.worker_ports, "
    "or where none are named on ephemeral ones of their node, and orchestratord has to reach them";

class Attempts : Handler {
 public:
  using Handler::Handler;

  void on(CancelRequested& e);
  void on(StreamCounted& e);
  void on(ExecuteStarted& e);
  void on(ExecuteProgress& e);
  void on(ExecuteEnded& e);
  void dispatch(Job& job, Worker& worker);
  void abort(Execution& execution);
  void abort_and_retry(Execution& execution, base::Error error);
  void commit_progress(const Job& job);
  void commit_running(const Execution& execution);
  void running_committed(Execution& execution);
  void running_failed(const Execution& execution, const base::Error& error);

  void cancel(Job& job, jobs::CancelReason reason);
  void fail(Job& job, base::Error error) {
    finish(job, {.status = JobStatus::kFailed, .end = {}, .error = std::move(error)});
  }
  // Of a waiting job: no place that is left to it can run it. Where workers have refused it, that is told as well.
  void fail_unplaced(Job& job, base::Error error);
  struct TimedOut {
    std::string_view stage, limit;
    std::int64_t timeout_ms = 0, execution_time_ms = 0;
  };
  void time_out(Job& job, const TimedOut& what);
  void commit_outcome(Job& job);
  void outcome_committed(Job& job);
  void outcome_failed(const Job& job, const base::Error& error);
  void answer_cancels(Job& job, JobStatus status);
  void forget(Job& job);
  // Another process runs the pool, or it is gone for good: jobs that its workers refused may go there again, and so may those that have nowhere
  // else to go, from the next pass on.
  void forget_refusals(const base::PoolId& pool);
  // At the begin of a pass over all groups.
  void regroup_refused();

  void wall_timer(Execution& execution);
  void late_timer(Execution& execution);
  void idle_timer(Execution& execution);
  void abort_timer(Execution& execution);
  // The end of a job that was lost after its first token, of a model whose runs are not repeated bit by bit.
  static base::Error not_replayable(std::string_view what_happened);
  const placement::Average& run_ms() const { return run_ms_; }  // over all models

 private:
  void release(Execution& execution);
  void cancel_timers(Execution& execution);
  void touch_groups_of(const Execution& execution);
  std::optional<double> ms_per_token(const Job& job, const Execution& execution);
  void publish_metrics(const Job& job, const Execution& execution);
  void measure(Model& m, const Worker& worker, const wire::EndEvent& end);
  void completed(Job& job, const Execution& execution, wire::EndEvent end);
  void doubt(Worker& worker, const Execution& x, base::Error& error);
  void attempt_failed(Job& job, base::Error error);
  std::optional<TimedOut> limit_passed(const Job& job, const Execution& execution) const;
  void retry(Job& job, base::Error error);
  bool may_run_again(const Job& job) const { return job.spec.model.replayable || job.tokens_out == 0; }
  // Whether its fate is decided: it goes back to the queue, uncounted where another pool may run it.
  bool go_elsewhere(Job& job, const base::Error& error);
  // Whether a pool beside `refuser` is left whose places the group's placement accepts.
  bool has_pool_left(const JobGroup& group, const std::optional<base::PoolId>& refuser) const;
  void back_to_queue(Job& job, std::int64_t ready_at_ms);
  void put_back(Job& job);
  void finish(Job& job, Outcome outcome);
  jobs::JobRecord record(const Job& job) const;
  void log_outcome(const Job& job);

  placement::Average run_ms_;
  std::vector<base::PoolId> forgotten_pools_;  // whose refusals regroup_refused() forgets
};

}  // namespace llorch::orchestratord::core
