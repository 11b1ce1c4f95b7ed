#pragma once
// A weight as a plan wants it, described by the stored tensors it is made of. Nothing is read before read(), which makes any
// piece of it by itself: no tensor is ever in memory as a whole, and pieces may be made at the same time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/file_tensor.h"
#include "engine/io/quant/fp8.h"
#include "engine/plan/backend.h"

namespace llorch::engine::models {

// Element (i, j, k) of a part is element offset + i * strides[0] + j * strides[1] + k * strides[2] of its source. With block
// types strides[2] is 1 and rows of counts[2] elements begin and end with a block. MXFP4 as Hugging Face stores it counts
// in blocks instead; FP8 is always counted in elements.
struct TensorPart {
  const io::FileTensor* source = nullptr;
  const io::FileTensor* scales = nullptr;  // FP8: one per block of the matrix; MXFP4: one per block; else null
  std::uint64_t offset = 0;
  std::array<std::uint64_t, 3> counts{1, 1, 1};
  std::array<std::uint64_t, 3> strides{0, 0, 1};
};

enum class TensorStep : std::uint8_t {
  kGather,    // the elements of the parts, one part behind the other
  kWiden,     // the same from block types or FP8, which become the tensor's own type first
  kNegExp,    // -exp(x) in F32
  kNumbers,   // whole numbers of 32 or 64 bits below numbers_end in F32
  kOverRoot,  // x / sqrt(number of elements) in F32
  kF8Blocks,  // E4M3 and its scales to the blocks of quant_blocks.h
  kMxfp4,     // Hugging Face's nibbles and exponents to the blocks of quant_blocks.h
  kZeros,     // no parts: what another device adds
};

struct BoundTensor final : plan::TensorSource {
  std::string name;           // the stored tensor's, or what is made of it: "blk.0.attn_qkv.weight:q"
  plan::StoredTensor stored;  // without bytes
  TensorStep step = TensorStep::kGather;
  std::vector<TensorPart> parts;
  io::Fp8BlockShape scale_block;           // FP8 only
  std::uint32_t numbers_end = 0;           // kNumbers only
  std::uint64_t elements_whole_count = 0;  // of the tensor this is a slice of; 0: it is whole

  std::uint64_t elements_count() const;
  std::uint64_t bytes_count() const;
  // FP8 in the file and wider here: what the device has no kernels for, or what is in no blocks of one scale (f8_blocks.h).
  bool is_widened_f8() const;
  // As a backend takes it; reads through this object. REQUIRES: files open while it does.
  plan::StoredTensor as_source() const;
  // Beside `out` takes at most twice its size for a while.
  base::Result<> read(std::uint64_t begin, std::span<std::byte> out) const override;
};

}  // namespace llorch::engine::models
