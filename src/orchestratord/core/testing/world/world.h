#pragma once
// A whole system around one Core: store, pools, workers, relay, clients. Messages are delayed and reordered between
// sources, doubled and lost; commits fail; workers, pools and the orchestrator itself die. Everything follows from one
// seed. What must hold is checked at every command; heal() ends the faults and requires that every job ends.
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "orchestratord/core/core.h"
#include "orchestratord/core/testing/world/shelf.h"

namespace llorch::orchestratord::core {

struct WorldOptions {
  std::uint64_t seed = 0;
  bool decide_every_group = false;                               // see CoreConfig
  std::function<void(const wire::PlacementSnapshot&)> record{};  // see CoreConfig
  // A bug put in on purpose: a pool counts a worker on several devices on the first of them.
  bool bug_first_device = false;
};

class World {
 public:
  explicit World(const WorldOptions& options);

  void chaos(int steps);
  void heal();

  // Of all commands so far; equal for equal seeds.
  const std::string& transcript() const { return transcript_; }
  // What the run met, to see that it met enough.
  std::map<std::string, std::int64_t> seen;
  // First violated rule; empty if none.
  const std::string& violation() const { return violation_; }

 private:
  struct Message {
    std::string source;  // messages of one source keep their order; "" has none
    Event event;
  };
  struct Row {
    jobs::JobSpec spec;
    wire::JobStatus status = wire::JobStatus::kQueued;
    std::int64_t attempts = 0, submitted_unix_ms = 0;
    std::optional<std::int64_t> session_key;
    std::int64_t tokens_out = 0, decode_time_ms = 0, finished_unix_ms = 0;
    std::string worker_version;
    int terminal_writes = 0;
  };
  struct Write {
    CommitId commit;
    std::optional<CommitAdmission> admission;
    std::optional<CommitTransition> transition;
  };
  struct SimWorker {
    wire::WorkerInfo info;             // its mask as it is
    std::vector<std::string> devices;  // by rank
    std::vector<std::int64_t> bytes;   // by rank
    bool draining = false;

    bool is_on(const std::string& gpu_id) const;
    std::int64_t bytes_on(const std::string& gpu_id) const;
  };
  struct SimPool {
    wire::PoolState base;  // id, endpoint, boot id, devices
    bool reachable = true;
    bool reports = true;  // also while it is not reachable
    int build = 1;        // of its workers
    std::map<std::string, SimWorker> workers;
  };
  struct SimExecution {
    Execute command;
    bool started = false, ended = false, aborted = false;
    bool deaf = false;  // does not react to an abort
    bool held = false;  // clients are not told of its tokens
    std::int64_t tokens = 0;
  };
  // What the checker knows about a job over all lives of the orchestrator.
  struct Known {
    jobs::JobSpec spec;
    std::uint64_t order = 0;  // of submission
    bool answered = false, accepted = false, acknowledged = false, restored = false;
    bool dispatched = false, retried = false, sealed = false;
    bool told = false;  // a client may have a token
    int finishes = 0;
    wire::JobStatus written = wire::JobStatus::kQueued;  // last status commanded to the store
  };
  struct InFlight {
    base::JobId job_id;
    base::WorkerId worker_id;
    std::optional<std::int64_t> aborted_ms;
  };
  // A start that the core has to account for, as far as it was told.
  struct Held {
    std::string pool_id;
    std::vector<std::string> devices;  // by rank
    std::int64_t bytes = 0;            // of each
  };

  std::uint64_t pick(std::uint64_t n) { return n == 0 ? 0 : rng_() % n; }
  bool chance(int percent) { return static_cast<int>(pick(100)) < percent; }
  void violate(std::string what);

  // world.cpp, actions.cpp
  std::vector<sessions::RestoredSession> restored_sessions() const;
  std::vector<sessions::TenantUse> restored_tenants() const;
  void boot();
  void feed(Event event);
  void deliver_random();
  void deliver_all();
  void act();
  void submit();
  wire::Placement placement(const ModelOnShelf& model);
  std::string mask(const SimPool& pool, const ModelOnShelf& model);
  void cancel();
  void commit_writes(bool fail);
  void worker_action(bool healthy);
  void execution_action(SimExecution& x, bool healthy);
  void tell_client(const SimExecution& x);
  void kill_worker();
  void restart_pool();
  void change_limits();
  void turn_device();
  void report(SimPool& pool);
  void tell(std::string source, Event event, bool may_be_lost = false);
  wire::PoolState state_of(const SimPool& pool) const;
  SimPool* pool_at(const std::string& endpoint);
  void drop_worker(SimPool& pool, const std::string& id);
  void end_execution(SimExecution& x, std::optional<base::ErrorCode> error);
  std::int64_t active_on(const std::string& worker_id) const;

  // obeys.cpp
  void obey(const Command& command);
  void obey(const CommitAdmission& c);
  void obey(const CommitTransition& c);
  void obey(const Execute& c);
  void obey(const AbortExecute& c);
  void obey(const StartWorker& c);
  std::optional<base::Error> start(SimPool& pool, const wire::StartWorkerRequest& request);
  void obey(const StopWorker& c);
  void obey(const AskPoolState& c);
  void obey(const ReviewQueue& c);
  void obey(const AnswerSubmit& c);
  void obey(const Finish& c);
  void obey(const ReleaseStream& c);
  void obey(const SealStream& c);
  void obey(const ForgetSession& c);
  void obey(const Log& c);
  template <class T>
  void obey(const T&) {}

  // checks.cpp
  void before_event(const Event& event);
  void check_execute(const Execute& c);
  void check_start(const StartWorker& c);
  void hold(const StartWorker& c, const std::vector<std::string>& devices);
  void let_go(const Event& event);
  void expire_in_flight();
  void note_contact(const Event& event);
  void check_end();

  std::mt19937_64 rng_;
  std::uint64_t seed_;
  bool bug_first_device_;
  base::SeededEntropy entropy_;
  base::Time now_{1'000'000, 1'700'000'000'000};
  CoreConfig config_;
  std::unique_ptr<Core> core_;
  int lives_ = 0;
  bool healing_ = false;
  bool builds_change_ = false;  // when a pool restarts
  bool shares_ = false;         // there are models of several devices

  std::vector<Message> messages_;
  std::deque<Write> writes_;
  std::map<std::string, Row> rows_;  // what is on disk
  std::map<std::int64_t, sessions::SessionRecord> sessions_;
  std::vector<std::string> row_order_;
  std::vector<SimPool> pools_;
  std::map<std::uint64_t, SimExecution> executions_;

  std::map<std::string, Known> known_;
  std::map<std::uint64_t, InFlight> in_flight_;          // attempts the core must count as running
  std::map<std::string, std::string> gpu_of_;            // by worker
  std::set<std::string> heard_of_;                       // pools that the core knows
  std::map<std::string, std::int64_t> out_of_reach_ms_;  // by pool: since when the core knows that calls to it fail
  std::map<std::string, std::int64_t> answered_ms_;      // by pool: when the newest answered question was asked
  struct Start {
    std::string pool_id, model_ref;
    std::vector<std::string> devices;
    bool settled = false;
  };
  std::map<std::string, Start> starts_;  // by worker id
  std::map<std::string, Held> held_;     // by worker id
  std::uint64_t submissions_ = 0, requests_ = 0, boots_ = 0;
  std::string transcript_, violation_;
};

}  // namespace llorch::orchestratord::core
