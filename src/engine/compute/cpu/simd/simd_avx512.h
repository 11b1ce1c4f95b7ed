#pragma once
// Sixteen lanes on AVX-512. simd_avx2.h has the same interface with the same lane semantics, so a kernel written
// against it gives the same bits on both. Everything is inlined, and lives in the namespace of its
// unit, because an inline function shared with baseline code could be linked in its AVX-512 version.
#define LLORCH_ISA_NAMESPACE avx512
#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#include "engine/compute/cpu/quantized_rows.h"
#include "engine/compute/cpu/simd/groups.h"

#define LLORCH_INLINE inline __attribute__((always_inline))

namespace llorch::engine::compute::cpu::simd::avx512 {

struct F32x16 {
  __m512 v;
};
struct I32x16 {
  __m512i v;
};
struct Mask16 {
  __mmask16 m;
};

LLORCH_INLINE __mmask16 first_lanes(std::size_t n) { return static_cast<__mmask16>((1u << n) - 1u); }

LLORCH_INLINE F32x16 set1(float x) { return {_mm512_set1_ps(x)}; }
LLORCH_INLINE F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
LLORCH_INLINE void store(float* p, F32x16 a) { _mm512_storeu_ps(p, a.v); }
// The first n lanes (n < 16); the others are +0. Memory past them is not touched.
LLORCH_INLINE F32x16 load_n(const float* p, std::size_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
LLORCH_INLINE void store_n(float* p, F32x16 a, std::size_t n) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }

LLORCH_INLINE F32x16 load_f16(const std::uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
LLORCH_INLINE F32x16 load_f16_n(const std::uint16_t* p, std::size_t n) {
  return {_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first_lanes(n), p))};
}
LLORCH_INLINE F32x16 load_bf16(const std::uint16_t* p) {
  const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(wide, 16))};
}
// Rounds to nearest even, overflow to infinity.
LLORCH_INLINE void store_f16(std::uint16_t* p, F32x16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT));
}

LLORCH_INLINE F32x16 add(F32x16 a, F32x16 b) { return {_mm512_add_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 sub(F32x16 a, F32x16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 mul(F32x16 a, F32x16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 div(F32x16 a, F32x16 b) { return {_mm512_div_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 square_root(F32x16 a) { return {_mm512_sqrt_ps(a.v)}; }
LLORCH_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }    // a*b + c
LLORCH_INLINE F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }  // c - a*b
// a > b ? a : b and a < b ? a : b, hence b when either is NaN.
LLORCH_INLINE F32x16 max(F32x16 a, F32x16 b) { return {_mm512_max_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 min(F32x16 a, F32x16 b) { return {_mm512_min_ps(a.v, b.v)}; }
LLORCH_INLINE F32x16 round_even(F32x16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}

LLORCH_INLINE I32x16 set1_i(std::int32_t x) { return {_mm512_set1_epi32(x)}; }
LLORCH_INLINE I32x16 add(I32x16 a, I32x16 b) { return {_mm512_add_epi32(a.v, b.v)}; }
LLORCH_INLINE I32x16 sub(I32x16 a, I32x16 b) { return {_mm512_sub_epi32(a.v, b.v)}; }
LLORCH_INLINE I32x16 bit_and(I32x16 a, I32x16 b) { return {_mm512_and_si512(a.v, b.v)}; }
LLORCH_INLINE I32x16 bit_xor(I32x16 a, I32x16 b) { return {_mm512_xor_si512(a.v, b.v)}; }
LLORCH_INLINE I32x16 max(I32x16 a, I32x16 b) { return {_mm512_max_epi32(a.v, b.v)}; }
template <int kBits>
LLORCH_INLINE I32x16 shift_left(I32x16 a) {
  return {_mm512_slli_epi32(a.v, kBits)};
}
template <int kBits>
LLORCH_INLINE I32x16 shift_right(I32x16 a) {
  return {_mm512_srai_epi32(a.v, kBits)};
}
LLORCH_INLINE I32x16 to_int(F32x16 a) { return {_mm512_cvtps_epi32(a.v)}; }  // nearest even
LLORCH_INLINE F32x16 to_float(I32x16 a) { return {_mm512_cvtepi32_ps(a.v)}; }
LLORCH_INLINE I32x16 bits_of(F32x16 a) { return {_mm512_castps_si512(a.v)}; }
LLORCH_INLINE F32x16 float_of(I32x16 a) { return {_mm512_castsi512_ps(a.v)}; }
LLORCH_INLINE I32x16 lane_numbers() {
  return {_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)};
}
LLORCH_INLINE Mask16 less(F32x16 a, F32x16 b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
LLORCH_INLINE Mask16 less(I32x16 a, I32x16 b) { return {_mm512_cmplt_epi32_mask(a.v, b.v)}; }
LLORCH_INLINE Mask16 equal(I32x16 a, I32x16 b) { return {_mm512_cmpeq_epi32_mask(a.v, b.v)}; }
LLORCH_INLINE F32x16 select(Mask16 m, F32x16 yes, F32x16 no) { return {_mm512_mask_blend_ps(m.m, no.v, yes.v)}; }

// a * 2^n of integers n in [-126, 128], or NaN; rounded once. +0 where `zero`, whatever n is there.
LLORCH_INLINE F32x16 times_power(F32x16 a, F32x16 n, Mask16 zero) {
  return {_mm512_maskz_scalef_ps(static_cast<__mmask16>(~zero.m), a.v, n.v)};
}

LLORCH_INLINE F32x16 swap_pairs(F32x16 a) { return {_mm512_permute_ps(a.v, 0xB1)}; }

// ((lane i + lane i+8) + (lane i+4 + lane i+12)) ...: the tree 16 -> 8 -> 4 -> 2 -> 1 of docs/internals/numerics.md.
LLORCH_INLINE float tree_sum(F32x16 a) {
  const __m256 e = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_add_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
LLORCH_INLINE float tree_max(F32x16 a) {
  const __m256 e = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 q = _mm_max_ps(_mm256_castps256_ps128(e), _mm256_extractf128_ps(e, 1));
  const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
  return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
LLORCH_INLINE std::int32_t max_lane(I32x16 a) { return _mm512_reduce_max_epi32(a.v); }

// Lanes as int8; REQUIRES every lane in [-128, 127].
LLORCH_INLINE __m128i to_bytes(I32x16 a) { return _mm512_cvtepi32_epi8(a.v); }

LLORCH_INLINE __m512i broadcast4(const std::int8_t* p) {
  std::int32_t word;
  __builtin_memcpy(&word, p, 4);
  return _mm512_set1_epi32(word);
}

// Four weight codes of each of sixteen rows, the row's in its 32 bits.
struct Bytes64 {
  __m512i v;
};
LLORCH_INLINE Bytes64 load_bytes(const std::uint8_t* p) { return {_mm512_loadu_si512(p)}; }
// (byte >> kShift) & kMask << kLeft; the bits stay inside their byte.
template <int kShift, int kMask, int kLeft>
LLORCH_INLINE Bytes64 bits_at(Bytes64 a) {
  return {_mm512_slli_epi16(_mm512_and_si512(_mm512_srli_epi16(a.v, kShift), _mm512_set1_epi8(kMask)), kLeft)};
}
LLORCH_INLINE Bytes64 bit_or(Bytes64 a, Bytes64 b) { return {_mm512_or_si512(a.v, b.v)}; }
LLORCH_INLINE Bytes64 add_bytes(Bytes64 a, int b) {
  return {_mm512_add_epi8(a.v, _mm512_set1_epi8(static_cast<char>(b)))};
}
LLORCH_INLINE Bytes64 flip_signs(Bytes64 a) { return {_mm512_xor_si512(a.v, _mm512_set1_epi8(-128))}; }
// levels[byte]; bytes are 0..15.
LLORCH_INLINE Bytes64 look_up(Bytes64 a, const std::int8_t* levels) {
  const __m128i table = _mm_loadu_si128(reinterpret_cast<const __m128i*>(levels));
  return {_mm512_shuffle_epi8(_mm512_broadcast_i32x4(table), a.v)};
}
LLORCH_INLINE I32x16 load_u8(const std::uint8_t* p) {
  return {_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
LLORCH_INLINE I32x16 load_i8(const std::uint8_t* p) {
  return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)))};
}
LLORCH_INLINE I32x16 mul_int(I32x16 a, I32x16 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }

// Quantized products take the sixteen lanes in kParts parts; here, all of them at once.
inline constexpr int kParts = 1;
using PartF = F32x16;
using PartBytes = Bytes64;
template <int kPart>
LLORCH_INLINE F32x16 part(F32x16 a) {
  return a;
}
LLORCH_INLINE PartF set1_part(float x) { return set1(x); }
LLORCH_INLINE PartF load_part(const float* p) { return load(p); }
LLORCH_INLINE void store_part(float* p, PartF a) { store(p, a); }
LLORCH_INLINE PartBytes load_part_bytes(const std::uint8_t* p) { return load_bytes(p); }
LLORCH_INLINE void store_part_bytes(std::uint8_t* p, PartBytes a) { _mm512_storeu_si512(p, a.v); }

// The multiplier is unsigned x signed bytes: weights of either sign go in plus 128.
inline constexpr bool kSignedCodes = false;

// sums += four codes of each lane times four activations. From memory the instruction takes these by itself; GCC 12 would load them
// first, one instruction more for every product.
LLORCH_INLINE void add_product(I32x16& sums, Bytes64 codes, __m512i q) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sums.v) : "v"(codes.v), "v"(q));
}
LLORCH_INLINE void add_product(I32x16& sums, Bytes64 codes, const std::int8_t* q) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sums.v) : "v"(codes.v), "m"(*reinterpret_cast<const std::int8_t(*)[4]>(q)));
}

// Activations that two groups share go through a register for every other row: where nobody shares the core, a load for every product
// fills the ports of loads before those of products are full; where a neighbour's thread does, instructions are what is short.
template <int... kRow, int kGroups>
LLORCH_INLINE void add_products(Rows<kRow...>, const Bytes64 (&codes)[kGroups],
                                const QuantizedBlock* const (&x)[sizeof...(kRow)], int group,
                                I32x16 (&sums)[kGroups][sizeof...(kRow)]) {
  const auto add = [&](int row) __attribute__((always_inline)) {
    const std::int8_t* const q = x[row]->q + 4 * group;
    const auto times = [&](auto activations) __attribute__((always_inline)) {
      for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
        add_product(sums[decltype(n)::value][row], codes[decltype(n)::value], activations);
      });
    };
    if (kGroups == 1 || row % 2 == 0) {
      times(q);
    } else {
      times(broadcast4(q));
    }
  };
  (add(kRow), ...);
}

// based[n][r] = kSumBase + sum over part kScale of blocks[n], the elements that share a scale, of integer of the weight * q of x[r];
// lane = weight row.
template <class Weights, int kScale, class Block, int kGroups, int... kRow>
LLORCH_INLINE void block_sums(Rows<kRow...> rows, const Block (&blocks)[kGroups],
                              const QuantizedBlock* const (&x)[sizeof...(kRow)],
                              F32x16 (&based)[kGroups][sizeof...(kRow)]) {
  constexpr int kCount = 8 / Weights::kScales;
  I32x16 sums[kGroups][sizeof...(kRow)];
  for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
    ((sums[decltype(n)::value][kRow] = set1_i(Weights::template begin<kScale>(*x[kRow]))), ...);
  });
  for_groups<kScale * kCount, kCount>([&](auto group) __attribute__((always_inline)) {
    Bytes64 codes[kGroups];
    for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
      codes[decltype(n)::value] = blocks[decltype(n)::value].codes(group);
    });
    add_products(rows, codes, x, decltype(group)::value, sums);
  });
  for_groups<0, kGroups>([&](auto n) __attribute__((always_inline)) {
    ((based[decltype(n)::value][kRow] = float_of(sums[decltype(n)::value][kRow])), ...);
  });
}

// Register tiles: rows of activations x groups of sixteen weight rows. They change speed, never bits.
inline constexpr int kFloatTileRows = 6, kFloatTileGroups = 2;
// To so many rows it pays to unpack codes again for every eight of them: of codes in one plane, in several.
inline constexpr int kPackedRows = 24, kPackedRowsOfPlanes = 16, kPackedTileRows = 8, kSlabTileRows = 7,
                     kSlabTileGroups = 2;
inline constexpr int kHeadTile = 8, kTileSums = 16, kTileVectors = 4;
// Servers with AVX-512 have second-level caches of 1 MiB and more, other processors of 256 KiB and more. Slabs need no room in the
// first-level cache: of Q4_K those of 64 blocks cost as much as those of 32, those of 16 cost 2 % more.
inline constexpr std::size_t kQuantRowPanel = 133, kSlabBlocks = 32, kChunkBytes = 532 << 10;

}  // namespace llorch::engine::compute::cpu::simd::avx512
