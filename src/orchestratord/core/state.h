#pragma once
// The inside of Core: tables, and the handlers of events by subject (admission.cpp, attempts.cpp, endings.cpp, groups.cpp,
// optimizing.cpp, pools.cpp, pool_control.cpp, reload.cpp, replicas.cpp, sessions.cpp, workers.cpp, unloading.cpp, placing.cpp, views.cpp,
// verify.cpp; timers in step.cpp).
#include <array>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/log_limiter.h"
#include "orchestratord/core/core.h"
#include "orchestratord/core/placement/estimate.h"
#include "orchestratord/core/placement/eviction.h"
#include "orchestratord/core/placement/placement.h"
#include "orchestratord/core/placement/start_control.h"
#include "orchestratord/core/pools/pool_control.h"
#include "orchestratord/core/pools/pool_registry.h"
#include "orchestratord/core/queue/job_queue.h"
#include "orchestratord/core/sessions/quota.h"
#include "orchestratord/core/sessions/session_table.h"
#include "orchestratord/core/sessions/throttle.h"
#include "orchestratord/core/timers.h"

namespace llorch::orchestratord::core {

using jobs::Arrival;
using jobs::GroupIndex;
using jobs::ModelIndex;
using pools::GoneWhy;
using pools::GoneWorker;
using pools::Worker;
using wire::JobStatus;
using wire::Priority;

struct Ending {
  JobStatus status = JobStatus::kFailed;
  std::optional<wire::EndEvent> end;
  std::optional<base::Error> error;
};

struct Job {
  jobs::JobSpec spec;
  Arrival arrival;
  ModelIndex model;
  GroupIndex group;
  JobStatus status = JobStatus::kQueued;
  bool admitted = false;  // its row is durable; nothing of it leaves the process before
  RequestId submit_request;
  std::int64_t attempts = 0;
  bool resumes_attempt = false;  // interrupted by our own restart: the next dispatch counts as the same attempt
  std::int64_t submitted_ms = 0, submitted_unix_ms = 0;
  std::int64_t queued_ms = 0;  // begin of the present stay in the queue
  std::int64_t dispatched_ms = 0;
  std::optional<std::int64_t> dispatched_unix_ms, started_unix_ms, finished_unix_ms;
  std::int64_t tokens_out = 0;
  std::int64_t queue_position = 0, predicted_start_ms = 0;  // as told at admission
  std::optional<sessions::SessionTable::Admitted> session;
  std::int64_t decode_time_ms = 0;  // charged to it; known at the ending
  std::optional<base::WorkerId> worker_id;
  bool kv_warmth = false;      // the last attempt went where its session's last job ended
  std::string worker_version;  // of the worker that last began it: what a client holds is its bytes
  std::optional<base::PoolId> pool_id;
  std::optional<ExecutionId> execution;  // the attempt that may still decide this job's fate
  std::optional<Ending> ending;          // decided, not yet durable
  std::optional<jobs::CancelReason> cancel_when_admitted;
  std::vector<RequestId> cancel_requests;  // answered once the ending is durable
  std::optional<TimerQueue::Handle> deadline_timer, queue_timer, answer_timer;
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
  bool session_limit = false;  // timeout_ms is what was left of a session's time
  bool started = false;
  bool aborted = false;
  std::optional<base::Error> retry_error;  // aborted in favour of another attempt, because of this
  std::optional<TimerQueue::Handle> wall_timer, late_timer, idle_timer, gone_timer, abort_timer;
};

// Measured times of a model's runs on a device.
struct Performance {
  placement::Average first_token_ms, us_per_token;
};

struct Model {
  wire::ModelFacts facts;
  placement::Average run_ms, start_ms, tokens_out;
  std::map<std::pair<base::PoolId, std::string>, Performance> performance;  // by device
  placement::StartControl starts;
  placement::UseFrequency frequency;
  std::optional<std::pair<base::PoolId, base::WorkerId>> last_worker;  // round-robin
  std::vector<GroupIndex> groups;                                      // in use
};

// Jobs of one model that may run at the same places: what one of them waits for, the next ones wait for too.
struct GroupKey {
  ModelIndex model;
  wire::Placement placement;
  std::string tenant_id;  // if it may run only so many at a time; else ""
  std::string version;    // of jobs that run again: the worker version whose bytes a client holds; else ""
  auto operator<=>(const GroupKey&) const = default;
};
struct JobGroup : GroupKey {
  bool anywhere = true;   // `placement` excludes and prefers nothing
  std::int64_t jobs = 0;  // live ones
  placement::StartRound start_round;
  std::optional<placement::Wait> wait;  // of its first waiting job, from the last scheduling pass
  std::optional<std::pair<Arrival, placement::WaitCode>> logged_wait;  // said once, not at every pass
  std::optional<std::int64_t> memory_wait_since_ms;
  std::optional<queue::Suggestion> advice;  // from the last review of the queue
  bool may_add_worker = false;              // said by it, for the next scheduling pass
};

// Which workers a group's jobs may run on, so that a replica set has one version (OC-CORE-1031).
struct ReplicaRule {
  const std::string* only = nullptr;  // jobs that run again: this version, while there is any chance of it
  std::vector<const Worker*> in_use;  // else, of each device class, the version of this one
  bool allows(const std::string& device_class, const std::string& version) const;
  bool allows(const Worker& worker) const { return allows(worker.info.device_class, worker.version); }
  // True if a worker started on the device would be allowed, as far as its version is known.
  bool allows(const pools::Device& device) const {
    return device.version ? allows(device.version_class, *device.version) : only == nullptr;
  }
  bool allows(const pools::Pool& pool, const std::string& mask) const;
};

struct PendingSession {
  RequestId request;
  std::int64_t key = 0;
  bool created = false;
};
struct PendingCommit {
  enum class Kind : std::uint8_t { kAdmission, kProgress, kTerminal, kSession } kind = Kind::kProgress;
  Arrival job;
  PendingSession session{};  // kSession
};

struct Core::State {
  State(CoreConfig c, base::Entropy& e)
      : config(std::move(c)),
        entropy(e),
        queue(config.queue),
        sessions(config.sessions),
        throttle(config.throttle, config.tenants),
        quotas(config.quotas, config.tenants) {}

  const CoreConfig config;
  base::Entropy& entropy;
  base::Time now;
  std::vector<Command>* out = nullptr;

  queue::JobQueue queue;
  sessions::SessionTable sessions;
  sessions::Throttle throttle;
  base::LogLimiter refusal_lines{10, 10'000};  // clients decide how often one is refused; the metrics count all
  sessions::QuotaTable quotas;
  pools::PoolRegistry registry;
  TimerQueue timers;
  std::map<Arrival, Job> jobs;
  std::unordered_map<base::JobId, Arrival> arrival_of;  // look-ups only
  std::map<ExecutionId, Execution> executions;
  std::map<CommitId, PendingCommit> commits;
  std::int64_t commits_awaited = 0;             // those that are not kProgress
  std::optional<std::int64_t> store_failed_ms;  // the last commit failed, then
  std::deque<Model> models;                     // by ModelIndex
  std::map<std::string, ModelIndex> model_of;
  std::deque<JobGroup> groups;  // by GroupIndex
  std::map<GroupKey, GroupIndex> group_of;
  std::vector<GroupIndex> free_groups, emptied_groups;
  std::map<base::PoolId, TimerQueue::Handle> pool_timers;
  std::map<std::string, std::int64_t> expected_endpoints;  // -> until when they may have what nobody has
  std::set<base::WorkerId> claims;                         // workers with claimed_by
  std::map<std::pair<base::PoolId, std::string>, GroupIndex> reservations;  // devices being cleared for a group
  std::set<base::WorkerId> retiring;                                        // workers with retiring
  std::map<base::PoolId, PoolControl> controls;                             // pools with something to say here
  std::map<CommitId, PoolCommit> pool_commits;
  std::optional<TimerQueue::Handle> unload_timer;
  std::vector<GroupIndex> waiting;         // groups with a wait, from the last pass
  placement::Average run_ms;               // over all models
  std::vector<GroupIndex> may_add_worker;  // groups that say so
  std::optional<std::pair<std::int64_t, std::int64_t>>
      room_told;  // depth and retry_ms of a full queue; none: it has room
  std::array<bool, 2> refuses_told{};
  bool watching_queue = false, reviewing_queue = false;  // timer armed; review on its way
  std::uint64_t arrivals = 0, execution_count = 0, commit_count = 0;
  bool restored = false;
  bool dirty = false;               // a scheduling pass may change something, for whichever group
  std::vector<GroupIndex> touched;  // or for these
  std::vector<GroupIndex>
      led_anew;  // waiting groups with another first job: looked at by the next pass, which can wait
  bool draining = false, grace_over = false, end_forced = false, drained = false;

  // step.cpp
  void run_timers();
  void fire(const Timer& timer);
  void check_drained();
  std::int64_t next_wakeup_ms() const;
  void on(Tick&) {}
  void on(Shutdown& e);
  void shutdown_grace_over();
  template <class T>
  void emit(T command) {
    out->emplace_back(std::move(command));
  }
  void log(base::LogLevel level, std::string_view event, const Job* job, std::string human,
           std::vector<base::LogField> fields = {});
  void count(Metric metric, std::string_view label = {}, std::int64_t value = 1, Priority priority = {});
  Job* find_job(Arrival arrival);
  Job* find_job(const base::JobId& id);
  Execution* find_execution(ExecutionId id);
  ModelIndex intern(const wire::ModelFacts& facts);
  Model& model(ModelIndex index) { return models[index.value]; }
  const Model& model(ModelIndex index) const { return models[index.value]; }

  // groups.cpp
  JobGroup& group(GroupIndex index) { return groups[index.value]; }
  const JobGroup& group(GroupIndex index) const { return groups[index.value]; }
  GroupIndex intern_group(ModelIndex model_index, const jobs::JobSpec& spec, const std::string& version);
  void leave_group(Job& job);
  void release_groups();
  static placement::Tier tier(const JobGroup& l, const base::PoolId& pool, const std::string& gpu_id);
  static bool accepts(const JobGroup& l, const Worker& worker);
  std::optional<placement::Rank> first_waiting_for(const Worker& worker, const Model& m) const;
  bool may_run(const JobGroup& l) const { return l.tenant_id.empty() || quotas.may_run(l.tenant_id); }

  // replicas.cpp
  bool version_is_around(const JobGroup& l) const;
  ReplicaRule replica_rule(const Model& m, const JobGroup* l) const;
  bool keeps_replica_set(const JobGroup& l, const Worker& worker) const;
  void tell_other_version(const Worker& worker, const Model& m);
  bool has_serving_worker(const JobGroup& l) const;
  std::int64_t ahead_of(const Job& job) const;
  std::int64_t ahead_in_group(const Job& job) const;
  std::optional<base::Error> placement_error(const jobs::JobSpec& spec) const;

  // admission.cpp
  void on(Submit& e);
  void on(Restored& e);
  void on(Committed& e);
  void on(CommitFailed& e);
  std::optional<base::Error> refusal(const Submit& e, ModelIndex model_index);
  std::optional<base::Error> deadline_error(const jobs::JobSpec& spec, ModelIndex model_index);
  static base::Error stopping_error();
  static base::Error store_error(std::string_view consequence);
  bool store_failing() const;
  base::Error queue_full_error() const;
  std::int64_t queue_retry_ms() const;
  void refuse(const Submit& e, base::Error error);
  void publish_standing(const std::string& tenant_id);
  void publish_queue_room();
  Job& add_job(jobs::JobSpec spec, GroupIndex group_index);
  void admitted(Job& job);
  void admission_failed(Job& job, const base::Error& error);
  void restore(jobs::RestoredJob& restored_job);
  void arm_job_timers(Job& job);
  std::optional<base::Error> context_error(const jobs::JobSpec& spec) const;
  std::optional<base::Error> memory_error(const jobs::JobSpec& spec) const;
  base::Error too_large(const jobs::JobSpec& spec, std::int64_t potential_bytes_max) const;
  static base::Error too_few_devices(const wire::ModelFacts& facts);
  std::int64_t context_tokens(const wire::ModelFacts& facts) const;

  // endings.cpp
  void on(CancelRequested& e);
  void cancel(Job& job, jobs::CancelReason reason);
  void finish(Job& job, Ending ending);
  void fail(Job& job, base::Error error) {
    finish(job, {.status = JobStatus::kFailed, .end = {}, .error = std::move(error)});
  }
  struct TimedOut {
    std::string_view stage, limit;
    std::int64_t timeout_ms = 0, execution_time_ms = 0;
  };
  void time_out(Job& job, const TimedOut& what);
  void commit_ending(Job& job);
  void ending_committed(Job& job);
  void log_ending(const Job& job);
  void answer_cancels(Job& job, JobStatus status);
  void commit_progress(const Job& job);
  CommitId next_commit(PendingCommit::Kind kind, Arrival arrival);
  jobs::JobRecord record(const Job& job) const;
  void forget(Job& job);

  // sessions.cpp
  void on(OpenSession& e);
  void on(QuerySession& e);
  void on(QuerySessions& e);
  void on(CloseSession& e);
  void on(StreamCounted& e);
  sessions::Demand demand(const jobs::JobSpec& spec) const;
  wire::SessionView session_view(const sessions::Session& session) const;
  void session_committed(const PendingSession& pending);
  void session_commit_failed(const PendingSession& pending);
  void end_session(std::int64_t key);
  void expire_sessions();
  std::int64_t time_taken_ms(const Job& job, const Ending& ending) const;
  void settle_session(const Job& job);
  void settle_quota(const Job& job);
  static std::int64_t tokens_most(const jobs::JobSpec& spec) { return spec.tokens_in + spec.max_tokens; }
  std::optional<sessions::Share> session_share(const Job& job, const base::WorkerId& worker_id) const;

  // attempts.cpp
  void on(ExecuteStarted& e);
  void on(ExecuteProgress& e);
  void on(ExecuteEnded& e);
  void dispatch(Job& job, Worker& worker);
  void abort(Execution& execution);
  void abort_and_retry(Execution& execution, base::Error error);
  void release(Execution& execution);
  static void measure(Model& m, const pools::Worker& worker, const wire::EndEvent& end);
  void attempt_failed(Job& job, base::Error error);
  void retry(Job& job, base::Error error);
  void back_to_queue(Job& job, std::int64_t ready_at_ms);
  void put_back(Job& job);
  void completed(Job& job, const Execution& execution, wire::EndEvent end);
  void wall_timer(Execution& execution);
  void late_timer(Execution& execution);
  void idle_timer(Execution& execution);
  void abort_timer(Execution& execution);

  // pools.cpp
  void on(PoolSeen& e);
  void on(PoolUnreachable& e);
  void on(PoolLeft& e);
  void pool_conflict(const PoolSeen& e, const std::string& holder);
  void pool_lost_contact(pools::Pool& pool, std::string_view why);
  void check_pool(const base::PoolId& id);
  void pool_back(const base::PoolId& id, bool rebooted);
  void let_go(const base::PoolId& id, PoolControl& control);
  void arm_pool_timer(const base::PoolId& id, std::int64_t when_ms);
  void expect_endpoint(const std::string& endpoint, std::int64_t until_ms);
  void check_endpoint(const std::string& endpoint);
  void repeat_stops(pools::Pool& pool);
  bool pools_expected() const;

  // workers.cpp
  void on(WorkerReady& e);
  void on(WorkerFailed& e);
  void on(StartWorkerAnswered& e);
  void worker_adopted(const base::WorkerId& id);
  void worker_ready(const base::WorkerId& id);
  void worker_gone(const GoneWorker& gone, std::optional<base::Error> error);
  struct FailedStart {
    ModelIndex model;
    std::optional<GroupIndex> group;  // whose first job asked for it, as far as we know
    base::PoolId pool_id;
    std::string gpu_id;
  };
  static FailedStart failed_start(const Worker& worker, ModelIndex model_index);
  void start_failed(const FailedStart& start, base::Error error);
  void start_succeeded(ModelIndex model_index, const Worker& worker);
  void worker_crashed(Model& m, const base::Error& error);
  void start_timed_out(const base::WorkerId& id);
  void postpone_start(ModelIndex model_index);
  static bool in_motion(const pools::Device& device, std::int64_t since_ms = std::numeric_limits<std::int64_t>::max());
  struct StartOrder {
    ModelIndex model;
    std::optional<GroupIndex> group;  // whose first job asks for it; none: an operator does
  };
  base::WorkerId start_worker(const StartOrder& order, const base::PoolId& pool_id, const std::string& gpu_id);
  void stop_worker(Worker& worker, std::string_view why);
  void serves_no_more(const Worker& worker);
  bool useful(const Worker& worker, const wire::ModelFacts& facts) const;
  bool serves(const Worker& worker, const wire::ModelFacts& facts) const;

  // unloading.cpp
  void retire(Worker& worker);
  void stop_retiring();
  bool unused(const Worker& worker) const;
  void unload_idle();
  std::int64_t trim(pools::Device& device);

  // pool_control.cpp
  void on(DrainPool& e);
  void on(UndrainPool& e);
  void on(PurgePool& e);
  void on(QueryPoolHealth& e);
  bool pool_open(const base::PoolId& id) const;  // healthy, and no operator keeps it from taking jobs
  void refuse_order(RequestId request, base::Error error);
  void commit_orders(PoolCommit commit);
  bool orders_committed(CommitId id, const base::Error* error);
  void settle_orders(const base::PoolId& id, PoolControl& control);
  void restore_orders(std::map<base::PoolId, wire::PoolOrders>& pools);
  void drain_begins(const PoolCommit& commit, PoolControl& control);
  void drain_ends(const PoolCommit& commit, PoolControl& control);
  void purge_begins(const PoolCommit& commit);
  static bool leaves(const Worker& worker) {
    return worker.info.status == wire::WorkerStatus::kDraining || worker.info.status == wire::WorkerStatus::kFailed;
  }
  bool is_purged(const Worker& worker) const;
  void arm_deadline(const base::PoolId& id, PoolControl& control, std::int64_t deadline_ms);
  void deadline_over(const base::PoolId& id);
  void end_operation(const base::PoolId& id, PoolControl& control, wire::PoolOperationState state);
  void pool_left(const base::PoolId& id, PoolControl& control);
  void tell_leavers(PoolControl& control);
  void advance_controls();
  static bool is_empty(const pools::Pool& pool);
  void advance_drain(const pools::Pool& pool, PoolControl& control);
  std::string step_of(const PoolControl& control, const pools::Pool* pool, std::int64_t leases) const;
  void note_failure(const base::PoolId& id, const base::Error& error);

  // reload.cpp
  void on(ReloadPool& e);
  Reload reload_of(const wire::ReloadOrder& order);
  static wire::PoolOperation operation_of(const wire::ReloadOrder& order);
  void reload_begins(const PoolCommit& commit, PoolControl& control);
  void restore_reload(const base::PoolId& id, PoolControl& control);
  void conclude_reload(const base::PoolId& id, PoolControl& control, wire::PoolOperationState state);
  void reload_ends(const base::PoolId& id, PoolControl& control);
  void advance_reload(const base::PoolId& id, PoolControl& control);
  std::vector<Reload::Place> places_for(const pools::Pool& pool, const Reload& reload) const;
  base::Result<bool> fill(pools::Pool& pool, Reload& reload);
  bool may_start(const pools::Pool& pool, const std::string& mask, const wire::ModelFacts& facts) const;
  ModelIndex model_held_by(const Worker& worker);

  // placing.cpp
  struct PassScratch;
  void schedule();
  void touch(ModelIndex index);
  void touch_groups_of(const Execution& execution);
  bool all_wait_for_slots() const;
  void schedule_class(Priority priority, PassScratch& scratch);
  void place(GroupIndex group_index, Arrival arrival, Priority priority, PassScratch& scratch);
  using Home = std::optional<std::pair<base::PoolId, base::WorkerId>>;  // of a session
  void collect_workers(const JobGroup& l, const Home& affine, PassScratch& scratch, placement::PlacementInput& input);
  static std::optional<placement::Speed> speed(const Model& m, const Worker& worker);
  std::span<const placement::DeviceChoice> collect_devices(PassScratch& scratch);
  std::optional<placement::Reservation> reservation(const base::PoolId& pool, const std::string& gpu_id);
  std::span<const placement::DeviceChoice> collect_masks(const JobGroup& l, PassScratch& scratch);
  bool accepts_a_pool(const JobGroup& l) const;
  bool is_in_the_way(const JobGroup& l, const Worker& w) const;
  placement::DeviceChoice part_of(const JobGroup& l, const pools::Place& place, const pools::Device& device,
                                  PassScratch& scratch);
  std::int64_t least_room(const Worker& worker) const;
  placement::Tenant tenant(const Worker& worker, const std::string& gpu_id, std::uint32_t number);
  void apply(const placement::Decision& decision, Job& job, PassScratch& scratch);
  void set_wait(GroupIndex group_index, placement::Wait wait);
  void give_up_claims();
  void stop_claimed();
  void log_decision(const Job& job, const placement::Decision& decision, const placement::DecisionLog& how,
                    const PassScratch& scratch);

  // optimizing.cpp
  void watch_queue();
  void review_queue();
  void on(QueueReviewed& e);
  void drop_advice();
  queue::Snapshot queue_snapshot() const;
  queue::DeviceView device_view(const base::PoolId& pool_id, const pools::Device& device) const;
  static std::string advice_text(const queue::Suggestion& advice);

  // verify.cpp
  void verify() const;

  // views.cpp
  void on(QueryJob& e);
  void on(QueryJobs& e);
  void on(QueryPools& e);
  void on(QueryGauges& e);
  LiveJob live_job(const Job& job, std::int64_t position);
  std::optional<std::int64_t> predicted_start(const Job& job);
  std::optional<std::int64_t> start_within_quota(const Job& job);
  std::optional<std::int64_t> foreseen_start(const Job& job);
  wire::WaitReason wait_reason(const Job& job);
  std::string no_room(const wire::ModelFacts& facts, std::string_view where, std::int64_t room_bytes_max) const;
  std::optional<std::int64_t> load_percent_for(const JobGroup& l) const;
  std::string wait_for_pool(std::string_view where) const;
};

}  // namespace llorch::orchestratord::core
