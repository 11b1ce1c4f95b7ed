#include "engine/io/quant/dequant.h"

#include <cstring>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"
#include "engine/io/quant/half.h"

namespace llorch::engine::io {
namespace {

template <class T>
T load(std::span<const std::byte> row, std::size_t index) {
  T value;
  std::memcpy(&value, row.data() + index * sizeof(T), sizeof(T));
  return value;
}

void q8_0(std::span<const std::byte> row, std::span<float> values) {
  for (std::size_t i = 0; i < values.size(); i += contract::kQuantBlockElements) {
    const auto block = load<contract::BlockQ8_0>(row, i / contract::kQuantBlockElements);
    const float scale = f16_to_f32(block.d);
    for (std::size_t e = 0; e < contract::kQuantBlockElements; ++e) {
      values[i + e] = scale * static_cast<float>(block.qs[e]);
    }
  }
}

void q4_0(std::span<const std::byte> row, std::span<float> values) {
  constexpr std::size_t kHalf = contract::kQuantBlockElements / 2;
  for (std::size_t i = 0; i < values.size(); i += contract::kQuantBlockElements) {
    const auto block = load<contract::BlockQ4_0>(row, i / contract::kQuantBlockElements);
    const float scale = f16_to_f32(block.d);
    for (std::size_t e = 0; e < kHalf; ++e) {
      values[i + e] = scale * static_cast<float>((block.qs[e] & 15) - 8);
      values[i + kHalf + e] = scale * static_cast<float>((block.qs[e] >> 4) - 8);
    }
  }
}

}  // namespace

void dequantize_row(contract::DType dtype, std::span<const std::byte> row, std::span<float> values) {
  const auto info = contract::dtype_info(dtype);
  ASSERT(
      values.size() % info.block_elements == 0 && row.size() == values.size() / info.block_elements * info.block_bytes,
      "{}: {} values from {} bytes", info.name, values.size(), row.size());
  switch (dtype) {
    case contract::DType::kF32: std::memcpy(values.data(), row.data(), row.size()); return;
    case contract::DType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = f16_to_f32(load<std::uint16_t>(row, i));
      return;
    case contract::DType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = bf16_to_f32(load<std::uint16_t>(row, i));
      return;
    case contract::DType::kQ8_0: q8_0(row, values); return;
    case contract::DType::kQ4_0: q4_0(row, values); return;
    default: break;
  }
  ASSERT(false, "{} has no f32 values", info.name);
}

}  // namespace llorch::engine::io
