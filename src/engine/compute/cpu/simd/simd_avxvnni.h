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

// sums + four products of an unsigned byte and a signed one, per lane.
LLORCH_INLINE __m256i add_four(__m256i sums, __m256i codes, __m256i q) {
#if defined(LLORCH_EVEX_VNNI)
  return _mm256_dpbusd_epi32(sums, codes, q);
#else
  return _mm256_dpbusd_avx_epi32(sums, codes, q);
#endif
}

template <int... kRow>
LLORCH_INLINE void add_products(Rows<kRow...>, PartBytes codes, const QuantizedBlock* const (&x)[sizeof...(kRow)],
                                int group, __m256i (&sums)[sizeof...(kRow)]) {
  ((sums[kRow] = add_four(sums[kRow], codes.v, broadcast4(x[kRow]->q + 4 * group))), ...);
}

// based[0][r] = kSumBase + sum over part kScale of the block, the elements that share a scale, of integer of the weight * q of x[r];
// lane = weight row.
template <class Weights, int kScale, class Block, int... kRow>
LLORCH_INLINE void block_sums(Rows<kRow...> rows, const Block (&blocks)[1],
                              const QuantizedBlock* const (&x)[sizeof...(kRow)], F32x8 (&based)[1][sizeof...(kRow)]) {
  constexpr int kCount = 8 / Weights::kScales;
  __m256i sums[sizeof...(kRow)];
  ((sums[kRow] = _mm256_set1_epi32(Weights::template begin<kScale>(*x[kRow]))), ...);
  for_groups<kScale * kCount, kCount>([&](auto group) __attribute__((always_inline)) {
    add_products(rows, blocks[0].codes(group), x, decltype(group)::value, sums);
  });
  ((based[0][kRow].v = _mm256_castsi256_ps(sums[kRow])), ...);
}

inline constexpr int kFloatTileRows = 3, kFloatTileGroups = 1;
inline constexpr int kPackedRows = 4, kPackedRowsOfPlanes = 4, kPackedTileRows = 2, kSlabTileRows = 4,
                     kSlabTileGroups = 1;
inline constexpr int kHeadTile = 4, kTileSums = 4, kTileVectors = 2;
inline constexpr std::size_t kQuantRowPanel = 128, kSlabBlocks = 16, kChunkBytes = 256 << 10;

}  // namespace llorch::engine::compute::cpu::simd::LLORCH_ISA_NAMESPACE
