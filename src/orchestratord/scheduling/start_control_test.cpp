#include "orchestratord/scheduling/start_control.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::scheduling {
namespace {

using Verdict = StartControl::Verdict;

struct StartControlTest : testing::Test {
  contract::RetryConfig retry{.jitter = false};
  base::SeededEntropy entropy{1};
  base::PoolId pool{"pool-1"};
  StartControl control;

  Verdict fail_at(std::int64_t now_ms, base::ErrorCode code = base::ErrorCode::kWorkerStartFailed) {
    return control.failed(pool, "0", base::Error{code, "no", {}}, retry, now_ms, entropy);
  }
};

// ORCH-1042: one retry, then the waiting jobs fail; the backoff grows over rounds (ORCH-3053, OC-POOL-3010).
TEST_F(StartControlTest, RetriesOnceAndBacksOffMoreEachTime) {
  EXPECT_EQ(fail_at(0), Verdict::kRetry);
  EXPECT_TRUE(control.failed_on(pool, "0"));
  EXPECT_EQ(control.not_before_ms(), 1000);
  EXPECT_EQ(fail_at(1000), Verdict::kGiveUp);
  EXPECT_FALSE(control.failed_on(pool, "0"));
  EXPECT_EQ(control.not_before_ms(), 3000);
  EXPECT_TRUE(control.backing_off(2999));
  EXPECT_FALSE(control.backing_off(3000));
  EXPECT_EQ(fail_at(3000), Verdict::kRetry);
  EXPECT_EQ(control.not_before_ms(), 7000);
}

TEST_F(StartControlTest, AReadyWorkerForgetsTheFailures) {
  fail_at(0);
  control.ready();
  EXPECT_FALSE(control.backing_off(0));
  EXPECT_EQ(fail_at(10), Verdict::kRetry);
  EXPECT_EQ(control.not_before_ms(), 1010);
}

TEST_F(StartControlTest, ABrokenFileIsNotTriedAgain) {
  EXPECT_EQ(fail_at(0, base::ErrorCode::kCorruptFile), Verdict::kGiveUp);
  EXPECT_EQ(control.last_error()->code, base::ErrorCode::kCorruptFile);
}

TEST_F(StartControlTest, APostponedStartCountsNoFailure) {
  control.postpone(500);
  EXPECT_TRUE(control.backing_off(499));
  EXPECT_EQ(fail_at(500), Verdict::kRetry);
}

}  // namespace
}  // namespace llorch::orchestratord::scheduling
