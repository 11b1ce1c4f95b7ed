#pragma once
// orchestratord's store in one of its lives: the real core over SQLite on a disk that fails. Group commits take virtual time,
// fail, and are cut by a crash. After every start and with every look-up the store is compared with what it has answered.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "orchestratord/brain/commands.h"
#include "orchestratord/jobs/ids.h"
#include "orchestratord/state_store/store_core.h"
#include "sim/world/disk.h"

namespace llorch::sim {

struct World;

class Store {
 public:
  using Done = std::function<void(orchestratord::jobs::CommitId, const base::Result<>&)>;
  // `done` runs in orchestratord's process.
  Store(World& world, Done done) : world_(world), done_(std::move(done)), clock_(world) {}

  // Opens what the last life left. Fails as the real one does.
  base::Result<orchestratord::state_store::RestoredState> open();

  void admit(const orchestratord::brain::CommitAdmission& order, const JobRequest& request);
  void remember_session(orchestratord::jobs::CommitId commit, orchestratord::sessions::SessionRecord session);
  void forget_session(std::int64_t key);
  void change(orchestratord::jobs::CommitId commit, orchestratord::state_store::Transition transition);
  void set_orders(orchestratord::jobs::CommitId commit, orchestratord::state_store::KnownPool pool);
  void forget_pool(orchestratord::jobs::CommitId commit, const base::PoolId& pool_id);
  // Nobody waits for it.
  void note(orchestratord::state_store::Operation operation);
  base::Result<std::optional<Row>> find(const std::string& job);
  // orchestratord dies now.
  void crash();
  // The run is over.
  void drop();

 private:
  using Operation = orchestratord::state_store::Operation;

  void post(const WritePtr& write, Operation operation);
  void begin();
  void end();
  void run(std::vector<Operation> group);
  void arm_faults();
  void arm_timer();
  void deliver();
  void plant();
  Operation watched(const WritePtr& write, Operation operation);

  // As the process reads it.
  class Clock final : public base::Clock {
   public:
    explicit Clock(const World& world) : world_(world) {}
    base::Time now() const override;

   private:
    const World& world_;
  };

  World& world_;
  const Done done_;
  const Clock clock_;
  std::unique_ptr<orchestratord::state_store::StoreCore> core_;
  std::vector<Operation> waiting_, committing_;
  bool busy_ = false;
  std::vector<WritePtr> waiting_writes_, committing_writes_;
  std::vector<WritePtr> unanswered_;                          // given to the core
  std::vector<std::pair<WritePtr, base::Result<>>> answers_;  // of the core, not yet told
  std::int64_t timer_due_ms_ = orchestratord::state_store::StoreCore::kNever;
};

}  // namespace llorch::sim
