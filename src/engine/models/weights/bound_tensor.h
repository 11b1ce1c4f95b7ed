#pragma once
// A weight as a plan wants it, described by the stored tensors it is made of. Nothing is read before fetch(), and what lies
// in the file as it is wanted is never copied; the rest is made one tensor at a time.
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/contract/backend.h"
#include "engine/io/file_tensor.h"
#include "engine/io/quant/fp8.h"

namespace llorch::engine::models {

// Element (i, j, k) of a part is element offset + i * strides[0] + j * strides[1] + k * strides[2] of its source. With block
// types strides[2] is 1 and rows of counts[2] elements begin and end with a block. MXFP4 as Hugging Face stores it counts
// in blocks instead.
struct TensorPart {
  const io::FileTensor* source = nullptr;
  const io::FileTensor* scales = nullptr;  // FP8: one per block of the matrix; MXFP4: one per block; else null
  std::uint64_t offset = 0;
  std::array<std::uint64_t, 3> counts{1, 1, 1};
  std::array<std::uint64_t, 3> strides{0, 0, 1};
};

enum class TensorStep : std::uint8_t {
  kGather,  // the elements of the parts, one part behind the other
  kWiden,   // the same from block types or FP8, which become the tensor's own type first
  kNegExp,  // -exp(x) in F32
  kMxfp4,   // Hugging Face's nibbles and exponents to the blocks of quant_blocks.h
  kZeros,   // no parts: what another device adds
};

// Memory that fetch() makes tensors in. Grows to the largest.
struct FetchScratch {
  std::vector<std::byte> result;
  std::vector<std::byte> widened;  // a whole source
};

struct BoundTensor {
  std::string name;               // the stored tensor's, or what is made of it: "blk.0.attn_qkv.weight:q"
  contract::StoredTensor stored;  // without bytes
  TensorStep step = TensorStep::kGather;
  std::vector<TensorPart> parts;
  io::Fp8BlockShape scale_block;           // FP8 only
  std::uint64_t elements_whole_count = 0;  // of the tensor this is a slice of; 0: it is whole

  std::uint64_t elements_count() const;
  std::uint64_t bytes_count() const;
  // The tensor with its bytes, which are in the file or in `scratch` and stay until the next fetch. REQUIRES: files open.
  contract::StoredTensor fetch(FetchScratch& scratch) const;
};

}  // namespace llorch::engine::models
