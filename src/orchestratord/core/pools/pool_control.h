#pragma once
// What an operator asked of a pool, and how far it is.

#include "orchestratord/core/queue/job_groups.h"
#include "wire/pool_control.h"

namespace llorch::orchestratord::core {

base::Error pool_not_found(const base::PoolId& id);
// Why a pool whose desired state cannot be read is closed, and what opens it.
std::string unreadable_desired_state(const base::PoolId& id);

// Another model for a pool: its workers leave, workers of the new model come; if they do not, the old ones come back.
// The pool takes no job from the first step to the last. A restart begins it again: what its order says is all it needs.
struct Reload {
  enum class Phase : std::uint8_t {
    kEmptying,   // the old workers finish and leave
    kFilling,    // workers of the new model start
    kUndoing,    // that failed: what came of them leaves
    kRefilling,  // workers of the old models start
    kEnding,     // over; that is on its way to the disk, and told when it is there
  };
  struct Place {
    std::string gpu_id;
    jobs::ModelIndex model;
    std::optional<base::WorkerId> worker;
    int tries = 0;
    std::int64_t not_before_ms = 0;
  };
  Phase phase = Phase::kEmptying;
  jobs::ModelIndex to;
  std::vector<Place> before;       // to come back to
  std::vector<Place> places;       // of this phase
  std::int64_t until_ms = 0;       // of this phase: then it has failed
  std::int64_t pool_until_ms = 0;  // begun again by a restart: its pool may be unheard of until then
  std::optional<base::Error> error;

  bool empties() const { return phase == Phase::kEmptying || phase == Phase::kUndoing; }
};

struct PoolControl {
  wire::PoolDesiredState desired;        // decided; on disk unless `unsettled`
  bool commit_pending = false;           // an operator's word is on its way to the disk
  bool unsettled = false;                // the disk may hold another one than this
  bool settling = false;                 // these are on their way to it
  bool leaving = false;                  // the pool goes when no start is on its way to it any more
  bool left = false;                     // nothing but this: the pool's row has to go
  std::vector<jobs::RequestId> leavers;  // told once it has
  std::int64_t settle_at_ms = 0;         // not before
  bool forced = false;                   // the deadline is over: what runs went back to the queue
  std::int64_t deadline_ms = 0;          // monotonic; of the drain or reload that runs
  std::optional<TimerQueue::Handle> deadline_timer;
  std::optional<Reload> reload;
  std::optional<wire::PoolOperation> operation;  // the running one, or the last
  std::int64_t worker_failures = 0;
  std::optional<std::string> last_error;

  bool draining() const { return desired.draining; }
  bool open() const { return !draining() && !reload && !leaving; }
  bool busy() const { return commit_pending || leaving || reload; }  // nothing else can be asked of it
  bool empties() const { return draining() || (reload && reload->empties()); }
};

// A pool's desired state on its way to the disk (kForget: its row on its way out), and what follows when it is there.
struct PoolCommit {
  enum class Kind : std::uint8_t { kDrain, kUndrain, kReload, kPurge, kSettle, kForget };
  Kind kind = Kind::kSettle;
  jobs::RequestId request;  // of an operator: not with kSettle and kForget
  base::PoolId pool_id;
  wire::PoolDesiredState desired;
  std::int64_t deadline_ms = 0;        // kDrain, kReload
  std::vector<std::string> workers{};  // kPurge: who leaves
  bool force = false;                  // kPurge

  bool is_ours() const { return kind == Kind::kSettle || kind == Kind::kForget; }
};

// A worker that goes by itself, or was told to.
inline bool leaves(const Worker& worker) {
  return worker.info.status == wire::WorkerStatus::kDraining || worker.info.status == wire::WorkerStatus::kFailed;
}
// Whether nothing is left on it, and nothing on its way to it. A start whose answer was lost may have arrived: only a
// pool that was heard of since knows.
inline bool is_empty(const pools::Pool& pool) {
  return pool.workers.empty() && pool.status == wire::PoolStatus::kHealthy;
}

// Puts the workers of a reload at their places.
class Filling : Handler {
 public:
  using Handler::Handler;

  Reload reload_of(const wire::DesiredReload& order);
  // A worker of an earlier process may hold what nobody asked this one for.
  ModelIndex model_held_by(const Worker& worker);
  // The devices that held a worker and can hold the new model, else the place with most memory.
  std::vector<Reload::Place> places_for(const pools::Pool& pool, const Reload& reload) const;
  // True once a worker is ready at every place; an error once that will not be.
  base::Result<bool> fill(pools::Pool& pool, Reload& reload);

 private:
  bool may_start(const pools::Pool& pool, const std::string& mask, const wire::ModelFacts& facts) const;
};

// Keeps what operators asked of pools and carries it out, one small machine per pool.
class DesiredStates : Handler {
 public:
  using Handler::Handler;

  void on(DrainPool& e);
  void on(UndrainPool& e);
  void on(PurgePool& e);
  void on(ReloadPool& e);
  void on(PoolDeregistered& e);
  void on(QueryPoolHealth& e);
  void restore_desired_states(std::map<base::PoolId, wire::PoolDesiredState>& pools);
  // True if the commit was one of these, and no deregistration of its pool came after it.
  bool desired_state_committed(CommitId id, const base::Error* error);
  void deadline_over(const base::PoolId& id);
  // Its pool said something, or another one did from its address.
  void pool_back(const base::PoolId& id, bool rebooted);
  void pool_replaced(const base::PoolId& id);
  void note_failure(const base::PoolId& id, const base::Error& error);
  // A start that says nothing of its model: where a reload asked for it, that asks again at `until_ms`, and counts no try.
  void put_start_off(const base::PoolId& id, const base::WorkerId& worker, std::int64_t until_ms);

  // At the end of a pass.
  void empty_pools();
  void advance_controls();
  // For the end of the process. True once nothing of all this is on its way any more.
  bool settle_all();

  bool pool_open(const base::PoolId& id) const;  // healthy, and no operator keeps it from taking jobs
  bool all_open() const;
  bool is_closed(const base::PoolId& id) const { return find(id) && !find(id)->open(); }  // by an operator
  bool is_draining(const base::PoolId& id) const { return find(id) && find(id)->draining(); }
  bool is_leaving(const base::PoolId& id) const { return find(id) && find(id)->leaving; }
  // Whether an operator has sent it away, perhaps in an earlier life of either side.
  bool is_purged(const Worker& worker) const;
  // Names what an operator keeps closed: that is what to do something about.
  std::string wait_for_pool(std::string_view where) const;

  void verify() const;

 private:
  const PoolControl* find(const base::PoolId& id) const;
  void refuse_request(RequestId request, base::Error error);
  void commit_desired_state(PoolCommit commit);
  void settle_desired_state(const base::PoolId& id, PoolControl& control);
  void drain_begins(const PoolCommit& commit, PoolControl& control);
  void drain_ends(const PoolCommit& commit, PoolControl& control);
  void purge_begins(const PoolCommit& commit);
  void arm_deadline(const base::PoolId& id, PoolControl& control, std::int64_t deadline_ms);
  void end_operation(const base::PoolId& id, PoolControl& control, wire::PoolOperationState state);
  void let_go(const base::PoolId& id, PoolControl& control);
  void pool_deregistered(const base::PoolId& id, PoolControl& control);
  void tell_leavers(PoolControl& control);
  void advance_drain(const pools::Pool& pool, PoolControl& control);
  std::string step_of(const PoolControl& control, const pools::Pool* pool, std::int64_t leases) const;

  // reload.cpp
  void reload_begins(const PoolCommit& commit, PoolControl& control);
  void restore_reload(const base::PoolId& id, PoolControl& control);
  void conclude_reload(const base::PoolId& id, PoolControl& control, wire::PoolOperationState state);
  void reload_ends(const base::PoolId& id, PoolControl& control);
  void advance_reload(const base::PoolId& id, PoolControl& control);

  std::map<base::PoolId, PoolControl> controls_;  // pools with something to say here
  std::map<CommitId, PoolCommit> pool_commits_;
};

}  // namespace llorch::orchestratord::core
