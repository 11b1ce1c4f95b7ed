#pragma once
// AVX2: quantized products by vpmaddubsw.
#define LLORCH_ISA_NAMESPACE avx2
#include "engine/compute/cpu/simd/lanes_256.h"

namespace llorch::engine::compute::cpu::simd::avx2 {

// vpmaddubsw adds two u8 x s8 products into 16 bits and saturates there, so signed weights move their sign onto x, which is
// exact also for w = -128.
inline constexpr bool kSignedCodes = true;

// By how many bits `power`, a power of two, shifts.
constexpr int shift_of(int power) { return power <= 1 ? 0 : 1 + shift_of(power / 2); }

// Sums of pairs begin with what the offset takes off. They may wrap on the way: what counts is that the end fits.
template <int kOffset>
LLORCH_INLINE __m256i times_offset(std::int32_t pair_sums) {
  return _mm256_slli_epi16(_mm256_set1_epi32(pair_sums), shift_of(kOffset));
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
template <int... kRow>
LLORCH_INLINE void widen_pairs(Rows<kRow...>, const __m256i (&pairs)[sizeof...(kRow)],
                               __m256i (&sums)[sizeof...(kRow)]) {
  ((sums[kRow] = _mm256_add_epi32(sums[kRow], _mm256_madd_epi16(pairs[kRow], _mm256_set1_epi16(1)))), ...);
}
template <int... kRow>
LLORCH_INLINE void add_signed(Rows<kRow...>, PartBytes codes, const QuantizedBlock* const (&x)[sizeof...(kRow)],
                              int group, __m256i (&sums)[sizeof...(kRow)]) {
  const __m256i magnitude = _mm256_abs_epi8(codes.v);
  const auto product = [&](int row) __attribute__((always_inline)) {
    const __m256i turned = _mm256_sign_epi8(broadcast4(x[row]->q + 4 * group), codes.v);
    return _mm256_madd_epi16(_mm256_maddubs_epi16(magnitude, turned), _mm256_set1_epi16(1));
  };
  ((sums[kRow] = _mm256_add_epi32(sums[kRow], product(kRow))), ...);
}

// based[0][r] = kSumBase + sum over part kScale of the block, the elements that share a scale, of integer of the weight * q of x[r];
// lane = weight row. A pair is |w x + w x| <= 2 * 127 * largest |w|, 32512 for 128: as many groups of four as fit into 16 bits are
// added before they are widened.
template <class Weights, int kScale, class Block, int... kRow>
LLORCH_INLINE void block_sums(Rows<kRow...> rows, const Block (&blocks)[1],
                              const QuantizedBlock* const (&x)[sizeof...(kRow)], F32x8 (&based)[1][sizeof...(kRow)]) {
  constexpr int kCount = 8 / Weights::kScales;
  constexpr int kLargest = Weights::kOffset != 0 ? Weights::kOffset : Weights::kCodeMax;  // |code - offset|
  __m256i sums[sizeof...(kRow)], pairs[sizeof...(kRow)];
  ((sums[kRow] = _mm256_set1_epi32(kSumBaseBits)), ...);
  for_groups<kScale * kCount, kCount>([&](auto group) __attribute__((always_inline)) {
    constexpr int g = decltype(group)::value, kIndex = g % kCount;
    const PartBytes codes = blocks[0].codes(group);
    if constexpr (Weights::kCodeMax == 0) {
      add_signed(rows, codes, x, g, sums);
    } else {
      static_assert(Weights::kOffset == 0 || kCount * 254 * kLargest <= 32767);
      constexpr int kFit = 32767 / (254 * kLargest), kAtOnce = kFit < kCount ? kFit : kCount;
      if constexpr (Weights::kOffset != 0 && kIndex == 0)
        ((pairs[kRow] = times_offset<Weights::kOffset>(Weights::template begin<kScale>(*x[kRow]))), ...);
      add_pairs<Weights::kOffset == 0 && kIndex % kAtOnce == 0>(rows, codes, x, g, pairs);
      if constexpr ((kIndex + 1) % kAtOnce == 0 || kIndex + 1 == kCount) widen_pairs(rows, pairs, sums);
    }
  });
  ((based[0][kRow].v = _mm256_castsi256_ps(sums[kRow])), ...);
}

inline constexpr int kFloatTileRows = 3, kFloatTileGroups = 1;
inline constexpr int kPackedRows = 8, kPackedRowsOfPlanes = 8, kPackedTileRows = 4, kSlabTileRows = 4,
                     kSlabTileGroups = 1;
inline constexpr int kHeadTile = 4, kTileSums = 4, kTileVectors = 2;
inline constexpr std::size_t kQuantRowPanel = 128, kSlabBlocks = 16, kChunkBytes = 256 << 10;

}  // namespace llorch::engine::compute::cpu::simd::avx2
