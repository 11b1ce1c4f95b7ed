#include "engine/sampling/math/exp.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/sha256.h"

namespace llorch::engine::sampling::math {
namespace {

TEST(ExpS1, IsWithinOneUlpOfTheTrueValue) {
  double worst_ulps = 0;
  const auto last = std::bit_cast<std::uint32_t>(87.0f);
  for (std::uint32_t bits = 0; bits <= last; bits += 499) {
    const float x = -std::bit_cast<float>(bits);
    const double truth = std::exp(static_cast<double>(x));
    const double ulp = std::exp2(std::ilogb(truth) - 23);
    worst_ulps = std::max(worst_ulps, std::abs(static_cast<double>(exp_s1(x)) - truth) / ulp);
  }
  EXPECT_LE(worst_ulps, 1.0);
  EXPECT_GT(worst_ulps, 0.5);  // less is not possible for most arguments: the comparison would be wrong
}

TEST(ExpS1, EndsOfTheRange) {
  EXPECT_EQ(exp_s1(0.0f), 1.0f);
  EXPECT_EQ(exp_s1(-0.0f), 1.0f);
  EXPECT_GT(exp_s1(-87.0f), 0.0f);
  EXPECT_EQ(exp_s1(std::nextafter(-87.0f, -100.0f)), 0.0f);
  EXPECT_EQ(exp_s1(-std::numeric_limits<float>::infinity()), 0.0f);
}

// The bits are part of the sampler version: a change here is a new version.
TEST(ExpS1, BitsAreFrozen) {
  base::Sha256 hash;
  for (std::uint32_t bits = 0; bits <= std::bit_cast<std::uint32_t>(87.0f); bits += 9973) {
    hash.update_u32_le(std::bit_cast<std::uint32_t>(exp_s1(-std::bit_cast<float>(bits))));
  }
  EXPECT_EQ(base::to_hex(hash.digest()), "92229764c4df48c55dce9d16aacfe9eb7d9299f915007e7fc2e59d522d055ca6");
}

}  // namespace
}  // namespace llorch::engine::sampling::math
