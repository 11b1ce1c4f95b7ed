#include "orchestratord/streams/replay/flow_governor.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <set>
#include <vector>

#include "base/fair_share.h"

namespace llorch::orchestratord::streams {
namespace {

using Held = std::vector<std::int64_t>;  // by tenant
constexpr std::int64_t kPatienceMs = 30'000;

TEST(FlowGovernor, PausesTheNewestAndResumesTheOldest) {
  FlowGovernor governor(80, kPatienceMs);
  for (const std::uint64_t order : {1u, 2u, 3u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{80}, 0).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{81}, 0).pause, 3u);
  EXPECT_EQ(governor.update(Held{81}, 0).pause, 2u);
  EXPECT_EQ(governor.update(Held{81}, 0).pause, std::nullopt) << "the oldest goes on";
  EXPECT_EQ(governor.update(Held{75}, 0).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{70}, 0).resume, 2u);
  EXPECT_EQ(governor.update(Held{70}, 0).resume, 3u);
  EXPECT_EQ(governor.update(Held{70}, 0).resume, std::nullopt);
}

TEST(FlowGovernor, WhenTheOldestEndsTheNextOneGoesOn) {
  FlowGovernor governor(80, kPatienceMs);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{100}, 0).pause, 2u);
  governor.remove(1);
  EXPECT_EQ(governor.update(Held{100}, 0).resume, 2u);
}

// Between 7/8 and the limit nobody else is resumed, and a younger one may be running.
TEST(FlowGovernor, TheOldestDoesNotWaitForAYoungerOne) {
  FlowGovernor governor(80, kPatienceMs);
  for (const std::uint64_t order : {1u, 2u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{100}, 0).pause, 2u);
  governor.add(3, 0);
  governor.remove(1);
  EXPECT_EQ(governor.update(Held{75}, 0).resume, 2u);
  EXPECT_EQ(governor.update(Held{100}, 0).pause, 3u);
  EXPECT_EQ(governor.update(Held{75}, 0).resume, std::nullopt);
}

TEST(FlowGovernor, WhoHoldsLittleGoesOn) {
  FlowGovernor governor(80, kPatienceMs);
  for (const std::uint64_t order : {1u, 2u, 3u}) governor.add(order, 0);
  for (const std::uint64_t order : {4u, 5u}) governor.add(order, 1);
  for (const std::uint64_t order : {6u, 7u}) governor.add(order, 2);
  EXPECT_EQ(governor.update(Held{75, 5, 5}, 0).pause, 3u);
  EXPECT_EQ(governor.update(Held{75, 5, 5}, 0).pause, 2u);
  EXPECT_EQ(governor.update(Held{75, 36, 5}, 0).pause, std::nullopt) << "37 each are there for two";
  EXPECT_EQ(governor.update(Held{75, 38, 5}, 0).pause, 5u);
  EXPECT_EQ(governor.update(Held{75, 38, 26}, 0).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{75, 38, 27}, 0).pause, 7u);
  EXPECT_EQ(governor.update(Held{75, 38, 27}, 0).resume, std::nullopt);
  EXPECT_EQ(governor.update(Held{20, 38, 27}, 0).resume, 2u) << "of those within their share the oldest";
}

// Else all jobs of a tenant would stand still until the older job of another one has ended.
TEST(FlowGovernor, OfEachTenantTheOldestGoesOn) {
  FlowGovernor governor(80, kPatienceMs);
  governor.add(1, 1);
  for (const std::uint64_t order : {2u, 3u, 4u}) governor.add(order, 0);
  EXPECT_EQ(governor.update(Held{75, 10}, 0).pause, 4u);
  EXPECT_EQ(governor.update(Held{75, 10}, 0).pause, 3u);
  EXPECT_EQ(governor.update(Held{75, 10}, 0).pause, std::nullopt);
  governor.remove(2);
  EXPECT_EQ(governor.update(Held{75, 10}, 0).resume, 3u) << "it is the oldest of its tenant now";
  EXPECT_EQ(governor.update(Held{75, 10}, 0).resume, std::nullopt);
  EXPECT_EQ(governor.update(Held{151, 10}, 0).pause, 3u) << "past twice the limit the oldest of all goes on alone";
  EXPECT_EQ(governor.update(Held{140, 10}, 0).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{130, 10}, 0).resume, 3u);
  EXPECT_EQ(governor.update(Held{130, 10}, 0).resume, std::nullopt);
}

// Who is within its share goes on whatever the others hold; of those above it nobody but the oldest of all does.
TEST(FlowGovernor, PastTwiceTheLimitWhoHoldsLittleGoesOn) {
  FlowGovernor governor(80, kPatienceMs);
  governor.add(1, 0);
  governor.add(2, 0);
  governor.add(3, 1);
  governor.add(4, 2);
  EXPECT_EQ(governor.update(Held{150, 5, 0}, 0).pause, 2u);
  EXPECT_EQ(governor.update(Held{156, 5, 0}, 0).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{156, 40, 0}, 0).pause, std::nullopt) << "40 each are there for two";
  EXPECT_EQ(governor.update(Held{156, 41, 0}, 0).pause, 3u) << "the oldest of its tenant as well";
  EXPECT_EQ(governor.update(Held{156, 41, 0}, 0).resume, std::nullopt);
  EXPECT_EQ(governor.update(Held{156, 35, 0}, 0).resume, 3u) << "behind 7/8 of its share, whatever the first one holds";
}

// Many tenants may have filled larger shares one after the other.
TEST(FlowGovernor, PastThreeTimesTheLimitNobodyGoesOnButTheOldest) {
  FlowGovernor governor(80, kPatienceMs);
  governor.add(1, 0);
  governor.add(2, 1);
  EXPECT_EQ(governor.update(Held{235, 5}, 0).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{236, 5}, 0).pause, 2u);
  EXPECT_EQ(governor.update(Held{236, 5}, 0).pause, std::nullopt);
  EXPECT_EQ(governor.update(Held{206, 5}, 0).resume, std::nullopt) << "not before 7/8";
  EXPECT_EQ(governor.update(Held{205, 5}, 0).resume, 2u);
}

TEST(FlowGovernor, PastTwiceTheLimitAJobThatWasPausedForLongEnds) {
  FlowGovernor governor(80, kPatienceMs);
  for (const std::uint64_t order : {1u, 3u, 4u}) governor.add(order, 0);
  for (const std::uint64_t order : {2u, 5u}) governor.add(order, 1);
  EXPECT_EQ(governor.update(Held{80, 60}, 0).pause, 4u);
  EXPECT_EQ(governor.update(Held{80, 60}, 0).pause, 3u);
  EXPECT_EQ(governor.update(Held{80, 60}, 0).pause, 5u);
  EXPECT_EQ(governor.update(Held{80, 60}, 5 * kPatienceMs).end, std::nullopt) << "the oldest of each tenant goes on";
  const std::int64_t hard_ms = 5 * kPatienceMs + 1;
  EXPECT_EQ(governor.update(Held{90, 75}, hard_ms).pause, 2u);
  EXPECT_EQ(governor.update(Held{90, 75}, hard_ms + kPatienceMs - 1).end, std::nullopt);
  EXPECT_EQ(governor.update(Held{90, 75}, hard_ms + kPatienceMs).end, 4u) << "the newest of the tenant that holds most";
  EXPECT_EQ(governor.update(Held{90, 75}, hard_ms + 9 * kPatienceMs).end, std::nullopt) << "it has not ended yet";
  governor.remove(4);
  EXPECT_EQ(governor.update(Held{72, 90}, hard_ms + 9 * kPatienceMs).end, 5u);
  governor.remove(5);
  EXPECT_EQ(governor.update(Held{72, 80}, hard_ms + 9 * kPatienceMs).end, std::nullopt) << "there is room again";
}

// Liveness: whatever happens, after enough updates the oldest job runs, and short of twice the limit the oldest of each tenant.
TEST(FlowGovernor, SomethingAlwaysRuns) {
  EXPECT_TRUE(rc::check("something runs", [] {
    FlowGovernor governor(100, kPatienceMs);
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
        const auto change = governor.update(held, 0);
        if (change.pause) RC_ASSERT(paused.insert(*change.pause).second);
        if (change.resume) RC_ASSERT(paused.erase(*change.resume) == 1);
        if (!change.pause && !change.resume) break;
        RC_ASSERT(settle < 249);
      }
      RC_ASSERT(governor.paused_count() == paused.size());
      if (!all.empty()) RC_ASSERT(!paused.contains(*all.begin()));
      if (total <= 80) RC_ASSERT(paused.empty());
      for (const std::uint64_t order : all) {
        const bool goes_on = order != *all.begin() && !paused.contains(order);
        if (goes_on && total > 200) RC_ASSERT(held[order % 3] <= base::fair_share(held, 100));
      }
      for (const std::uint64_t order : paused) RC_ASSERT(total > 263 || held[order % 3] > base::fair_share(held, 88));
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
