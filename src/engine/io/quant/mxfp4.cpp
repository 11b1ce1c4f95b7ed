#include "engine/io/quant/mxfp4.h"

#include <cstdint>
#include <cstring>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"

namespace llorch::engine::io {

void repack_hf_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<std::byte> out) {
  constexpr std::size_t kStoredBytes = 16;
  ASSERT(blocks.size() == kStoredBytes * scales.size() && out.size() == sizeof(contract::BlockMXFP4) * scales.size(),
         "{} bytes of {} blocks into {}", blocks.size(), scales.size(), out.size());
  for (std::size_t b = 0; b < scales.size(); ++b) {
    const auto element = [&](std::size_t e) {
      const auto pair = static_cast<unsigned>(blocks[b * kStoredBytes + e / 2]);
      return e % 2 == 0 ? pair & 15 : pair >> 4;
    };
    contract::BlockMXFP4 block{.e = static_cast<std::uint8_t>(scales[b]), .qs = {}};
    for (std::size_t i = 0; i < 16; ++i) block.qs[i] = static_cast<std::uint8_t>(element(i) | element(i + 16) << 4);
    std::memcpy(out.data() + b * sizeof block, &block, sizeof block);
  }
}

}  // namespace llorch::engine::io
