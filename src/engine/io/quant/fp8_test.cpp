#include "engine/io/quant/fp8.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/io/quant/half.h"

namespace llorch::engine::io {
namespace {

using base::ErrorCode;
using ::testing::HasSubstr;

struct Stored {
  std::vector<std::byte> bytes;
  std::unique_ptr<StoredFile> file;
  FileTensor tensor;
};

template <class T>
Stored stored(std::string_view name, StoredType type, std::vector<std::uint64_t> shape, const std::vector<T>& values) {
  Stored out;
  out.bytes.resize(values.size() * sizeof(T));
  std::memcpy(out.bytes.data(), values.data(), out.bytes.size());
  out.file = StoredFile::of_memory(out.bytes);
  out.tensor = {.name = name,
                .type = type,
                .rank = static_cast<std::uint32_t>(shape.size()),
                .dims = {},
                .data = FileRange(*out.file, 0, out.bytes.size())};
  std::copy(shape.begin(), shape.end(), out.tensor.dims.begin());
  return out;
}

// One row.
void to_bf16(const Fp8Matrix& matrix, const Stored& weight, std::uint64_t row, std::span<std::uint16_t> out) {
  fp8_to_bf16(matrix, row * matrix.cols, std::span(weight.bytes).subspan(row * matrix.cols, matrix.cols), out);
}

std::vector<std::uint8_t> counting(std::size_t count) {
  std::vector<std::uint8_t> out(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<std::uint8_t>(i * 37 + i / 251);
  return out;
}

// `bits` is the bfloat16 nearest to `value`, ties to even: no neighbour is nearer, and an equally near one is odd.
void expect_nearest(std::uint16_t bits, double value) {
  const double distance = std::fabs(static_cast<double>(bf16_to_f32(bits)) - value);
  for (const int step : {-1, 1}) {
    const auto other = static_cast<std::uint16_t>(bits + step);
    if ((other & 0x7f80) == 0x7f80 || (other ^ bits) >> 15 != 0) continue;  // infinity, or across zero
    const double other_distance = std::fabs(static_cast<double>(bf16_to_f32(other)) - value);
    EXPECT_TRUE(distance < other_distance || (distance == other_distance && bits % 2 == 0))
        << value << " became " << bf16_to_f32(bits) << ", nearer is " << bf16_to_f32(other);
  }
}

TEST(Fp8, EveryBlockHasItsOwnScaleAlsoTheCutOnes) {
  constexpr std::size_t kRows = 5, kCols = 7;
  const auto weight = stored("w", StoredType::kF8_E4M3, {kRows, kCols}, counting(kRows * kCols));
  const auto scale = stored<float>("s", StoredType::kF32, {3, 2}, {1, 10, 100, 1000, 1e4f, 1e5f});
  const auto matrix = fp8_matrix(weight.tensor, scale.tensor, {.rows = 2, .cols = 4});
  ASSERT_TRUE(matrix) << matrix.error().message;
  std::vector<std::uint16_t> row(kCols);
  for (std::size_t r = 0; r < kRows; ++r) {
    to_bf16(*matrix, weight, r, row);
    for (std::size_t c = 0; c < kCols; ++c) {
      const double value = f8_e4m3_to_f32(static_cast<std::uint8_t>(weight.bytes[r * kCols + c]));
      if (std::isnan(value)) {
        EXPECT_TRUE(std::isnan(bf16_to_f32(row[c])));
      } else {
        expect_nearest(row[c], value * std::pow(10.0, 2 * (r / 2) + c / 4));
      }
    }
  }
}

TEST(Fp8, RoundsOnce) {
  // Scales next to where 1.125 * scale is half way between two bfloat16 values: f32 cannot tell such a product from the tie.
  std::vector<float> scales;
  for (int k = 0; k < 64; ++k) {
    const double tie = 1 + (2 * k + 1) / 256.0;
    const auto nearest = static_cast<float>(tie / 1.125);
    for (const float scale : {std::nextafter(nearest, 0.f), nearest, std::nextafter(nearest, 2.f)}) {
      scales.push_back(scale);
    }
  }
  for (const float extreme : {1e-40f, 3e-45f, 1e-38f, 3e38f}) scales.push_back(extreme);
  const std::vector<std::uint8_t> ones(scales.size(), 0x39);  // 1.125
  const auto weight = stored("w", StoredType::kF8_E4M3, {1, ones.size()}, ones);
  const auto scale = stored("s", StoredType::kF32, {1, scales.size()}, scales);
  const auto matrix = fp8_matrix(weight.tensor, scale.tensor, {.rows = 1, .cols = 1});
  ASSERT_TRUE(matrix) << matrix.error().message;
  std::vector<std::uint16_t> row(ones.size());
  to_bf16(*matrix, weight, 0, row);
  int misled = 0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double product = 1.125 * static_cast<double>(scales[i]);
    expect_nearest(row[i], product);
    misled += row[i] != f32_to_bf16(static_cast<float>(product)) ? 1 : 0;
  }
  EXPECT_GT(misled, 0) << "no product here needs the single rounding";
}

TEST(Fp8, AlmostAsManyScalesAsElementsAreRefused) {
  const auto check = [](std::vector<std::uint64_t> shape, Fp8BlockShape block) {
    const auto weight = stored("w", StoredType::kF8_E4M3, shape, counting(shape[0] * shape[1]));
    const std::vector<std::uint64_t> scales{(shape[0] + block.rows - 1) / block.rows,
                                            (shape[1] + block.cols - 1) / block.cols};
    const auto scale = stored("s", StoredType::kF32, scales, std::vector<float>(scales[0] * scales[1], 1));
    return check_fp8_matrix(weight.tensor, scale.tensor, block);
  };
  for (const Fp8BlockShape& block : {Fp8BlockShape{1, 1}, Fp8BlockShape{1, 15}, Fp8BlockShape{3, 5}}) {
    const auto refused = check({1024, 1024}, block);
    ASSERT_FALSE(refused) << block.rows << " x " << block.cols;
    EXPECT_EQ(refused.error().code, ErrorCode::kWeightShapeMismatch);
  }
  EXPECT_TRUE(check({1024, 1024}, {.rows = 1, .cols = 16}));
  EXPECT_TRUE(check({100'000, 4}, {.rows = 1, .cols = 4})) << "one a row";
  EXPECT_TRUE(check({256, 256}, {.rows = 1, .cols = 1})) << "few";
}

TEST(Fp8, OneScaleCoversTheWholeMatrix) {
  const auto weight = stored("w", StoredType::kF8_E5M2, {3, 5}, counting(15));
  for (const auto& shape : {std::vector<std::uint64_t>{}, {1}, {1, 1}}) {
    const auto scale = stored<std::uint16_t>("s", StoredType::kBF16, shape, {0x4000});  // 2
    const auto matrix = fp8_matrix(weight.tensor, scale.tensor, {});
    ASSERT_TRUE(matrix) << matrix.error().message;
    std::vector<std::uint16_t> row(5);
    to_bf16(*matrix, weight, 2, row);
    const float wanted = 2 * f8_e5m2_to_f32(static_cast<std::uint8_t>(weight.bytes[14]));
    EXPECT_EQ(bf16_to_f32(row[4]), wanted);
  }
}

TEST(Fp8, ScalesThatArePowersOfTwo) {
  const auto weight = stored("w", StoredType::kF8_E4M3, {3, 2}, std::vector<std::uint8_t>(6, 0x39));  // 1.125
  const auto scale = stored<std::uint8_t>("s", StoredType::kF8_E8M0, {3, 2}, {127, 128, 0, 1, 254, 100});
  const auto matrix = fp8_matrix(weight.tensor, scale.tensor, {.rows = 1, .cols = 1});
  ASSERT_TRUE(matrix) << matrix.error().message;
  std::vector<std::uint16_t> row(2);
  for (std::size_t r = 0; r < 3; ++r) {
    to_bf16(*matrix, weight, r, row);
    for (std::size_t c = 0; c < 2; ++c)
      expect_nearest(row[c], std::ldexp(1.125, std::to_integer<int>(scale.bytes[r * 2 + c]) - 127));
  }
}

TEST(Fp8, RefusesScalesThatDoNotFit) {
  const auto weight = stored("w", StoredType::kF8_E4M3, {130, 4}, counting(520));
  const auto code = [&](const Stored& scale) { return fp8_matrix(weight.tensor, scale.tensor, {}).error(); };
  const auto few = stored<float>("w_scale_inv", StoredType::kF32, {2, 2}, {1, 1, 1, 1});
  EXPECT_EQ(code(few).code, ErrorCode::kWeightShapeMismatch);
  EXPECT_THAT(code(few).message, HasSubstr("w_scale_inv is F32 [2, 2]; blocks of 128 x 128"));
  EXPECT_EQ(code(stored<float>("s", StoredType::kF32, {2}, {1, 1})).code, ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code(stored<double>("s", StoredType::kF64, {2, 1}, {1, 1})).code, ErrorCode::kWeightDTypeUnsupported);
  const auto plain = stored<float>("w", StoredType::kF32, {1, 1}, {1});
  EXPECT_EQ(fp8_matrix(plain.tensor, plain.tensor, {}).error().code, ErrorCode::kWeightDTypeUnsupported);
  const auto stack = stored("w", StoredType::kF8_E4M3, {1, 2, 2}, counting(4));
  EXPECT_EQ(fp8_matrix(stack.tensor, plain.tensor, {}).error().code, ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::io
