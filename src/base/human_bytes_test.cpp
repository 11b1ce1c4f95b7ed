#include "base/human_bytes.h"

#include <gtest/gtest.h>

namespace llorch::base {
namespace {

TEST(HumanBytes, PicksTheUnit) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1536), "1.5 KiB");
  EXPECT_EQ(human_bytes(std::int64_t{5} << 40), "5.0 TiB");
  EXPECT_EQ(human_bytes(std::int64_t{5} << 50), "5120.0 TiB");
}

}  // namespace
}  // namespace llorch::base
