#pragma once
// Activations as the quantized products take them: int8 blocks of 32, each with everything a tile needs of it in one line of
// the cache.
#include <bit>
#include <cstddef>
#include <cstdint>

namespace llorch::engine::compute::cpu {

// An integer sum S of products is kept as the float kSumBase + S: a register of integers that began with the bits of kSumBase
// holds that float without a conversion while |S| < 2^22, for floats of this binade are one apart. One multiplication takes the
// base off and scales: fma(kSumBase + S, scale, -kSumBase * scale) is S * scale, rounded once.
inline constexpr float kSumBase = 0x1.8p23f;
inline constexpr std::int32_t kSumBaseBits = 0x4B400000;
static_assert(std::bit_cast<float>(kSumBaseBits) == kSumBase && 32 * 128 * 127 < 1 << 22);

// 32 activations x ~ scale * q, q in [-127, 127]. scale is max|x| / 127 rounded to 22 bits, so that kSumBase * scale is exact.
struct alignas(64) QuantizedBlock {
  std::int8_t q[32];
  float scale;
  float minus_base;                 // -kSumBase * scale
  float minus_scaled_sum;           // -scale times the sum of all q, what mins multiply
  float minus_scaled_half_sums[2];  // of q[0..15] and q[16..31]
  // What integer sums of codes with an offset begin with, of all q, of q[0..15] and of q[16..31], in the form that the products of
  // the instruction set take (begins_of()).
  std::int32_t begin, half_begins[2];
};
static_assert(sizeof(QuantizedBlock) == 64);

struct QuantizedRows {
  QuantizedBlock* blocks = nullptr;  // [rows, width / 32]
  std::size_t width = 0;             // a multiple of 32

  std::size_t row_blocks() const { return width / 32; }
  const QuantizedBlock* row(std::size_t index) const { return blocks + index * row_blocks(); }
  // The rows from `index` on.
  QuantizedRows from(std::size_t index) const {
    return {blocks == nullptr ? nullptr : blocks + index * row_blocks(), width};
  }
};

}  // namespace llorch::engine::compute::cpu
