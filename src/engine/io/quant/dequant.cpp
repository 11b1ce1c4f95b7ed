#include "engine/io/quant/dequant.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "base/assert.h"
#include "engine/io/quant/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {
namespace {

using namespace plan;

template <class T>
T load(std::span<const std::byte> row, std::size_t index) {
  T value;
  std::memcpy(&value, row.data() + index * sizeof(T), sizeof(T));
  return value;
}

constexpr int nibble(std::uint8_t byte, unsigned half) { return half == 0 ? byte & 15 : byte >> 4; }

// Bit e of the fifth bits of Q5_0 and Q5_1, as 16 or 0.
int fifth_bit(const std::uint8_t (&qh)[4], unsigned e) { return (qh[e / 8] >> e % 8 & 1) << 4; }

void decode(const BlockQ8_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 32; ++e) y[e] = d * static_cast<float>(b.qs[e]);
}

void decode(const BlockQ4_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 32; ++e) y[e] = d * static_cast<float>(nibble(b.qs[e % 16], e / 16) - 8);
}

void decode(const BlockQ4_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (unsigned e = 0; e < 32; ++e) y[e] = d * static_cast<float>(nibble(b.qs[e % 16], e / 16)) + m;
}

void decode(const BlockQ5_0& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 32; ++e) {
    y[e] = d * static_cast<float>((nibble(b.qs[e % 16], e / 16) | fifth_bit(b.qh, e)) - 16);
  }
}

void decode(const BlockQ5_1& b, float* y) {
  const float d = f16_to_f32(b.d), m = f16_to_f32(b.m);
  for (unsigned e = 0; e < 32; ++e) {
    y[e] = d * static_cast<float>(nibble(b.qs[e % 16], e / 16) | fifth_bit(b.qh, e)) + m;
  }
}

void decode(const BlockQ2_K& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (unsigned e = 0; e < 256; ++e) {
    const unsigned n = e / 128, t = e % 128 / 32, l = e % 32;
    const int c = b.scales[8 * n + 2 * t + l / 16];
    const float scale = d * static_cast<float>(c & 15), min = dmin * static_cast<float>(c >> 4);
    y[e] = scale * static_cast<float>(b.qs[32 * n + l] >> 2 * t & 3) - min;
  }
}

void decode(const BlockQ3_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 256; ++e) {
    const unsigned n = e / 128, t = e % 128 / 32, l = e % 32;
    const float scale = d * static_cast<float>(q3_k_scale(b.scales, 8 * n + 2 * t + l / 16));
    const int high = (b.hmask[l] >> (4 * n + t) & 1) != 0 ? 0 : 4;
    y[e] = scale * static_cast<float>((b.qs[32 * n + l] >> 2 * t & 3) - high);
  }
}

void decode(const BlockQ4_K& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (unsigned e = 0; e < 256; ++e) {
    const unsigned g = e / 32;
    const float scale = d * static_cast<float>(k4_scale(b.scales, g));
    const float min = dmin * static_cast<float>(k4_min(b.scales, g));
    y[e] = scale * static_cast<float>(nibble(b.qs[32 * (g / 2) + e % 32], g % 2)) - min;
  }
}

void decode(const BlockQ5_K& b, float* y) {
  const float d = f16_to_f32(b.d), dmin = f16_to_f32(b.dmin);
  for (unsigned e = 0; e < 256; ++e) {
    const unsigned g = e / 32;
    const float scale = d * static_cast<float>(k4_scale(b.scales, g));
    const float min = dmin * static_cast<float>(k4_min(b.scales, g));
    const int high = (b.qh[e % 32] >> g & 1) << 4;
    y[e] = scale * static_cast<float>(nibble(b.qs[32 * (g / 2) + e % 32], g % 2) | high) - min;
  }
}

void decode(const BlockQ6_K& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 256; ++e) {
    const unsigned n = e / 128, t = e % 128 / 32, l = e % 32;
    const float scale = d * static_cast<float>(b.scales[8 * n + 2 * t + l / 16]);
    const int low = nibble(b.ql[64 * n + l + 32 * (t & 1)], t >> 1), high = b.qh[32 * n + l] >> 2 * t & 3;
    y[e] = scale * static_cast<float>((low | high << 4) - 32);
  }
}

void decode(const BlockIQ4_NL& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 32; ++e) y[e] = d * static_cast<float>(kIq4Values[nibble(b.qs[e % 16], e / 16)]);
}

void decode(const BlockIQ4_XS& b, float* y) {
  const float d = f16_to_f32(b.d);
  for (unsigned e = 0; e < 256; ++e) {
    const float scale = d * static_cast<float>(iq4_xs_scale(b, e / 32));
    y[e] = scale * static_cast<float>(kIq4Values[nibble(b.qs[16 * (e / 32) + e % 16], e % 32 / 16)]);
  }
}

void decode(const BlockMXFP4& b, float* y) {
  const float d = mxfp4_scale(b.e);
  for (unsigned e = 0; e < 32; ++e) y[e] = d * static_cast<float>(kMxfp4Doubled[nibble(b.qs[e % 16], e / 16)]);
}

template <class Block, std::size_t kElements>
void decode_row(std::span<const std::byte> row, std::span<float> values) {
  for (std::size_t i = 0; i * kElements < values.size(); ++i) {
    decode(load<Block>(row, i), values.data() + i * kElements);
  }
}

}  // namespace

void dequantize_row(DType dtype, std::span<const std::byte> row, std::span<float> values) {
  const auto info = dtype_info(dtype);
  ASSERT(
      values.size() % info.block_elements == 0 && row.size() == values.size() / info.block_elements * info.block_bytes,
      "{}: {} values from {} bytes", info.name, values.size(), row.size());
  switch (dtype) {
    case DType::kF32:
      if (!row.empty()) std::memcpy(values.data(), row.data(), row.size());
      return;
    case DType::kF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = f16_to_f32(load<std::uint16_t>(row, i));
      return;
    case DType::kBF16:
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = bf16_to_f32(load<std::uint16_t>(row, i));
      return;
    case DType::kQ8_0: return decode_row<BlockQ8_0, 32>(row, values);
    case DType::kQ4_0: return decode_row<BlockQ4_0, 32>(row, values);
    case DType::kQ4_1: return decode_row<BlockQ4_1, 32>(row, values);
    case DType::kQ5_0: return decode_row<BlockQ5_0, 32>(row, values);
    case DType::kQ5_1: return decode_row<BlockQ5_1, 32>(row, values);
    case DType::kQ2_K: return decode_row<BlockQ2_K, 256>(row, values);
    case DType::kQ3_K: return decode_row<BlockQ3_K, 256>(row, values);
    case DType::kQ4_K: return decode_row<BlockQ4_K, 256>(row, values);
    case DType::kQ5_K: return decode_row<BlockQ5_K, 256>(row, values);
    case DType::kQ6_K: return decode_row<BlockQ6_K, 256>(row, values);
    case DType::kIQ4_NL: return decode_row<BlockIQ4_NL, 32>(row, values);
    case DType::kIQ4_XS: return decode_row<BlockIQ4_XS, 256>(row, values);
    case DType::kMXFP4: return decode_row<BlockMXFP4, 32>(row, values);
    case DType::kF8_E4M3:
    case DType::kI32: break;
  }
  ASSERT(false, "{} has no f32 values", info.name);
}

}  // namespace llorch::engine::io
