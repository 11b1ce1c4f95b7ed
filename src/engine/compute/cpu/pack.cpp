#include "engine/compute/cpu/pack.h"

#include <cstring>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"

namespace llorch::engine::compute::cpu {
namespace {

using contract::DType;
using contract::is_quantised;
using contract::kQuantBlockElements;

std::size_t block_quant_bytes(DType dtype) { return kPackRows * (dtype == DType::kQ8_0 ? 32 : 16); }

// `source` may have any alignment.
template <class T>
T read(const std::byte* source, std::size_t index) {
  T value;
  std::memcpy(&value, source + index * sizeof(T), sizeof(T));
  return value;
}

// `lanes` rows of this group exist; the others are already zero.
template <class Element>
void pack_float_group(const std::byte* source, std::size_t cols, std::size_t lanes, std::byte* packed) {
  auto* out = reinterpret_cast<Element*>(packed);
  for (std::size_t k = 0; k < cols; ++k)
    for (std::size_t lane = 0; lane < lanes; ++lane) out[k * kPackRows + lane] = read<Element>(source, lane * cols + k);
}

template <class Block>
void pack_quant_group(DType dtype, const std::byte* source, std::size_t blocks, std::size_t lanes, std::byte* packed) {
  constexpr std::size_t kWords = sizeof(Block::qs) / 4;
  const std::uint32_t flip = dtype == DType::kQ8_0 ? 0x80808080u : 0u;  // q to q + 128
  auto* quants = reinterpret_cast<std::uint8_t*>(packed);
  auto* scales = reinterpret_cast<std::uint16_t*>(packed + blocks * block_quant_bytes(dtype));
  for (std::size_t b = 0; b < blocks; ++b) {
    std::uint8_t* out = quants + b * block_quant_bytes(dtype);
    for (std::size_t lane = 0; lane < lanes; ++lane) {
      const auto block = read<Block>(source, lane * blocks + b);
      scales[b * kPackRows + lane] = block.d;
      for (std::size_t i = 0; i < kWords; ++i) {
        std::uint32_t word;
        std::memcpy(&word, block.qs + 4 * i, sizeof word);
        word ^= flip;
        std::memcpy(out + (i * kPackRows + lane) * 4, &word, sizeof word);
      }
    }
  }
}

}  // namespace

bool packable_type(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kQ8_0:
    case DType::kQ4_0: return true;
    default: return false;
  }
}

bool packable(const MatrixShape& shape) {
  return shape.rows != 0 && shape.cols != 0 && packable_type(shape.dtype) &&
         shape.cols % contract::dtype_info(shape.dtype).block_elements == 0;
}

std::size_t packed_group_bytes(const MatrixShape& shape) {
  const auto info = contract::dtype_info(shape.dtype);
  const std::size_t row_bytes = static_cast<std::size_t>(shape.cols) / info.block_elements * info.block_bytes;
  return (row_bytes * kPackRows + 63) / 64 * 64;
}

std::size_t packed_bytes(const MatrixShape& shape) {
  return packed_group_bytes(shape) * ((shape.rows + kPackRows - 1) / kPackRows);
}

void pack_groups(const MatrixShape& shape, const std::byte* source, std::byte* packed, std::size_t group_begin,
                 std::size_t group_end) {
  ASSERT(packable(shape), "{} x {} of type {}", shape.rows, shape.cols, static_cast<int>(shape.dtype));
  const auto info = contract::dtype_info(shape.dtype);
  const std::size_t blocks = shape.cols / info.block_elements;
  const std::size_t row_bytes = blocks * info.block_bytes;
  const std::size_t group_bytes = packed_group_bytes(shape);
  for (std::size_t g = group_begin; g < group_end; ++g) {
    const std::byte* rows = source + g * kPackRows * row_bytes;
    std::byte* out = packed + g * group_bytes;
    const std::size_t left = shape.rows - g * kPackRows;
    const std::size_t lanes = left < kPackRows ? left : kPackRows;
    const bool pad = lanes < kPackRows || is_quantised(shape.dtype);  // padded lanes, or bytes after the scales
    if (pad) std::memset(out, 0, group_bytes);
    switch (shape.dtype) {
      case DType::kF32: pack_float_group<std::uint32_t>(rows, shape.cols, lanes, out); break;
      case DType::kF16:
      case DType::kBF16: pack_float_group<std::uint16_t>(rows, shape.cols, lanes, out); break;
      case DType::kQ8_0: pack_quant_group<contract::BlockQ8_0>(shape.dtype, rows, blocks, lanes, out); break;
      case DType::kQ4_0: pack_quant_group<contract::BlockQ4_0>(shape.dtype, rows, blocks, lanes, out); break;
      default: break;  // packable() said no
    }
  }
}

PackedMatrix packed_view(const MatrixShape& shape, const std::byte* packed) {
  return {.dtype = shape.dtype,
          .rows = shape.rows,
          .cols = shape.cols,
          .group_bytes = packed_group_bytes(shape),
          .data = packed};
}

}  // namespace llorch::engine::compute::cpu
