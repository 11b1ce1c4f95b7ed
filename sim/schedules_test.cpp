#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <iostream>

#include "base/testing/environment.h"
#include "sim/check/batch.h"

namespace llorch::sim {
namespace {

using base::testing::first_seed;
using base::testing::is_nightly;

// In so many every probe is reached.
constexpr std::int64_t kNightlySchedules = 3'000, kSchedules = 250;

// Promises 2, 3 and 6, SYS-6.1.2, SYS-6.1.6, SYS-6.2.1, SYS-6.2.3, SYS-7.1.1, SYS-7.2.1, SYS-7.3.1, SYS-7.4.1, SYS-8.3.2,
// OC-CORE-1003#arrival-order, OC-CORE-1004, OC-CORE-1005, OC-CORE-1010, ORCH-1040, ORCH-3014: orchestratord, pools, workers,
// disk and network fail in every combination, and the rules of check/oracle.h hold; afterwards everything accepted ends.
TEST(Schedules, EveryRuleHoldsAndEveryProbeIsReached) {
  const std::uint64_t seed = first_seed();
  const std::int64_t schedules = is_nightly() ? kNightlySchedules : kSchedules;
  std::cout << "first seed " << seed << ", " << schedules << " schedules; LLORCH_TEST_SEED replays\n";
  const BatchResult result = run_batch({.first_seed = seed, .schedules = schedules});
  for (const auto& [what, times] : result.counts) std::cout << "  " << what << ": " << times << "\n";
  EXPECT_EQ(result.violation, "") << "replay: sim --seed " << result.violating_seed << " --trace";
  if (is_nightly()) {
    EXPECT_EQ(result.missed(), std::vector<std::string>{});
  }
  EXPECT_LT(result.drain_ms_max, kDrainBoundMs);
}

// Each broke a rule once. Both: a pool is removed while an answer of it is on its way (Pools.APoolThatRecoversTellsItsAddressAgain,
// Pools.APoolThatAnAnswerListedTellsItsAddressWithItsFirstReport).
TEST(Schedules, SeedsThatFoundABugHoldNow) {
  for (const std::uint64_t seed : {3000014545ULL, 8000052513ULL})
    EXPECT_EQ(run(swarm_options(seed)).violation, "") << "seed " << seed;
}

// OC-CORE-1018: one seed, one schedule: the same events and commands, byte for byte.
TEST(Schedules, AreReplayedBitForBit) {
  for (std::uint64_t seed = first_seed(); seed < first_seed() + 20; ++seed) {
    const RunResult one = run(swarm_options(seed), true), two = run(swarm_options(seed), true);
    ASSERT_EQ(one.text, two.text) << "seed " << seed;
    EXPECT_EQ(one.hash, two.hash);
    EXPECT_GT(one.text.size(), 1'000u);
  }
}

// A bug put in on purpose at the seam of a core is found.
// Control of SYS-6.1.2, SYS-6.1.3, SYS-7.5.1, OC-CORE-1003#arrival-order, OC-CORE-1004, SYS-6.2.5, POOL-2043, ORCH-1072
// Control of SYS-5.2.2#missing, SYS-8.3.2, POOLREG-18010, ORCH-3903, OC-CORE-1022, ORCH-3099
class Injected : public testing::TestWithParam<int> {};
TEST_P(Injected, IsFound) {
  const auto bug = static_cast<InjectedBug>(GetParam());
  constexpr std::array kFoundLate{InjectedBug::kSilentPoolServes, InjectedBug::kPurgeForgotten,
                                  InjectedBug::kTimesOutLate, InjectedBug::kRefillQuotas, InjectedBug::kTrustTheLog};
  if (std::ranges::find(kFoundLate, bug) != kFoundLate.end() && !is_nightly())
    GTEST_SKIP() << "takes thousands of schedules: make nightly";
  const BatchResult result = run_batch({.first_seed = first_seed(), .schedules = 10'000, .bug = bug});
  EXPECT_NE(result.violation, "") << name(bug);
  std::cout << name(bug) << ": found by schedule " << result.schedules << ": " << result.violation << "\n";
}
INSTANTIATE_TEST_SUITE_P(InjectedBugs, Injected, testing::Range(1, kSwarmBugsCount), [](const auto& bug) {
  std::string text = name(static_cast<InjectedBug>(bug.param));
  for (char& c : text) c = c == '-' ? '_' : c;
  return text;
});

}  // namespace
}  // namespace llorch::sim
