#pragma once
// MXFP4 as Hugging Face models store it (gpt-oss), into the blocks GGUF files hold.
#include <cstddef>
#include <span>

namespace llorch::engine::io {

// `blocks`: 16 bytes per 32 elements, element 2i in the low and 2i + 1 in the high nibble of byte i. `scales`: one E8M0 byte
// per 32 elements. `out`: one plan::BlockMXFP4 per 32 elements, where byte i holds elements i and i + 16. No element
// changes its bits.
// REQUIRES: blocks.size() == 16 * scales.size(), out.size() == 17 * scales.size(); no overlap.
void repack_hf_mxfp4(std::span<const std::byte> blocks, std::span<const std::byte> scales, std::span<std::byte> out);

}  // namespace llorch::engine::io
