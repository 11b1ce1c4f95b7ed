// No machine of ours lets a program use AMX. Its code is tested with plain C++ in place of the instructions.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/log.h"
#include "engine/compute/cpu/choose_isa.h"
#include "engine/compute/cpu/kernel_test_support.h"

namespace llorch::engine::compute::cpu {

namespace simd::amx_emulation {
using Matmul = void (*)(const MatmulArgs&, Range);
extern const Matmul kMatmul;
extern const std::size_t kPanelRows;
}  // namespace simd::amx_emulation

namespace {

class Amx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!host::detect_cpu_features().avx512) GTEST_SKIP() << "what its tiles leave is combined by AVX-512";
  }
};

Kernels emulated() {
  Kernels table = kernels(host::Isa::kAvx512);
  table.matmul = simd::amx_emulation::kMatmul;
  table.quant_panel_rows = simd::amx_emulation::kPanelRows;
  return table;
}

std::vector<float> product(const Kernels& k, const testing::Packed& packed, std::vector<float>& x, std::size_t rows) {
  const PackedMatrix w = packed.view();
  std::vector<QuantizedBlock> blocks(rows * w.cols / 32);
  const QuantizedRows quantized{.blocks = blocks.data(), .width = w.cols};
  k.quantize({.x = x.data(), .x_stride = w.cols, .out = quantized}, {0, rows});
  const std::size_t stride = w.rows + 3;
  std::vector<float> y(rows * stride, -7.0f);
  k.matmul(
      {.w = w, .x = x.data(), .x_stride = w.cols, .xq = quantized, .y = y.data(), .y_stride = stride, .rows = rows},
      {0, w.groups()});
  return y;
}

// M0-W-1822
TEST_F(Amx, GivesTheBitsOfAvx512) {
  testing::Random random(78);
  SCOPED_TRACE(random.note());
  const auto expect_same = [&](plan::DType dtype, std::uint32_t outputs, std::uint32_t depth, std::size_t rows) {
    const MatrixShape shape{.dtype = dtype, .rows = outputs, .cols = depth};
    const testing::Packed packed(shape, testing::random_matrix(random, shape));
    std::vector<float> x = random.hostiles(rows * depth);
    EXPECT_TRUE(
        testing::same_bits(product(emulated(), packed, x, rows), product(kernels(host::Isa::kAvx512), packed, x, rows)))
        << plan::dtype_info(dtype).name << ' ' << outputs << " x " << depth << ", rows " << rows;
  };
  for (const plan::DType dtype :
       {plan::DType::kQ8_0, plan::DType::kQ4_0, plan::DType::kQ4_1, plan::DType::kQ5_0, plan::DType::kQ5_1,
        plan::DType::kQ2_K, plan::DType::kQ3_K, plan::DType::kQ4_K, plan::DType::kQ5_K, plan::DType::kQ6_K,
        plan::DType::kIQ4_NL, plan::DType::kIQ4_XS, plan::DType::kMXFP4, plan::DType::kF16, plan::DType::kF32}) {
    for (const std::size_t rows : {1, 8, 9, 15, 16, 17, 24, 25, 31, 33}) expect_same(dtype, 37, 768, rows);
    expect_same(dtype, 50, 2304, 131);  // two panels, two chunks, pairs of groups and one left over
    if (plan::dtype_info(dtype).block_elements <= 32)
      expect_same(dtype, 33, 672, 19);  // sums of eight, eight and five blocks
  }
}

TEST_F(Amx, IsTakenForTheBestOnlyWhereItsProductsAreThoseOfAvx512) {
  const Kernels& expected = kernels(host::Isa::kAvx512);
  EXPECT_TRUE(same_products(emulated(), expected));
  Kernels wrong = emulated();
  wrong.matmul = [](const MatmulArgs& args, Range groups) {
    kernels(host::Isa::kAvx512).matmul(args, groups);
    args.y[args.rows * args.y_stride - 1] += 1.0f;
  };
  EXPECT_FALSE(same_products(wrong, expected));

  host::CpuFeatures features = host::detect_cpu_features();
  features.amx = true;
  for (const char* name : {"", "amx"})
    EXPECT_EQ(choose_isa(features, name, emulated(), expected).value(), host::Isa::kAmx) << name;
  std::string log;
  base::capture_log_lines([&](std::string_view line) { log += line; });
  EXPECT_EQ(choose_isa(features, "", wrong, expected).value(), host::Isa::kAvx512);
  EXPECT_EQ(choose_isa(features, "avx512", wrong, expected).value(), host::Isa::kAvx512);
  base::capture_log_lines({});
  EXPECT_NE(log.find("engine.amx_differs"), std::string::npos) << log;
  EXPECT_EQ(choose_isa(features, "amx", wrong, expected).error().code, base::ErrorCode::kGpuUnavailable);
  features.amx = false;
  EXPECT_EQ(choose_isa(features, "", wrong, expected).value(), host::Isa::kAvx512);
  EXPECT_EQ(choose_isa(features, "amx", emulated(), expected).error().code, base::ErrorCode::kGpuUnavailable);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu
