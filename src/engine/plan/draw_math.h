#pragma once
// The arithmetic of a draw that a host and a device both do, bit for bit: only IEEE additions, multiplications, divisions and
// fused multiply-adds that are written as such, no function of a library whose last bit a release may change. Where it stands
// in a draw: docs/internals/sampling.md.
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "engine/plan/draw.h"

#if defined(__CUDACC__)
#define LLORCH_BOTH __host__ __device__ __forceinline__
#else
// Always inlined: a caller built for FMA then needs no call per fma.
#define LLORCH_BOTH [[gnu::always_inline]] inline
#endif

namespace llorch::engine::plan {

// e^-17 = 0.69 * 2^-24: added to a sum of at least 1, the weight of the best candidate, it is less than half its last
// place. So without XTC and typical, what lies below could neither be drawn nor change a sum: leaving it out is exact.
inline constexpr float kDrawTailX = -17.0f;

LLORCH_BOTH float fused(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return __fmaf_rn(a, b, c);
#else
  return std::fma(a, b, c);
#endif
}

// exp(x) for x <= 0 (also -inf) within 1 ulp; exp_s1(0) is exactly 1. Below -87, where a result would leave the normal
// range, 0. x = n ln 2 + r with |r| <= 0.35, then the Taylor polynomial of degree 7: its remainder r^8/8! is below 6e-9
// of the result, a tenth of an ulp.
LLORCH_BOTH float exp_s1(float x) {
  constexpr float kLog2E = 0x1.715476p+0f;
  constexpr float kLn2High = 0x1.62e4p-1f;  // 15 bits: n * kLn2High is exact for |n| < 2^9
  constexpr float kLn2Low = 0x1.7f7d1cp-20f;
  if (!(x >= -87.0f)) return 0.0f;
  const auto n = static_cast<std::int32_t>(fused(x, kLog2E, -0.5f));  // towards zero: to nearest, as x <= 0
  const auto nf = static_cast<float>(n);
  const float r = fused(-nf, kLn2Low, fused(-nf, kLn2High, x));
  float p = 0x1.a01a02p-13f;         // 1/7!
  p = fused(p, r, 0x1.6c16c2p-10f);  // 1/6!
  p = fused(p, r, 0x1.111112p-7f);   // 1/5!
  p = fused(p, r, 0x1.555556p-5f);   // 1/4!
  p = fused(p, r, 0x1.555556p-3f);   // 1/3!
  p = fused(p, r, 0.5f);
  p = fused(p, r, 1.0f);
  p = fused(p, r, 1.0f);
  return p * std::bit_cast<float>(static_cast<std::uint32_t>(n + 127) << 23);
}

LLORCH_BOTH bool is_finite(float x) { return (std::bit_cast<std::uint32_t>(x) & 0x7F800000u) != 0x7F800000u; }

// Results of arithmetic on a row stay finite.
LLORCH_BOTH float clamp_finite(float x) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return x < -kMax ? -kMax : x > kMax ? kMax : x;
}

// REQUIRES: x finite.
LLORCH_BOTH float edited(float x, const RowEdit& edit) {
  switch (edit.kind) {
    case EditKind::kAdd: return clamp_finite(x + edit.a);
    case EditKind::kScale: return clamp_finite(x > 0.0f ? x / edit.a : x * edit.a);
    case EditKind::kLower: return clamp_finite((x - edit.a) - edit.b);
  }
  return x;
}

// Ascending keys are the order of candidates: x descending, index ascending. x is never positive, so the bits of its
// magnitude order it; the magnitude also makes -0 and 0 one value.
LLORCH_BOTH std::uint64_t candidate_key(float x, std::uint32_t index) {
  return std::uint64_t{std::bit_cast<std::uint32_t>(x) & 0x7FFFFFFFu} << 32 | index;
}
LLORCH_BOTH float candidate_x(std::uint64_t key) {
  return -std::bit_cast<float>(static_cast<std::uint32_t>(key >> 32));
}
LLORCH_BOTH std::uint32_t candidate_index(std::uint64_t key) { return static_cast<std::uint32_t>(key); }

}  // namespace llorch::engine::plan
