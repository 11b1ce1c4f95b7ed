#include "orchestratord/core/placement/start_control.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::core::placement {
namespace {

using Verdict = StartRound::Verdict;

struct StartControlTest : testing::Test {
  config::RetryConfig retry{.jitter = false};
  base::SeededEntropy entropy{1};
  base::PoolId pool{"pool-1"};
  StartControl control;
  StartRound round;

  Verdict fail_at(std::int64_t now_ms, base::ErrorCode code = base::ErrorCode::kWorkerStartFailed) {
    const base::Error error{code, "no", {}};
    control.failed(error, retry, now_ms, entropy);
    return round.failed(pool, "0", error, false);
  }
};

// ORCH-1042: one retry, then the waiting jobs fail; the backoff grows over rounds (ORCH-3053#storms, OC-POOL-3010#backoff, OC-POOL-3011).
TEST_F(StartControlTest, RetriesOnceAndBacksOffMoreEachTime) {
  EXPECT_EQ(fail_at(0), Verdict::kRetry);
  EXPECT_TRUE(round.failed_on(pool, "0"));
  EXPECT_EQ(control.not_before_ms(), 1000);
  EXPECT_EQ(fail_at(1000), Verdict::kGiveUp);
  EXPECT_FALSE(round.failed_on(pool, "0"));
  EXPECT_EQ(control.not_before_ms(), 3000);
  EXPECT_TRUE(control.backing_off(2999));
  EXPECT_FALSE(control.backing_off(3000));
  EXPECT_EQ(fail_at(3000), Verdict::kRetry);
  EXPECT_EQ(control.not_before_ms(), 7000);
}

// It counts for no verdict, and says nothing of the build that may come back there.
TEST_F(StartControlTest, APlaceThatIsPutLastComesLastAndHasNotFailed) {
  round.put_last(pool, "0");
  EXPECT_TRUE(round.comes_last(pool, "0"));
  EXPECT_FALSE(round.comes_last(pool, "1"));
  EXPECT_FALSE(round.failed_on(pool, "0"));
  EXPECT_FALSE(round.has_failures());
  EXPECT_EQ(fail_at(0), Verdict::kRetry);
  EXPECT_EQ(fail_at(1000), Verdict::kGiveUp);
  EXPECT_FALSE(round.comes_last(pool, "0"));
}

TEST_F(StartControlTest, AReadyWorkerForgetsTheFailures) {
  fail_at(0);
  control.ready();
  round = {};
  EXPECT_FALSE(control.backing_off(0));
  EXPECT_EQ(fail_at(10), Verdict::kRetry);
  EXPECT_EQ(control.not_before_ms(), 1010);
}

// Jobs that may only run elsewhere are not judged by these failures, but wait out the same backoff.
TEST_F(StartControlTest, RoundsAreSeparateAndTheBackoffIsNot) {
  StartRound other;
  EXPECT_EQ(fail_at(0), Verdict::kRetry);
  const base::Error error{base::ErrorCode::kWorkerStartFailed, "no", {}};
  control.failed(error, retry, 1000, entropy);
  EXPECT_EQ(other.failed(pool, "1", error, false), Verdict::kRetry);
  EXPECT_EQ(control.not_before_ms(), 3000);
  EXPECT_FALSE(other.failed_on(pool, "0"));
  EXPECT_EQ(fail_at(3000), Verdict::kGiveUp);
  EXPECT_FALSE(round.has_failures());
  EXPECT_TRUE(other.has_failures());
}

TEST_F(StartControlTest, ABrokenFileIsNotTriedAgain) {
  EXPECT_EQ(fail_at(0, base::ErrorCode::kCorruptFile), Verdict::kGiveUp);
  EXPECT_EQ(control.last_error()->code, base::ErrorCode::kCorruptFile);
}

// A broken copy is one pool's. Each pool is asked once a round, and without a delay once between two backoffs.
TEST_F(StartControlTest, ABrokenFileIsTriedInEachPoolOnce) {
  const base::Error error{base::ErrorCode::kCorruptFile, "no", {}};
  const base::PoolId other("pool-2");
  const auto rule_out = [&](std::int64_t now_ms) {
    EXPECT_EQ(round.failed(pool, "0", error, true), Verdict::kRetry);
    control.ruled_out(pool, error, retry, now_ms, entropy);
  };
  rule_out(0);
  EXPECT_TRUE(round.is_ruled_out(pool));
  EXPECT_FALSE(control.backing_off(0));
  EXPECT_EQ(control.last_error()->code, base::ErrorCode::kCorruptFile);
  const base::Error trouble{base::ErrorCode::kWorkerStartFailed, "no", {}};
  EXPECT_EQ(round.failed(other, "0", trouble, false), Verdict::kRetry) << "it has one retry of its own";
  EXPECT_EQ(round.failed(other, "0", trouble, false), Verdict::kGiveUp);
  EXPECT_FALSE(round.is_ruled_out(pool));
  rule_out(0);
  EXPECT_TRUE(control.backing_off(0)) << "jobs that are taken back ask the same pool again";
  EXPECT_EQ(round.failed(pool, "0", error, true), Verdict::kRetry) << "what a reload starts there ends nobody's round";
  EXPECT_EQ(round.failed(pool, "0", error, false), Verdict::kGiveUp);
}

TEST_F(StartControlTest, APostponedStartCountsNoFailure) {
  control.postpone(500);
  EXPECT_TRUE(control.backing_off(499));
  EXPECT_EQ(fail_at(500), Verdict::kRetry);
}

// Of each pool by itself: a worker that became ready elsewhere says nothing of its disk.
TEST_F(StartControlTest, APoolIsPutOffForItsTime) {
  const base::PoolId other("pool-2");
  control.put_off(pool, 0, 1000);
  control.put_off(other, 500, 1500);
  control.ready();
  EXPECT_TRUE(control.is_put_off(pool, 999));
  EXPECT_FALSE(control.is_put_off(pool, 1000));
  EXPECT_TRUE(control.is_put_off(other, 1499));
  EXPECT_TRUE(control.puts_off_any(1499));
  EXPECT_FALSE(control.puts_off_any(1500));
  EXPECT_FALSE(control.backing_off(0)) << "it holds up no start elsewhere";
  EXPECT_EQ(fail_at(0), Verdict::kRetry);
}

// OC-POOL-3011: one crash costs nothing, the next ones back off, and after the limit the next start waits until
// the oldest crash has left the window. A worker that became ready in between does not clear the count.
TEST_F(StartControlTest, CrashesInARowOpenABreaker) {
  const StartControl::CrashLimits limits{.crashes_max = 3, .window_ms = 100'000};
  const base::Error error{base::ErrorCode::kWorkerReset, "crashed", {}};
  const auto crash_at = [&](std::int64_t now_ms) {
    control.ready();
    control.crashed(error, limits, retry, now_ms, entropy);
    return control.backing_off(now_ms) ? control.not_before_ms() - now_ms : 0;
  };
  EXPECT_EQ(crash_at(1'000), 0);
  EXPECT_EQ(crash_at(2'000), 1'000);
  EXPECT_EQ(crash_at(4'000), 2'000);
  EXPECT_EQ(crash_at(10'000), 91'000) << "until the first one is 100 s old";
  EXPECT_EQ(control.crashes_count(), 4);
  EXPECT_EQ(crash_at(150'000), 0) << "all are out of the window";
  EXPECT_EQ(control.last_error(), std::nullopt);
}

TEST_F(StartControlTest, CrashesAreNotCountedWithoutALimit) {
  const base::Error error{base::ErrorCode::kWorkerReset, "crashed", {}};
  for (int i = 0; i < 10; ++i) control.crashed(error, {.crashes_max = 0}, retry, i, entropy);
  EXPECT_FALSE(control.backing_off(10));
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
