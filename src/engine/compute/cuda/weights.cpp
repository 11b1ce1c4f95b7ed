#include "engine/compute/cuda/weights.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"
#include "engine/compute/cuda/kernels/matmul.h"

namespace llorch::engine::compute::cuda {

using contract::is_quantised;

std::size_t unit_rows(const cpu::MatrixShape& shape) { return is_quantised(shape.dtype) ? cpu::kPackRows : 1; }

std::size_t units_of(const cpu::MatrixShape& shape) { return (shape.rows + unit_rows(shape) - 1) / unit_rows(shape); }

std::size_t unit_bytes(const cpu::MatrixShape& shape) {
  if (is_quantised(shape.dtype)) return cpu::packed_group_bytes(shape);
  const std::size_t chunks = (shape.cols + kernels::kFloatChunk - 1) / kernels::kFloatChunk;
  return chunks * kernels::kFloatChunk * contract::dtype_info(shape.dtype).block_bytes;
}

void pack_units(const cpu::MatrixShape& shape, std::span<const std::byte> source, std::span<std::byte> packed,
                std::size_t begin, std::size_t end) {
  const std::size_t bytes = unit_bytes(shape);
  ASSERT(begin <= end && end <= units_of(shape) && packed.size() == (end - begin) * bytes, "units {} to {} in {} bytes",
         begin, end, packed.size());
  if (is_quantised(shape.dtype)) {
    const auto info = contract::dtype_info(shape.dtype);
    const std::size_t row_bytes = std::size_t{shape.cols} / info.block_elements * info.block_bytes;
    const std::size_t first_row = begin * cpu::kPackRows;
    const cpu::MatrixShape part{.dtype = shape.dtype,
                                .rows = static_cast<std::uint32_t>(
                                    std::min<std::size_t>(shape.rows - first_row, (end - begin) * cpu::kPackRows)),
                                .cols = shape.cols};
    cpu::pack_groups(part, source.data() + first_row * row_bytes, packed.data(), 0, end - begin);
    return;
  }
  const std::size_t stored = std::size_t{shape.cols} * contract::dtype_info(shape.dtype).block_bytes;
  if (stored == bytes) {
    std::memcpy(packed.data(), source.data() + begin * stored, packed.size());
    return;
  }
  std::memset(packed.data(), 0, packed.size());
  for (std::size_t row = begin; row < end; ++row)
    std::memcpy(packed.data() + (row - begin) * bytes, source.data() + row * stored, stored);
}

}  // namespace llorch::engine::compute::cuda
