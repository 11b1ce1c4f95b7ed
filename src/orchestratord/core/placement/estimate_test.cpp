#include "orchestratord/core/placement/estimate.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::core::placement {
namespace {

TEST(Estimate, AverageFollowsNewValues) {
  Average a;
  EXPECT_FALSE(a.get());
  a.add(800);
  EXPECT_EQ(a.get(), 800);
  a.add(0);
  EXPECT_EQ(a.get(), 700);
  for (int i = 0; i < 40; ++i) a.add(100);
  EXPECT_NEAR(static_cast<double>(*a.get()), 100, 3);
}

// OC-CTRL-2021, HME-020: the stated formula.
TEST(Estimate, FormulaWithAndWithoutAReadyWorker) {
  EXPECT_EQ(predicted_start_ms({.ahead = 0, .slots_free = 1, .slots_total = 1}), 0);
  EXPECT_EQ(predicted_start_ms({.ahead = 1, .slots_free = 1, .slots_total = 1}), std::nullopt);
  EXPECT_EQ(predicted_start_ms({.ahead = 0, .slots_free = 0, .slots_total = 1, .run_ms = 500}), 500);
  EXPECT_EQ(predicted_start_ms({.ahead = 3, .slots_free = 0, .slots_total = 2, .run_ms = 500}), 1000);
  EXPECT_EQ(predicted_start_ms({.ahead = 3, .slots_free = 2, .slots_total = 2, .run_ms = 500}), 500);
  EXPECT_EQ(predicted_start_ms({.ahead = 0, .run_ms = 500}), std::nullopt);
  EXPECT_EQ(predicted_start_ms({.ahead = 0, .start_ms = 3000}), 3000);
  EXPECT_EQ(predicted_start_ms({.ahead = 2, .run_ms = 500, .start_ms = 3000}), 4000);
  EXPECT_EQ(predicted_start_ms({.ahead = 0, .start_ms = -20}), 0);
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
