#include "engine/io/quant/mxfp4.h"

#include <cstdint>
#include <cstring>

#include "base/assert.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {

namespace {

// Eight nibbles, the lowest first, as eight bytes.
std::uint64_t spread(std::uint32_t nibbles) {
  std::uint64_t x = nibbles;
  x = (x | x << 16) & 0x0000FFFF0000FFFFu;
  x = (x | x << 8) & 0x00FF00FF00FF00FFu;
  return (x | x << 4) & 0x0F0F0F0F0F0F0F0Fu;
}

}  // namespace

void repack_hf_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<std::byte> out) {
  constexpr std::size_t kStoredBytes = 16;
  ASSERT(blocks.size() == kStoredBytes * scales.size() && out.size() == sizeof(plan::BlockMXFP4) * scales.size(),
         "{} bytes of {} blocks into {}", blocks.size(), scales.size(), out.size());
  for (std::size_t b = 0; b < scales.size(); ++b) {
    std::uint32_t stored[4];  // elements 8i .. 8i + 7
    std::memcpy(stored, blocks.data() + b * kStoredBytes, sizeof stored);
    const std::uint64_t low = spread(stored[0]) | spread(stored[2]) << 4;
    const std::uint64_t high = spread(stored[1]) | spread(stored[3]) << 4;
    plan::BlockMXFP4 block{.e = static_cast<std::uint8_t>(scales[b]), .qs = {}};
    std::memcpy(block.qs, &low, sizeof low);
    std::memcpy(block.qs + 8, &high, sizeof high);
    std::memcpy(out.data() + b * sizeof block, &block, sizeof block);
  }
}

}  // namespace llorch::engine::io
