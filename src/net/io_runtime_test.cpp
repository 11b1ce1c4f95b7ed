#include "net/io_runtime.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <optional>
#include <thread>

namespace llorch::net {
namespace {

TEST(IoRuntime, PostRunsOnAnIoThread) {
  IoRuntime runtime;
  std::promise<bool> ran;
  runtime.post([&] { ran.set_value(runtime.on_io_thread()); });
  EXPECT_TRUE(ran.get_future().get());
  EXPECT_FALSE(runtime.on_io_thread());
}

TEST(IoRuntime, TimersFire) {
  IoRuntime runtime;
  std::promise<void> once;
  runtime.post_after(1, [&] { once.set_value(); });
  once.get_future().wait();

  std::promise<void> third;
  int calls = 0;
  Timer every = runtime.every(1, [&] {
    if (++calls == 3) third.set_value();
  });
  third.get_future().wait();
}

TEST(IoRuntime, CancelWaitsForTheRunningCall) {
  IoRuntime runtime;
  std::promise<void> started;
  std::atomic<bool> finished = false;
  Timer timer = runtime.after(0, [&] {
    started.set_value();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    finished = true;
  });
  started.get_future().wait();
  timer.cancel();
  EXPECT_TRUE(finished);
}

TEST(IoRuntime, CancelledTimersDoNotFireAndReleaseTheirCall) {
  IoRuntime runtime;
  const auto held = std::make_shared<int>(0);
  {
    const Timer dropped = runtime.every(1, [held] { ++*held; });
    Timer replaced = runtime.after(100'000, [held] { ++*held; });
    replaced = runtime.after(100'000, [held] { ++*held; });
  }
  const int calls = *held;
  EXPECT_EQ(held.use_count(), 1);
  std::promise<void> later;
  runtime.post_after(10, [&] { later.set_value(); });
  later.get_future().wait();
  EXPECT_EQ(*held, calls);
}

TEST(IoRuntime, ATimerMayCancelItself) {
  IoRuntime runtime;
  std::promise<void> done;
  std::optional<Timer> timer;
  std::promise<void> assigned;
  auto ready = assigned.get_future().share();
  timer = runtime.every(1, [&, ready] {
    ready.wait();
    timer->cancel();
    done.set_value();  // a second call would throw
  });
  assigned.set_value();
  done.get_future().wait();
}

TEST(IoRuntime, StopDropsWhatIsPending) {
  const auto held = std::make_shared<int>(0);
  {
    IoRuntime runtime;
    runtime.post_after(100'000, [held] { ++*held; });
    runtime.stop();
    EXPECT_TRUE(runtime.stopped());
    runtime.stop();
  }
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(*held, 0);
}

}  // namespace
}  // namespace llorch::net
