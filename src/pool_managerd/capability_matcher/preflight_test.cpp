#include "pool_managerd/capability_matcher/preflight.h"

#include <gtest/gtest.h>

#include <map>

namespace llorch::pool_managerd::capability_matcher {
namespace {

using base::ErrorCode;

struct Preflight : testing::Test {
  gpu_inventory::Device device;
  model_catalog::ModelPlan model;
  Preflight() {
    device.gpu_id = "0";
    device.total_bytes = 1000;
    device.free_bytes = 950;
    device.headroom_bytes = 100;
    model.memory = {{.weights_bytes = 500, .kv_bytes = 100, .working_bytes = 50}};
  }
  using Grants = std::vector<std::int64_t>;
  base::Result<Grants> run(gpu_inventory::DeviceUse use = {}, std::int64_t workers = 0) {
    return on({{&device, use, workers}});
  }
  base::Result<Grants> on(const std::vector<Candidate>& by_rank) {
    return preflight(model, by_rank, {.workers_per_gpu = 2});
  }
  static std::map<std::string, base::DetailValue> details(const base::Error& e) {
    return {e.details.begin(), e.details.end()};
  }
};

// SYS-6.2.3, POOL-2040: what fits exactly passes, one byte more is refused with the numbers.
TEST_F(Preflight, MemoryToTheByte) {
  model.memory[0].weights_bytes = 750;  // 750 + 100 + 50 = 1000 - headroom
  EXPECT_TRUE(run());
  model.memory[0].weights_bytes = 751;
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientVram);
  const auto d = details(refused.error());
  EXPECT_EQ(std::get<std::int64_t>(d.at("required_bytes")), 901);
  EXPECT_EQ(std::get<std::int64_t>(d.at("available_bytes")), 900);
  EXPECT_EQ(std::get<std::string>(d.at("gpu_id")), "0");
}

TEST_F(Preflight, CountsWhatOthersHold) {
  EXPECT_TRUE(run({.allocated_bytes = 250, .starting_bytes = 0}));
  EXPECT_EQ(run({.allocated_bytes = 251, .starting_bytes = 0}).error().code, ErrorCode::kInsufficientVram);
  device.free_bytes = 649;  // another program took it
  EXPECT_EQ(run().error().code, ErrorCode::kInsufficientVram);
}

// SYS-6.2.3: no conflicting worker on the device; limits.workers_per_gpu says how many it takes.
TEST_F(Preflight, WorkersPerGpu) {
  EXPECT_TRUE(run({}, 1));
  const auto refused = run({}, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_EQ(std::get<std::int64_t>(details(refused.error()).at("workers_per_gpu")), 2);
}

// SYS-3.3.1: every device of a mask must have room for its own part, and the refusal has the numbers of all of them.
TEST_F(Preflight, EveryDeviceOfAMask) {
  gpu_inventory::Device other = device;
  other.gpu_id = "1";
  other.free_bytes = 500;
  model.memory = {{.weights_bytes = 600, .kv_bytes = 100, .working_bytes = 50},
                  {.weights_bytes = 400, .kv_bytes = 100, .working_bytes = 0}};
  const Candidate first{&device, {}, 0}, second{&other, {}, 0};
  EXPECT_TRUE(on({first, second}));
  // The second device holds what the other way round it would have to: 750 bytes.
  const auto refused = on({second, first});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInsufficientVram);
  const auto d = details(refused.error());
  EXPECT_EQ(std::get<std::int64_t>(d.at("required_bytes")), 750);
  EXPECT_EQ(std::get<std::int64_t>(d.at("available_bytes")), 500);
  EXPECT_EQ(std::get<std::string>(d.at("gpu_id")), "1");
  const std::string& message = refused.error().message;
  EXPECT_NE(message.find("of device 1, which has 500 available after 100 of headroom: too little"), std::string::npos)
      << message;
  EXPECT_NE(message.find("500 bytes (weights 400, kv 100"), std::string::npos) << message;
  EXPECT_NE(message.find("of device 0, which has 900 available after 100 of headroom;"), std::string::npos) << message;
  // Neither may be in error nor have its number of workers.
  EXPECT_EQ(on({first, {&other, {}, 2}}).error().code, ErrorCode::kConflict);
  other.healthy = false;
  EXPECT_EQ(on({first, second}).error().code, ErrorCode::kGpuUnavailable);
}

// What the shares of one device take of it is added up.
TEST_F(Preflight, SharesOfOneDevice) {
  model.memory = {{.weights_bytes = 450}, {.weights_bytes = 450}};
  EXPECT_TRUE(on({{&device, {}, 0}, {&device, {}, 0}}));
  model.memory[1].kv_bytes = 1;
  const auto refused = on({{&device, {}, 0}, {&device, {}, 0}});
  ASSERT_FALSE(refused);
  EXPECT_EQ(std::get<std::int64_t>(details(refused.error()).at("required_bytes")), 901);
}

// Staging comes before the cache and the working memory, so it counts only where it is more than these; as little as a load makes
// do with refuses, and what it would like is given where it is free.
TEST_F(Preflight, StagingIsGivenWhereThereIsRoom) {
  model.memory = {
      {.weights_bytes = 500, .kv_bytes = 100, .working_bytes = 50, .staging_bytes = 20, .staging_wanted_bytes = 300}};
  EXPECT_EQ(run().value(), Grants{800});
  EXPECT_EQ(run({.allocated_bytes = 200, .starting_bytes = 0}).value(), Grants{700});
  EXPECT_EQ(run({.allocated_bytes = 250, .starting_bytes = 0}).value(), Grants{650});
  EXPECT_FALSE(run({.allocated_bytes = 251, .starting_bytes = 0}));
  model.memory[0].staging_bytes = 160;
  model.memory[0].widened_bytes = 7;
  EXPECT_EQ(run({.allocated_bytes = 240, .starting_bytes = 0}).value(), Grants{660});
  const auto refused = run({.allocated_bytes = 241, .starting_bytes = 0});
  ASSERT_FALSE(refused);
  EXPECT_EQ(std::get<std::int64_t>(details(refused.error()).at("staging_bytes")), 160);
  EXPECT_NE(
      refused.error().message.find("needs 660 bytes (weights 500, 7 of them FP8 kept as BF16, kv 100 for 1 slot(s) "
                                   "of 0 tokens, working memory 50; while they are loaded weights and 160 of "
                                   "staging) of device 0, which has 659 available"),
      std::string::npos)
      << refused.error().message;
}

// Each rank has a budget of its own, and ranks of one device share what is left, the first one first.
TEST_F(Preflight, EveryRankHasABudgetOfItsOwn) {
  gpu_inventory::Device other = device;
  other.gpu_id = "1";
  other.free_bytes = 320;
  model.memory = {{.weights_bytes = 600, .staging_bytes = 1, .staging_wanted_bytes = 50},
                  {.weights_bytes = 300, .staging_bytes = 1, .staging_wanted_bytes = 50}};
  EXPECT_EQ(on({{&device, {}, 0}, {&other, {}, 0}}).value(), (Grants{650, 320}));
  EXPECT_FALSE(on({{&other, {}, 0}, {&device, {}, 0}}));
  model.memory[1].weights_bytes = 220;
  EXPECT_EQ(on({{&device, {}, 0}, {&device, {}, 0}}).value(), (Grants{650, 250}));
}

// POOL-2051: a device in error takes no worker.
TEST_F(Preflight, UnhealthyDevice) {
  device.healthy = false;
  device.fault = "GPU is lost";
  const auto refused = run();
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kGpuUnavailable);
  EXPECT_NE(refused.error().message.find("GPU is lost"), std::string::npos);
}

}  // namespace
}  // namespace llorch::pool_managerd::capability_matcher
