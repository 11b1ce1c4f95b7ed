#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <iostream>
#include <random>

#include "base/testing/environment.h"
#include "engine/inference/scheduling/testing/simulation.h"

namespace llorch::engine::inference::scheduling {
namespace {

using testing::Fault;
using testing::Simulation;

constexpr std::uint32_t kSteps = 30;

Simulation::Below random_numbers(std::uint64_t seed) {
  return [random = std::minstd_rand(static_cast<std::uint32_t>(seed * 2654435761u % 2147483647u))](
             std::uint32_t n) mutable { return static_cast<std::uint32_t>(random() / 8 % n); };
}

// Pages are conserved, nothing leaks, no shared page is written, every row goes on where its slot stands and sees what it
// must, prefixes are what their keys say, budgets hold, decode goes first, and nobody waits past the bound.
TEST(SchedulerSimulation, PromisesHoldWhateverHappens) {
  const std::uint64_t first = base::testing::first_seed(), schedules = base::testing::is_nightly() ? 10'000 : 2'000;
  std::cout << "first seed " << first << ", " << schedules << " schedules\n";
  std::map<std::string, std::uint64_t> seen;
  for (std::uint64_t seed = first; seed < first + schedules; ++seed) {
    Simulation simulation(random_numbers(seed));
    ASSERT_EQ(simulation.run(kSteps), "") << "LLORCH_TEST_SEED=" << seed;
    for (const auto& [what, times] : simulation.seen) seen[what] += times;
  }
  for (const auto& [what, times] : seen) std::cout << "  " << what << ": " << times << "\n";
  // A simulation that never meets the rare thing proves nothing.
  for (const char* what :
       {"end", "preemption", "prefix found", "fork", "fork taken over", "page copied", "failure",
        "removal during a step", "proposal right", "proposal wrong", "fork with proposals left", "prompt told"}) {
    EXPECT_GE(seen[what], schedules / 50) << what;
  }
  EXPECT_GE(seen["prompt told from the middle"], 1U);
}

// The same, with choices that shrink to the few that matter.
TEST(SchedulerSimulation, PromisesHoldForWhateverIsChosen) {
  EXPECT_TRUE(rc::check("promises hold", [](const std::vector<std::uint32_t>& choices) {
    std::size_t next = 0;
    Simulation simulation([&](std::uint32_t n) { return next < choices.size() ? choices[next++] % n : 0; });
    RC_ASSERT(simulation.run(static_cast<std::uint32_t>(choices.size())) == "");
  }));
}

// A mistake somewhere below is seen as one.
TEST(SchedulerSimulation, ChecksSeeWhatIsWrong) {
  for (const Fault fault : {Fault::kForgottenCopy, Fault::kForgottenStart, Fault::kUnfinishedPublished,
                            Fault::kFailureUnreported, Fault::kPageKept, Fault::kHiddenPause, Fault::kProposalKept}) {
    std::string wrong;
    for (std::uint64_t seed = 1; wrong.empty() && seed <= 200; ++seed) {
      Simulation simulation(random_numbers(seed), fault);
      wrong = simulation.run(kSteps);
    }
    EXPECT_NE(wrong, "") << "fault " << static_cast<int>(fault);
    std::cout << "  fault " << static_cast<int>(fault) << ": " << wrong << "\n";
  }
}

}  // namespace
}  // namespace llorch::engine::inference::scheduling
