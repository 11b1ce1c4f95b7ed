#include "engine/io/quant/quantize.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "base/assert.h"
#include "engine/io/quant/encode.h"
#include "engine/io/quant/half.h"

namespace llorch::engine::io {

using namespace plan;
using base::ErrorCode;
using base::Result;

namespace {

// Past every type with an f16 scale (65504 * 128 * 32 for Q6_K), and small enough that no sum of squares overflows.
constexpr float kLargestScaled = 3e8f;

tl::unexpected<base::Error> unsupported(DType dtype, std::span<const float> values, std::size_t element) {
  return base::fail(base::Error{
      ErrorCode::kWeightValueUnsupported,
      fmt::format("element {} is {}, which {} cannot hold", element, values[element], dtype_info(dtype).name),
      {}}.with("element", static_cast<std::int64_t>(element)));
}

// Index of the value of largest magnitude, or of the first that is not finite.
std::size_t worst_of(std::span<const float> values) {
  std::size_t worst = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return i;
    if (std::fabs(values[i]) > std::fabs(values[worst])) worst = i;
  }
  return worst;
}

template <class Block, std::size_t kElements>
Result<> encode_row(DType dtype, std::span<const float> values, std::span<std::byte> row) {
  const float largest = dtype == DType::kMXFP4 ? std::numeric_limits<float>::max() : kLargestScaled;
  for (std::size_t i = 0; i * kElements < values.size(); ++i) {
    const auto x = values.subspan(i * kElements, kElements);
    const std::size_t worst = worst_of(x);
    Block block;
    if (!(std::fabs(x[worst]) <= largest) || !encode(x.data(), block)) {
      return unsupported(dtype, values, i * kElements + worst);
    }
    std::memcpy(row.data() + i * sizeof block, &block, sizeof block);
  }
  return {};
}

template <std::uint16_t (*kRound)(float)>
Result<> round_row(DType dtype, std::span<const float> values, std::span<std::byte> row, std::uint16_t infinity) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = kRound(values[i]);
    if ((bits & infinity) == infinity) return unsupported(dtype, values, i);
    std::memcpy(row.data() + i * sizeof bits, &bits, sizeof bits);
  }
  return {};
}

Result<> copy_row(std::span<const float> values, std::span<std::byte> row) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) return unsupported(DType::kF32, values, i);
  }
  if (!row.empty()) std::memcpy(row.data(), values.data(), row.size());
  return {};
}

}  // namespace

bool is_quantize_target(DType dtype) { return dtype != DType::kI32 && dtype != DType::kF8_E4M3; }

Result<> quantize_row(DType dtype, std::span<const float> values, std::span<std::byte> row) {
  const auto info = dtype_info(dtype);
  ASSERT(
      values.size() % info.block_elements == 0 && row.size() == values.size() / info.block_elements * info.block_bytes,
      "{}: {} values into {} bytes", info.name, values.size(), row.size());
  switch (dtype) {
    case DType::kF32: return copy_row(values, row);
    case DType::kF16: return round_row<f32_to_f16>(dtype, values, row, 0x7c00);
    case DType::kBF16: return round_row<f32_to_bf16>(dtype, values, row, 0x7f80);
    case DType::kQ8_0: return encode_row<BlockQ8_0, 32>(dtype, values, row);
    case DType::kQ4_0: return encode_row<BlockQ4_0, 32>(dtype, values, row);
    case DType::kQ4_1: return encode_row<BlockQ4_1, 32>(dtype, values, row);
    case DType::kQ5_0: return encode_row<BlockQ5_0, 32>(dtype, values, row);
    case DType::kQ5_1: return encode_row<BlockQ5_1, 32>(dtype, values, row);
    case DType::kQ2_K: return encode_row<BlockQ2_K, 256>(dtype, values, row);
    case DType::kQ3_K: return encode_row<BlockQ3_K, 256>(dtype, values, row);
    case DType::kQ4_K: return encode_row<BlockQ4_K, 256>(dtype, values, row);
    case DType::kQ5_K: return encode_row<BlockQ5_K, 256>(dtype, values, row);
    case DType::kQ6_K: return encode_row<BlockQ6_K, 256>(dtype, values, row);
    case DType::kIQ4_NL: return encode_row<BlockIQ4_NL, 32>(dtype, values, row);
    case DType::kIQ4_XS: return encode_row<BlockIQ4_XS, 256>(dtype, values, row);
    case DType::kMXFP4: return encode_row<BlockMXFP4, 32>(dtype, values, row);
    case DType::kF8_E4M3:
    case DType::kI32: break;
  }
  ASSERT(false, "{} is no target", info.name);
}

}  // namespace llorch::engine::io
