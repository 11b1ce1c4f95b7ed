#pragma once
// The operator's orders to a pool (drain, reload, purge), and how far each is.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/id.h"
#include "orchestratord/core/jobs/ids.h"
#include "orchestratord/core/timers.h"
#include "wire/pool_control.h"

namespace llorch::orchestratord::core {

base::Error pool_not_found(const base::PoolId& id);
// Tells an operator why a pool whose orders cannot be read takes no job, and which command opens it.
std::string unreadable_orders(const base::PoolId& id);

// Another model for a pool: its workers leave, workers of the new model come; if they do not, the old ones come back.
// The pool takes no job from the first step to the last. After a restart the reload begins again, from its order alone.
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
  wire::PoolOrders orders;               // decided; on disk unless `unsettled`
  bool commit_pending = false;           // an operator's word is on its way to the disk
  bool unsettled = false;                // the disk may hold other orders than these
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

  bool draining() const { return orders.draining; }
  bool open() const { return !draining() && !reload && !leaving; }
  bool busy() const { return commit_pending || leaving || reload; }  // takes no other order
  bool empties() const { return draining() || (reload && reload->empties()); }
};

// Orders of a pool that are being written to disk (kForget: its row is being removed), and what follows the commit.
struct PoolCommit {
  enum class Kind : std::uint8_t { kDrain, kUndrain, kReload, kPurge, kSettle, kForget };
  Kind kind = Kind::kSettle;
  jobs::RequestId request;  // of an operator: not with kSettle and kForget
  base::PoolId pool_id;
  wire::PoolOrders orders;
  std::int64_t deadline_ms = 0;      // kDrain, kReload
  std::vector<std::string> workers;  // kPurge: who leaves
  bool force = false;                // kPurge

  bool is_ours() const { return kind == Kind::kSettle || kind == Kind::kForget; }
};

}  // namespace llorch::orchestratord::core
