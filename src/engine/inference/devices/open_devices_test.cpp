#include "engine/inference/devices/open_devices.h"

#include <gtest/gtest.h>

namespace llorch::engine::inference::devices {
namespace {

TEST(DeviceNames, AreTheCpuOrNumbersOfGpus) {
  for (const char* names : {"cpu", "cpu,cpu", "0", "cuda:0", "0,1", "cuda:0,1", "3,2,1,0"})
    EXPECT_EQ(check_names(names), "") << names;
  for (const char* names : {"", "cpu,", "cpu,0", "0,cpu", "0,0", "gpu", "0,,1"})
    EXPECT_NE(check_names(names), "") << names;
  EXPECT_EQ(check_names("0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"), "names 17 devices; at most 16 can share a model");
  EXPECT_TRUE(names_cpu("cpu,cpu"));
  EXPECT_FALSE(names_cpu("0,1"));
}

TEST(OpenDevices, OneCpuMeetsNobody) {
  const OpenDevices open = open_devices({.names = "cpu", .cpu_threads_count = 2}).value();
  EXPECT_EQ(open.backends.size(), 1U);
  EXPECT_EQ(open.of_engine().collective, nullptr);
  EXPECT_EQ(open.memory_used_bytes(), 0U);
}

TEST(OpenDevices, SeveralCpusMeet) {
  const OpenDevices open =
      open_devices({.names = "cpu,cpu,cpu", .cpu_threads_count = 2, .memory_budget_bytes = 1000}).value();
  ASSERT_EQ(open.backends.size(), 3U);
  EXPECT_EQ(open.of_engine().collective->ranks(), 3U);
  for (const auto& backend : open.backends) EXPECT_EQ(backend->memory_budget_bytes(), 1000U);
}

// Without the GPU it names there is no other.
TEST(OpenDevices, NoDeviceStandsInForAnother) {
  const auto open = open_devices({.names = "97,98"});
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().code, base::ErrorCode::kGpuUnavailable);
}

}  // namespace
}  // namespace llorch::engine::inference::devices
