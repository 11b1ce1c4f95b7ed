#include "base/fair_share.h"

#include <gtest/gtest.h>

#include <vector>

namespace llorch::base {
namespace {

using Held = std::vector<std::int64_t>;  // by tenant

TEST(FairShare, WhatSomeLeaveIsSharedByTheOthers) {
  EXPECT_GT(fair_share(Held{40, 40}, 80), 1'000'000) << "there is room for all";
  EXPECT_EQ(fair_share(Held{81}, 80), 80);
  EXPECT_EQ(fair_share(Held{0, 70, 20}, 80), 60);
  EXPECT_EQ(fair_share(Held{70, 50, 20}, 80), 30);
  EXPECT_EQ(fair_share(Held{70, 60, 50}, 80), 26);
}

}  // namespace
}  // namespace llorch::base
