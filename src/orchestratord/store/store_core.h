#pragma once
// What a store does, without its thread: groups of operations go in, answers come out. The thread (store_thread.h) and the
// simulator step the same core.
#include <cstdint>
#include <functional>
#include <limits>
#include <variant>
#include <vector>

#include "orchestratord/store/store.h"

namespace llorch::orchestratord::store {

// The calls of Store as values.
struct Admit {
  Admission admission;
  Store::Done done;
};
struct Move {
  Transition transition;
  Store::Done done;
};
struct SaveCheckpoints {
  std::vector<Checkpoint> checkpoints;
};
struct RememberSession {
  core::sessions::SessionRecord session;
  Store::Done done;
};
struct ForgetSession {
  std::int64_t session_key = 0;
};
struct RememberPool {
  KnownPool pool;
};
struct SetDesiredState {
  KnownPool pool;
  Store::Done done;
};
struct ForgetPool {
  base::PoolId pool_id;
  Store::Done done;
};
struct Find {
  base::JobId job_id;
  Store::Found done;
};
struct FindTask {
  std::string id;
  Store::Found done;
};
struct List {
  Listing listing;
  Store::Listed done;
};
struct Restore {
  std::function<void(base::Result<RestoredState>)> done;
};
using Operation = std::variant<Admit, Move, SaveCheckpoints, RememberSession, ForgetSession, RememberPool,
                               SetDesiredState, ForgetPool, Find, FindTask, List, BackupOrder, Restore>;

// Not thread-safe. Destroyed without close(), it leaves what a killed process leaves.
class StoreCore {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  virtual ~StoreCore() = default;
  // Writes everything of the group in one commit, then reads. Each operation is answered once before this returns, except
  // an admission whose commit failed in a way that a restart might still find it: that one is tried again by later calls
  // and answered when the disk has decided.
  virtual void run(std::vector<Operation> group) = 0;
  // When run({}) has something to do though nothing came in. Monotonic milliseconds of the core's clock.
  virtual std::int64_t due_mono_ms() const = 0;
  // The last writes; answers what is still held with SHUTTING_DOWN. REQUIRES: nothing but destruction follows.
  virtual void close() = 0;
};

}  // namespace llorch::orchestratord::store
