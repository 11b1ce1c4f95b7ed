#include "orchestratord/streams/replay/flow_governor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <vector>

namespace llorch::orchestratord::streams {
namespace {

using Held = std::vector<std::int64_t>;  // by tenant

TEST(FlowGovernor, PausesTheNewestAndResumesTheOldest) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u, 3u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{80}).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{81}).pause, 3u);
  EXPECT_EQ(governor.update(Held{81}).pause, 2u);
  EXPECT_EQ(governor.update(Held{81}).pause, std::nullopt) << "the oldest goes on";
  EXPECT_EQ(governor.update(Held{75}).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{70}).resume, 2u);
  EXPECT_EQ(governor.update(Held{70}).resume, 3u);
  EXPECT_EQ(governor.update(Held{70}).resume, std::nullopt);
}

TEST(FlowGovernor, WhenTheOldestEndsTheNextOneGoesOn) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{100}).pause, 2u);
  governor.remove(1);
  EXPECT_EQ(governor.update(Held{100}).resume, 2u);
}

// Between 7/8 and the limit nobody else is resumed, and a younger one may be running.
TEST(FlowGovernor, TheOldestDoesNotWaitForAYoungerOne) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{100}).pause, 2u);
  governor.add(3, 0);
  governor.remove(1);
  EXPECT_EQ(governor.update(Held{75}).resume, 2u);
  EXPECT_EQ(governor.update(Held{100}).pause, 3u);
  EXPECT_EQ(governor.update(Held{75}).resume, std::nullopt);
}

TEST(FlowGovernor, WhoHoldsLittleGoesOn) {
  FlowGovernor governor(80);
  for (const std::uint64_t order : {1u, 2u, 3u}) governor.add(order, 0);
  for (const std::uint64_t order : {4u, 5u}) governor.add(order, 1);
  for (const std::uint64_t order : {6u, 7u}) governor.add(order, 2);
  EXPECT_EQ(governor.update(Held{75, 5, 5}).pause, 3u);
  EXPECT_EQ(governor.update(Held{75, 5, 5}).pause, 2u);
  EXPECT_EQ(governor.update(Held{75, 36, 5}).pause, std::nullopt) << "37 each are there for two";
  EXPECT_EQ(governor.update(Held{75, 38, 5}).pause, 5u);
  EXPECT_EQ(governor.update(Held{75, 38, 26}).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{75, 38, 27}).pause, 7u);
  EXPECT_EQ(governor.update(Held{75, 38, 27}).resume, std::nullopt);
  EXPECT_EQ(governor.update(Held{20, 38, 27}).resume, 2u) << "of those within their share the oldest";
}

// Else all jobs of a tenant would stand still until the older job of another one has ended.
TEST(FlowGovernor, OfEachTenantTheOldestGoesOn) {
  FlowGovernor governor(80);
  governor.add(1, 1);
  for (const std::uint64_t order : {2u, 3u, 4u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{75, 10}).pause, 4u);
  EXPECT_EQ(governor.update(Held{75, 10}).pause, 3u);
  EXPECT_EQ(governor.update(Held{75, 10}).pause, std::nullopt);
  governor.remove(2);
  EXPECT_EQ(governor.update(Held{75, 10}).resume, 3u) << "it is the oldest of its tenant now";
  EXPECT_EQ(governor.update(Held{75, 10}).resume, std::nullopt);
  EXPECT_EQ(governor.update(Held{151, 10}).pause, 3u) << "past twice the limit the oldest of all goes on alone";
  EXPECT_EQ(governor.update(Held{140, 10}).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{130, 10}).resume, 3u);
  EXPECT_EQ(governor.update(Held{130, 10}).resume, std::nullopt);
}

TEST(FlowGovernor, PastTwiceTheLimitNobodyGoesOnButTheOldest) {
  FlowGovernor governor(80);
  governor.add(1, 0);
  governor.add(2, 0);
  governor.add(3, 1);
  EXPECT_EQ(governor.update(Held{155, 5}).pause, 2u);
  EXPECT_EQ(governor.update(Held{155, 5}).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{156, 5}).pause, 3u);
  EXPECT_EQ(governor.update(Held{156, 5}).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{150, 5}).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{135, 5}).resume, 3u);
  EXPECT_EQ(governor.update(Held{135, 5}).resume, std::nullopt);
}

// Liveness: whatever happens, after enough updates the oldest job runs, and short of twice the limit the oldest of each tenant.
TEST(FlowGovernor, SomethingAlwaysRuns) {
  EXPECT_TRUE(rc::check("something runs", [] {
    FlowGovernor governor(100);
    std::set<std::uint64_t> all, paused;
    const int steps = *rc::gen::inRange(1, 200);
    for (int i = 0; i < steps; ++i) {
      const int action = *rc::gen::inRange(0, 4);
      if (action == 0) {
        const auto order = static_cast<std::uint64_t>(i);
        governor.add(order, order % 3);
        all.insert(order);
      } else if (action == 1 && !all.empty()) {
        const auto order = *rc::gen::elementOf(std::vector<std::uint64_t>(all.begin(), all.end()));
        governor.remove(order);
        all.erase(order);
        paused.erase(order);
      }
      const Held held{*rc::gen::inRange(0, 90), *rc::gen::inRange(0, 90), *rc::gen::inRange(0, 90)};
      const std::int64_t total = held[0] + held[1] + held[2];
      for (int settle = 0; settle < 250; ++settle) {
        const auto change = governor.update(held);
        if (change.pause) RC_ASSERT(paused.insert(*change.pause).second);
        if (change.resume) RC_ASSERT(paused.erase(*change.resume) == 1);
        if (!change.pause && !change.resume) break;
        RC_ASSERT(settle < 249);
      }
      RC_ASSERT(governor.paused_count() == paused.size());
      if (!all.empty()) RC_ASSERT(!paused.contains(*all.begin()));
      if (total <= 80) RC_ASSERT(paused.empty());
      if (total > 200) RC_ASSERT(all.size() <= paused.size() + 1);
      std::set<std::uint64_t> tenants;
      for (const std::uint64_t order : all) {
        if (tenants.insert(order % 3).second && total <= 175) RC_ASSERT(!paused.contains(order));
      }
      for (const std::uint64_t order : paused) RC_ASSERT(total > 175 || held[order % 3] > 87 / 3);
    }
  }));
}

}  // namespace
}  // namespace llorch::orchestratord::streams
