#include "base/settled_clock.h"

#include <gtest/gtest.h>

#include <limits>

namespace llorch::base {
namespace {

constexpr std::int64_t kHourMs = 3'600'000;
constexpr std::int64_t kYearMs = 365 * 24 * kHourMs;

class SettledClockTest : public ::testing::Test {
 protected:
  void jump_ms(std::int64_t ms) { clock_.set({clock_.now().mono_ms, clock_.now().unix_ms + ms}); }
  // As daemons use it: a look each minute.
  void pass_ms(SettledClock& settled, std::int64_t ms) {
    settled.unix_ms();
    for (std::int64_t passed = 0; passed < ms; passed += 60'000) {
      clock_.advance_ms(60'000);
      settled.unix_ms();
    }
  }
  std::int64_t wall_ms() const { return clock_.now().unix_ms; }

  ManualClock clock_;
};

TEST_F(SettledClockTest, IsTheWallClockWhereNothingJumps) {
  SettledClock settled(clock_, std::nullopt);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
  clock_.advance_ms(48 * kHourMs);  // nobody looked meanwhile
  EXPECT_EQ(settled.unix_ms(), wall_ms());
  jump_ms(1'000);  // a step of a time server
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, AJumpForwardCountsOnceItHasStood) {
  SettledClock settled(clock_, std::nullopt);
  const std::int64_t before = wall_ms();
  jump_ms(kYearMs);
  EXPECT_EQ(settled.unix_ms(), before);
  pass_ms(settled, kHourMs - 60'000);
  EXPECT_EQ(settled.unix_ms(), before + kHourMs - 60'000) << "it goes on meanwhile";
  pass_ms(settled, 60'000);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, AJumpThatIsTakenBackNeverWas) {
  SettledClock settled(clock_, std::nullopt);
  jump_ms(kYearMs);
  pass_ms(settled, kHourMs / 2);
  jump_ms(-kYearMs);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
  pass_ms(settled, kHourMs / 2);
  jump_ms(kYearMs);
  pass_ms(settled, kHourMs / 2);
  EXPECT_EQ(settled.unix_ms(), wall_ms() - kYearMs) << "the hour begins anew";
}

TEST_F(SettledClockTest, EachJumpBeginsTheHourAnew) {
  SettledClock settled(clock_, std::nullopt);
  jump_ms(kYearMs);
  pass_ms(settled, kHourMs / 2);
  jump_ms(kYearMs);
  pass_ms(settled, kHourMs / 2);
  EXPECT_EQ(settled.unix_ms(), wall_ms() - 2 * kYearMs);
  pass_ms(settled, kHourMs / 2);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, IsNeverAheadOfTheWallClock) {
  SettledClock settled(clock_, std::nullopt);
  jump_ms(-kYearMs);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
  clock_.advance_ms(1'000);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, BeginsWhereAnEarlierProcessStopped) {
  const std::int64_t newest = wall_ms();
  jump_ms(kYearMs);
  SettledClock settled(clock_, newest);
  EXPECT_EQ(settled.unix_ms(), newest);
  clock_.advance_ms(5'000);
  EXPECT_EQ(settled.unix_ms(), newest + 5'000);
  pass_ms(settled, kHourMs);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, DoesNotBelieveAnEarlierProcessThatWasAhead) {
  SettledClock settled(clock_, wall_ms() + kYearMs);
  EXPECT_EQ(settled.unix_ms(), wall_ms());
}

TEST_F(SettledClockTest, BearsAnyNumberThatAFileGives) {
  SettledClock settled(clock_, std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(settled.unix_ms(), 0);
  EXPECT_EQ(SettledClock(clock_, std::numeric_limits<std::int64_t>::max()).unix_ms(), wall_ms());
}

}  // namespace
}  // namespace llorch::base
