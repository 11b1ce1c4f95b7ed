#include <cmath>

#include "engine/compute/cpu/host/thread_pool.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::simd {
namespace {

using plan::DType;
using testing::isas;
using testing::Packed;
using testing::Random;
using testing::same_bits;

constexpr DType kTypes[] = {DType::kF32,  DType::kF16,    DType::kBF16,   DType::kQ8_0, DType::kQ4_0, DType::kQ4_1,
                            DType::kQ5_0, DType::kQ5_1,   DType::kQ2_K,   DType::kQ3_K, DType::kQ4_K, DType::kQ5_K,
                            DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS, DType::kMXFP4};

struct Activations {
  std::vector<float> x;
  std::vector<QuantizedBlock> blocks;

  QuantizedRows view(std::size_t width) { return {.blocks = blocks.data(), .width = width}; }
};

Activations activations(const Kernels& k, std::vector<float> x, std::size_t rows, std::size_t cols) {
  Activations a{.x = std::move(x), .blocks = {}};
  if (cols % 32 != 0) return a;
  a.blocks.resize(rows * cols / 32);
  k.quantize({.x = a.x.data(), .x_stride = cols, .out = a.view(cols)}, {0, rows});
  return a;
}

// [rows, w.rows] with the unused tail of every output row checked to be untouched.
std::vector<float> run_matmul(const Kernels& k, const PackedMatrix& w, Activations& a, std::size_t rows,
                              std::size_t threads, std::size_t grain = 1) {
  const std::size_t stride = w.rows + 3;
  std::vector<float> y(rows * stride, -7.0f);
  host::ThreadPool pool(threads);
  const MatmulArgs args{.w = w,
                        .x = a.x.data(),
                        .x_stride = w.cols,
                        .xq = a.view(w.cols),
                        .y = y.data(),
                        .y_stride = stride,
                        .rows = rows};
  pool.run(w.groups(), grain, [&](Range range, std::size_t) { k.matmul(args, range); });
  std::vector<float> out;
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t n = 0; n < stride; ++n) {
      if (n < w.rows) {
        out.push_back(y[r * stride + n]);
      } else {
        EXPECT_EQ(y[r * stride + n], -7.0f);
      }
    }
  }
  return out;
}

void check_shape(Random& random, const MatrixShape& shape, std::size_t rows) {
  SCOPED_TRACE(::testing::Message() << plan::dtype_info(shape.dtype).name << " N=" << shape.rows << " K=" << shape.cols
                                    << " rows=" << rows << " " << random.note());
  const std::vector<std::byte> stored = testing::random_matrix(random, shape);
  const Packed packed(shape, stored);
  const std::vector<float> x = random.hostiles(rows * shape.cols);
  std::vector<float> expected;
  for (std::size_t r = 0; r < rows; ++r) {
    const auto y =
        reference::matmul_exact(shape.dtype, stored, shape.rows, std::span(x).subspan(r * shape.cols, shape.cols));
    expected.insert(expected.end(), y.begin(), y.end());
  }
  for (host::Isa isa : isas()) {
    SCOPED_TRACE(host::isa_name(isa));
    Activations a = activations(kernels(isa), x, rows, shape.cols);
    for (const std::size_t grain : {1, 2})  // groups one by one and beside each other
      ASSERT_TRUE(same_bits(run_matmul(kernels(isa), packed.view(), a, rows, 1 + rows % 3, grain), expected));
  }
}

TEST(Matmul, EqualsTheWrittenOrderOnEveryDepth) {
  Random random(2);
  for (DType dtype : kTypes) {
    const std::uint32_t step = plan::dtype_info(dtype).block_elements;
    for (std::uint32_t k = step; k <= (step == 1 ? 130u : step == 32 ? 416u : 1024u); k += step)
      check_shape(random, {.dtype = dtype, .rows = static_cast<std::uint32_t>(random.between(1, 40)), .cols = k},
                  random.between(1, 4));
  }
}

// M0-W-1822
TEST(Matmul, EqualsTheWrittenOrderOnEveryWidthAndRowCount) {
  Random random(3);
  for (DType dtype : kTypes) {
    const std::uint32_t unit = std::max(plan::dtype_info(dtype).block_elements, 32u);
    for (std::uint32_t n = 1; n <= 70; n += unit == 256 ? 7 : 1)
      check_shape(random, {.dtype = dtype, .rows = n, .cols = 2 * unit}, 1 + n % 9);
    check_shape(random, {.dtype = dtype, .rows = 130, .cols = 3 * unit}, 1);  // one row, several groups
    check_shape(random, {.dtype = dtype, .rows = 33, .cols = unit}, 203);     // several row panels
  }
}

// Panels of rows, chunks of the depth, slabs of a chunk, pairs of groups and what is left over of each.
TEST(Matmul, EqualsTheWrittenOrderWhereSlabsMeet) {
  Random random(8);
  for (DType dtype : kTypes) {
    check_shape(random, {.dtype = dtype, .rows = 50, .cols = 1280}, 131);
    // The most that come from packed groups and one more, and every number of rows a slab's tile has, in the last panel too.
    for (const std::size_t rows : {11, 16, 17, 24, 25, 29, 135, 136, 137, 138})
      check_shape(random, {.dtype = dtype, .rows = 55, .cols = 512}, rows);
    for (const std::size_t rows : {129, 134})  // two chunks, and one row in the last panel, of 128 rows or 133
      check_shape(random, {.dtype = dtype, .rows = 33, .cols = 2304}, rows);
  }
}

// A row's bits depend on nothing but the row: one by one, all together, any number of threads.
TEST(Matmul, RowsDoNotDependOnTheirNeighbours) {
  Random random(4);
  SCOPED_TRACE(random.note());
  constexpr std::size_t kRows = 64;
  for (DType dtype : kTypes) {
    const MatrixShape shape{.dtype = dtype, .rows = 100, .cols = 256};
    const Packed packed(shape, testing::random_matrix(random, shape));
    const std::vector<float> x = random.normals(kRows * shape.cols);
    std::vector<float> first;
    for (host::Isa isa : isas()) {
      for (std::size_t batch : {1u, 2u, 7u, 64u}) {
        std::vector<float> all;
        for (std::size_t r = 0; r < kRows; r += batch) {
          const std::size_t n = std::min(batch, kRows - r);
          const auto part = std::span(x).subspan(r * shape.cols, n * shape.cols);
          Activations a = activations(kernels(isa), {part.begin(), part.end()}, n, shape.cols);
          const auto y = run_matmul(kernels(isa), packed.view(), a, n, 1 + r % 4);
          all.insert(all.end(), y.begin(), y.end());
        }
        if (first.empty()) first = all;
        ASSERT_TRUE(same_bits(all, first))
            << plan::dtype_info(dtype).name << " " << host::isa_name(isa) << " batch " << batch;
      }
    }
  }
}

// The extremes of the integer paths: 32 * 128 * 127 must neither saturate nor wrap.
TEST(Matmul, ExtremeIntegersAreExact) {
  constexpr std::uint32_t kCols = 64;
  for (std::int8_t weight : {std::int8_t{-128}, std::int8_t{127}}) {
    for (float sign : {-1.0f, 1.0f}) {
      std::vector<plan::BlockQ8_0> blocks(5 * kCols / 32, {.d = float_to_half(1.0f), .qs = {}});
      for (auto& block : blocks) std::fill(std::begin(block.qs), std::end(block.qs), weight);
      const MatrixShape shape{.dtype = DType::kQ8_0, .rows = 5, .cols = kCols};
      const Packed packed(shape, std::as_bytes(std::span(blocks)));
      for (host::Isa isa : isas()) {
        Activations a = activations(kernels(isa), std::vector<float>(kCols, sign * 127.0f), 1, kCols);
        const float expected = sign * 127.0f * static_cast<float>(weight) * kCols;
        for (float y : run_matmul(kernels(isa), packed.view(), a, 1, 1)) EXPECT_EQ(y, expected) << host::isa_name(isa);
      }
    }
  }
}

// Every code and small scale at its ends: integer sums that wrap or saturate would show here.
TEST(Matmul, ExtremeCodesOfEveryTypeAreExact) {
  for (DType dtype : kTypes) {
    if (!is_quantized(dtype)) continue;
    const MatrixShape shape{.dtype = dtype, .rows = 17, .cols = 512};
    const auto info = plan::dtype_info(dtype);
    for (std::uint8_t fill : {0x00, 0x7F, 0x80, 0xFF, 0x0F, 0xF0}) {
      std::vector<std::byte> stored(std::size_t{shape.rows} * shape.cols / info.block_elements * info.block_bytes,
                                    std::byte{fill});
      testing::set_factors(
          dtype, stored, [] { return float_to_half(1.0f); }, [] { return std::uint8_t{129}; });
      const Packed packed(shape, stored);
      for (float x : {-127.0f, 127.0f}) {
        const std::vector<float> row(shape.cols, x);
        const auto expected = reference::matmul_exact(dtype, stored, shape.rows, row);
        for (host::Isa isa : isas()) {
          Activations a = activations(kernels(isa), row, 1, shape.cols);
          EXPECT_TRUE(same_bits(run_matmul(kernels(isa), packed.view(), a, 1, 1), expected))
              << info.name << " " << host::isa_name(isa) << " fill " << int{fill};
        }
      }
    }
  }
}

// Blocks without a scale: what they meet becomes NaN, rows beside them do not.
TEST(Matmul, BlocksThatAreNoNumbersSpoilTheirRowAlone) {
  Random random(9);
  constexpr std::uint32_t kCols = 512;
  for (DType dtype : kTypes) {
    if (!is_quantized(dtype)) continue;
    const MatrixShape shape{.dtype = dtype, .rows = 40, .cols = kCols};
    const std::vector<std::byte> stored = testing::random_matrix(random, shape);
    const Packed packed(shape, stored);
    for (const std::size_t rows : {3u, 14u, 27u}) {
      std::vector<float> x = random.normals(rows * kCols);
      x[kCols + 70] = INFINITY, x[2 * kCols + 1] = -0x1p100f;
      for (host::Isa isa : isas()) {
        Activations a = activations(kernels(isa), x, rows, kCols);
        const std::vector<float> y = run_matmul(kernels(isa), packed.view(), a, rows, 2);
        for (std::size_t r = 0; r < rows; ++r) {
          const auto part = std::span(y).subspan(r * shape.rows, shape.rows);
          const auto row = std::span(x).subspan(r * kCols, kCols);
          if (r == 1 || r == 2) {
            EXPECT_TRUE(std::ranges::all_of(part, [](float value) { return std::isnan(value); })) << "row " << r;
          } else {
            const auto expected = reference::matmul_exact(dtype, stored, shape.rows, row);
            EXPECT_TRUE(same_bits({part.begin(), part.end()}, expected)) << "row " << r;
          }
        }
      }
    }
  }
}

TEST(Quantize, EqualsTheWrittenStepsAlsoForHostileBlocks) {
  Random random(5);
  SCOPED_TRACE(random.note());
  constexpr std::size_t kCols = 32 * 12;
  std::vector<float> x = random.hostiles(kCols);
  std::fill_n(x.begin(), 32, 0.0f);
  std::fill_n(x.begin() + 32, 32, -0x1p-140f);
  x[64] = INFINITY, x[100] = NAN;
  x[128] = std::numeric_limits<float>::max(), x[129] = -std::numeric_limits<float>::max();
  std::fill_n(x.begin() + 160, 32, 0x1p-101f);
  std::fill_n(x.begin() + 224, 32, 0x1p100f);
  std::fill_n(x.begin() + 256, 32, 0x1.fffffep99f);
  for (std::size_t i = 0; i < 32; ++i) x[192 + i] = static_cast<float>(i) - 16.5f;  // ties
  x[192] = 127.0f;
  const auto expected = reference::quantize_exact(x);
  for (host::Isa isa : isas()) {
    Activations a = activations(kernels(isa), x, 1, kCols);
    for (std::size_t b = 0; b < expected.scales.size(); ++b) {
      SCOPED_TRACE(::testing::Message() << host::isa_name(isa) << " block " << b);
      const QuantizedBlock& block = a.blocks[b];
      EXPECT_TRUE(std::equal(std::begin(block.q), std::end(block.q), expected.q.begin() + 32 * b));
      EXPECT_TRUE(same_bits(std::vector{block.scale}, std::vector{expected.scales[b]}));
      if (std::isnan(block.scale)) continue;
      // One multiplication takes the base off and scales only while this is exact.
      EXPECT_EQ(static_cast<double>(block.minus_base), -12582912.0 * static_cast<double>(block.scale));
      std::int32_t half_sums[2] = {};
      for (std::size_t i = 0; i < 32; ++i) half_sums[i / 16] += block.q[i];
      for (std::size_t i = 0; i < 2; ++i)
        EXPECT_EQ(block.minus_scaled_half_sums[i], block.scale * static_cast<float>(-half_sums[i]));
      EXPECT_EQ(block.minus_scaled_sum, block.scale * static_cast<float>(-half_sums[0] - half_sums[1]));
    }
  }
}

// |error| <= sum over blocks of (scale / 2) * sum |w| for the activations, plus rounding: the bound numerics.md
// derives.
TEST(Matmul, StaysWithinTheDerivedErrorBound) {
  Random random(6);
  SCOPED_TRACE(random.note());
  for (DType dtype : kTypes) {
    const MatrixShape shape{.dtype = dtype, .rows = 48, .cols = 768};
    std::vector<std::byte> stored = testing::random_matrix(random, shape);
    if (!is_quantized(dtype)) {  // ordinary weights: hostile ones drown the bound
      const auto w = random.normals(static_cast<std::size_t>(shape.rows) * shape.cols);
      for (std::size_t i = 0; i < w.size(); ++i) {
        const auto half = float_to_half(w[i]);
        const auto bfloat = static_cast<std::uint16_t>(testing::bits_of(w[i]) >> 16);
        if (dtype == DType::kF32)
          std::memcpy(stored.data() + 4 * i, &w[i], 4);
        else
          std::memcpy(stored.data() + 2 * i, dtype == DType::kF16 ? &half : &bfloat, 2);
      }
    }
    const Packed packed(shape, stored);
    const std::vector<float> w = reference::dequantize(dtype, stored, shape.rows, shape.cols);
    const std::vector<float> x = random.normals(shape.cols);
    const std::vector<double> exact = reference::matmul_reference(w, x);
    for (host::Isa isa : isas()) {
      Activations a = activations(kernels(isa), x, 1, shape.cols);
      const auto y = run_matmul(kernels(isa), packed.view(), a, 1, 1);
      for (std::size_t n = 0; n < shape.rows; ++n) {
        double bound = 0;
        for (std::size_t k = 0; k < shape.cols; ++k) {
          const double weight = std::fabs(w[n * shape.cols + k]);
          if (is_quantized(dtype)) bound += weight * a.blocks[k / 32].scale * 0.5 * (1 + 1e-4);
          bound += weight * std::fabs(x[k]) * 0x1p-24 * shape.cols;
        }
        EXPECT_LE(std::fabs(y[n] - exact[n]), bound) << plan::dtype_info(dtype).name;
      }
    }
  }
}

TEST(Gather, RowsAreExact) {
  Random random(7);
  SCOPED_TRACE(random.note());
  for (DType dtype : kTypes) {
    const MatrixShape shape{
        .dtype = dtype, .rows = 37, .cols = 3 * std::max(plan::dtype_info(dtype).block_elements, 32u)};
    const std::vector<std::byte> stored = testing::random_matrix(random, shape);
    const Packed packed(shape, stored);
    const std::vector<float> rows = reference::dequantize(dtype, stored, shape.rows, shape.cols);
    const std::uint32_t ids[] = {36, 0, 15, 16, 15, 31, 32};
    for (host::Isa isa : isas()) {
      for (float scale : {1.0f, 11.3137085f}) {
        std::vector<float> y(std::size(ids) * shape.cols), expected;
        for (std::uint32_t id : ids)
          for (std::size_t k = 0; k < shape.cols; ++k) expected.push_back(scale * rows[id * shape.cols + k]);
        kernels(isa).gather({.w = packed.view(), .row_ids = ids, .y = y.data(), .scale = scale}, {0, std::size(ids)});
        EXPECT_TRUE(same_bits(y, expected)) << plan::dtype_info(dtype).name << " " << host::isa_name(isa);
      }
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::simd
