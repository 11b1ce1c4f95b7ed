// No machine of ours has AVX-VNNI. Its code is tested in the encoding of AVX-512 VL, which has the same instruction.
#include <gtest/gtest.h>

#include <vector>

#include "engine/compute/cpu/kernel_test_support.h"

namespace llorch::engine::compute::cpu {

namespace simd::avxvnni_evex {
using Quantize = void (*)(const QuantizeArgs&, Range);
using Matmul = void (*)(const MatmulArgs&, Range);
extern const Quantize kQuantize;
extern const Matmul kMatmul;
}  // namespace simd::avxvnni_evex

namespace {

struct Product {
  plan::DType dtype;
  std::uint32_t outputs, depth;
  std::size_t rows;
};

// Both products of one random matrix and random rows.
void expect_same_bits(testing::Random& random, const Product& of) {
  const MatrixShape shape{.dtype = of.dtype, .rows = of.outputs, .cols = of.depth};
  const testing::Packed packed(shape, testing::random_matrix(random, shape));
  const std::vector<float> x = random.hostiles(of.rows * of.depth);
  std::vector<QuantizedBlock> blocks(of.rows * of.depth / 32);
  const Kernels& avx2 = kernels(host::Isa::kAvx2);
  MatmulArgs args{.w = packed.view(), .x = x.data(), .x_stride = of.depth, .y_stride = of.outputs, .rows = of.rows};
  args.xq = {.blocks = blocks.data(), .width = of.depth};
  avx2.quantize({.x = x.data(), .x_stride = of.depth, .out = args.xq}, {0, of.rows});
  std::vector<float> expected(of.rows * of.outputs), actual(expected.size(), 1.0f);
  args.y = expected.data();
  avx2.matmul(args, {0, packed.view().groups()});
  simd::avxvnni_evex::kQuantize({.x = x.data(), .x_stride = of.depth, .out = args.xq}, {0, of.rows});
  args.y = actual.data();
  simd::avxvnni_evex::kMatmul(args, {0, packed.view().groups()});
  EXPECT_TRUE(testing::same_bits(actual, expected))
      << plan::dtype_info(of.dtype).name << ' ' << of.outputs << " x " << of.depth << ", rows " << of.rows;
}

TEST(AvxVnni, GivesTheBitsOfAvx2) {
  if (!host::detect_cpu_features().avx512)
    GTEST_SKIP() << "this processor has no vpdpbusd on 256 bits in this encoding";
  testing::Random random(77);
  SCOPED_TRACE(random.note());
  for (const plan::DType dtype :
       {plan::DType::kQ8_0, plan::DType::kQ4_0, plan::DType::kQ4_1, plan::DType::kQ5_0, plan::DType::kQ5_1,
        plan::DType::kQ2_K, plan::DType::kQ3_K, plan::DType::kQ4_K, plan::DType::kQ5_K, plan::DType::kQ6_K,
        plan::DType::kIQ4_NL, plan::DType::kIQ4_XS, plan::DType::kMXFP4, plan::DType::kF16, plan::DType::kF32}) {
    for (std::size_t rows = 1; rows <= 10; ++rows) expect_same_bits(random, {dtype, 37, 768, rows});
    expect_same_bits(random, {dtype, 64, 2048, 131});
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cpu
