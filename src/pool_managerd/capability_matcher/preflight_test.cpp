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
    model.weights_bytes = 500;
    model.kv_bytes = 100;
    model.working_bytes = 50;
  }
  base::Result<> run(gpu_inventory::DeviceUse use = {}, std::int64_t workers = 0) {
    return preflight(model, {&device, use, workers}, {.workers_per_gpu = 2});
  }
  static std::map<std::string, base::DetailValue> details(const base::Error& e) {
    return {e.details.begin(), e.details.end()};
  }
};

// SYS-6.2.3, POOL-2040: what fits exactly passes, one byte more is refused with the numbers.
TEST_F(Preflight, MemoryToTheByte) {
  model.weights_bytes = 750;  // 750 + 100 + 50 = 1000 - headroom
  EXPECT_TRUE(run());
  model.weights_bytes = 751;
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

// SYS-6.2.3, C-62: no conflicting worker on the device.
TEST_F(Preflight, WorkersPerGpu) {
  EXPECT_TRUE(run({}, 1));
  const auto refused = run({}, 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_EQ(std::get<std::int64_t>(details(refused.error()).at("workers_per_gpu")), 2);
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
