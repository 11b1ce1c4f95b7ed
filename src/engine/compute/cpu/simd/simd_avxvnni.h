#pragma once
// AVX-VNNI: quantized products by vpdpbusd, 256 bits at a time. Processors without AVX-512 have it, and in an encoding of its
// own: LLORCH_EVEX_VNNI takes that of AVX-512 VL instead, so that a machine without AVX-VNNI can test this code.
#if defined(LLORCH_EVEX_VNNI)
#define LLORCH_ISA_NAMESPACE avxvnni_evex
#else
#define LLORCH_ISA_NAMESPACE avxvnni
#endif
#include "engine/compute/cpu/simd/lanes_256.h"

namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE {

// The multiplier is unsigned x signed bytes: weights of either sign go in plus 128.
inline constexpr bool kSignedCodes = false;

// Small scales as block_integers() wants them. Every product of a scale and an exact sum stays below 2^24: exact in f32.
using PartScale = F32x8;
LLORCH_INLINE PartScale make_scale(I32x8 s) { return to_float(s); }
LLORCH_INLINE PartScale load_scale(const std::uint8_t* p) { return load_part(reinterpret_cast<const float*>(p)); }
LLORCH_INLINE void store_scale(std::uint8_t* p, PartScale s) { store_part(reinterpret_cast<float*>(p), s); }

// sums + four products of an unsigned byte and a signed one, per lane.
LLORCH_INLINE __m256i add_four(__m256i sums, __m256i codes, __m256i q) {
#if defined(LLORCH_EVEX_VNNI)
  return _mm256_dpbusd_epi32(sums, codes, q);
#else
  return _mm256_dpbusd_avx_epi32(sums, codes, q);
#endif
}

template <int kOffset>
LLORCH_INLINE __m256i times_offset(std::int32_t sum) {
  if constexpr (kOffset == 0) return _mm256_setzero_si256();
  return _mm256_slli_epi32(_mm256_set1_epi32(sum), shift_of(kOffset));
}
template <int... kRow>
LLORCH_INLINE void add_products(Rows<kRow...>, PartBytes codes, const QuantizedBlock* const (&x)[sizeof...(kRow)],
                                int group, __m256i (&sums)[sizeof...(kRow)]) {
  ((sums[kRow] = add_four(sums[kRow], codes.v, broadcast4(x[kRow]->q + 4 * group))), ...);
}

// integers[0][r] = sum over the block of small scale * integer of the weight * q of x[r], exact, lane = weight row.
template <class Weights, class Block, int... kRow>
LLORCH_INLINE void block_integers(Rows<kRow...> rows, const Block (&blocks)[1],
                                  const QuantizedBlock* const (&x)[sizeof...(kRow)],
                                  F32x8 (&integers)[1][sizeof...(kRow)]) {
  const Block& block = blocks[0];
  constexpr bool kHalves = Weights::kLayout.has_halves();
  constexpr int kCount = kHalves ? 4 : 8;
  for_groups<0, 8 / kCount>([&](auto half) __attribute__((always_inline)) {
    constexpr int kHalf = decltype(half)::value;
    __m256i sums[sizeof...(kRow)];
    ((sums[kRow] = times_offset<Weights::kOffset>(kHalves ? x[kRow]->minus_half_sums[kHalf] : x[kRow]->minus_sum)),
     ...);
    for_groups<kHalf * kCount, kCount>([&](auto group) __attribute__((always_inline)) {
      add_products(rows, block.codes(group), x, decltype(group)::value, sums);
    });
    if constexpr (!Weights::kScaled) {
      ((integers[0][kRow] = to_float(I32x8{sums[kRow]})), ...);
    } else {
      const F32x8 scale = block.scale(half);
      if constexpr (kHalf == 0) {
        ((integers[0][kRow] = mul(scale, to_float(I32x8{sums[kRow]}))), ...);
      } else {
        ((integers[0][kRow] = fma(scale, to_float(I32x8{sums[kRow]}), integers[0][kRow])), ...);
      }
    }
  });
}

inline constexpr int kFloatTileRows = 3, kFloatTileGroups = 1, kFloatSingleGroups = 2;
inline constexpr int kPackedRows = 2, kPackedTileRows = 2, kSlabTileRows = 4, kSlabTileGroups = 1;
inline constexpr int kHeadTile = 4, kTileSums = 4, kTileVectors = 2;

}  // namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE
