#include "engine/compute/cuda/kernels/packing/packing_reference.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/assert.h"
#include "engine/compute/cuda/kernels/matmul/activations.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cuda::kernels {

using plan::is_quantized;

namespace {

// BF16 bits of |x| > 0 times 2^n as F16 bits. Nearly all are shifted bits: the exponent moves, three zeros follow.
std::uint16_t scaled_half(std::uint16_t bits, std::int32_t n) {
  const std::int32_t exponent = (bits >> 7 & 0xFF) - 127 + 15 + n;
  if (exponent >= 1 && exponent <= 30)
    return static_cast<std::uint16_t>((bits & 0x8000u) | static_cast<unsigned>(exponent) << 10 | (bits & 0x7Fu) << 3);
  return float_to_half(std::ldexp(bfloat_to_float(bits), n));
}

// Brings a row into the range of F16; returns the inverse of what it was multiplied by.
float narrow_row(std::span<std::uint16_t> row) {
  std::uint32_t largest = 0;
  for (const std::uint16_t bits : row) largest = std::max(largest, bits & 0x7FFFu);
  const std::int32_t n = narrowing_exponent(largest << 16);
  for (std::uint16_t& bits : row) bits = scaled_half(bits, n);
  return std::ldexp(1.0f, -n);
}

// Eight columns of a row are four pieces of two, in the places of both steps and both words of a lane.
void pack_half(const cpu::MatrixShape& shape, std::span<const std::byte> rows, std::span<std::byte> packed) {
  constexpr std::size_t kElement = sizeof(std::uint16_t);
  std::memset(packed.data(), 0, packed.size());
  const std::size_t row_bytes = shape.cols * kElement, group_bytes = unit_bytes(shape);
  std::vector<std::uint16_t> values(shape.cols);
  for (std::size_t row = 0; row < rows.size() / row_bytes; ++row) {
    std::byte* group = packed.data() + row / kMmaRows * group_bytes;
    const auto r = static_cast<std::uint32_t>(row % kMmaRows);
    std::memcpy(values.data(), rows.data() + row * row_bytes, row_bytes);
    if (shape.dtype == plan::DType::kBF16) {
      const float scale = narrow_row(values);
      std::memcpy(group + group_bytes - (kMmaRows - r) * sizeof scale, &scale, sizeof scale);
    }
    const auto put = [&](std::uint32_t k, std::size_t elements) {
      std::memcpy(group + half_index(r, k) * kElement, &values[k], elements * kElement);
    };
    std::uint32_t k = 0;
    for (; k + 8 <= shape.cols; k += 8) put(k, 2), put(k + 2, 2), put(k + 4, 2), put(k + 6, 2);
    for (; k < shape.cols; ++k) put(k, 1);
  }
}

// The factors of a row's blocks and its scale from what the formula of f8.h says, and every byte where half_index() has it.
void pack_f8(const cpu::MatrixShape& shape, std::span<const std::byte> rows, std::span<std::byte> packed) {
  std::memset(packed.data(), 0, packed.size());
  const std::size_t blocks = (shape.cols + 127) / 128, row_bytes = plan::row_bytes(shape.dtype, shape.cols);
  for (std::size_t row = 0; row < rows.size() / row_bytes; ++row) {
    std::byte* group = packed.data() + row / kMmaRows * unit_bytes(shape);
    const auto r = static_cast<std::uint32_t>(row % kMmaRows);
    std::vector<plan::BlockF8_E4M3> stored(blocks);
    std::memcpy(stored.data(), rows.data() + row * row_bytes, row_bytes);
    float scale = 0x1p-126f;
    for (const auto& block : stored)
      if (std::isfinite(block.d)) scale = std::max(scale, std::fabs(block.d) / 128);
    std::byte* factors = group + blocks * 128 * kMmaRows;
    std::memcpy(factors + (blocks * sizeof(std::uint16_t) * kMmaRows) + r * sizeof scale, &scale, sizeof scale);
    for (std::uint32_t b = 0; b < blocks; ++b) {
      const auto& codes = stored[b].qs;
      const bool has_nan = std::ranges::any_of(codes, [](std::uint8_t code) { return code == 0x7F || code == 0xFF; });
      const std::uint16_t factor =
          has_nan || std::isnan(stored[b].d) ? std::uint16_t{0x7E00} : float_to_half(stored[b].d / scale);
      std::memcpy(factors + (b * kMmaRows + r) * sizeof factor, &factor, sizeof factor);
      for (std::uint32_t k = 0; k < 128; ++k) group[half_index(r, b * 128 + k)] = std::byte{codes[k]};
    }
  }
}

}  // namespace

void pack_units_reference(const cpu::MatrixShape& shape, std::span<const std::byte> source, std::span<std::byte> packed,
                          std::size_t begin, std::size_t end) {
  const std::size_t bytes = unit_bytes(shape);
  ASSERT(begin <= end && end <= units_of(shape) && packed.size() == (end - begin) * bytes, "units {} to {} in {} bytes",
         begin, end, packed.size());
  const std::size_t stored = plan::row_bytes(shape.dtype, shape.cols);
  const std::size_t first = begin * unit_rows(shape),
                    rows = std::min(shape.rows - first, (end - begin) * unit_rows(shape));
  const auto part = source.subspan(first * stored, rows * stored);
  if (is_quantized(shape.dtype)) {
    const cpu::MatrixShape of_part{.dtype = shape.dtype, .rows = static_cast<std::uint32_t>(rows), .cols = shape.cols};
    cpu::pack_groups(of_part, part.data(), packed.data(), 0, end - begin, cpu::Records::kWhole);
  } else if (shape.dtype == plan::DType::kF8_E4M3) {
    pack_f8(shape, part, packed);
  } else if (shape.dtype != plan::DType::kF32) {
    pack_half(shape, part, packed);
  } else if (stored == bytes) {
    std::memcpy(packed.data(), part.data(), packed.size());
  } else {
    std::memset(packed.data(), 0, packed.size());
    for (std::size_t row = 0; row < rows; ++row)
      std::memcpy(packed.data() + row * bytes, part.data() + row * stored, stored);
  }
}

}  // namespace llorch::engine::compute::cuda::kernels
