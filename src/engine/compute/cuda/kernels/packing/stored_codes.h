#pragma once
// Stored blocks (wire/quant_blocks.h) taken apart one code at a time: what cpu/pack.cpp does block by block.
#include "engine/compute/cpu/quant_layout.h"
#include "engine/compute/cuda/kernels/scalar.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cuda::kernels {

template <plan::DType kType>
struct StoredBlock;
#define LLORCH_STORED_BLOCK(name)            \
  template <>                                \
  struct StoredBlock<plan::DType::k##name> { \
    using Type = plan::Block##name;          \
  };
LLORCH_STORED_BLOCK(Q8_0)
LLORCH_STORED_BLOCK(Q4_0)
LLORCH_STORED_BLOCK(Q4_1)
LLORCH_STORED_BLOCK(Q5_0)
LLORCH_STORED_BLOCK(Q5_1)
LLORCH_STORED_BLOCK(Q2_K)
LLORCH_STORED_BLOCK(Q3_K)
LLORCH_STORED_BLOCK(Q4_K)
LLORCH_STORED_BLOCK(Q5_K)
LLORCH_STORED_BLOCK(Q6_K)
LLORCH_STORED_BLOCK(IQ4_NL)
LLORCH_STORED_BLOCK(IQ4_XS)
LLORCH_STORED_BLOCK(MXFP4)
#undef LLORCH_STORED_BLOCK

// The unsigned code of element e of a block (quant_layout.h).
LLORCH_KERNEL std::uint32_t nibble_of(std::uint32_t byte, std::uint32_t half) { return byte >> (4 * half) & 15u; }
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ8_0& b, std::uint32_t e) {
  return static_cast<std::uint32_t>(b.qs[e] + 128);
}
template <class Block>
concept NibbleBlock = sizeof(Block::qs) == 16;
template <class Block>
concept FifthBitBlock = NibbleBlock<Block> && sizeof(Block::qh) == 4;
template <NibbleBlock Block>
LLORCH_KERNEL std::uint32_t code_of(const Block& b, std::uint32_t e) {
  const std::uint32_t low = nibble_of(b.qs[e % 16], e / 16);
  if constexpr (FifthBitBlock<Block>) return low | (b.qh[e / 8] >> (e % 8) & 1u) << 4;
  return low;
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ2_K& b, std::uint32_t e) {
  return b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3u;
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ3_K& b, std::uint32_t e) {
  return (b.qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3u) | (b.hmask[e % 32] >> (e / 32) & 1u) << 2;
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ4_K& b, std::uint32_t e) {
  return nibble_of(b.qs[e / 64 * 32 + e % 32], e / 32 % 2);
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ5_K& b, std::uint32_t e) {
  return nibble_of(b.qs[e / 64 * 32 + e % 32], e / 32 % 2) | (b.qh[e % 32] >> (e / 32) & 1u) << 4;
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockQ6_K& b, std::uint32_t e) {
  const std::uint32_t n = e / 128, t = e % 128 / 32, l = e % 32;
  return nibble_of(b.ql[64 * n + l + 32 * (t % 2)], t / 2) | (b.qh[32 * n + l] >> (2 * t) & 3u) << 4;
}
LLORCH_KERNEL std::uint32_t code_of(const plan::BlockIQ4_XS& b, std::uint32_t e) {
  return nibble_of(b.qs[e / 32 * 16 + e % 16], e % 32 / 16);
}

// Byte i of a block's small scales, in the order of the packed record: per 32 elements one or two.
template <class Block>
LLORCH_KERNEL std::uint8_t small_of(const Block& b, std::uint32_t i) {
  if constexpr (std::is_same_v<Block, plan::BlockQ3_K>)
    return static_cast<std::uint8_t>(plan::q3_k_scale(b.scales, i));
  else if constexpr (std::is_same_v<Block, plan::BlockIQ4_XS>)
    return static_cast<std::uint8_t>(plan::iq4_xs_scale(b, i));
  else if constexpr (std::is_same_v<Block, plan::BlockQ4_K> || std::is_same_v<Block, plan::BlockQ5_K>)
    return static_cast<std::uint8_t>(i % 2 == 0 ? plan::k4_scale(b.scales, i / 2) : plan::k4_min(b.scales, i / 2));
  else
    return static_cast<std::uint8_t>(b.scales[i]);
}

// The factor of the integers, and of the mins.
template <class Block>
LLORCH_KERNEL std::uint16_t min_factor_of(const Block& b) {
  if constexpr (requires { b.m; })
    return b.m;
  else
    return b.dmin;
}

}  // namespace llorch::engine::compute::cuda::kernels
