#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"
#include "base/sha256.h"
#include "engine/sampling/math/dense_sums.h"
#include "engine/sampling/math/exp.h"
#include "engine/sampling/math/log.h"

namespace llorch::engine::sampling::math {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

TEST(LnS1, IsWithinTwoUlpOfTheTrueValue) {
  double worst_ulps = 0;
  for (std::uint32_t bits = 0x00800000; bits < 0x7F800000; bits += 4999) {
    const float x = std::bit_cast<float>(bits);
    const double truth = std::log(static_cast<double>(x));
    if (truth == 0) continue;
    const double ulp = std::exp2(std::ilogb(truth) - 23);
    worst_ulps = std::max(worst_ulps, std::abs(static_cast<double>(ln_s1(x)) - truth) / ulp);
  }
  for (std::uint32_t bits = 0x3F700000; bits < 0x3F900000; ++bits) {  // around 1, where the result is small
    const float x = std::bit_cast<float>(bits);
    const double truth = std::log(static_cast<double>(x));
    if (truth == 0) continue;
    const double ulp = std::exp2(std::ilogb(truth) - 23);
    worst_ulps = std::max(worst_ulps, std::abs(static_cast<double>(ln_s1(x)) - truth) / ulp);
  }
  EXPECT_LE(worst_ulps, 2.0);
  EXPECT_GT(worst_ulps, 0.5);
  EXPECT_EQ(ln_s1(1.0f), 0.0f);
}

// The bits are part of the sampler version.
TEST(LnS1, BitsAreFrozen) {
  base::Sha256 hash;
  for (std::uint32_t bits = 0x00800000; bits < 0x7F800000; bits += 99991) {
    hash.update_u32_le(std::bit_cast<std::uint32_t>(ln_s1(std::bit_cast<float>(bits))));
  }
  EXPECT_EQ(base::to_hex(hash.digest()), "c6a3d2a5e0eb3698a5008fafab8d42204c3158183c4d61cd693c1b4a3a1089c4");
}

std::vector<float> row(std::size_t size) {
  std::vector<float> l(size);
  for (std::size_t i = 0; i < size; ++i) {
    const float u = base::philox_uniform(
        9, {.position = static_cast<std::uint32_t>(i), .purpose = base::PhiloxPurpose::kTestWeights});
    l[i] = u < 0.1f ? kMasked : 30.0f * u - 40.0f;
  }
  return l;
}

// The header's order a second time, without lanes kept apart by the loop.
TEST(DenseSums, FollowTheWrittenOrder) {
  for (const std::size_t size : {1u, 5u, 16u, 17u, 1000u, 4099u}) {
    auto l = row(size);
    l[size / 2] = -10.0f;
    const float l_max = -10.0f;
    for (float& v : l) v = std::min(v, l_max);
    float w[16] = {}, wx[16] = {};
    for (std::size_t i = 0; i < size; ++i) {
      if (l[i] == kMasked) continue;
      w[i % 16] += exp_s1(l[i] - l_max);
      wx[i % 16] += exp_s1(l[i] - l_max) * (l[i] - l_max);
    }
    const auto tree = [](float* s) {
      for (int half = 8; half > 0; half /= 2) {
        for (int i = 0; i < half; ++i) s[i] += s[i + half];
      }
      return s[0];
    };
    const ExpMoments got = exp_moments(l, l_max);
    EXPECT_EQ(got.sum_w, tree(w)) << size;
    EXPECT_EQ(got.sum_wx, tree(wx)) << size;
    EXPECT_EQ(exp_sum(l, l_max), got.sum_w) << size;
  }
}

TEST(DenseSums, SpreadIsTheDeviationOfWhatIsAllowed) {
  const auto l = row(5000);
  double sum = 0, squares = 0;
  std::size_t n = 0;
  for (const float v : l) {
    if (v == kMasked) continue;
    ++n;
    sum += v;
  }
  for (const float v : l) squares += v == kMasked ? 0 : (v - sum / n) * (v - sum / n);
  const Spread got = spread(l);
  EXPECT_EQ(got.count, n);
  EXPECT_NEAR(got.deviation, std::sqrt(squares / n), 1e-4);
  EXPECT_EQ(spread(std::vector<float>(3, kMasked)).count, 0u);
  EXPECT_FALSE(std::isfinite(spread(std::vector<float>{3e38f, -3e38f}).deviation));
}

}  // namespace
}  // namespace llorch::engine::sampling::math
