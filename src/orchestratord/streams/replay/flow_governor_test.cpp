#include "orchestratord/streams/replay/flow_governor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace llorch::orchestratord::streams {
namespace {

TEST(FlowGovernor, PausesTheNewestAndResumesTheOldest) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u, 3u}) governor.add(order);
  EXPECT_EQ(governor.update(80).pause, std::nullopt);
  EXPECT_EQ(governor.update(81).pause, 3u);
  EXPECT_EQ(governor.update(81).pause, 2u);
  EXPECT_EQ(governor.update(81).pause, std::nullopt) << "the oldest goes on";
  EXPECT_EQ(governor.update(75).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(70).resume, 2u);
  EXPECT_EQ(governor.update(70).resume, 3u);
  EXPECT_EQ(governor.update(70).resume, std::nullopt);
}

TEST(FlowGovernor, WhenTheOldestEndsTheNextOneGoesOn) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order);
  EXPECT_EQ(governor.update(100).pause, 2u);
  governor.remove(1);
  EXPECT_EQ(governor.update(100).resume, 2u);
}

// Between 7/8 and the limit nobody else is resumed, and a younger one may be running.
TEST(FlowGovernor, TheOldestDoesNotWaitForAYoungerOne) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order);
  EXPECT_EQ(governor.update(100).pause, 2u);
  governor.add(3);
  governor.remove(1);
  EXPECT_EQ(governor.update(75).resume, 2u);
  EXPECT_EQ(governor.update(100).pause, 3u);
  EXPECT_EQ(governor.update(75).resume, std::nullopt);
}

// Liveness: whatever happens, after enough updates something runs, and it is the oldest.
TEST(FlowGovernor, SomethingAlwaysRuns) {
  EXPECT_TRUE(rc::check("something runs", [] {
    FlowGovernor governor(100);
    std::set<std::uint64_t> all, paused;
    const int steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      const int action = *rc::gen::inRange(0, 4);
      if (action == 0) {
        const auto order = static_cast<std::uint64_t>(i);
        governor.add(order);
        all.insert(order);
      } else if (action == 1 && !all.empty()) {
        const auto order = *rc::gen::elementOf(std::vector<std::uint64_t>(all.begin(), all.end()));
        governor.remove(order);
        all.erase(order);
        paused.erase(order);
      }
      const std::int64_t total = *rc::gen::inRange(0, 200);
      for (int settle = 0; settle < 250; ++settle) {
        const auto change = governor.update(total);
        if (change.pause) RC_ASSERT(paused.insert(*change.pause).second);
        if (change.resume) RC_ASSERT(paused.erase(*change.resume) == 1);
        if (!change.pause && !change.resume) break;
        RC_ASSERT(settle < 249);
      }
      RC_ASSERT(governor.paused_count() == paused.size());
      if (!all.empty()) RC_ASSERT(!paused.contains(*all.begin()));
      if (total <= 80) RC_ASSERT(paused.empty());
    }
  }));
}

}  // namespace
}  // namespace llorch::orchestratord::streams
