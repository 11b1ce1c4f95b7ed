#pragma once
// exp for weights of candidates, the same bits on every machine: only IEEE additions, multiplications and fused
// multiply-adds, no libm function whose last bit a release may change.
#include <bit>
#include <cmath>
#include <cstdint>

namespace llorch::engine::sampling::math {

// exp(x) for x <= 0 (also -inf) within 1 ulp; exp_s1(0) is exactly 1. Below -87, where a result would leave the normal
// range, 0. x = n ln 2 + r with |r| <= 0.35, then the Taylor polynomial of degree 7: its remainder r^8/8! is below 6e-9
// of the result, a tenth of an ulp. Always inlined: a caller built for FMA then needs no call per fma.
[[gnu::always_inline]] inline float exp_s1(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: n * kLn2High is exact for |n| < 2^9
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  if (!(x >= -87.0f)) return 0.0f;
  const auto n = static_cast<std::int32_t>(std::fma(x, kLog2E, -0.5f));  // towards zero: to nearest, as x <= 0
  const auto nf = static_cast<float>(n);
  const float r = std::fma(-nf, kLn2Low, std::fma(-nf, kLn2High, x));
  float p = 0x1.a01a02p-13f;            // 1/7!
  p = std::fma(p, r, 0x1.6c16c2p-10f);  // 1/6!
  p = std::fma(p, r, 0x1.111112p-7f);   // 1/5!
  p = std::fma(p, r, 0x1.555556p-5f);   // 1/4!
  p = std::fma(p, r, 0x1.555556p-3f);   // 1/3!
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

}  // namespace llorch::engine::sampling::math
