// Models that wait for a device are staged: which, where, and which go for them.
#include <gtest/gtest.h>

#include "orchestratord/core/placement/staging_shelf.h"
#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using placement::StagingShelf;

// POOL-2031: the model that nobody has wanted for longest goes first, never more than it takes, never past the bound.
TEST(StagingShelf, TheOldestGoesFirst) {
  StagingShelf shelf;
  std::int64_t now = 0;
  const auto want = [&](const std::string& ref, std::int64_t bytes) {
    return shelf.want({.model_ref = ref, .bytes = bytes, .bytes_max = 100, .now_ms = ++now}, {});
  };
  EXPECT_TRUE(want("a", 40).stage);
  EXPECT_TRUE(want("b", 40).stage);
  EXPECT_FALSE(want("a", 40).stage) << "it is there";
  auto desired = want("c", 50);
  EXPECT_TRUE(desired.stage);
  EXPECT_EQ(desired.unstage, std::vector<std::string>{"b"});
  desired = want("d", 90);
  EXPECT_EQ(desired.unstage, (std::vector<std::string>{"a", "c"}));
  EXPECT_FALSE(want("too large", 101).stage);
  EXPECT_FALSE(want("nothing", 0).stage);
  EXPECT_FALSE(want("d", 90).stage) << "what is too large drives nobody out";
}

// An order that was lost is given again; what an earlier process ordered counts.
TEST(StagingShelf, ReportsSettleWhatIsThere) {
  StagingShelf shelf;
  const StagingShelf::Wish wish{.model_ref = "a", .bytes = 60, .bytes_max = 100, .now_ms = 1000};
  EXPECT_EQ(shelf.want(wish, {{.model_ref = "old", .bytes = 1, .bytes_total = 50}}).unstage,
            std::vector<std::string>{"old"});
  auto later = wish;
  later.now_ms += 30'000;
  EXPECT_FALSE(shelf.want(later, {}).stage);
  later.now_ms += 60'000;
  EXPECT_TRUE(shelf.want(later, {}).stage);
  later.now_ms += 90'000;
  EXPECT_FALSE(shelf.want(later, {{.model_ref = "a", .bytes = 60, .bytes_total = 60}}).stage);
}

// While one model runs on the only device, the one that waits for it is staged there, once.
TEST(Staging, AModelThatWaitsForADeviceIsStaged) {
  Driver d;
  auto state = d.pool_state("pool-1", 1, 6 * kGb);
  state.staging_bytes_max = 100;
  state.workers = {Driver::worker("w1")};
  state.gpus[0].vram_allocated_bytes = 4 * kGb;
  state.gpus[0].vram_available_bytes = 2 * kGb;
  d.see(state);
  d.run("a1");
  EXPECT_TRUE(d.none<StageModel>());
  auto spec = Driver::spec("b1", {.model = "b"});
  spec.model.size_bytes = 60;
  d.send(Submit{{++d.requests}, spec});
  const auto order = d.only<StageModel>();
  EXPECT_EQ(order.pool_id.value, "pool-1");
  EXPECT_EQ(order.endpoint, "http://pool-1");
  EXPECT_EQ(order.model_ref, "file:/b.gguf");
  EXPECT_TRUE(order.stage);
  d.after_ms(1000);
  d.see(state);
  EXPECT_TRUE(d.none<StageModel>());
  // Another one that waits takes its place, for it was wanted later.
  state.boot_id = "boot-2";
  state.sequence = 0;
  state.uptime_seconds = 0;
  state.staged_models = {};
  d.see(state);
  EXPECT_TRUE(d.only<StageModel>().stage) << "another boot holds nothing";
}

TEST(Staging, IsOffWhereTheConfigurationSaysSo) {
  CoreConfig config;
  config.stage_models = false;
  Driver d(config);
  auto state = d.pool_state("pool-1", 1, 6 * kGb);
  state.staging_bytes_max = 100;
  state.workers = {Driver::worker("w1")};
  state.gpus[0].vram_allocated_bytes = 4 * kGb;
  state.gpus[0].vram_available_bytes = 2 * kGb;
  d.see(state);
  d.run("a1");
  auto spec = Driver::spec("b1", {.model = "b"});
  spec.model.size_bytes = 60;
  d.send(Submit{{++d.requests}, spec});
  EXPECT_TRUE(d.none<StageModel>());
}

}  // namespace
}  // namespace llorch::orchestratord::core
