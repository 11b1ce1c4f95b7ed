// Matrix products: every output has the bits of its scalar reference, however many rows share a launch and however they are grouped.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <ranges>
#include <set>

#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/cuda/kernels/packing/packing_reference.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/reference/exact.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::MatrixShape;
using cpu::testing::Random;
using cpu::testing::random_matrix;
using cpu::testing::same_bits;
using plan::DType;

constexpr DType kMatrixTypes[] = {DType::kF32,   DType::kF16,    DType::kBF16, DType::kQ8_0,   DType::kQ4_0,
                                  DType::kQ4_1,  DType::kQ5_0,   DType::kQ5_1, DType::kQ2_K,   DType::kQ3_K,
                                  DType::kQ4_K,  DType::kQ5_K,   DType::kQ6_K, DType::kIQ4_NL, DType::kIQ4_XS,
                                  DType::kMXFP4, DType::kF8_E4M3};
constexpr DType kOneOfEachKind[] = {DType::kF32,  DType::kF16,  DType::kBF16, DType::kF8_E4M3,
                                    DType::kQ8_0, DType::kQ2_K, DType::kQ4_K};

bool is_half(DType dtype) { return dtype == DType::kF16 || dtype == DType::kBF16 || dtype == DType::kF8_E4M3; }

// An emulated machine; kernels get plain host memory, but narrowed activations lie on the device.
struct MatmulMachine {
  explicit MatmulMachine(bool backwards = false) : MatmulMachine(EmulationOptions{.backwards = backwards}) {}
  explicit MatmulMachine(const EmulationOptions& options) : driver(make_driver(options)) {}
  std::unique_ptr<Driver> driver;
  CudaStream stream{*driver};
};

// A stack of matrices as the backend would have uploaded it.
struct Uploaded {
  Uploaded(const MatrixShape& shape, const std::vector<std::vector<std::byte>>& stack)
      : bytes(matrix_bytes(shape) * stack.size()) {
    const std::size_t size = matrix_bytes(shape);
    for (std::size_t i = 0; i < stack.size(); ++i)
      kernels::pack_units_reference(shape, stack[i], std::span(bytes).subspan(i * size, size), 0, units_of(shape));
    weight = {.dtype = shape.dtype,
              .matrix = {.data = bytes.data(),
                         .row_bytes = unit_bytes(shape),
                         .stack_bytes = size,
                         .n = shape.rows,
                         .k = shape.cols}};
  }
  std::vector<std::byte> bytes;
  CudaWeight weight;
};

struct Product {
  const CudaWeight* weight = nullptr;
  std::span<const float> x;  // [rows / rows_per_x, k]
  std::uint32_t rows = 0;
  const float* bias = nullptr;
  const adapters::RowMatrices* own = nullptr;
  std::uint32_t rows_per_x = 1;
};
std::vector<float> product(const MatmulMachine& machine, const Product& p) {
  const kernels::Matrix& w = p.weight->matrix;
  std::vector<float> y(std::size_t{p.rows} * w.n, NAN);
  adapters::Arena size;
  size.take_narrowed(p.rows, w.k);
  std::byte* scratch = machine.driver->malloc(size.used_bytes());
  std::memset(scratch, 0xFF, size.used_bytes());
  adapters::Arena arena({scratch, size.used_bytes()});
  adapters::project(machine.stream,
                    {.x = p.x.data(),
                     .x_stride = w.k,
                     .rows = p.rows,
                     .narrowed = arena.take_narrowed(p.rows, w.k),
                     .y_stride = w.n,
                     .own = p.own,
                     .rows_per_x = p.rows_per_x},
                    std::array{adapters::Projection{p.weight, y.data(), p.bias}});
  machine.driver->free(scratch);
  return y;
}

// The order of F32 weights, one scalar step after the other.
float plain_dot(std::span<const float> w, std::span<const float> x) {
  std::array<float, 32> lanes{};
  for (std::size_t k = 0; k < (w.size() + 7) / 8 * 8; ++k) {
    float& lane = lanes[k / 8 % 32];
    lane = k < w.size() ? std::fma(w[k], x[k], lane) : std::fma(0.0f, 0.0f, lane);
  }
  for (std::size_t half = 16; half >= 1; half /= 2)
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// A row as F16 kernels see it: its largest value in [2^14, 2^15), to nearest.
struct Narrowed {
  std::vector<float> values;
  float scale = 1;
};
Narrowed narrowed(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  Narrowed out;
  if (largest > 0) out.scale = std::ldexp(1.0f, std::ilogb(largest) - 14);
  for (const float value : x) out.values.push_back(half_to_float(float_to_half(value / out.scale)));
  return out;
}
// The order of F16 and BF16 weights, and the emulation's model of a mma step: sixteen products, of columns 8t .. 8t + 3 of 32 and
// then of 8t + 4 .., added exactly enough, and one rounding.
float half_dot(std::span<const float> w, std::span<const float> x) {
  const std::size_t padded = kernels::padded_columns(static_cast<std::uint32_t>(w.size()));
  float halves[2] = {};
  for (std::size_t step = 0; step < padded / 32; ++step)
    for (std::size_t mma = 0; mma < 2; ++mma) {
      double sum = 0;
      for (std::size_t pair = 0; pair < 2; ++pair)
        for (std::size_t t = 0; t < 4; ++t)
          for (std::size_t i = 0; i < 2; ++i) {
            const std::size_t k = step * 32 + t * 8 + mma * 4 + pair * 2 + i;
            if (k < w.size()) sum += double{w[k]} * x[k];
          }
      float& half = halves[step / (padded / 64)];
      half = static_cast<float>(half + sum);
    }
  return halves[0] + halves[1];
}

// The value of a code, as the format's definition says it.
float f8_value(std::uint8_t code) {
  const int exponent = code >> 3 & 15, mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return NAN;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return (code & 0x80) != 0 ? -size : size;
}
// A stored row as F16 kernels see it: every element times its scale over the row's, each rounded to F16.
Narrowed f8_row(std::span<const std::byte> stored, std::size_t cols) {
  std::vector<plan::BlockF8_E4M3> blocks((cols + 127) / 128);
  std::memcpy(blocks.data(), stored.data(), stored.size());
  Narrowed out{.values = {}, .scale = 0x1p-126f};
  for (const auto& block : blocks)
    if (std::isfinite(block.d)) out.scale = std::max(out.scale, std::fabs(block.d) / 128);
  for (std::size_t k = 0; k < cols; ++k) {
    const auto& block = blocks[k / 128];
    const float factor = half_to_float(float_to_half(block.d / out.scale));
    out.values.push_back(half_to_float(float_to_half(f8_value(block.qs[k % 128]) * factor)));
  }
  return out;
}

std::vector<float> expected_row(DType dtype, std::span<const std::byte> stored, std::size_t n,
                                std::span<const float> x) {
  if (plan::is_quantized(dtype)) return reference::matmul_exact(dtype, stored, n, x);
  const Narrowed narrow = narrowed(x);
  std::vector<float> y;
  if (dtype == DType::kF8_E4M3) {
    for (std::size_t row = 0; row < n; ++row) {
      const Narrowed weights = f8_row(stored.subspan(row * stored.size() / n, stored.size() / n), x.size());
      y.push_back(half_dot(weights.values, narrow.values) * narrow.scale * weights.scale);
    }
    return y;
  }
  const std::vector<float> w = reference::dequantize(dtype, stored, n, x.size());
  for (std::size_t row = 0; row < n; ++row) {
    const auto of_row = std::span(w).subspan(row * x.size(), x.size());
    if (!is_half(dtype)) {
      y.push_back(plain_dot(of_row, x));
    } else if (dtype == DType::kF16) {
      y.push_back(half_dot(of_row, narrow.values) * narrow.scale);
    } else {
      const Narrowed weights = narrowed(of_row);
      y.push_back(half_dot(weights.values, narrow.values) * narrow.scale * weights.scale);
    }
  }
  return y;
}

TEST(Divisor, IsExactForAllRowsThereCanBe) {
  for (const std::uint32_t divisor : {1u, 2u, 3u, 6u, 7u, 8u, 10u, 22u, 31u, 32u, 63u, 64u})
    for (std::uint32_t row = 0; row <= 65535; ++row)
      ASSERT_EQ(kernels::Divisor::of(divisor).quotient(row), row / divisor) << row << " / " << divisor;
}

TEST(Fragments, HalfIndexIsABijection) {
  for (const std::uint32_t columns : {128u, 384u}) {
    std::set<std::uint64_t> seen;
    for (std::uint32_t row = 0; row < 16; ++row)
      for (std::uint32_t k = 0; k < columns; ++k) seen.insert(kernels::half_index(row, k));
    EXPECT_EQ(seen.size(), std::size_t{16} * columns);
    EXPECT_EQ(*seen.rbegin(), std::uint64_t{16} * columns - 1);
  }
}

// A lane's fragment of a step is sixteen consecutive bytes: rows g and g + 8, the columns its sixteen bytes of x hold.
TEST(Fragments, WeightsLieAsLanesTakeThem) {
  for (std::uint32_t lane = 0; lane < 32; ++lane)
    for (std::uint32_t mma = 0; mma < 2; ++mma)
      for (std::uint32_t i = 0; i < 8; ++i) {
        const std::uint32_t word = i / 2, row = lane / 4 + word % 2 * 8,
                            column = lane % 4 * 8 + mma * 4 + word / 2 * 2 + i % 2;
        EXPECT_EQ(kernels::half_index(row, 32 + column), 512 + mma * 256 + lane * 8 + i);
      }
}

TEST(Matmul, QuantizesLikeTheReference) {
  MatmulMachine machine;
  Random random(5);
  SCOPED_TRACE(random.note());
  auto x = random.hostiles(3 * 320);
  x[40] = INFINITY, x[100] = NAN;
  for (int i = 0; i < 32; ++i) x[320 + i] = 1e-35f, x[384 + i] = 0x1p100f, x[448 + i] = 0x1.fffffep99f;
  std::vector<std::int8_t> q(x.size());
  std::vector<float> scales(x.size() / 32);
  std::vector<std::uint32_t> sums(x.size() / 32);
  machine.stream.launch<kernels::Quantize>(
      {1, 3}, {.from = {.x = x.data(), .x_stride = 320}, .out = {q.data(), scales.data(), sums.data(), 320}});
  const reference::QuantizedRow expected = reference::quantize_exact(x);
  EXPECT_EQ(q, expected.q);
  for (std::size_t i = 0; i < scales.size(); ++i) {
    EXPECT_TRUE(scales[i] == expected.scales[i] || (std::isnan(scales[i]) && std::isnan(expected.scales[i]))) << i;
    for (std::uint32_t half = 0; half < 2; ++half)
      EXPECT_EQ(kernels::half_sum(sums[i], half),
                static_cast<float>(std::accumulate(&q[i * 32 + half * 16], &q[i * 32 + half * 16] + 16, 0)));
  }
}

// To nearest, with the largest value in [2^14, 2^15); columns past the width are zeros.
TEST(Matmul, NarrowsToNearest) {
  MatmulMachine machine;
  Random random(11);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 200, kStride = 256, kRows = 5;
  auto x = random.normals(kRows * kWidth);
  for (std::size_t i = 0; i < kWidth; ++i) x[kWidth + i] *= 1e20f, x[2 * kWidth + i] *= 1e-20f, x[3 * kWidth + i] = 0;
  x[4 * kWidth + 7] = NAN, x[4 * kWidth + 8] = INFINITY;
  std::vector<std::uint16_t> values(kRows * kStride, 0xFFFF);
  std::vector<float> scales(kRows);
  machine.stream.launch<kernels::Narrow>({kRows, 1}, {.from = {.x = x.data(), .x_stride = kWidth},
                                                      .out = {values.data(), scales.data(), kWidth, kStride}});
  for (std::size_t row = 0; row < 4; ++row) {
    const Narrowed expected = narrowed(std::span(x).subspan(row * kWidth, kWidth));
    EXPECT_EQ(scales[row], expected.scale) << row;
    for (std::size_t i = 0; i < kStride; ++i)
      EXPECT_EQ(half_to_float(values[row * kStride + i]), i < kWidth ? expected.values[i] : 0.0f) << row << ", " << i;
  }
  EXPECT_TRUE(std::isnan(half_to_float(values[4 * kStride + 7])));
  EXPECT_TRUE(std::isinf(half_to_float(values[4 * kStride + 8])));
}

// BF16 rows keep their values whatever their range is, down to 2^-28 of the largest.
TEST(Matmul, Bf16WeightsKeepTheirValues) {
  MatmulMachine machine;
  Random random(17);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 40, kCols = 96;
  std::vector<std::byte> stored(std::size_t{kRows} * kCols * 2);
  for (std::uint32_t row = 0; row < kRows; ++row) {
    const auto top = static_cast<std::uint32_t>(random.between(1 + 28, 254));
    for (std::uint32_t k = 0; k < kCols; ++k) {
      const auto exponent = static_cast<std::uint32_t>(k == 0 ? top : random.between(top - 28, top));
      const auto bits =
          static_cast<std::uint16_t>(random.below(9) == 0 ? 0 : (random.bits() & 0x807Fu) | exponent << 7);
      std::memcpy(&stored[(row * kCols + k) * 2], &bits, 2);
    }
  }
  const Uploaded uploaded({.dtype = DType::kBF16, .rows = kRows, .cols = kCols}, {stored});
  std::vector<std::uint32_t> ids(kRows);
  std::iota(ids.begin(), ids.end(), 0u);
  std::vector<float> y(kRows * kCols);
  machine.stream.launch<kernels::Gather<DType::kBF16>>(
      {1, kRows}, {.w = uploaded.weight.matrix, .row_ids = ids.data(), .y = y.data(), .columns = kCols});
  EXPECT_EQ(y, reference::dequantize(DType::kBF16, stored, kRows, kCols));
}

// Every type, rows that fill no group, more columns than are staged at a time, every kernel there is for the type.
TEST(Matmul, OneOrderForAnyNumberOfRows) {
  MatmulMachine machine;
  Random random(6);
  SCOPED_TRACE(random.note());
  for (const DType dtype : kMatrixTypes)
    for (const std::uint32_t cols :
         plan::is_quantized(dtype) ? std::vector{256u, 2304u} : std::vector{5u, 1003u, 4104u}) {
      const MatrixShape shape{.dtype = dtype, .rows = 21, .cols = cols};
      const auto stored = random_matrix(random, shape);
      const Uploaded uploaded(shape, {stored});
      constexpr std::uint32_t kRows = 67;
      const auto x = random.normals(kRows * cols), bias = random.normals(shape.rows);
      std::vector<float> expected;
      for (std::uint32_t r = 0; r < kRows; ++r)
        for (const float sum : expected_row(dtype, stored, shape.rows, std::span(x).subspan(r * cols, cols)))
          expected.push_back(sum + bias[expected.size() % shape.rows]);
      for (const std::uint32_t rows : {1u, 3u, 9u, kRows}) {
        const auto y = product(machine, {.weight = &uploaded.weight, .x = x, .rows = rows, .bias = bias.data()});
        EXPECT_TRUE(same_bits(y, std::span(expected).first(y.size())))
            << plan::dtype_info(dtype).name << " x " << cols << ", " << rows << " rows";
      }
    }
}

// Widths of large models: every ring of stages is gone through many times. One row streams, nine are a batch, 65 a prefill.
TEST(Matmul, EveryShapeHasTheBitsOfLongRows) {
  MatmulMachine machine(true);
  Random random(18);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 65;
  for (const std::uint32_t cols : {4096u, 14336u}) {
    const auto x = random.normals(std::size_t{kRows} * cols);
    for (const DType dtype : kOneOfEachKind) {
      const MatrixShape shape{.dtype = dtype, .rows = 17, .cols = cols};
      const auto stored = random_matrix(random, shape);
      const Uploaded uploaded(shape, {stored});
      const auto all = product(machine, {.weight = &uploaded.weight, .x = x, .rows = kRows});
      for (const std::uint32_t rows : {1u, 8u, 9u})
        EXPECT_TRUE(same_bits(product(machine, {.weight = &uploaded.weight, .x = x, .rows = rows}),
                              std::span(all).first(std::size_t{rows} * shape.rows)))
            << plan::dtype_info(dtype).name << " x " << cols << ", " << rows << " rows";
      for (const std::uint32_t r : {0u, kRows - 1})
        EXPECT_TRUE(
            same_bits(std::span(all).subspan(r * shape.rows, shape.rows),
                      expected_row(dtype, stored, shape.rows, std::span(x).subspan(std::size_t{r} * cols, cols))))
            << plan::dtype_info(dtype).name << " x " << cols << ", row " << r;
    }
  }
}

// Rows in both forms, and everything they consist of.
struct InForms {
  InForms(std::uint32_t rows, std::uint32_t width)
      : q(rows * width),
        block_scales(rows * width / kernels::kBlockElements),
        sums(block_scales.size()),
        values(rows * kernels::padded_columns(width)),
        scales(rows),
        rows_of{.bytes = {q.data(), block_scales.data(), sums.data(), width},
                .halves = {values.data(), scales.data(), width, kernels::padded_columns(width)}} {}
  bool same_bytes(const InForms& other) const {
    return q == other.q && same_bits(block_scales, other.block_scales) && sums == other.sums;
  }
  bool same_halves(const InForms& other) const { return values == other.values && same_bits(scales, other.scales); }
  std::vector<std::int8_t> q;
  std::vector<float> block_scales;
  std::vector<std::uint32_t> sums;
  std::vector<std::uint16_t> values;
  std::vector<float> scales;
  kernels::NarrowedRows rows_of;
};
InForms narrowed_apart(const MatmulMachine& machine, std::span<const float> y, std::uint32_t rows,
                       std::uint32_t width) {
  InForms out(rows, width);
  const kernels::SourceRows from{.x = y.data(), .x_stride = width};
  machine.stream.launch<kernels::Quantize>(
      {adapters::blocks_of(width / kernels::kBlockElements, kernels::Quantize::kThreads), rows},
      {.from = from, .out = out.rows_of.bytes});
  machine.stream.launch<kernels::Narrow>({rows}, {.from = from, .out = out.rows_of.halves});
  return out;
}

// What norms and activations leave are the bits that quantizing and narrowing their results gives.
TEST(Matmul, RowsAreLeftAsTheyWouldBeNarrowed) {
  MatmulMachine machine(true);
  Random random(8);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 3;
  for (const std::uint32_t width : {32u, 96u, 1056u, 4096u}) {
    std::vector<float> x = random.normals(kRows * width), up = random.normals(kRows * width), y(kRows * width);
    std::fill_n(x.begin(), width, 0.0f);
    x[width + 7] = INFINITY;
    const auto weight = random.normals(width), bias = random.normals(width);
    for (const bool layer : {false, true}) {
      InForms left(kRows, width);
      const kernels::NormArgs args{.x = x.data(),
                                   .weight = weight.data(),
                                   .bias = bias.data(),
                                   .y = y.data(),
                                   .x_stride = width,
                                   .y_stride = width,
                                   .width = width,
                                   .eps = 1e-5f,
                                   .narrowed = left.rows_of};
      layer ? machine.stream.launch<kernels::LayerNorm>({1, kRows}, args)
            : machine.stream.launch<kernels::RmsNorm>({1, kRows}, args);
      const InForms apart = narrowed_apart(machine, y, kRows, width);
      EXPECT_TRUE(left.same_bytes(apart) && left.same_halves(apart)) << width;
    }
    InForms left(kRows, width);
    kernels::SwigluArgs args{.gate = x.data(),
                             .up = up.data(),
                             .y = y.data(),
                             .x_stride = width,
                             .y_stride = width,
                             .width = width,
                             .narrowed = left.rows_of};
    const std::uint32_t blocks = adapters::blocks_of(width, kernels::Swiglu::kThreads);
    machine.stream.launch<kernels::Swiglu>({blocks, kRows}, args);
    const InForms apart = narrowed_apart(machine, y, kRows, width);
    std::vector<float> own(kRows * width);
    args.y = own.data();
    machine.stream.launch<kernels::SwigluBytes>({blocks, kRows}, args);
    machine.stream.launch<kernels::SwigluHalves>({kRows}, args);
    EXPECT_TRUE(left.same_bytes(apart) && left.same_halves(apart)) << width;
  }
}

// Kernels that begin while their activations are still being narrowed touch them only once they are there. Forwards copies to
// shared memory happen at once, backwards as late as they may.
TEST(Matmul, MayBeginBeforeItsActivationsAreThere) {
  MatmulMachine machine, forwards(EmulationOptions{.overlapping = true}),
      backwards(EmulationOptions{.backwards = true, .overlapping = true});
  Random random(7);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kCols = 768;
  for (const DType dtype : kMatrixTypes) {
    const MatrixShape shape{.dtype = dtype, .rows = 40, .cols = kCols};
    const Uploaded uploaded(shape, {random_matrix(random, shape)});
    for (const std::uint32_t rows : {1u, 7u, 9u, 70u}) {
      const auto x = random.normals(rows * kCols);
      const Product p{.weight = &uploaded.weight, .x = x, .rows = rows};
      const auto expected = product(machine, p);
      EXPECT_TRUE(same_bits(product(forwards, p), expected) && same_bits(product(backwards, p), expected))
          << plan::dtype_info(dtype).name << ", " << rows << " rows";
    }
  }
}

// SYS-2.3.2: a row's bits are those it has alone, at every batch size, at every place in it, forwards and backwards.
TEST(Matmul, ARowIsAloneAtAnyBatchSize) {
  MatmulMachine forwards(false), backwards(true);
  Random random(12);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRowsMax = 130, kCols = 256;
  for (const DType dtype : kOneOfEachKind) {
    const MatrixShape shape{.dtype = dtype, .rows = 37, .cols = kCols};
    const Uploaded uploaded(shape, {random_matrix(random, shape)});
    const auto x = random.normals(kRowsMax * kCols);
    std::vector<float> alone;
    for (std::uint32_t r = 0; r < kRowsMax; ++r)
      for (const float y :
           product(forwards, {.weight = &uploaded.weight, .x = std::span(x).subspan(r * kCols), .rows = 1}))
        alone.push_back(y);
    for (std::uint32_t rows = 1; rows <= kRowsMax; ++rows) {
      const std::size_t first = random.between(0, kRowsMax - rows);
      const MatmulMachine& machine = rows % 2 == 0 ? forwards : backwards;
      const auto y =
          product(machine, {.weight = &uploaded.weight, .x = std::span(x).subspan(first * kCols), .rows = rows});
      ASSERT_TRUE(same_bits(y, std::span(alone).subspan(first * shape.rows, y.size())))
          << plan::dtype_info(dtype).name << ", rows " << first << " + " << rows;
    }
  }
}

// Small integers have exact sums in any order, so this is about which element meets which, whatever a mma does inside.
TEST(Matmul, HalvesMeetTheirElements) {
  MatmulMachine machine;
  Random random(13);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kRows = 300, kCols = 300, kRowsOfX = 140;
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const auto small = [&] { return static_cast<float>(random.between(0, 8)) - 4.0f; };
    std::vector<float> w(kRows * kCols), x(kRowsOfX * kCols);
    std::ranges::generate(w, small);
    std::ranges::generate(x, small);
    std::vector<std::byte> stored(w.size() * 2);
    for (std::size_t i = 0; i < w.size(); ++i) {
      const std::uint16_t bits =
          dtype == DType::kF16 ? float_to_half(w[i]) : static_cast<std::uint16_t>(kernels::bits_of(w[i]) >> 16);
      std::memcpy(&stored[2 * i], &bits, 2);
    }
    const Uploaded uploaded({.dtype = dtype, .rows = kRows, .cols = kCols}, {stored});
    for (const std::uint32_t rows : {1u, 64u, kRowsOfX}) {
      const auto y = product(machine, {.weight = &uploaded.weight, .x = x, .rows = rows});
      for (std::uint32_t r = 0; r < rows; ++r)
        for (std::uint32_t n = 0; n < kRows; ++n)
          ASSERT_EQ(y[r * kRows + n], std::inner_product(&w[n * kCols], &w[n * kCols] + kCols, &x[r * kCols], 0.0f))
              << rows << " rows: " << r << ", " << n;
    }
  }
}

// |error| <= u sum |w x| for the rounding of x (u = 2^-11), and as much as numerics.md says for the sums.
TEST(Matmul, SumsAreWithinTheirBounds) {
  Random random(7);
  SCOPED_TRACE(random.note());
  for (int i = 0; i < 50; ++i) {
    const std::size_t k = random.between(1, 5000);
    const auto w = random.normals(k), x = random.normals(k);
    double exact = 0, size = 0;
    for (std::size_t j = 0; j < k; ++j) exact += double{w[j]} * x[j], size += std::fabs(double{w[j]} * x[j]);
    EXPECT_LE(std::fabs(plain_dot(w, x) - exact), (static_cast<double>(k) / 32 + 13) * 0x1p-24 * size) << k;
    const Narrowed narrow = narrowed(x);
    EXPECT_LE(std::fabs(half_dot(w, narrow.values) * narrow.scale - exact),
              (0x1p-11 + (static_cast<double>(k) / 32 + 5) * 0x1p-24) * size)
        << k;
  }
}

TEST(Matmul, SeveralWeightsOfSeveralTypesShareX) {
  MatmulMachine machine;
  Random random(14);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kCols = 256, kRows = 5;
  const auto x = random.normals(kRows * kCols);
  std::vector<Uploaded> weights;
  std::vector<std::vector<float>> expected, y;
  for (const auto& [dtype, n] :
       {std::pair{DType::kBF16, 40u}, {DType::kQ4_K, 17u}, {DType::kBF16, 70u}, {DType::kF16, 3u}}) {
    const MatrixShape shape{.dtype = dtype, .rows = n, .cols = kCols};
    weights.emplace_back(shape, std::vector<std::vector<std::byte>>{random_matrix(random, shape)});
    weights.back().weight.matrix.data = weights.back().bytes.data();
    expected.push_back(product(machine, {.weight = &weights.back().weight, .x = x, .rows = kRows}));
  }
  std::vector<float> all(kRows * 130);
  adapters::Arena size;
  size.take_narrowed(kRows, kCols);
  std::vector<std::byte> scratch(size.used_bytes());
  adapters::Arena arena({scratch.data(), scratch.size()});
  LaunchCounters counters;
  machine.stream.count(&counters);
  adapters::project(
      machine.stream,
      {.x = x.data(), .x_stride = kCols, .rows = kRows, .narrowed = arena.take_narrowed(kRows, kCols), .y_stride = 130},
      std::array{adapters::Projection{&weights[0].weight, all.data()},
                 adapters::Projection{&weights[1].weight, all.data() + 40},
                 adapters::Projection{&weights[2].weight, all.data() + 57},
                 adapters::Projection{&weights[3].weight, all.data() + 127}});
  EXPECT_EQ(counters.total, 5u);  // two forms of x, three types of weights
  for (std::size_t r = 0; r < kRows; ++r) {
    std::size_t at = r * 130;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::size_t n = expected[i].size() / kRows;
      EXPECT_TRUE(same_bits(std::span(all).subspan(at, n), std::span(expected[i]).subspan(r * n, n))) << i;
      at += n;
    }
  }
}

// BF16 rows here span more than F16 can: what is tiny beside the largest element may be lost.
TEST(Matmul, GatherDequantizesExactly) {
  MatmulMachine machine;
  Random random(8);
  SCOPED_TRACE(random.note());
  for (const DType dtype : kMatrixTypes) {
    if (dtype == DType::kF8_E4M3) continue;  // FP8 below
    const MatrixShape shape{.dtype = dtype, .rows = 35, .cols = 512};
    const auto stored = random_matrix(random, shape);
    const Uploaded uploaded(shape, {stored});
    const std::uint32_t ids[] = {34, 0, 17, 17};
    std::vector<float> y(4 * 512), expected;
    for (const std::uint32_t id : ids)
      for (const float value : reference::dequantize(dtype, stored, shape.rows, shape.cols) |
                                   std::views::drop(id * shape.cols) | std::views::take(shape.cols))
        expected.push_back(1.5f * value);
    adapters::visit_matrix_type(dtype, [&]<DType kType>() {
      machine.stream.launch<kernels::Gather<kType>>(
          {2, 4}, {.w = uploaded.weight.matrix, .row_ids = ids, .y = y.data(), .scale = 1.5f, .columns = shape.cols});
    });
    if (dtype != DType::kBF16) {
      EXPECT_TRUE(same_bits(y, expected)) << plan::dtype_info(dtype).name;
      continue;
    }
    for (std::size_t row = 0; row < 4; ++row) {
      const auto of_row = std::span(expected).subspan(row * shape.cols, shape.cols);
      const float largest = std::fabs(*std::ranges::max_element(of_row, {}, [](float v) { return std::fabs(v); }));
      for (std::size_t k = 0; k < shape.cols; ++k)
        EXPECT_LE(std::fabs(y[row * shape.cols + k] - of_row[k]),
                  std::fabs(of_row[k]) < largest * 0x1p-28f ? largest * 0x1p-39f : 0.0f);
    }
  }
}

struct Pairs {
  std::vector<std::uint32_t> experts, pair_at;
  std::vector<kernels::RowTile> tiles;
  adapters::RowMatrices own;
};
Pairs grouped(const MatmulMachine& machine, std::vector<std::uint32_t> experts, std::uint32_t count,
              std::uint32_t tile_rows) {
  Pairs pairs{.experts = std::move(experts)};
  const auto size = static_cast<std::uint32_t>(pairs.experts.size());
  pairs.pair_at.assign(size, ~0u);
  pairs.tiles.assign(size / tile_rows + count, {~0u, ~0u, ~0u});
  machine.stream.launch<kernels::GroupPairs>({count}, {.experts = pairs.experts.data(),
                                                       .pairs = size,
                                                       .tile_rows = tile_rows,
                                                       .pair_at = pairs.pair_at.data(),
                                                       .tiles = pairs.tiles.data()});
  pairs.own = {.tiles = pairs.tiles.data(),
               .row_at = pairs.pair_at.data(),
               .tiles_count = static_cast<std::uint32_t>(pairs.tiles.size()),
               .tile_rows = tile_rows};
  return pairs;
}

// Every pair is in one tile, in that of its expert, with those of its expert in their order.
TEST(Moe, GroupsEveryPairOnce) {
  MatmulMachine machine(true);
  Random random(15);
  SCOPED_TRACE(random.note());
  for (int i = 0; i < 200; ++i) {
    const auto count = static_cast<std::uint32_t>(random.between(1, 40));
    const std::uint32_t tile_rows = random.below(2) == 0 ? 8 : 64;
    std::vector<std::uint32_t> experts(random.between(1, 700));
    for (std::uint32_t& expert : experts)
      expert = static_cast<std::uint32_t>(random.below(3) == 0 ? random.below(count) : random.below(2) * (count - 1));
    const Pairs pairs = grouped(machine, experts, count, tile_rows);
    std::vector<std::uint32_t> expected(experts.size()), seen;
    std::iota(expected.begin(), expected.end(), 0u);
    std::ranges::stable_sort(expected, {}, [&](std::uint32_t pair) { return experts[pair]; });
    EXPECT_EQ(pairs.pair_at, expected);
    for (const kernels::RowTile& tile : pairs.tiles) {
      ASSERT_LE(tile.count, tile_rows);
      for (std::uint32_t at = tile.first; at < tile.first + tile.count; ++at) {
        EXPECT_EQ(experts[pairs.pair_at[at]], tile.matrix);
        seen.push_back(pairs.pair_at[at]);
      }
    }
    EXPECT_EQ(seen, expected);
  }
}

// A pair's result is the one it has by itself.
TEST(Moe, GroupingMovesNoBit) {
  MatmulMachine machine;
  Random random(16);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kExperts = 5, kUsed = 2, kRows = 90, kCols = 256;
  for (const DType dtype : kOneOfEachKind) {
    const MatrixShape shape{.dtype = dtype, .rows = 19, .cols = kCols};
    std::vector<std::vector<std::byte>> stack;
    for (std::uint32_t e = 0; e < kExperts; ++e) stack.push_back(random_matrix(random, shape));
    const Uploaded uploaded(shape, stack);
    const auto x = random.normals(kRows * kCols), bias = random.normals(kExperts * shape.rows);
    std::vector<std::uint32_t> experts(kRows * kUsed);
    for (std::uint32_t& expert : experts) expert = static_cast<std::uint32_t>(random.below(kExperts));
    Product p{.weight = &uploaded.weight, .x = x, .rows = kRows * kUsed, .bias = bias.data(), .rows_per_x = kUsed};
    const adapters::RowMatrices single{.matrix_of_row = experts.data()};
    p.own = &single;
    const std::vector<float> expected = product(machine, p);
    const auto first = expected_row(dtype, stack[experts[7]], shape.rows, std::span(x).subspan(3 * kCols, kCols));
    for (std::size_t n = 0; n < shape.rows; ++n)
      EXPECT_EQ(expected[7 * shape.rows + n], first[n] + bias[experts[7] * shape.rows + n]);
    for (const std::uint32_t tile_rows : {8u, 64u}) {
      if (dtype == DType::kF32 && tile_rows == 64) continue;
      const Pairs pairs = grouped(machine, experts, kExperts, tile_rows);
      p.own = &pairs.own;
      EXPECT_TRUE(same_bits(product(machine, p), expected)) << plan::dtype_info(dtype).name << " by " << tile_rows;
    }
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
