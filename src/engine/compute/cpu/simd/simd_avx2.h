#pragma once
// AVX2: quantized products by vpmaddubsw.
#define LLORCH_ISA_NAMESPACE avx2
#include "engine/compute/cpu/simd/lanes_256.h"

namespace llorch::engine::compute::cpu::simd::avx2 {

// vpmaddubsw adds two u8 x s8 products into 16 bits and saturates there, so signed weights move their sign onto x, which is
// exact also for w = -128.
inline constexpr bool kSignedCodes = true;

// Small scales as block_integers() wants them: in both 16-bit halves of a lane, for vpmaddwd.
struct PartScale {
  __m256i v;
};
LLORCH_INLINE PartScale make_scale(I32x8 s) {
  return {_mm256_or_si256(_mm256_and_si256(s.v, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(s.v, 16))};
}
LLORCH_INLINE PartScale load_scale(const std::uint8_t* p) {
  return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
}
LLORCH_INLINE void store_scale(std::uint8_t* p, PartScale s) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), s.v);
}

// Sums of pairs begin with what the offset takes off. They may wrap on the way: what counts is that the end fits.
template <int kOffset>
LLORCH_INLINE __m256i times_offset(const std::int16_t (&pair_sums)[2]) {
  if constexpr (kOffset == 0) return _mm256_setzero_si256();
  std::int32_t word;
  __builtin_memcpy(&word, pair_sums, 4);
  return _mm256_slli_epi16(_mm256_set1_epi32(word), shift_of(kOffset));
}
template <bool kBegin, int... kRow>
LLORCH_INLINE void add_pairs(Rows<kRow...>, PartBytes codes, const QuantizedBlock* const (&x)[sizeof...(kRow)],
                             int group, __m256i (&pairs)[sizeof...(kRow)]) {
  const auto product = [&](int row) __attribute__((always_inline)) {
    return _mm256_maddubs_epi16(codes.v, broadcast4(x[row]->q + 4 * group));
  };
  if constexpr (kBegin) {
    ((pairs[kRow] = product(kRow)), ...);
  } else {
    ((pairs[kRow] = _mm256_add_epi16(pairs[kRow], product(kRow))), ...);
  }
}
template <bool kBegin, int... kRow>
LLORCH_INLINE void widen_pairs(Rows<kRow...>, const __m256i (&pairs)[sizeof...(kRow)], __m256i scale,
                               __m256i (&sums)[sizeof...(kRow)]) {
  if constexpr (kBegin) {
    ((sums[kRow] = _mm256_madd_epi16(pairs[kRow], scale)), ...);
  } else {
    ((sums[kRow] = _mm256_add_epi32(sums[kRow], _mm256_madd_epi16(pairs[kRow], scale))), ...);
  }
}
template <bool kBegin, int... kRow>
LLORCH_INLINE void add_signed(Rows<kRow...>, PartBytes codes, const QuantizedBlock* const (&x)[sizeof...(kRow)],
                              int group, __m256i scale, __m256i (&sums)[sizeof...(kRow)]) {
  const __m256i magnitude = _mm256_abs_epi8(codes.v);
  const auto product = [&](int row) __attribute__((always_inline)) {
    const __m256i turned = _mm256_sign_epi8(broadcast4(x[row]->q + 4 * group), codes.v);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, turned), scale);
  };
  if constexpr (kBegin) {
    ((sums[kRow] = product(kRow)), ...);
  } else {
    ((sums[kRow] = _mm256_add_epi32(sums[kRow], product(kRow))), ...);
  }
}

// integers[0][r] = sum over the block of small scale * integer of the weight * q of x[r], exact, lane = weight row.
// A pair is |w x + w x| <= 2 * 127 * largest |w|, 32512 for 128: as many groups of four as fit into 16 bits are added before
// they are widened and scaled in one multiplication.
template <class Weights, class Block, int... kRow>
LLORCH_INLINE void block_integers(Rows<kRow...> rows, const Block (&blocks)[1],
                                  const QuantizedBlock* const (&x)[sizeof...(kRow)],
                                  F32x8 (&integers)[1][sizeof...(kRow)]) {
  const Block& block = blocks[0];
  constexpr bool kHalves = Weights::kLayout.has_halves();
  constexpr int kCount = kHalves ? 4 : 8;
  constexpr int kLargest = Weights::kOffset != 0 ? Weights::kOffset : Weights::kCodeMax;  // |code - offset|
  __m256i sums[sizeof...(kRow)], pairs[sizeof...(kRow)];
  for_groups<0, 8 / kCount>([&](auto half) __attribute__((always_inline)) {
    constexpr int kHalf = decltype(half)::value;
    __m256i scale;
    if constexpr (Weights::kScaled) {
      scale = block.scale(half).v;
    } else {
      scale = _mm256_set1_epi16(1);
    }
    for_groups<kHalf * kCount, kCount>([&](auto group) __attribute__((always_inline)) {
      constexpr int g = decltype(group)::value, kIndex = g % kCount;
      const PartBytes codes = block.codes(group);
      if constexpr (Weights::kCodeMax == 0) {
        add_signed<g == 0>(rows, codes, x, g, scale, sums);
      } else {
        static_assert(Weights::kOffset == 0 || kCount * 254 * kLargest <= 32767);
        constexpr int kFit = 32767 / (254 * kLargest), kAtOnce = kFit < kCount ? kFit : kCount;
        if constexpr (Weights::kOffset != 0 && kIndex == 0) {
          ((pairs[kRow] = times_offset<Weights::kOffset>(kHalves ? x[kRow]->minus_half_pair_sums[kHalf]
                                                                 : x[kRow]->minus_pair_sums)),
           ...);
        }
        add_pairs<Weights::kOffset == 0 && kIndex % kAtOnce == 0>(rows, codes, x, g, pairs);
        if constexpr ((kIndex + 1) % kAtOnce == 0 || kIndex + 1 == kCount)
          widen_pairs<(g < kAtOnce)>(rows, pairs, scale, sums);
      }
    });
  });
  ((integers[0][kRow].v = _mm256_cvtepi32_ps(sums[kRow])), ...);
}

inline constexpr int kFloatTileRows = 3, kFloatTileGroups = 1, kFloatSingleGroups = 2;
inline constexpr int kPackedRows = 8, kPackedTileRows = 4, kSlabTileRows = 4, kSlabTileGroups = 1;
inline constexpr int kHeadTile = 4, kTileSums = 4, kTileVectors = 2;

}  // namespace llorch::engine::compute::cpu::simd::avx2
