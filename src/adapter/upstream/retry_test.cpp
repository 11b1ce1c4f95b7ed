#include "adapter/upstream/retry.h"

#include <gmock/gmock.h>
#include <rapidcheck/gtest.h>

namespace llorch::adapter::upstream {
namespace {

// OC-ADAPT-OAI-6002#jitter: retries are few, and their waits are jittered in full and capped
TEST(Retry, WaitsAreRandomUpToTheDoubledBaseAndCapped) {
  base::SystemEntropy entropy;
  const RetryPolicy policy;
  for (int round = 0; round < 200; ++round) {
    for (int attempt = 1; attempt < policy.attempts_max; ++attempt) {
      const auto delay = retry_delay_ms(policy, attempt, {}, entropy);
      ASSERT_TRUE(delay);
      EXPECT_GE(*delay, 0);
      EXPECT_LE(*delay, policy.base_ms << (attempt - 1));
    }
    EXPECT_LE(*retry_delay_ms({.attempts_max = 100}, 60, {}, entropy), policy.cap_ms);
  }
  EXPECT_EQ(retry_delay_ms(policy, policy.attempts_max, {}, entropy), std::nullopt);
}

TEST(Retry, WaitsAsLongAsTheEngineAsksUpToTheCap) {
  base::SystemEntropy entropy;
  EXPECT_GE(*retry_delay_ms({}, 1, 1'500, entropy), 1'500);
  EXPECT_EQ(*retry_delay_ms({}, 1, 3'600'000, entropy), RetryPolicy{}.cap_ms);
}

TEST(Breaker, OpensAfterFailuresInARowAndLetsOneTry) {
  Breaker breaker({.failures_max = 3, .open_ms = 100, .open_ms_max = 250});
  std::int64_t now = 1'000;
  breaker.failed(now);
  breaker.failed(now);
  EXPECT_EQ(breaker.wait_ms(now), 0);
  breaker.succeeded();
  for (int i = 0; i < 3; ++i) breaker.failed(now);
  EXPECT_TRUE(breaker.is_open());
  EXPECT_EQ(breaker.wait_ms(now), 100);
  now += 100;
  EXPECT_EQ(breaker.wait_ms(now), 0);  // the one that tries
  EXPECT_GT(breaker.wait_ms(now), 0);  // others wait for what comes of it
  breaker.failed(now);
  EXPECT_EQ(breaker.wait_ms(now), 200);
  now += 200;
  EXPECT_EQ(breaker.wait_ms(now), 0);
  breaker.failed(now);
  EXPECT_EQ(breaker.wait_ms(now), 250);
  breaker.succeeded();
  EXPECT_FALSE(breaker.is_open());
  EXPECT_EQ(breaker.wait_ms(now), 0);
}

}  // namespace
}  // namespace llorch::adapter::upstream
