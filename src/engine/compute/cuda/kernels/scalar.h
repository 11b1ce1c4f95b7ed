#pragma once
// Numbers one at a time: IEEE binary32 operations that round once on both machines, bit views, binary16, and the
// elementary functions of docs/internals/numerics.md. Built without contraction on both sides
// (-ffp-contract=off, -fmad=false): a fused multiply-add is where `fma` stands.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/compute/cuda/kernels/block.h"
#include "engine/plan/dtype.h"

#if defined(__CUDACC__)
#include <cuda_fp16.h>
#else
#include "engine/compute/half.h"
#endif

namespace llorch::engine::compute::cuda::kernels {

#if defined(__CUDACC__)
LLORCH_KERNEL float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LLORCH_KERNEL float divide(float a, float b) { return __fdiv_rn(a, b); }
LLORCH_KERNEL float square_root(float a) { return __fsqrt_rn(a); }
LLORCH_KERNEL float round_even(float a) { return rintf(a); }
LLORCH_KERNEL std::uint32_t bits_of(float a) { return __float_as_uint(a); }
LLORCH_KERNEL float float_of(std::uint32_t bits) { return __uint_as_float(bits); }
LLORCH_KERNEL float half_value(std::uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
LLORCH_KERNEL std::uint16_t half_bits(float a) { return __half_as_ushort(__float2half_rn(a)); }
// Byte i is the one of high:low that nibble i of the selector (0 .. 7) names.
LLORCH_KERNEL std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  return __byte_perm(low, high, selector);
}
#else
LLORCH_KERNEL float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
LLORCH_KERNEL float divide(float a, float b) { return a / b; }
LLORCH_KERNEL float square_root(float a) { return std::sqrt(a); }
LLORCH_KERNEL float round_even(float a) { return __builtin_nearbyintf(a); }
LLORCH_KERNEL std::uint32_t bits_of(float a) {
  std::uint32_t bits;
  std::memcpy(&bits, &a, sizeof bits);
  return bits;
}
LLORCH_KERNEL float float_of(std::uint32_t bits) {
  float a;
  std::memcpy(&a, &bits, sizeof a);
  return a;
}
LLORCH_KERNEL float half_value(std::uint16_t bits) { return half_to_float(bits); }
LLORCH_KERNEL std::uint16_t half_bits(float a) { return float_to_half(a); }
LLORCH_KERNEL std::uint32_t choose_bytes(std::uint32_t low, std::uint32_t high, std::uint32_t selector) {
  const std::uint64_t bytes = std::uint64_t{high} << 32 | low;
  std::uint32_t chosen = 0;
  for (std::uint32_t i = 0; i < 4; ++i)
    chosen |= static_cast<std::uint32_t>(bytes >> (8 * (selector >> (4 * i) & 7u)) & 0xFFu) << (8 * i);
  return chosen;
}
#endif

LLORCH_KERNEL float magnitude(float a) { return float_of(bits_of(a) & 0x7FFFFFFFu); }
LLORCH_KERNEL float with_sign_of(float a, float sign) {
  return float_of((bits_of(a) & 0x7FFFFFFFu) | (bits_of(sign) & 0x80000000u));
}
LLORCH_KERNEL float minus_infinity() { return float_of(0xFF800000u); }
LLORCH_KERNEL std::uint32_t smaller(std::uint32_t a, std::uint32_t b) { return b < a ? b : a; }
LLORCH_KERNEL std::uint32_t larger(std::uint32_t a, std::uint32_t b) { return a < b ? b : a; }

// What a stored element of a plain type is; widening is exact.
template <plan::DType kType>
struct Element;
template <>
struct Element<plan::DType::kF32> {
  using Stored = float;
  static LLORCH_KERNEL float value(Stored stored) { return stored; }
  static LLORCH_KERNEL Stored stored(float value) { return value; }
};
template <>
struct Element<plan::DType::kF16> {
  using Stored = std::uint16_t;
  static LLORCH_KERNEL float value(Stored stored) { return half_value(stored); }
  static LLORCH_KERNEL Stored stored(float value) { return half_bits(value); }
};

// Elementary functions: steps and error bounds in docs/internals/numerics.md, coefficients by tools/fit_polynomials.py.

LLORCH_KERNEL float power_of_two(std::int32_t n) { return float_of(static_cast<std::uint32_t>(n + 127) << 23); }

LLORCH_KERNEL float exponential(float x) {
  if (x != x) return x;
  if (x < -0x1.5d58ap+6f) return 0.0f;
  if (x > 0x1.62e43p+6f) return float_of(0x7F800000u);
  const float n = round_even(x * 0x1.715476p+0f);
  const float r = fma(-n, -0x1.05c61p-29f, fma(-n, 0x1.62e43p-1f, x));
  float q = 0x1.6d1106p-10f;
  q = fma(q, r, 0x1.120b6cp-7f);
  q = fma(q, r, 0x1.55551ap-5f);
  q = fma(q, r, 0x1.5554dcp-3f);
  q = fma(q, r, 0.5f);
  const float p = fma(r * r, q, r) + 1.0f;
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole >> 1;
  return p * power_of_two(half) * power_of_two(whole - half);
}

LLORCH_KERNEL float log_1p(float x) {  // x >= 0
  const float u = 1.0f + x;
  const std::uint32_t bits = bits_of(u);
  const std::int32_t k = static_cast<std::int32_t>(bits - bits_of(0x1.6a09e6p-1f)) >> 23;
  const float f = float_of(bits - (static_cast<std::uint32_t>(k) << 23)) - 1.0f;
  const float t = f * f, kf = static_cast<float>(k);
  float q = 0x1.1d8ea6p-4f;
  q = fma(q, f, -0x1.d635bcp-4f);
  q = fma(q, f, 0x1.dea282p-4f);
  q = fma(q, f, -0x1.fcf4c6p-4f);
  q = fma(q, f, 0x1.23d21ap-3f);
  q = fma(q, f, -0x1.555b4ap-3f);
  q = fma(q, f, 0x1.999d5ap-3f);
  q = fma(q, f, -0x1.fffffcp-3f);
  q = fma(q, f, 0x1.555554p-2f);
  const float lost = divide(x - (u - 1.0f), u);
  const float r = fma(f * t, q, -0.5f * t) + lost;
  return fma(kf, 0x1.62e43p-1f, f + fma(kf, -0x1.05c61p-29f, r));
}

LLORCH_KERNEL float softplus(float x) { return x > 20.0f ? x : log_1p(exponential(x)); }

LLORCH_KERNEL void sine_cosine(float x, float& sine, float& cosine) {  // |x| <= 2^20
  const float n = round_even(x * 0x1.45f306p-1f);
  float r = fma(-n, 0x1.921fb6p+0f, x);
  r = fma(-n, -0x1.777a5cp-25f, r);
  r = fma(-n, -0x1.ee59dap-50f, r);
  const float t = r * r;
  const float ps = fma(fma(-0x1.9a5006p-13f, t, 0x1.110b3ep-7f), t, -0x1.555552p-3f);
  const float s = fma(r * t, ps, r);
  const float pc = fma(fma(0x1.9b771p-16f, t, -0x1.6c1216p-10f), t, 0x1.555554p-5f);
  const float c = fma(t * t, pc, fma(-0.5f, t, 1.0f));
  const std::int32_t quadrant = static_cast<std::int32_t>(n) & 3;
  const bool swapped = (quadrant & 1) != 0;
  const float a = swapped ? c : s, b = swapped ? s : c;
  sine = (quadrant & 2) != 0 ? -a : a;
  cosine = ((quadrant + 1) & 2) != 0 ? -b : b;
}

LLORCH_KERNEL float hyperbolic_tangent(float x) {
  const float a = magnitude(x);
  if (a < 0.625f) {
    const float t = x * x;
    float p = -0x1.8f8de4p-8f;
    p = fma(p, t, 0x1.58048ep-6f);
    p = fma(p, t, -0x1.b9258ap-5f);
    p = fma(p, t, 0x1.110e1cp-3f);
    p = fma(p, t, -0x1.555552p-2f);
    return fma(x * t, p, x);
  }
  return with_sign_of(1.0f - divide(2.0f, exponential(a + a) + 1.0f), x);
}

LLORCH_KERNEL float error_function(float x) {
  const float a = magnitude(x);
  if (a < 1.0f) {
    const float t = x * x;
    float p = 0x1.4a5690p-14f;
    p = fma(p, t, -0x1.a45088p-11f);
    p = fma(p, t, 0x1.541270p-8f);
    p = fma(p, t, -0x1.b7fabap-6f);
    p = fma(p, t, 0x1.ce2d10p-4f);
    p = fma(p, t, -0x1.81273ep-2f);
    p = fma(p, t, 0x1.06eba8p-3f);
    return fma(x, p, x);
  }
  const float c = a > 4.0f ? 4.0f : a;
  float q = 0x1.b77830p-20f;
  q = fma(q, c, -0x1.825ce4p-15f);
  q = fma(q, c, 0x1.38e5e6p-11f);
  q = fma(q, c, -0x1.37ecc6p-8f);
  q = fma(q, c, 0x1.b0e246p-6f);
  q = fma(q, c, -0x1.c2e356p-4f);
  q = fma(q, c, -0x1.437eb4p-1f);
  q = fma(q, c, -0x1.2156fap+0f);
  q = fma(q, c, 0x1.4fb068p-12f);
  return with_sign_of(1.0f - exponential(q), x);
}

LLORCH_KERNEL float sigmoid(float x) { return divide(1.0f, 1.0f + exponential(0.0f - x)); }
LLORCH_KERNEL float soft_capped(float x, float cap) {
  return cap > 0.0f ? cap * hyperbolic_tangent(divide(x, cap)) : x;
}

}  // namespace llorch::engine::compute::cuda::kernels
