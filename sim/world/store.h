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
#include "orchestratord/store/store_core.h"
#include "sim/kernel/loop.h"
#include "sim/world/disk.h"

namespace llorch::sim {

struct World;

// In the place of the store's thread: callbacks run in orchestratord's process, in virtual time.
class Store final : public orchestratord::store::Store {
 public:
  explicit Store(World& world);

  // ---- as everybody uses it ----
  void admit(orchestratord::store::Admission admission, Done done) override;
  void transition(orchestratord::store::Transition transition, Done done) override;
  void checkpoint(std::vector<orchestratord::store::Checkpoint> checkpoints) override;
  void remember_session(orchestratord::core::sessions::SessionRecord session, Done done) override;
  void forget_session(std::int64_t key) override;
  void remember_pool(orchestratord::store::KnownPool pool) override;
  void set_desired_state(orchestratord::store::KnownPool pool, Done done) override;
  void forget_pool(base::PoolId pool_id, Done done) override;
  void find(base::JobId job_id, Found done) override;
  void find_task(std::string id, Found done) override;
  void list(orchestratord::store::Listing listing, Listed done) override;
  void backup(orchestratord::store::BackupOrder order) override;
  // Opens what the last life left. Fails as the real one does.
  base::Result<orchestratord::store::RestoredState> restore() override;
  void stop() override {}  // its process never leaves in peace

  // orchestratord dies now.
  void crash();
  // The run is over.
  void drop();

 private:
  using Operation = orchestratord::store::Operation;

  void post(Write write, Operation operation);
  // Nobody waits for it.
  void note(Operation operation);
  Found watched(std::string job, Found done);
  void begin();
  void end();
  void run(std::vector<Operation> group);
  void arm_faults();
  void arm_timer();
  void deliver();
  void bug();
  Operation watched(const WritePtr& write, Operation operation);

  World& world_;
  const ProcessClock clock_;
  std::unique_ptr<orchestratord::store::StoreCore> core_;
  std::vector<Operation> waiting_, committing_;
  bool busy_ = false;
  std::vector<WritePtr> waiting_writes_, committing_writes_;
  std::vector<WritePtr> unanswered_;                          // given to the core
  std::vector<std::pair<WritePtr, base::Result<>>> answers_;  // of the core, not yet told
  std::vector<std::function<void()>> findings_;               // likewise, of look-ups
  std::int64_t timer_due_ms_ = orchestratord::store::StoreCore::kNever;
};

}  // namespace llorch::sim
