#pragma once
// Activations as the quantized products take them: int8 blocks of 32, each with everything a tile needs of it in one line of
// the cache.
#include <cstddef>
#include <cstdint>

namespace llorch::engine::compute::cpu {

// 32 activations x ~ scale * q with scale = max|x| / 127, q in [-127, 127]. The sums are exact and stored with their sign
// turned: a product begins with what its codes' offset takes off.
struct alignas(64) QuantizedBlock {
  std::int8_t q[32];
  float scale;
  std::int32_t minus_sum;           // of all q
  std::int32_t minus_half_sums[2];  // of q[0..15] and q[16..31]
  // The same as 16-bit lanes see them: of the q with index mod 4 in {0, 1}, and in {2, 3}.
  std::int16_t minus_pair_sums[2];
  std::int16_t minus_half_pair_sums[2][2];
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
