#include "orchestratord/store/store_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <thread>
#include <utility>

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

// Answers every move, and is due 5 ms after it was given one that nobody has answered: a commit that waits for company.
class DelayingCore final : public StoreCore {
 public:
  explicit DelayingCore(const base::Clock& clock) : clock_(clock) {}
  void run(std::vector<Operation> group) override {
    for (Operation& operation : group) {
      if (held_.empty()) due_ms_ = clock_.now().mono_ms + 5;
      held_.push_back(std::move(std::get<Move>(operation)));
    }
    const bool writes = std::ranges::any_of(
        held_, [](const Move& move) { return move.transition.progress.status == wire::JobStatus::kCompleted; });
    if (!writes && clock_.now().mono_ms < due_ms_) return;
    for (const Move& move : std::exchange(held_, {})) move.done({});
    due_ms_ = kNever;
  }
  std::int64_t due_mono_ms() const override { return due_ms_; }
  void close() override {}

 private:
  const base::Clock& clock_;
  std::vector<Move> held_;
  std::int64_t due_ms_ = kNever;
};

Transition to(wire::JobStatus status) {
  Transition transition{base::JobId("j"), {}};
  transition.progress.status = status;
  return transition;
}

// A progress that wakes nobody is answered all the same, with nothing else to be done.
TEST(StoreThread, ProgressIsAnsweredThoughNobodyElseWrites) {
  base::SystemClock clock;
  auto store = start_store_thread(std::make_unique<DelayingCore>(clock), clock);
  for (int i = 0; i < 20; ++i) {
    std::promise<void> first, second;
    store->transition(to(wire::JobStatus::kDispatched), [&](const base::Result<>&) { first.set_value(); });
    store->transition(to(wire::JobStatus::kRunning), [&](const base::Result<>&) { second.set_value(); });
    first.get_future().wait();
    second.get_future().wait();
  }
}

// Of many callers at once each is answered once, whether its group waits for company or not.
TEST(StoreThread, EachOfManyCallersIsAnsweredOnce) {
  constexpr int kThreads = 4, kCalls = 300;
  base::SystemClock clock;
  auto store = start_store_thread(std::make_unique<DelayingCore>(clock), clock);
  std::vector<std::thread> threads;
  std::atomic<int> answered = 0;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kCalls; ++i) {
        std::promise<void> done;
        store->transition(to(wire::JobStatus::kRunning), [&](const base::Result<>&) { ++answered; });
        store->transition(to(wire::JobStatus::kCompleted), [&](const base::Result<>&) {
          ++answered;
          done.set_value();
        });
        done.get_future().wait();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  store->stop();
  EXPECT_EQ(answered, 2 * kThreads * kCalls);
}

}  // namespace
}  // namespace llorch::orchestratord::store
