#include "engine/io/quant/dequant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "engine/contract/quant_blocks.h"
#include "engine/io/quant/half.h"

namespace llorch::engine::io {
namespace {

using contract::DType;

// The value of a binary16 pattern by the definition of the format, in double.
double half_by_definition(std::uint16_t bits) {
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  if (exponent == 0) return sign * std::ldexp(mantissa, -24);
  return sign * std::ldexp(1024 + mantissa, exponent - 25);
}

TEST(Half, EveryPatternWidensToItsDefinitionAndBack) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const double wanted = half_by_definition(half);
    const float value = f16_to_f32(half);
    if (std::isnan(wanted)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(f16_to_f32(f32_to_f16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), wanted) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(f32_to_f16(value), half) << bits;
  }
}

TEST(Half, RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7bff; ++bits) {  // each positive finite pattern and its successor
    const float low = f16_to_f32(static_cast<std::uint16_t>(bits));
    const float high = f16_to_f32(static_cast<std::uint16_t>(bits + 1));
    const float middle = low + (high - low) / 2;  // exact in f32
    ASSERT_EQ(f32_to_f16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, low)), bits) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafter(middle, high)), bits + 1) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);  // the tie goes to the even pattern, infinity
  EXPECT_EQ(f32_to_f16(1e30f), 0x7c00);
  EXPECT_EQ(f32_to_f16(-1e30f), 0xfc00);
}

TEST(Half, Bf16RoundsToNearestTiesToEven) {
  for (std::uint32_t bits = 0; bits < 0x7f7f; ++bits) {
    ASSERT_EQ(f32_to_bf16(bf16_to_f32(static_cast<std::uint16_t>(bits))), bits);
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000u);
    ASSERT_EQ(f32_to_bf16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
  }
  EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(f32_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
}

std::vector<std::byte> random_row(std::size_t bytes, std::uint64_t seed) {
  std::vector<std::byte> row(bytes);
  std::uint64_t state = seed;
  for (auto& byte : row) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  return row;
}

// Against the formulas of contract/quant_blocks.h in double, rounded once: 1,000 random blocks per type.
TEST(Dequant, QuantisedRowsAreTheirFormulaRoundedOnce) {
  constexpr std::size_t kBlocks = 1000;
  for (const auto dtype : {DType::kQ8_0, DType::kQ4_0}) {
    const std::size_t block_bytes = contract::dtype_info(dtype).block_bytes;
    const auto row = random_row(kBlocks * block_bytes, 7);
    std::vector<float> values(kBlocks * 32);
    dequantize_row(dtype, row, values);
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto* block = reinterpret_cast<const std::uint8_t*>(row.data()) + i / 32 * block_bytes;
      const std::size_t e = i % 32;
      const double d = half_by_definition(static_cast<std::uint16_t>(block[0] | block[1] << 8));
      const int q = dtype == DType::kQ8_0 ? static_cast<std::int8_t>(block[2 + e])
                                          : (e < 16 ? block[2 + e] & 15 : block[2 + e - 16] >> 4) - 8;
      const auto wanted = static_cast<float>(d * q);
      if (std::isnan(wanted)) {
        ASSERT_TRUE(std::isnan(values[i])) << i;
      } else {
        ASSERT_EQ(values[i], wanted) << i;
      }
    }
  }
}

TEST(Dequant, PlainRowsWidenExactlyFromAnyAddress) {
  std::vector<std::byte> bytes{std::byte{0}, std::byte{0x00}, std::byte{0x3c}, std::byte{0x80}, std::byte{0x3f}};
  const auto row = std::span<const std::byte>(bytes).subspan(1);
  std::vector<float> values(2);
  dequantize_row(DType::kF16, row, values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(values[1], 1.875f);
  dequantize_row(DType::kBF16, row, values);
  EXPECT_EQ(values[0], 0.0078125f);
  EXPECT_EQ(values[1], 1.0f);
  const std::vector<float> plain{1.25f, -3};
  dequantize_row(DType::kF32, std::as_bytes(std::span(plain)), values);
  EXPECT_EQ(values, plain);
}

TEST(DequantDeathTest, WrongSizesAreBugs) {
  std::vector<std::byte> row(34);
  std::vector<float> values(31);
  EXPECT_DEATH(dequantize_row(DType::kQ8_0, row, values), "31 values from 34 bytes");
  values.resize(8);
  row.resize(32);
  EXPECT_DEATH(dequantize_row(DType::kI32, row, values), "I32 has no f32 values");
}

}  // namespace
}  // namespace llorch::engine::io
