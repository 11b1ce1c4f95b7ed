#pragma once
// Row-interleaved weights ("R16"): sixteen output rows side by side, so that a SIMD lane is an output row, activations
// are broadcast and no horizontal sum is needed. Packed once at load; a repack, never a requantization. K = cols, the
// length of a dot product; N = rows. Rows past N in the last group are zero.
//
//   group g = rows 16g .. 16g+15, group_bytes apart, 64-byte aligned:
//     F32, F16, BF16: element [k][lane], k = 0 .. K-1
//     quantized types: quant_layout.h
#include <cstddef>
#include <cstdint>

#include "engine/compute/cpu/quant_layout.h"
#include "engine/compute/cpu/range.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::compute::cpu {

// A view; the bytes belong to whoever allocated them and outlive every kernel call on it.
struct PackedMatrix {
  plan::DType dtype = plan::DType::kF32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;
  std::size_t group_bytes = 0;
  const std::byte* data = nullptr;

  std::size_t groups() const { return (rows + kPackRows - 1) / kPackRows; }
  // Its rows `range`, of which the first begins a group.
  PackedMatrix part(Range range) const {
    PackedMatrix part = *this;
    part.data += range.begin / kPackRows * group_bytes;
    part.rows = static_cast<std::uint32_t>(range.end - range.begin);
    return part;
  }
};

struct MatrixShape {
  plan::DType dtype = plan::DType::kF32;
  std::uint32_t rows = 0;
  std::uint32_t cols = 0;  // a multiple of the type's block
};
// Not I32 and F8_E4M3.
bool packable(const MatrixShape& shape);

// Pure functions; REQUIRES packable(shape).
std::size_t packed_group_bytes(const MatrixShape& shape);
std::size_t packed_bytes(const MatrixShape& shape);

// How much of a quantized group one record holds (quant_layout.h).
enum class Records : std::uint8_t {
  kLines,  // whole cache lines: the CPU's kernels
  kWhole,  // all blocks: CUDA's, whose threads read a plane side by side
};

// Packs groups [group_begin, group_end) of the row-major stored matrix `source` (rows of consecutive elements or
// blocks, no padding, any alignment) to `packed` (packed_bytes(shape), 64-byte aligned). Groups are independent:
// callers may split.
void pack_groups(const MatrixShape& shape, const std::byte* source, std::byte* packed, std::size_t group_begin,
                 std::size_t group_end, Records records = Records::kLines);

PackedMatrix packed_view(const MatrixShape& shape, const std::byte* packed);

}  // namespace llorch::engine::compute::cpu
