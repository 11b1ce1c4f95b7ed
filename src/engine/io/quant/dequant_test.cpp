#include "engine/io/quant/dequant.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>
#include <vector>

#include "base/sha256.h"
#include "engine/io/quant/fp8.h"
#include "engine/io/quant/half.h"
#include "engine/io/quant/mxfp4.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io {
namespace {

using plan::DType;

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

// The blocks of tests/golden/quant/make_quant_vectors.py.
std::vector<std::byte> vector_blocks(DType dtype, const std::vector<std::size_t>& scale_offsets) {
  constexpr std::uint16_t kScales[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x0155, 0x03ff, 0x83ff, 0x0400, 0x8400, 0x1234,
                                       0x2e66, 0xae66, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0xfc01};
  const std::size_t block_bytes = plan::dtype_info(dtype).block_bytes;
  std::vector<std::byte> row(1000 * block_bytes);
  std::uint64_t state = 7;
  for (auto& byte : row) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(state >> 56);
  }
  for (std::size_t i = 0; i < 400; ++i) {
    for (std::size_t field = 0; field < scale_offsets.size(); ++field) {
      std::memcpy(row.data() + i * block_bytes + scale_offsets[field], &kScales[field == 0 ? i % 20 : i / 20], 2);
    }
  }
  for (std::size_t i = 0; dtype == DType::kMXFP4 && i < 1000; ++i) row[i * block_bytes] = static_cast<std::byte>(i);
  return row;
}

std::uint32_t canonical_bits(float value) {
  return std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value);
}

std::string hash_of(std::span<const std::byte> bytes) { return base::to_hex(base::Sha256().update(bytes).digest()); }

// What tests/golden/quant/dequant.txt says of one type.
struct Vectors {
  std::string input, output;
  std::map<std::size_t, std::vector<std::uint32_t>> blocks;
};

std::map<std::string, Vectors> read_vectors() {
  std::ifstream in(LLORCH_SOURCE_DIR "/tests/golden/quant/dequant.txt");
  std::map<std::string, Vectors> all;
  Vectors* current = nullptr;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string word;
    words >> word;
    if (word == "type") {
      words >> word;
      current = &all[word];
    } else if (word == "block") {
      std::size_t index = 0;
      words >> index >> std::hex;
      for (std::uint32_t bits = 0; words >> bits;) current->blocks[index].push_back(bits);
    } else {
      words >> (word == "input" ? current->input : current->output);
    }
  }
  return all;
}

void expect_vectors(const std::string& name, std::span<const std::byte> blocks, std::span<const float> values,
                    std::size_t block_elements) {
  const auto all = read_vectors();
  ASSERT_TRUE(all.contains(name)) << name;
  const Vectors& vectors = all.at(name);
  ASSERT_EQ(hash_of(blocks), vectors.input) << name << ": not the blocks of the vectors";
  std::vector<std::uint32_t> bits(values.size());
  std::transform(values.begin(), values.end(), bits.begin(), canonical_bits);
  ASSERT_FALSE(vectors.blocks.empty());
  for (const auto& [index, wanted] : vectors.blocks) {
    ASSERT_EQ(wanted.size(), block_elements);
    for (std::size_t e = 0; e < block_elements; ++e) {
      ASSERT_EQ(bits[index * block_elements + e], wanted[e]) << name << " block " << index << " element " << e;
    }
  }
  EXPECT_EQ(hash_of(std::as_bytes(std::span(bits))), vectors.output) << name;
}

TEST(Dequant, EveryTypeEqualsTheIndependentVectors) {
  const std::pair<DType, std::vector<std::size_t>> types[] = {
      {DType::kQ8_0, {0}},    {DType::kQ4_0, {0}},      {DType::kQ4_1, {0, 2}}, {DType::kQ5_0, {0}},
      {DType::kQ5_1, {0, 2}}, {DType::kQ2_K, {80, 82}}, {DType::kQ3_K, {108}},  {DType::kQ4_K, {0, 2}},
      {DType::kQ5_K, {0, 2}}, {DType::kQ6_K, {208}},    {DType::kIQ4_NL, {0}},  {DType::kIQ4_XS, {0}},
      {DType::kMXFP4, {}}};
  for (const auto& [dtype, scale_offsets] : types) {
    const auto info = plan::dtype_info(dtype);
    const auto blocks = vector_blocks(dtype, scale_offsets);
    std::vector<float> values(1000 * info.block_elements);
    dequantize_row(dtype, blocks, values);
    expect_vectors(std::string(info.name), blocks, values, info.block_elements);
  }
}

// The library's own reading: e2m1 values in pairs, low nibble first, times 2^(scale - 127).
TEST(Mxfp4, RepackedBlocksKeepTheirValues) {
  constexpr float kValues[16] = {0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.f, -.5f, -1, -1.5f, -2, -3, -4, -6};
  std::vector<std::byte> blocks(16 * 256), scales(256), out(17 * 256);
  for (std::size_t i = 0; i < blocks.size(); ++i) blocks[i] = static_cast<std::byte>(i * 29 + i / 256);
  for (std::size_t i = 0; i < scales.size(); ++i) scales[i] = static_cast<std::byte>(i);
  repack_hf_mxfp4(blocks, scales, out);
  std::vector<float> values(32 * 256);
  dequantize_row(DType::kMXFP4, out, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto pair = static_cast<unsigned>(blocks[i / 2]);
    const float wanted = std::ldexp(kValues[i % 2 == 0 ? pair & 15 : pair >> 4], static_cast<int>(i / 32) - 127);
    ASSERT_EQ(values[i], wanted) << i;
  }
}

TEST(Fp8, EveryByteEqualsTheIndependentTables) {
  std::vector<std::byte> bytes(256);
  for (unsigned i = 0; i < 256; ++i) bytes[i] = static_cast<std::byte>(i);
  const std::pair<std::string, float (*)(std::uint8_t)> types[] = {
      {"F8_E4M3", f8_e4m3_to_f32}, {"F8_E5M2", f8_e5m2_to_f32}, {"F8_E8M0", f8_e8m0_to_f32}};
  for (const auto& [name, decode] : types) {
    std::vector<float> values;
    for (const std::byte byte : bytes) values.push_back(decode(static_cast<std::uint8_t>(byte)));
    expect_vectors(name, bytes, values, 256);
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
