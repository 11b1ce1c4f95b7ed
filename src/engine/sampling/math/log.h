#pragma once
// Natural logarithm with the same bits on every machine; rules as in exp.h.
#include <bit>
#include <cmath>
#include <cstdint>

namespace llorch::engine::sampling::math {

inline constexpr float kLn2 = 0x1.62e43p-1f;

// ln(x) within 2 ulp; ln_s1(1) is exactly 0. REQUIRES x finite, positive, normal.
// x = 2^e m with m in [sqrt(1/2), sqrt(2)), s = (m - 1) / (m + 1), ln m = 2 (s + s^3/3 + s^5/5 + s^7/7 + s^9/9): as
// |s| <= 0.172, the next term is below 2e-9 of the result.
inline float ln_s1(float x) {
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: e * kLn2High is exact
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  constexpr std::uint32_t kSqrtHalf = 0x3F3504F3;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::int32_t e = static_cast<std::int32_t>(bits - kSqrtHalf) >> 23;
  const float f = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(e) << 23)) - 1.0f;
  const float s = f / (2.0f + f);
  const float z = s * s;
  float p = 2.0f / 9.0f;
  p = std::fma(p, z, 2.0f / 7.0f);
  p = std::fma(p, z, 2.0f / 5.0f);
  p = std::fma(p, z, 2.0f / 3.0f);
  const auto ef = static_cast<float>(e);
  // 2 s = f - s f: f is exact, so only the small product and the sums round.
  const float tail = std::fma(ef, kLn2Low, s * (z * p - f));
  return std::fma(ef, kLn2High, f + tail);
}

}  // namespace llorch::engine::sampling::math
