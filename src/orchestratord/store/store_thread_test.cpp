#include "orchestratord/store/store_thread.h"

#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "orchestratord/store/store_core.h"

namespace llorch::orchestratord::store {
namespace {

// Counts what it is given, and holds the thread in its first group until it is let go, as a disk that stalls does.
class StalledCore final : public StoreCore {
 public:
  StalledCore(std::promise<void>& stalled, std::future<void> go, std::vector<Operation>& seen)
      : stalled_(stalled), go_(std::move(go)), seen_(seen) {}
  void run(std::vector<Operation> group) override {
    if (!group.empty() && seen_.empty()) {
      stalled_.set_value();
      go_.wait();
    }
    for (Operation& operation : group) seen_.push_back(std::move(operation));
  }
  std::int64_t due_mono_ms() const override { return kNever; }
  void close() override {}

 private:
  std::promise<void>& stalled_;
  std::future<void> go_;
  std::vector<Operation>& seen_;
};

// Checkpoints come by the clock: however long the disk stalls, one group of them waits, and what must not be lost waits with
// it.
TEST(StoreThread, CheckpointsDoNotPileUp) {
  base::SystemClock clock;
  std::vector<Operation> seen;
  std::promise<void> stalled, go;
  auto store = start_store_thread(std::make_unique<StalledCore>(stalled, go.get_future(), seen), clock);
  store->forget_session(1);
  stalled.get_future().wait();
  for (int i = 0; i < 1000; ++i) store->checkpoint({{base::JobId("j"), i, "token", "", 0}});
  for (int i = 0; i < 3; ++i) store->forget_session(2);
  go.set_value();
  store->stop();
  EXPECT_EQ(seen.size(), 1u + 1 + 3);
}

}  // namespace
}  // namespace llorch::orchestratord::store
