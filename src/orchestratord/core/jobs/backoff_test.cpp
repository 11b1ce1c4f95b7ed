#include "orchestratord/core/jobs/backoff.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace llorch::orchestratord::core::jobs {
namespace {

// SYS-6.1.6, SYS-8.3.3: 1, 2, 4, ... s, capped.
TEST(Backoff, DoublesAndIsCapped) {
  config::RetryConfig config;
  config.jitter = false;
  base::SeededEntropy entropy(1);
  std::vector<std::int64_t> delays;
  for (std::int64_t n = 1; n <= 9; ++n) delays.push_back(backoff_ms(config, n, entropy));
  EXPECT_EQ(delays, (std::vector<std::int64_t>{1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000}));
  EXPECT_EQ(backoff_ms(config, 1'000'000, entropy), 60000);
}

// SYS-6.1.6: jitter stays within the upper half and differs between draws; the same entropy gives the same delay.
TEST(Backoff, JitterIsBoundedAndRepeatable) {
  const config::RetryConfig config;
  base::SeededEntropy entropy(7), again(7);
  std::set<std::int64_t> seen;
  for (int i = 0; i < 200; ++i) {
    const std::int64_t delay = backoff_ms(config, 3, entropy);
    EXPECT_GE(delay, 2000);
    EXPECT_LE(delay, 4000);
    EXPECT_EQ(delay, backoff_ms(config, 3, again));
    seen.insert(delay);
  }
  EXPECT_GT(seen.size(), 50u);
}

// SYS-7.3.1: only transient errors are retried.
TEST(Backoff, OnlyTroubleOfTheWorkerIsTransient) {
  std::vector<std::string_view> transient;
  for (const base::ErrorInfo& row : base::kErrorTable) {
    if (is_transient(row.code)) transient.push_back(row.name);
  }
  EXPECT_EQ(transient,
            (std::vector<std::string_view>{"WORKER_NOT_FOUND", "WORKER_UNAVAILABLE", "GPU_UNAVAILABLE", "SHUTTING_DOWN",
                                           "WORKER_RESET", "WORKER_TIMEOUT", "WORKER_BUSY", "UNREACHABLE"}));
}

TEST(Backoff, BrokenFilesAreNotStartedTwice) {
  EXPECT_TRUE(is_permanent_start_failure(base::ErrorCode::kCorruptFile));
  EXPECT_TRUE(is_permanent_start_failure(base::ErrorCode::kMissingWeight));
  EXPECT_TRUE(is_permanent_start_failure(base::ErrorCode::kModelNotFound));
  EXPECT_FALSE(is_permanent_start_failure(base::ErrorCode::kWorkerStartFailed));
  EXPECT_FALSE(is_permanent_start_failure(base::ErrorCode::kInsufficientVram));
  EXPECT_FALSE(is_permanent_start_failure(base::ErrorCode::kOutOfDeviceMemory));
}

}  // namespace
}  // namespace llorch::orchestratord::core::jobs
