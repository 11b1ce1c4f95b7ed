#include "cli/context.h"

#include <gtest/gtest.h>

namespace llorch::cli {
namespace {

using base::ErrorCode;

TEST(ExitCode, FollowsTheKindOfError) {
  const std::pair<ErrorCode, int> cases[] = {
      {ErrorCode::kConfigInvalid, 2},    {ErrorCode::kInvalidParams, 2},
      {ErrorCode::kUnreachable, 3},      {ErrorCode::kNoGpu, 4},
      {ErrorCode::kInsufficientVram, 4}, {ErrorCode::kForbidden, 4},
      {ErrorCode::kGpuUnavailable, 4},   {ErrorCode::kOutOfDeviceMemory, 4},
      {ErrorCode::kBadToken, 4},         {ErrorCode::kNonLoopbackWithoutToken, 4},
      {ErrorCode::kCancelled, 130},      {ErrorCode::kInternal, 1},
      {ErrorCode::kAlreadyRunning, 1},   {ErrorCode::kModelNotFound, 1}};
  for (const auto& [code, exit] : cases) EXPECT_EQ(exit_code_of({code, "", {}}), exit) << base::info(code).name;
}

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::int64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(human_bytes(std::int64_t{5} << 50), "5120.0 TiB");
}

TEST(LoadConfig, SetTakesPairs) {
  EXPECT_EQ(load_config({.config_file = "/dev/null", .set = {"log.level"}}).error().code, ErrorCode::kConfigInvalid);
  EXPECT_EQ(load_config({.config_file = "/dev/null", .set = {"log.level=debug"}}).value().log.level, "debug");
}

}  // namespace
}  // namespace llorch::cli
