#include "net/io_runtime.h"

#include <gtest/gtest.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/log.h"
#include "net/client.h"
#include "net/server.h"

namespace llorch::net {
namespace {

TEST(IoRuntime, PostRunsOnAnIoThread) {
  IoRuntime runtime;
  std::promise<bool> ran;
  runtime.post([&] { ran.set_value(runtime.on_io_thread()); });
  EXPECT_TRUE(ran.get_future().get());
  EXPECT_FALSE(runtime.on_io_thread());
}

TEST(IoRuntime, RunsInOrderOfPostingWhoeverPosts) {
  IoRuntime runtime;
  std::vector<int> order;
  std::promise<void> own_is_posted, others_is_posted, last;
  runtime.post([&] {
    runtime.post([&] { order.push_back(1); });
    own_is_posted.set_value();
    others_is_posted.get_future().wait();
  });
  own_is_posted.get_future().wait();
  runtime.post([&] {
    order.push_back(2);
    runtime.post([&] { last.set_value(); });
  });
  others_is_posted.set_value();
  last.get_future().wait();
  runtime.stop();
  EXPECT_EQ(order, (std::vector<int>{1, 2}));
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

TEST(IoRuntime, AnExceptionEndsTheCallItWasThrownIn) {
  std::vector<std::string> lines;
  base::capture_log_lines([&](std::string_view line) { lines.emplace_back(line); });
  const auto held = std::make_shared<int>(0);
  {
    IoRuntime runtime;
    runtime.post([held] { throw std::length_error("what a client sent"); });
    std::promise<void> third;
    int calls = 0;
    const Timer every = runtime.every(1, [&] {
      if (++calls == 3) third.set_value();
      throw std::bad_alloc();
    });
    third.get_future().wait();
    EXPECT_EQ(held.use_count(), 1);
  }
  base::capture_log_lines(nullptr);
  ASSERT_GE(lines.size(), 4U);
  EXPECT_NE(lines[0].find(R"("event":"io.call_failed")"), std::string::npos) << lines[0];
  EXPECT_NE(lines[0].find(R"("type":"std::length_error")"), std::string::npos) << lines[0];
  EXPECT_EQ(lines[0].find("what a client sent"), std::string::npos) << lines[0];
}

// What a handler gave to another thread is answered as what failed in the handler itself.
TEST(IoRuntime, ARequestWhoseCallFailedIsAnswered) {
  IoRuntime runtime, aside;
  Server server(runtime, {.component = "test"});
  server.route("GET", "/fails", Scope::kPublic, [&](const Request&, ExchangePtr exchange) {
    aside.post([exchange = std::move(exchange)] { throw std::length_error(""); });
  });
  ASSERT_TRUE(server.start());
  Client client(runtime);
  for (int i = 0; i < 2; ++i) {
    const auto answer = client.call({.url = server.url() + "/fails"});
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 500);
    EXPECT_NE(answer->body.find("INTERNAL"), std::string::npos) << answer->body;
  }
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

int policy_of(IoRuntime& runtime) {
  std::promise<int> policy;
  runtime.post([&] { policy.set_value(sched_getscheduler(0)); });
  return policy.get_future().get();
}

// Takes from this thread, and from those it starts, what makes the system grant a real-time priority.
void give_up_priorities() {
  __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
  ASSERT_EQ(syscall(SYS_capget, &header, sets.data()), 0);
  for (auto* set : {&sets[0].effective, &sets[0].permitted, &sets[0].inheritable}) *set &= ~(1U << CAP_SYS_NICE);
  ASSERT_EQ(syscall(SYS_capset, &header, sets.data()), 0);
}

// Whether the system grants this process what is asked for.
bool system_grants_realtime() {
  bool granted = false;
  std::thread([&granted] {
    sched_param lowest{};
    lowest.sched_priority = 1;
    granted = sched_setscheduler(0, SCHED_RR, &lowest) == 0;
  }).join();
  return granted;
}

TEST(IoRuntime, AsksForARealtimePriorityAndGoesOnWithout) {
  IoRuntime normal;
  EXPECT_FALSE(normal.is_realtime());
  EXPECT_EQ(policy_of(normal), SCHED_OTHER);
  {
    const bool granted = system_grants_realtime();
    IoRuntime asked(IoPriority::kRealtime);
    EXPECT_EQ(asked.is_realtime(), granted);
    EXPECT_EQ(policy_of(asked), granted ? SCHED_RR | SCHED_RESET_ON_FORK : SCHED_OTHER);
  }
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_RTPRIO, &limit), 0);
  if (limit.rlim_cur > 0) GTEST_SKIP() << "RLIMIT_RTPRIO grants it to everybody here";
  std::thread([] {
    give_up_priorities();
    IoRuntime refused(IoPriority::kRealtime);
    EXPECT_FALSE(refused.is_realtime());
    EXPECT_EQ(policy_of(refused), SCHED_OTHER);
  }).join();
}

TEST(IoRuntime, AThreadThatCarriesStreamsShouldGoFirst) {
  EXPECT_TRUE(should_go_first({}));
  EXPECT_TRUE(should_go_first({.elapsed_s = 0.5, .cpu_s = 0.3, .wakes = 9'000, .requests = 400}));
  EXPECT_FALSE(should_go_first({.elapsed_s = 0.5, .cpu_s = 0.45, .wakes = 9'000}));
  EXPECT_FALSE(should_go_first({.elapsed_s = 0.5, .cpu_s = 0.3, .wakes = 14'000}));
  EXPECT_FALSE(should_go_first({.elapsed_s = 0.5, .cpu_s = 0.3, .wakes = 9'000, .requests = 600}));
}

// A busy thread with a priority that nobody can take from it would take a core from all others.
TEST(IoRuntime, GivesTheRealtimePriorityUpWhileItIsBusy) {
  IoRuntime runtime(IoPriority::kRealtime);
  if (!system_grants_realtime()) GTEST_SKIP() << "no real-time priority is granted here";
  std::atomic<bool> busy = true, starved = false;
  const auto begun = std::chrono::steady_clock::now();
  std::function<void()> spin = [&] {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
    while (std::chrono::steady_clock::now() < until) {
    }
    timespec cpu{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
    const double used_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
    const double passed_s = std::chrono::duration<double>(until - begun).count();
    starved = passed_s > 10 && used_s < 0.9 * passed_s;
    if (busy) runtime.post(spin);
  };
  runtime.post(spin);
  while (policy_of(runtime) != (SCHED_OTHER | SCHED_RESET_ON_FORK) && !starved) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  busy = false;
  if (starved) GTEST_SKIP() << "this machine gives no thread a whole core, so none can take one";
  while (policy_of(runtime) != (SCHED_RR | SCHED_RESET_ON_FORK)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// Requests are counted where they are received and where they are sent.
TEST(IoRuntime, GivesTheRealtimePriorityUpWhileItHandsOnManyRequests) {
  IoRuntime runtime(IoPriority::kRealtime);
  if (!system_grants_realtime()) GTEST_SKIP() << "no real-time priority is granted here";
  Server server(runtime, {.component = "io_runtime_test"});
  server.route("GET", "/", Scope::kPublic,
               [](const Request&, const ExchangePtr& exchange) { exchange->respond({.status = 200}); });
  ASSERT_TRUE(server.start());
  std::atomic<bool> busy = true;
  Client client(runtime);
  const auto ask_again = [&](const auto& self) -> void {
    client.request({.method = "GET", .url = server.url() + "/"}, [&, self](const base::Result<Response>& answer) {
      EXPECT_TRUE(answer);
      if (busy) self(self);
    });
  };
  for (int i = 0; i < 8; ++i) ask_again(ask_again);
  while (policy_of(runtime) != (SCHED_OTHER | SCHED_RESET_ON_FORK)) {
  }
  busy = false;
  while (policy_of(runtime) != (SCHED_RR | SCHED_RESET_ON_FORK)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

}  // namespace
}  // namespace llorch::net
