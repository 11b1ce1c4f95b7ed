#include "engine/compute/cuda/architectures.h"

#include <gtest/gtest.h>

#include "engine/compute/cuda/backend.h"

namespace llorch::engine::compute::cuda {
namespace {

// CUDA C++ Programming Guide: code runs on its own major version from its minor version on; code with a letter on its own
// chip alone.
TEST(CudaArchitectures, CodeRunsWhereItCan) {
  EXPECT_TRUE(runs_on("sm_80", "8.0"));
  EXPECT_TRUE(runs_on("sm_80", "8.9"));
  EXPECT_FALSE(runs_on("sm_89", "8.6"));
  EXPECT_FALSE(runs_on("sm_80", "9.0"));
  EXPECT_TRUE(runs_on("sm_90a", "9.0"));
  EXPECT_FALSE(runs_on("sm_100a", "10.3"));
  EXPECT_TRUE(runs_on("sm_100", "10.3"));
  EXPECT_TRUE(runs_on("sm_80, sm_90a, sm_120", "12.1"));
  for (const char* odd : {"", "9", "9.", ".0", "9.0a", "x.y", "99999999999.0"})
    EXPECT_FALSE(runs_on("sm_90a, sm_90", odd)) << odd;
  for (const char* odd : {"", "90", "sm_", ",", "sm_x", "sm_90b0, "}) EXPECT_FALSE(runs_on(odd, "9.1")) << odd;
}

// M0-W-1700#without: a build without kernels is one, and says what to build for a GPU.
TEST(CudaArchitectures, WhatIsMissingIsSaid) {
  if (built_architectures().empty()) {
    EXPECT_NE(missing_kernels("9.0").find("LLORCH_CUDA"), std::string::npos);
    return;
  }
  const std::string missing = missing_kernels("1.0");
  EXPECT_NE(missing.find("compute capability 1.0"), std::string::npos) << missing;
  EXPECT_NE(missing.find(built_architectures()), std::string::npos) << missing;
}

TEST(CudaPlanner, HasNothingToGive) {
  const auto planner = make_cuda_planner();
  const auto refused = planner->allocate(64, plan::MemoryPurpose::kState);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kOutOfDeviceMemory);
}

}  // namespace
}  // namespace llorch::engine::compute::cuda
