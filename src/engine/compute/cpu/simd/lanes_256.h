#pragma once
// Sixteen lanes on AVX2 + FMA + F16C: two 256-bit halves, lanes 0-7 and 8-15. Interface and rules as simd_avx512.h. What is
// here serves every instruction set of 256 bits; LLORCH_ISA_NAMESPACE is the one that includes it.
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/compute/cpu/quantized_rows.h"
#include "engine/compute/cpu/simd/groups.h"

#define LLORCH_INLINE inline __attribute__((always_inline))

namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE {

struct F32x16 {
  __m256 lo, hi;
};
struct I32x16 {
  __m256i lo, hi;
};
struct Mask16 {
  __m256 lo, hi;
};

LLORCH_INLINE I32x16 set1_i(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
LLORCH_INLINE I32x16 lane_numbers() {
  return {_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15)};
}
LLORCH_INLINE I32x16 first_lanes(std::size_t n) {
  const __m256i limit = _mm256_set1_epi32(static_cast<int>(n));
  const I32x16 lane = lane_numbers();
  return {_mm256_cmpgt_epi32(limit, lane.lo), _mm256_cmpgt_epi32(limit, lane.hi)};
}

LLORCH_INLINE F32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LLORCH_INLINE F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LLORCH_INLINE void store(float* p, F32x16 a) { _mm256_storeu_ps(p, a.lo), _mm256_storeu_ps(p + 8, a.hi); }
LLORCH_INLINE F32x16 load_n(const float* p, std::size_t n) {
  const I32x16 m = first_lanes(n);
  return {_mm256_maskload_ps(p, m.lo), _mm256_maskload_ps(p + 8, m.hi)};
}
LLORCH_INLINE void store_n(float* p, F32x16 a, std::size_t n) {
  const I32x16 m = first_lanes(n);
  _mm256_maskstore_ps(p, m.lo, a.lo), _mm256_maskstore_ps(p + 8, m.hi, a.hi);
}

LLORCH_INLINE F32x16 load_f16(const std::uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
LLORCH_INLINE F32x16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  alignas(32) std::uint16_t padded[16] = {};
  __builtin_memcpy(padded, p, n * sizeof(std::uint16_t));
  return load_f16(padded);
}
LLORCH_INLINE F32x16 load_bf16(const std::uint16_t* p) {
  const __m256i a = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  const __m256i b = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)));
  return {_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16))};
}
LLORCH_INLINE void store_f16(std::uint16_t* p, F32x16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(a.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(a.hi, _MM_FROUND_TO_NEAREST_INT));
}

LLORCH_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 square_root(F32x16 a) { return {_mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi)}; }
LLORCH_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
LLORCH_INLINE F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
LLORCH_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
LLORCH_INLINE F32x16 round_even(F32x16 a) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(a.lo, kMode), _mm256_round_ps(a.hi, kMode)};
}

LLORCH_INLINE I32x16 add(I32x16 a, I32x16 b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
LLORCH_INLINE I32x16 sub(I32x16 a, I32x16 b) { return {_mm256_sub_epi32(a.lo, b.lo), _mm256_sub_epi32(a.hi, b.hi)}; }
LLORCH_INLINE I32x16 bit_and(I32x16 a, I32x16 b) {
  return {_mm256_and_si256(a.lo, b.lo), _mm256_and_si256(a.hi, b.hi)};
}
LLORCH_INLINE I32x16 bit_xor(I32x16 a, I32x16 b) {
  return {_mm256_xor_si256(a.lo, b.lo), _mm256_xor_si256(a.hi, b.hi)};
}
LLORCH_INLINE I32x16 max(I32x16 a, I32x16 b) { return {_mm256_max_epi32(a.lo, b.lo), _mm256_max_epi32(a.hi, b.hi)}; }
template <int kBits>
LLORCH_INLINE I32x16 shift_left(I32x16 a) {
  return {_mm256_slli_epi32(a.lo, kBits), _mm256_slli_epi32(a.hi, kBits)};
}
template <int kBits>
LLORCH_INLINE I32x16 shift_right(I32x16 a) {
  return {_mm256_srai_epi32(a.lo, kBits), _mm256_srai_epi32(a.hi, kBits)};
}
LLORCH_INLINE I32x16 to_int(F32x16 a) { return {_mm256_cvtps_epi32(a.lo), _mm256_cvtps_epi32(a.hi)}; }
LLORCH_INLINE F32x16 to_float(I32x16 a) { return {_mm256_cvtepi32_ps(a.lo), _mm256_cvtepi32_ps(a.hi)}; }
LLORCH_INLINE I32x16 bits_of(F32x16 a) { return {_mm256_castps_si256(a.lo), _mm256_castps_si256(a.hi)}; }
LLORCH_INLINE F32x16 float_of(I32x16 a) { return {_mm256_castsi256_ps(a.lo), _mm256_castsi256_ps(a.hi)}; }

LLORCH_INLINE Mask16 less(F32x16 a, F32x16 b) {
  return {_mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ), _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ)};
}
LLORCH_INLINE Mask16 less(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpgt_epi32(b.lo, a.lo)), _mm256_castsi256_ps(_mm256_cmpgt_epi32(b.hi, a.hi))};
}
LLORCH_INLINE Mask16 equal(I32x16 a, I32x16 b) {
  return {_mm256_castsi256_ps(_mm256_cmpeq_epi32(a.lo, b.lo)), _mm256_castsi256_ps(_mm256_cmpeq_epi32(a.hi, b.hi))};
}
LLORCH_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) {
  return {_mm256_blendv_ps(no.lo, yes.lo, m.lo), _mm256_blendv_ps(no.hi, yes.hi, m.hi)};
}

// a * 2^n of integers n in [-126, 128], or NaN; rounded once. +0 where `zero`, whatever n is there. In two factors: 2^128 has no
// binary32 of its own.
LLORCH_INLINE F32x16 times_power(F32x16 a, F32x16 n, Mask16 zero) {
  const I32x16 whole = to_int(n), half = shift_right<1>(whole), bias = set1_i(127);
  const F32x16 by_half = mul(a, float_of(shift_left<23>(add(half, bias))));
  return select(zero, set1(0.0f), mul(by_half, float_of(shift_left<23>(add(sub(whole, half), bias)))));
}

LLORCH_INLINE F32x16 swap_pairs(F32x16 a) { return {_mm256_permute_ps(a.lo, 0xB1), _mm256_permute_ps(a.hi, 0xB1)}; }

LLORCH_INLINE float tree_sum(F32x16 a) {
  const __m256 e = _mm256_add_ps(a.lo, a.hi);
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LLORCH_INLINE float tree_max(F32x16 a) {
  const __m256 e = _mm256_max_ps(a.lo, a.hi);
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
LLORCH_INLINE std::int32_t max_lane(I32x16 a) {
  const __m256i e = _mm256_max_epi32(a.lo, a.hi);
  __m128i q = _mm_max_epi32(_mm256_castsi256_si128(e), _mm256_extracti128_si256(e, 1));
  q = _mm_max_epi32(q, _mm_shuffle_epi32(q, 0x4E));
  return _mm_cvtsi128_si32(_mm_max_epi32(q, _mm_shuffle_epi32(q, 0xB1)));
}

// Lanes as int8; REQUIRES every lane in [-128, 127].
LLORCH_INLINE __m128i to_bytes(I32x16 a) {
  const __m128i lo = _mm_packs_epi32(_mm256_castsi256_si128(a.lo), _mm256_extracti128_si256(a.lo, 1));
  const __m128i hi = _mm_packs_epi32(_mm256_castsi256_si128(a.hi), _mm256_extracti128_si256(a.hi, 1));
  return _mm_packs_epi16(lo, hi);
}

LLORCH_INLINE __m256i broadcast4(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm256_set1_epi32(word);
}
// Eight of the sixteen lanes: quantized products take one half after the other, because what they keep per row would not fit
// into sixteen registers twice.
inline constexpr int kParts = 2;
struct F32x8 {
  __m256 v;
};
using PartF = F32x8;
template <int kPart>
LLORCH_INLINE F32x8 part(F32x16 a) {
  return {kPart == 0 ? a.lo : a.hi};
}
LLORCH_INLINE F32x8 set1_part(float x) { return {_mm256_set1_ps(x)}; }
LLORCH_INLINE F32x8 load_part(const float* p) { return {_mm256_loadu_ps(p)}; }
LLORCH_INLINE void store_part(float* p, F32x8 a) { _mm256_storeu_ps(p, a.v); }
LLORCH_INLINE F32x8 mul(F32x8 a, F32x8 b) { return {_mm256_mul_ps(a.v, b.v)}; }
LLORCH_INLINE F32x8 fma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
LLORCH_INLINE F32x8 fnma(F32x8 a, F32x8 b, F32x8 c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }

// Four weight codes of each of eight rows, the row's in its 32 bits.
struct PartBytes {
  __m256i v;
};
LLORCH_INLINE PartBytes load_part_bytes(const std::uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
LLORCH_INLINE void store_part_bytes(std::uint8_t* p, PartBytes a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
}
template <int kShift, int kMask, int kLeft>
LLORCH_INLINE PartBytes bits_at(PartBytes a) {
  return {_mm256_slli_epi16(_mm256_and_si256(_mm256_srli_epi16(a.v, kShift), _mm256_set1_epi8(kMask)), kLeft)};
}
LLORCH_INLINE PartBytes bit_or(PartBytes a, PartBytes b) { return {_mm256_or_si256(a.v, b.v)}; }
LLORCH_INLINE PartBytes add_bytes(PartBytes a, int b) {
  return {_mm256_add_epi8(a.v, _mm256_set1_epi8(static_cast<char>(b)))};
}
LLORCH_INLINE PartBytes flip_signs(PartBytes a) { return {_mm256_xor_si256(a.v, _mm256_set1_epi8(-128))}; }
LLORCH_INLINE PartBytes look_up(PartBytes a, const std::int8_t* levels) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  return {_mm256_shuffle_epi8(_mm256_broadcastsi128_si256(table), a.v)};
}
LLORCH_INLINE I32x16 load_u8(const std::uint8_t* p) {
  return {_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
LLORCH_INLINE I32x16 load_i8(const std::uint8_t* p) {
  return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8)))};
}
LLORCH_INLINE I32x16 mul_int(I32x16 a, I32x16 b) {
  return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)};
}

}  // namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE
