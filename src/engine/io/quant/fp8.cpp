#include "engine/io/quant/fp8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/assert.h"
#include "engine/io/quant/dequant.h"
#include "engine/io/quant/half.h"

namespace llorch::engine::io {

using base::ErrorCode;
using base::fail;
using base::Result;

namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Scales are in memory whenever a piece of their matrix is made, by each thread that makes one. Blocks in use have 32 elements or
// more, or are a whole row.
constexpr std::uint64_t kScalesAlways = 65'536;
constexpr std::uint64_t kElementsPerScaleMin = 16;

// sign, exponent with `bias`, mantissa of `mantissa_bits`; subnormals as everywhere; no pattern is special.
float small_float(std::uint8_t bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1), exponent = (bits & 0x7f) >> mantissa_bits;
  const int significand = exponent == 0 ? mantissa : mantissa | 1 << mantissa_bits;
  const float magnitude =
      std::ldexp(static_cast<float>(significand), (exponent == 0 ? 1 : exponent) - bias - mantissa_bits);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

template <float (*kDecode)(std::uint8_t)>
const std::array<float, 256>& table_of() {
  static const std::array<float, 256> kTable = [] {
    std::array<float, 256> table{};
    for (unsigned i = 0; i < 256; ++i) table[i] = kDecode(static_cast<std::uint8_t>(i));
    return table;
  }();
  return kTable;
}

std::uint64_t ceil_div(std::uint64_t a, std::uint64_t b) { return a / b + (a % b != 0 ? 1 : 0); }

tl::unexpected<base::Error> mismatch(const FileTensor& weight, const FileTensor& scale, Fp8BlockShape block) {
  return fail(ErrorCode::kWeightShapeMismatch,
              fmt::format("{} is {} and {} is {}; blocks of {} x {} need one scale each", weight.name, describe(weight),
                          scale.name, describe(scale), block.rows, block.cols));
}

}  // namespace

float f8_e4m3_to_f32(std::uint8_t bits) { return (bits & 0x7f) == 0x7f ? kNan : small_float(bits, 3, 7); }

float f8_e5m2_to_f32(std::uint8_t bits) {
  if ((bits & 0x7c) != 0x7c) return small_float(bits, 2, 15);
  if ((bits & 3) != 0) return kNan;
  return (bits & 0x80) != 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
}

// The f32 on the way is rounded to odd: cut off, its last bit set if anything was lost, so that
// the second rounding sees on which side of a tie the value lies.
std::uint16_t f64_to_bf16(double value) {
  const float nearest = static_cast<float>(value);
  if (!std::isfinite(nearest) || static_cast<double>(nearest) == value) return f32_to_bf16(nearest);
  std::uint32_t bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) --bits;
  return f32_to_bf16(std::bit_cast<float>(bits | 1u));
}

float f8_e8m0_to_f32(std::uint8_t bits) { return bits == 0xff ? kNan : std::ldexp(1.0f, bits - 127); }

Result<> check_fp8_matrix(const FileTensor& weight, const FileTensor& scale_inv, Fp8BlockShape block) {
  ASSERT(block.rows > 0 && block.cols > 0, "blocks of {} x {}", block.rows, block.cols);
  const auto scale_type = dtype_of(scale_inv.type);
  const bool float_scale = scale_inv.type == StoredType::kF8_E8M0 || scale_type == plan::DType::kF32 ||
                           scale_type == plan::DType::kBF16 || scale_type == plan::DType::kF16;
  if ((weight.type != StoredType::kF8_E4M3 && weight.type != StoredType::kF8_E5M2) || !float_scale) {
    return fail(
        ErrorCode::kWeightDTypeUnsupported,
        fmt::format(
            "{} is {} with the scales {}, which are {}; wanted F8_E4M3 or F8_E5M2 with F32, BF16, F16 or F8_E8M0",
            weight.name, describe(weight), scale_inv.name, describe(scale_inv)));
  }
  if (weight.rank != 2 || weight.elements_count() == 0) return mismatch(weight, scale_inv, block);
  const bool single = scale_inv.elements_count() == 1;
  if (!single && (scale_inv.rank != 2 || scale_inv.dims[0] != block.blocks_of(weight.dims[0]) ||
                  scale_inv.dims[1] != ceil_div(weight.dims[1], block.cols))) {
    return mismatch(weight, scale_inv, block);
  }
  const std::uint64_t scales = scale_inv.elements_count();
  const bool one_a_row = scale_inv.rank == 2 && scale_inv.dims[1] == 1;
  if (!one_a_row && scales > kScalesAlways && scales > weight.elements_count() / kElementsPerScaleMin) {
    return fail(ErrorCode::kWeightShapeMismatch,
                fmt::format("{} is {} and {} is {}; at most one scale for {} elements, or for a row, is supported",
                            weight.name, describe(weight), scale_inv.name, describe(scale_inv), kElementsPerScaleMin));
  }
  return {};
}

Result<Fp8Matrix> fp8_matrix(const FileTensor& weight, const FileTensor& scale_inv, Fp8BlockShape block) {
  TRY(check_fp8_matrix(weight, scale_inv, block));
  Fp8Matrix matrix{.type = weight.type, .rows = weight.dims[0], .cols = weight.dims[1], .block = block, .scales = {}};
  if (scale_inv.elements_count() == 1) matrix.block = {.rows = matrix.rows, .cols = matrix.cols};
  const std::vector<std::byte> stored = TRY(scale_inv.data.read_all());
  matrix.scales.resize(scale_inv.elements_count());
  if (scale_inv.type == StoredType::kF8_E8M0) {
    std::ranges::transform(stored, matrix.scales.begin(),
                           [](std::byte bits) { return f8_e8m0_to_f32(static_cast<std::uint8_t>(bits)); });
  } else {
    dequantize_row(*dtype_of(scale_inv.type), stored, matrix.scales);
  }
  return matrix;
}

void fp8_to_bf16(const Fp8Matrix& matrix, std::uint64_t first, std::span<const std::byte> stored,
                 std::span<std::uint16_t> out) {
  ASSERT(stored.size() == out.size() && first + out.size() <= matrix.rows * matrix.cols,
         "{} elements from {} on of {} x {}, {} values", stored.size(), first, matrix.rows, matrix.cols, out.size());
  const auto& values = matrix.type == StoredType::kF8_E4M3 ? table_of<f8_e4m3_to_f32>() : table_of<f8_e5m2_to_f32>();
  const std::uint64_t scales_per_row = ceil_div(matrix.cols, matrix.block.cols);
  for (std::uint64_t i = 0; i < out.size();) {
    const std::uint64_t row = (first + i) / matrix.cols, col = (first + i) % matrix.cols,
                        block = col / matrix.block.cols;
    const auto scale = static_cast<double>(matrix.scales[matrix.block.block_of(row) * scales_per_row + block]);
    const std::uint64_t col_end = std::min((block + 1) * matrix.block.cols, matrix.cols);  // one scale up to there
    const std::uint64_t end = std::min<std::uint64_t>(i + (col_end - col), out.size());
    for (; i < end; ++i) out[i] = f64_to_bf16(values[static_cast<std::uint8_t>(stored[i])] * scale);
  }
}

}  // namespace llorch::engine::io
