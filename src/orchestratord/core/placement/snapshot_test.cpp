#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"
#include "orchestratord/core/testing/replay.h"
#include "orchestratord/core/testing/world/world.h"

namespace llorch::orchestratord::core {
namespace {

// A decision follows from what the snapshot prints and nothing else: recorded as JSON, read back and decided again, every decision
// of a system with faults is the same one.
TEST(PlacementSnapshot, DecidesAgainAsItDid) {
  std::map<std::string, int> outcomes;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    const auto record = [&](const wire::PlacementSnapshot& now) {
      const auto read = wire::decode<wire::PlacementSnapshot>(wire::encode(now), wire::UnknownKeys::kRefuse);
      ASSERT_TRUE(read) << read.error().message;
      ASSERT_EQ(read->jobs.size(), 1u);
      const wire::PlacementSnapshotJob& job = read->jobs.front();
      ASSERT_TRUE(Replay(*read, job).decide() == job.decision) << "seed " << seed << ": " << wire::encode(now);
      ++outcomes[job.decision.outcome];
    };
    World world({.seed = seed, .record = record});
    world.chaos(150);
    world.heal();
    ASSERT_EQ(world.violation(), "");
    if (HasFatalFailure()) return;
  }
  for (const char* outcome : {"use_worker", "start_worker", "evict", "reserve", "wait", "infeasible"}) {
    EXPECT_GT(outcomes[outcome], 0) << outcome;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
