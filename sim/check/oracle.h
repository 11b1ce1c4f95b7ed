#pragma once
// What must hold in every run, checked as it happens. The oracle sees both sides of everything: what clients were told, what
// the cores commanded, what is on disk. It never acts.
//
//  1. A 202 is given only for a job on disk, and never taken back: the job is known from then on and ends exactly once.
//  2. A row moves only along the legal transitions; nothing leaves a terminal state.
//  3. What a client reads is a prefix of the one right sequence: no gap, no repetition, no other bytes; after a completed
//     job, all of it. Every client and every restart sees the same ending.
//  4. One attempt of a job at a time, never more on a worker than it has slots.
//  5. Of jobs for the same model that can run, the first by class and arrival is dispatched first.
//  6. A worker is stopped only when it is idle, or its start has timed out. One load per model and device is in flight.
//     Idle time is over before a worker is unloaded, and its load has paid off before it is evicted.
//  7. A job ends for a reason that really happened; none outlives its deadline, its queue limit or its time limit, and none
//     ends by a limit that has not run out. A cancel that is answered as settled is.
//  8. A pool that has been silent for too long gets no job, nor does one that calls do not reach before it has answered. A
//     drained or reloaded pool gets no job until that is over, also after a restart, nor does a purged worker; at the deadline
//     of a drain its jobs are sent back. What an operator was told is on disk; a reload ends.
// Memory is checked by the devices themselves (world/pool.h), sessions and throttles by check/session_rules.h, what a restart
// brings back by check/restart_rules.h.
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "orchestratord/core/commands.h"
#include "orchestratord/core/events.h"
#include "sim/check/probes.h"
#include "sim/check/restart_rules.h"
#include "sim/check/session_rules.h"
#include "sim/kernel/loop.h"
#include "sim/world/disk.h"
#include "sim/world/options.h"

namespace llorch::sim {

namespace core = orchestratord::core;

class Oracle {
 public:
  Oracle(const Options& options, const Loop& loop) : options_(options), loop_(loop) {}

  // The first broken rule; empty if none.
  const std::string& violation() const { return violation_; }
  void violate(const std::string& what);
  void reached(std::string_view probe) { ++counts_[std::string(probe)]; }
  const Counts& counts() const { return counts_; }

  // ---- clients ----
  void asks(const JobRequest& request);
  void told_202(const std::string& job);
  void told_unknown(const std::string& job);
  void told_status(const std::string& job, wire::JobStatus status, std::int64_t tokens_out);
  void told_ending(const std::string& job, std::string_view event, std::string_view data);
  void asks_cancel(const std::string& job) { stories_.at(job).may_be_cancelled = true; }
  void stream_lost(const std::string& job) { stories_.at(job).may_be_cancelled = true; }

  // Whose job this is, by the request itself.
  std::string caller(const std::string& job) const { return caller_of(stories_.at(job).request); }

  // ---- operator ----
  bool is_purged(const std::string& worker) const { return purged_.contains(worker); }
  bool reloads() const { return !reloading_.empty(); }

  // ---- orchestratord ----
  void life_begins(const Disk& disk, base::Time now, std::int64_t settled_unix_ms);
  void gives_202(const std::string& job, const Disk& disk);
  // Somebody is told that his cancel has come through, or too late.
  void cancel_settled(const std::string& job, const Disk& disk);
  void commanded(const core::Command& command, const Disk& disk);
  // What the core learns with its next step.
  void heard(const core::Event& event);
  // Between events, about once a second of virtual time.
  void check_bounds();

  // ---- disk ----
  // Its row has gone after its time.
  void retired(const std::string& job);
  void row_moves(const Row& row, wire::JobStatus to);

  // ---- the end of a run ----
  void check_end(const Disk& disk);

 private:
  // Of a job, over all lives of orchestratord.
  struct Story {
    JobRequest request;
    bool accepted = false;  // a 202 was sent
    bool retired = false;
    bool may_be_cancelled = false;                              // somebody asked, or a client was lost
    std::optional<std::pair<std::string, std::string>> ending;  // as the first client saw it
    // Of this life:
    bool waits = false;  // known to be ready to run and never dispatched
    bool decided = false;
    bool here = false;
    std::uint64_t arrival = 0;
    std::int64_t submitted_ms = 0;
    std::int64_t deadline_from_ms = 0;
    std::int64_t queued_ms = 0;  // begin of its first stay in the queue of this life
    std::int64_t runs = 0;       // of all lives
    std::int64_t begun_ms = 0;   // of the last one
    wire::JobStatus told = wire::JobStatus::kQueued;
  };
  struct Attempt {
    std::string job, worker, pool;
    std::int64_t begun_ms = 0;
    std::optional<std::int64_t> aborted_ms;
  };
  struct Start {
    std::string model_ref, pool;
    std::vector<std::string> devices;
    std::int64_t started_ms = 0;
    bool settled = false;
    std::int64_t ready_ms = 0;
    bool lost = false;  // the core forgot it meanwhile, so it does not know how long it took
  };
  struct Drain {
    std::int64_t until_ms = 0;
  };

  void on(const core::AnswerSubmit& c, const Disk& disk);
  void check_queue_full(const std::string& job);
  void on(const core::CommitTransition& c, const Disk& disk);
  void on(const core::Finish& c, const Disk& disk);
  void on(const core::Execute& c, const Disk& disk);
  void on(const core::AbortExecute& c, const Disk& disk);
  void on(const core::StartWorker& c, const Disk& disk);
  void on(const core::StopWorker& c, const Disk& disk);
  void on(const core::Log& c, const Disk& disk);
  void on(const core::AnswerPoolControl& c, const Disk& disk);
  void check_open(const base::PoolId& pool, std::string_view what);
  void check_stop_reason(std::string_view worker, std::string_view reason);
  template <class T>
  void on(const T&, const Disk&) {}
  static bool accepts(const Story& story, const base::PoolId& pool);
  void check_order(const std::string& job, const Story& story, const base::PoolId& pool);
  void check_reason(const std::string& job, const Story& story, const core::Finish& c);
  void check_verdict(const std::string& job, const Story& story, const base::Error& error);
  bool ran_out(const Story& story, std::string_view limit) const;
  std::pair<int, std::uint64_t> rank(const Story& story) const;
  void settle(const std::string& worker);
  void heard_pool(const core::PoolSeen& event);
  void heard_unreachable(const core::PoolUnreachable& event);
  void forget_contact(const std::string& pool);
  void forget_desired_state(const std::string& pool);
  void heard_cancel(const std::string& job);
  void arrives(const std::string& job);

  const Options& options_;
  const Loop& loop_;
  std::string violation_;
  Counts counts_;
  std::map<std::string, Story> stories_;
  std::uint64_t arrivals_ = 0;
  std::map<std::uint64_t, Attempt> attempts_;
  std::map<std::string, Start> starts_;
  std::map<std::string, wire::WorkerStatus> workers_;      // as the core heard
  std::map<std::string, std::int64_t> used_ms_;            // by worker: when its last attempt ended
  std::map<std::string, std::int64_t> heard_ms_;           // by pool: when it last said something
  std::set<std::string> known_;                            // pools that the core has heard of
  std::map<std::string, std::int64_t> out_of_reach_ms_;    // by pool: since when the core knows that calls to it fail
  std::map<std::string, std::int64_t> answered_ms_;        // by pool: when the newest answered question was asked
  std::map<std::string, Drain> drained_;                   // by pool, from the 202 to the word that takes it back
  std::set<std::string> undrain_asked_, reloading_;        // pools
  std::set<std::string> leaving_;                          // pools; with them goes what was asked of them
  std::set<std::string> purged_;                           // workers, of all lives
  std::map<std::uint64_t, std::int64_t> drains_asked_ms_;  // by request: the deadline
  int lives_ = 0;
  SessionRules sessions_{*this, options_, loop_};
  RestartRules restarts_{*this};
};

}  // namespace llorch::sim
