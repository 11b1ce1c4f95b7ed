#include <gtest/gtest.h>

#include <iostream>

#include "base/testing/environment.h"
#include "orchestratord/core/testing/world/world.h"

namespace llorch::orchestratord::core {
namespace {

constexpr std::uint64_t kNightlySchedules = 2'000, kSchedules = 600;
constexpr int kSteps = 150;

using base::testing::first_seed;
using base::testing::is_nightly;

// What the core did last.
std::string tail(const std::string& transcript) {
  constexpr std::size_t kBytes = 12'000;
  return transcript.size() <= kBytes ? transcript : transcript.substr(transcript.size() - kBytes);
}

// Promise 2, SYS-6.1.2, SYS-6.1.6, SYS-7.1.1, SYS-7.2.1, SYS-7.3.1, SYS-7.4.1, OC-CORE-1003#arrival-order, OC-CORE-1004,
// OC-CORE-1005, OC-CORE-1010, ORCH-1040: whatever fails, every accepted job ends exactly once, and the rules of World hold throughout.
TEST(Simulation, EveryAcceptedJobEndsExactlyOnce) {
  const std::uint64_t seed = first_seed();
  const std::uint64_t schedules = is_nightly() ? kNightlySchedules : kSchedules;
  std::cout << "first seed " << seed << ", " << schedules << " schedules; LLORCH_TEST_SEED replays\n";
  std::map<std::string, std::int64_t> seen;
  for (std::uint64_t i = 0; i < schedules; ++i) {
    World world({.seed = seed + i});
    world.chaos(kSteps);
    world.heal();
    ASSERT_EQ(world.violation(), "") << tail(world.transcript());
    for (const auto& [what, times] : world.seen) seen[what] += times;
  }
  for (const auto& [what, times] : seen) std::cout << "  " << what << ": " << times << "\n";
  // A simulation that never meets a fault proves nothing.
  for (const char* what : {"accepted",
                           "refused",
                           "completed",
                           "CANCELLED",
                           "TIMEOUT",
                           "RETRY_EXHAUSTED",
                           "commit failed",
                           "restart",
                           "pool restarted",
                           "worker killed",
                           "start refused",
                           "start refused: being read",
                           "stop",
                           "device lost",
                           "start of a shared worker",
                           "stop of a shared worker",
                           "shared worker lost a device",
                           "doubled",
                           "partition",
                           "one-way fault",
                           "report of a pool out of reach",
                           "WORKER_START_FAILED",
                           "WORKER_START_TIMEOUT",
                           "POOL_UNAVAILABLE",
                           "decided: use_worker",
                           "decided: start_worker",
                           "decided: evict",
                           "decided: reserve",
                           "decided: wait",
                           "decided: infeasible",
                           "CORRUPT_FILE",
                           "PAYLOAD_LOST",
                           "BUDGET_EXCEEDED",
                           "session ended",
                           "POOL_UNREADY",
                           "QUOTA_EXCEEDED",
                           "reason: WAITING_FOR_QUOTA",
                           "reason: WAITING_FOR_WORKER_CHECK",
                           "version mismatch",
                           "refused by an old worker",
                           "VERSION_MISMATCH",
                           "placed by wish",
                           "fallback",
                           "queue reviewed",
                           "limits changed",
                           "optimizer: relax_placement",
                           "QUEUE_FULL_DROP_LRU"}) {
    EXPECT_GT(seen[what], 0) << what << " was never met";
  }
}

// A rule that cannot be seen broken is none.
TEST(Simulation, FindsSharedWorkersThatAreCountedOnOneDevice) {
  const std::uint64_t seed = first_seed();
  std::string found;
  for (std::uint64_t i = 0; i < kNightlySchedules && found.empty(); ++i) {
    World world({.seed = seed + i, .bug_first_device = true});
    world.chaos(kSteps);
    found = world.violation();
  }
  EXPECT_NE(found.find("is given"), std::string::npos) << found;
}

// A pass that looks only at the groups that an event may have changed does what one over all groups does, byte for byte.
TEST(Simulation, GroupsThatAreNotLookedAtWouldNotHaveChanged) {
  const std::uint64_t seed = first_seed(), schedules = is_nightly() ? 1'000 : 200;
  for (std::uint64_t i = 0; i < schedules; ++i) {
    World some({.seed = seed + i}), all({.seed = seed + i, .decide_every_group = true});
    some.chaos(kSteps);
    all.chaos(kSteps);
    some.heal();
    all.heal();
    ASSERT_EQ(some.transcript(), all.transcript()) << "seed " << seed + i;
  }
}

// OC-CORE-1018: the same events, times and entropy give the same commands, byte for byte.
TEST(Simulation, IsDeterministic) {
  const std::uint64_t seed = first_seed();
  for (std::uint64_t i = 0; i < 100; ++i) {
    World one({.seed = seed + i}), two({.seed = seed + i});
    one.chaos(kSteps);
    two.chaos(kSteps);
    one.heal();
    two.heal();
    ASSERT_EQ(one.transcript(), two.transcript()) << "seed " << seed + i;
    ASSERT_GT(one.transcript().size(), 1000u);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
