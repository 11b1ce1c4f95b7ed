// FP8 weights: codes, scales and what becomes of them, up to the product.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/cuda/kernels/packing/packing_reference.h"
#include "engine/compute/cuda/weights.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::MatrixShape;
using cpu::testing::Random;
using plan::BlockF8_E4M3;
using plan::DType;

// E4M3 as its definition says: S.EEEE.MMM, bias 7, no infinities.
double value_of(std::uint32_t code) {
  const auto exponent = static_cast<int>(code >> 3 & 15), mantissa = static_cast<int>(code & 7);
  if ((code & 0x7F) == 0x7F) return NAN;
  const double size = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}

// A matrix of blocks whose scales and codes are said, and its products with rows of x.
struct Matrix {
  Matrix(std::uint32_t n, std::uint32_t k) : rows(n), cols(k), blocks(n * ((k + 127) / 128)) {}
  BlockF8_E4M3& block(std::uint32_t row, std::uint32_t b) { return blocks[row * (blocks.size() / rows) + b]; }
  std::uint8_t& code(std::uint32_t row, std::uint32_t k) { return block(row, k / 128).qs[k % 128]; }
  double weight(std::uint32_t row, std::uint32_t k) {
    return value_of(code(row, k)) * static_cast<double>(block(row, k / 128).d);
  }
  void pack() {
    const MatrixShape shape{.dtype = DType::kF8_E4M3, .rows = rows, .cols = cols};
    packed.resize(matrix_bytes(shape));
    kernels::pack_units_reference(shape, std::as_bytes(std::span(blocks)), packed, 0, units_of(shape));
    weight_of = {
        .dtype = DType::kF8_E4M3,
        .matrix = {
            .data = packed.data(), .row_bytes = unit_bytes(shape), .stack_bytes = packed.size(), .n = rows, .k = cols}};
  }
  std::vector<float> product(std::span<const float> x, std::uint32_t rows_of_x) const {
    const auto driver = make_driver({});
    const CudaStream stream(*driver);
    std::vector<float> y(std::size_t{rows_of_x} * rows, NAN);
    adapters::Arena size;
    size.take_narrowed(rows_of_x, cols);
    std::vector<std::byte> scratch(size.used_bytes());
    adapters::Arena arena({scratch.data(), scratch.size()});
    adapters::project(stream,
                      {.x = x.data(),
                       .x_stride = cols,
                       .rows = rows_of_x,
                       .narrowed = arena.take_narrowed(rows_of_x, cols),
                       .y_stride = rows},
                      std::array{adapters::Projection{&weight_of, y.data()}});
    return y;
  }
  // Row `row` as the table of an embedding.
  std::vector<float> gathered(std::uint32_t row) const {
    const auto driver = make_driver({});
    const CudaStream stream(*driver);
    std::vector<float> y(cols);
    stream.launch<kernels::Gather<DType::kF8_E4M3>>(
        {adapters::blocks_of(cols, 256), 1}, {.w = weight_of.matrix, .row_ids = &row, .y = y.data(), .columns = cols});
    return y;
  }

  std::uint32_t rows, cols;
  std::vector<BlockF8_E4M3> blocks;
  std::vector<std::byte> packed;
  CudaWeight weight_of;
};

// Every code in both halves of both words.
TEST(F8, EveryCodeIsItsValue) {
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    for (std::uint32_t place = 0; place < 4; ++place) {
      const std::uint32_t others = 0x2B2B2B2Bu & ~(0xFFu << (8 * place));
      const std::uint32_t pair = kernels::f8_values(others | code << (8 * place), place / 2);
      const auto half = static_cast<std::uint16_t>(pair >> (16 * (place % 2)));
      EXPECT_EQ(half_to_float(half), value_of(code)) << code << " at " << place;
      EXPECT_EQ(half >> 15, code >> 7);
      EXPECT_EQ(half_to_float(static_cast<std::uint16_t>(pair >> (16 * (1 - place % 2)))), value_of(0x2B));
    }
  }
}

// One rounding, to nearest even, of the exact product; also where it is subnormal.
TEST(F8, ProductsAreRoundedOnce) {
  Random random(21);
  SCOPED_TRACE(random.note());
  for (std::uint32_t code = 0; code < 256; ++code) {
    if ((code & 0x7F) == 0x7F) continue;
    for (int i = 0; i < 200; ++i) {
      const auto factor = static_cast<std::uint16_t>(random.below(0x5801));  // up to 128
      const std::uint32_t weights = kernels::f8_weights(code | code << 8, 0, factor * 0x10001u);
      // Both have few bits: the product is exact in f32.
      const std::uint16_t expected = float_to_half(static_cast<float>(value_of(code)) * half_to_float(factor));
      EXPECT_EQ(weights, expected * 0x10001u) << code << " x " << factor;
    }
  }
}

// One scale for the whole row, whatever it is, or scales that are powers of two apart: no weight is rounded at all.
TEST(F8, ScalesThatDifferByPowersOfTwoLoseNothing) {
  Random random(22);
  SCOPED_TRACE(random.note());
  Matrix m(19, 520);
  for (std::uint32_t row = 0; row < m.rows; ++row) {
    const float scale = std::ldexp(random.normal(), static_cast<int>(random.between(0, 60)) - 30);
    for (std::uint32_t b = 0; b < 5; ++b)
      m.block(row, b).d = row < 9 ? scale : std::ldexp(scale, -static_cast<int>(random.below(14)));
    for (std::uint32_t k = 0; k < m.cols; ++k) m.code(row, k) = static_cast<std::uint8_t>(random.below(0x7F));
  }
  m.pack();
  for (std::uint32_t row = 0; row < m.rows; ++row) {
    const auto values = m.gathered(row);
    for (std::uint32_t k = 0; k < m.cols; ++k) EXPECT_EQ(values[k], static_cast<float>(m.weight(row, k)));
  }
}

// Any scales: 2^-11 of a weight for the factor and as much for the product, and 2^-32 of what the row's
// largest scale can make.
TEST(F8, WeightsAreWithinTheirBound) {
  Random random(23);
  SCOPED_TRACE(random.note());
  Matrix m(40, 900);
  for (std::uint32_t row = 0; row < m.rows; ++row) {
    for (std::uint32_t b = 0; b < 8; ++b)
      m.block(row, b).d = std::ldexp(random.normal(), -static_cast<int>(random.below(row < 20 ? 4 : 40)));
    for (std::uint32_t k = 0; k < m.cols; ++k) {
      const auto code = static_cast<std::uint8_t>(random.bits() & 0xFF);
      m.code(row, k) = (code & 0x7F) == 0x7F ? std::uint8_t{0x80} : code;
    }
  }
  m.pack();
  for (std::uint32_t row = 0; row < m.rows; ++row) {
    double largest = 0;
    for (std::uint32_t b = 0; b < 8; ++b) largest = std::max(largest, 448.0 * std::fabs(m.block(row, b).d));
    const auto values = m.gathered(row);
    for (std::uint32_t k = 0; k < m.cols; ++k)
      EXPECT_LE(std::fabs(values[k] - m.weight(row, k)), std::fabs(m.weight(row, k)) * 0x1.01p-10 + largest * 0x1p-32)
          << row << ", " << k;
  }
}

// Small numbers have exact sums in any order: which element meets which, for every number of rows up to a whole batch.
TEST(F8, ElementsMeetTheirScales) {
  Random random(24);
  SCOPED_TRACE(random.note());
  for (const std::uint32_t cols : {1u, 127u, 129u, 300u}) {
    Matrix m(37, cols);
    for (std::uint32_t row = 0; row < m.rows; ++row) {
      for (std::uint32_t k = 0; k < cols; ++k) {
        constexpr std::array<std::uint8_t, 5> kSmall{0x00, 0x38, 0x40, 0xB8, 0xC0};  // 0, 1, 2, -1, -2
        m.code(row, k) = kSmall[random.below(5)];
      }
      for (std::uint32_t b = 0; b * 128 < cols; ++b)
        m.block(row, b).d = std::ldexp(1.0f, static_cast<int>(random.below(4)));
    }
    m.pack();
    std::vector<float> x(130 * cols);
    for (float& value : x) value = static_cast<float>(random.between(0, 8)) - 4.0f;
    const auto expect = [&](std::uint32_t rows) {
      const auto y = m.product(x, rows);
      for (std::uint32_t r = 0; r < rows; ++r)
        for (std::uint32_t n = 0; n < m.rows; ++n) {
          double sum = 0;
          for (std::uint32_t k = 0; k < cols; ++k) sum += m.weight(n, k) * x[r * cols + k];
          ASSERT_EQ(y[r * m.rows + n], static_cast<float>(sum)) << cols << ": " << r << " of " << rows << ", " << n;
        }
    };
    for (const std::uint32_t rows : {1u, 2u, 7u, 8u, 9u, 33u, 64u, 65u, 130u}) expect(rows);
  }
}

// A NaN is one for its whole row of y, and for no other; so is a scale that is none. An infinite scale makes infinities.
TEST(F8, NansAndInfinitiesStayInTheirRows) {
  Matrix m(20, 260);
  for (auto& block : m.blocks) {
    block.d = 0.5f;
    std::ranges::fill(block.qs, std::uint8_t{0x38});
  }
  for (std::uint32_t row = 0; row < m.rows; ++row)
    for (std::uint32_t k = 260; k < 384; ++k) m.block(row, 2).qs[k % 128] = 0;
  m.code(3, 0) = 0x7F;
  m.code(5, 259) = 0xFF;
  m.block(7, 1).d = NAN;
  m.block(9, 1).d = INFINITY;
  m.block(11, 0).d = 0;
  m.block(13, 1).d = -0.5f;
  for (std::uint32_t b = 0; b < 3; ++b) m.block(15, b).d = 0x1p-149f;
  for (std::uint32_t b = 0; b < 3; ++b) m.block(17, b).d = 0x1p120f;
  m.pack();
  const std::vector<float> x(9 * 260, 1.0f);
  for (const std::uint32_t rows : {1u, 9u}) {
    const auto y = m.product(x, rows);
    for (std::uint32_t r = 0; r < rows; ++r)
      for (std::uint32_t n = 0; n < m.rows; ++n) {
        const float value = y[r * m.rows + n];
        switch (n) {
          case 3:
          case 5:
          case 7: EXPECT_TRUE(std::isnan(value)) << n; break;
          case 9: EXPECT_EQ(value, INFINITY); break;
          case 11: EXPECT_EQ(value, 0.5f * 132); break;
          case 13: EXPECT_EQ(value, 0.5f * (132 - 128)); break;
          case 15: EXPECT_EQ(value, 260 * 0x1p-149f); break;
          case 17: EXPECT_EQ(value, 260 * 0x1p120f); break;
          default: EXPECT_EQ(value, 130.0f) << n;
        }
      }
  }
}

// A byte a weight, a factor for 128 of them and a scale a row.
TEST(F8, TakesAByteAWeight) {
  const std::size_t bytes = matrix_bytes({.dtype = DType::kF8_E4M3, .rows = 4096, .cols = 4096});
  EXPECT_EQ(bytes, std::size_t{4096} * 4096 + std::size_t{4096} * 32 * 2 + std::size_t{4096} * 4);
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
