#include "engine/io/quant/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <random>
#include <sstream>
#include <vector>

#include "base/sha256.h"
#include "engine/io/quant/dequant.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using plan::DType;
using ::testing::HasSubstr;

constexpr DType kTargets[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                              DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,   DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                              DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

std::string name_of(DType dtype) { return std::string(plan::dtype_info(dtype).name); }

std::vector<std::byte> quantized(DType dtype, std::span<const float> values) {
  const auto info = plan::dtype_info(dtype);
  std::vector<std::byte> row(values.size() / info.block_elements * info.block_bytes);
  const auto done = quantize_row(dtype, values, row);
  EXPECT_TRUE(done) << info.name << ": " << done.error().message;
  return row;
}

std::vector<float> round_trip(DType dtype, std::span<const float> values) {
  std::vector<float> out(values.size());
  dequantize_row(dtype, quantized(dtype, values), out);
  return out;
}

std::vector<float> normal_values(std::size_t count) {
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// Whole arithmetic, so the same on every machine: sums of twelve uniform numbers, rows of very different size.
std::vector<float> portable_values(std::size_t count) {
  std::vector<float> out(count);
  std::uint64_t state = 5;
  for (std::size_t i = 0; i < count; ++i) {
    int sum = 0;
    for (int k = 0; k < 12; ++k) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      sum += static_cast<int>(state >> 48);
    }
    out[i] = std::ldexp(static_cast<float>(sum - 6 * 65535), static_cast<int>(i / 256 % 12) - 24);
  }
  return out;
}

// sqrt(mean((a - b)^2) / mean(b^2))
double relative_error(std::span<const float> a, std::span<const float> b) {
  double error = 0, power = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double rest = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    error += rest * rest;
    power += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return std::sqrt(error / power);
}

// What the errors on normal values are held against.
std::map<std::string, double> error_bounds() {
  // Types that the PyPI package gguf quantizes to: its own error, of another million values, and 2 %.
  std::map<std::string, double> bounds;
  std::ifstream in(LLORCH_SOURCE_DIR "/tests/golden/quant/quantize.txt");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string kind, type;
    double error = 0;
    words >> kind >> type >> error;
    bounds[type] = 1.02 * error;
  }
  // The others: the best that uniform steps of the same size for all values can do with as many levels (J. Max, Quantizing
  // for Minimum Distortion, 1960, table II: mean squared errors .1188, .03744, .01154, .003495, .001041 for 4 to 64
  // levels). Steps of its own for every group must do better, small integer scales and all.
  bounds["Q2_K"] = std::sqrt(.1188);
  bounds["Q3_K"] = std::sqrt(.03744);
  bounds["Q4_K"] = bounds["IQ4_NL"] = bounds["IQ4_XS"] = std::sqrt(.01154);
  bounds["Q5_K"] = std::sqrt(.003495);
  bounds["Q6_K"] = std::sqrt(.001041);
  bounds["F32"] = 0;
  return bounds;
}

TEST(Quantize, TheErrorOnNormalValuesIsWithinTheTypesBound) {
  const auto values = normal_values(1 << 18);
  const auto bounds = error_bounds();
  for (const DType dtype : kTargets) {
    ASSERT_TRUE(bounds.contains(name_of(dtype))) << name_of(dtype);
    EXPECT_LE(relative_error(round_trip(dtype, values), values), bounds.at(name_of(dtype))) << name_of(dtype);
  }
}

// One scale for a block: it is among the starts of the search, so what is quantized already comes back as it is.
TEST(Quantize, QuantizedValuesStayWhatTheyAre) {
  const auto values = portable_values(1 << 16);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0, DType::kQ5_0,
                            DType::kIQ4_NL, DType::kMXFP4}) {
    const auto once = round_trip(dtype, values);
    EXPECT_EQ(round_trip(dtype, once), once) << name_of(dtype);
  }
}

// A min, or scales of scales, can be written in more than one way: a second pass may move values, by far less than the first.
TEST(Quantize, ASecondPassMovesLittle) {
  const auto values = normal_values(1 << 16);
  for (const DType dtype : kTargets) {
    const auto once = round_trip(dtype, values);
    const double first = relative_error(once, values);
    EXPECT_LE(relative_error(round_trip(dtype, once), once), first / 3) << name_of(dtype);
  }
}

TEST(Quantize, EveryValueIsRoundedToTheNearestLevelOfItsBlock) {
  // Two of the levels of a block are known from its values; no value may sit nearer to another than to its own.
  const auto values = portable_values(1 << 12);
  for (const DType dtype : kTargets) {
    const auto got = round_trip(dtype, values);
    for (std::size_t start = 0; start < values.size(); start += 16) {  // a scale covers at least 16 values
      for (std::size_t i = start; i < start + 16; ++i) {
        const float own = std::fabs(got[i] - values[i]);
        for (std::size_t k = start; k < start + 16; ++k) {
          // Half way between two levels either is right, but for the rounding of the comparison itself.
          ASSERT_LE(own, std::fabs(got[k] - values[i]) * (1 + 1e-4f) + 1e-12f)
              << name_of(dtype) << " " << i << " " << k;
        }
      }
    }
  }
}

TEST(Quantize, RowsOfOneValueAndOfNone) {
  for (const DType dtype : kTargets) {
    for (const float constant : {0.f, 1.5f, -1.5f, 0x1p-12f, -384.f}) {
      const std::vector<float> values(512, constant);
      for (const float got : round_trip(dtype, values)) {
        // 2^-12 in super-blocks takes subnormal f16 scales, which are coarse.
        ASSERT_NEAR(got, constant, 0.02f * std::fabs(constant)) << name_of(dtype) << " of " << constant;
      }
    }
    EXPECT_TRUE(quantized(dtype, {}).empty());
  }
}

TEST(Quantize, OneLargeValueAmongZeros) {
  for (const DType dtype : kTargets) {
    for (const float spike : {96.f, -96.f}) {
      std::vector<float> values(256, 0);
      values[77] = spike;
      const auto got = round_trip(dtype, values);
      for (std::size_t i = 0; i < 256; ++i) {
        // IQ4 has no level 0: its smallest is 1 of 127, or of 113 below it.
        ASSERT_NEAR(got[i], values[i], i == 77 ? 1.f : 1.01f) << name_of(dtype) << " " << i;
      }
    }
  }
}

TEST(Quantize, VanishingValuesBecomeZerosOfNoHarm) {
  for (const DType dtype : kTargets) {
    std::vector<float> values(256);
    for (std::size_t i = 0; i < 256; ++i)
      values[i] = std::ldexp(static_cast<float>(i) - 128.f, -60 - static_cast<int>(i % 80));
    const auto got = round_trip(dtype, values);
    for (std::size_t i = 0; i < 256; ++i) {
      ASSERT_TRUE(std::isfinite(got[i])) << name_of(dtype);
      ASSERT_LE(std::fabs(got[i] - values[i]), 0x1p-24f) << name_of(dtype);
    }
  }
}

TEST(Quantize, ValuesThatTheTypeCannotHoldAreRefused) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const DType dtype : kTargets) {
    std::vector<float> bad{std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
    if (dtype != DType::kF32 && dtype != DType::kMXFP4) bad.push_back(std::numeric_limits<float>::max());
    if (dtype != DType::kF32 && dtype != DType::kMXFP4 && dtype != DType::kBF16) bad.push_back(-2.9e8f);
    for (const float value : bad) {
      std::vector<float> values(512, 1);
      values[300] = value;
      std::vector<std::byte> row(quantized(dtype, std::vector<float>(512, 1)).size());
      const auto done = quantize_row(dtype, values, row);
      ASSERT_FALSE(done) << name_of(dtype) << " took " << value;
      EXPECT_EQ(done.error().code, ErrorCode::kWeightValueUnsupported);
      EXPECT_THAT(done.error().message, HasSubstr("element 300 is "));
      EXPECT_THAT(done.error().message, HasSubstr(name_of(dtype)));
    }
  }
}

TEST(Quantize, LargeValuesThatFitAreKept) {
  for (const DType dtype : kTargets) {
    std::vector<float> values(256);
    for (std::size_t i = 0; i < 256; ++i) values[i] = 250.f * (static_cast<float>(i) - 128.f);
    EXPECT_LE(relative_error(round_trip(dtype, values), values), 0.2) << name_of(dtype);
  }
  const std::vector<float> huge(32, 6 * 0x1p125f);
  EXPECT_EQ(round_trip(DType::kMXFP4, huge), huge);
}

// The bytes of a quantized model are part of its identity: they are the same on every machine, in every build, whatever the
// rows are cut into.
TEST(Quantize, TheBytesAreTheSameEverywhere) {
  const auto values = portable_values(1 << 14);
  std::map<std::string, std::string> golden;
  std::ifstream in(LLORCH_SOURCE_DIR "/tests/golden/quant/bytes.txt");
  for (std::string type, hash; in >> type >> hash;) golden[type] = hash;
  for (const DType dtype : kTargets) {
    const auto row = quantized(dtype, values);
    EXPECT_EQ(base::to_hex(base::Sha256().update(row).digest()), golden[name_of(dtype)]) << name_of(dtype);
    std::vector<std::byte> parts;
    for (std::size_t i = 0; i < values.size(); i += 256) {
      const auto part = quantized(dtype, std::span(values).subspan(i, 256));
      parts.insert(parts.end(), part.begin(), part.end());
    }
    EXPECT_EQ(parts, row) << name_of(dtype);
  }
}

TEST(QuantizeDeathTest, WrongSizesAreBugs) {
  std::vector<float> values(31);
  std::vector<std::byte> row(34);
  EXPECT_DEATH((void)quantize_row(DType::kQ8_0, values, row), "31 values into 34 bytes");
  EXPECT_FALSE(is_quantize_target(DType::kI32) || is_quantize_target(DType::kF8_E4M3));
  for (const DType dtype : kTargets) EXPECT_TRUE(is_quantize_target(dtype));
}

}  // namespace
}  // namespace llorch::engine::io
