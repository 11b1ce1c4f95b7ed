#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::DType;
using plan::LayerInputParams;
using plan::LayerInputSlot;
using plan::Opcode;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;

struct InputCase {
  DType type;
  std::uint32_t width, inner, layers, layer;
};
const InputCase kInputCases[] = {
    {DType::kF32, 20, 7, 3, 1}, {DType::kQ8_0, 64, 32, 2, 1}, {DType::kQ4_K, 256, 256, 2, 0}};

class InputWorld {
 public:
  static constexpr std::uint32_t kRows = 5, kVocab = 11;

  InputWorld(Random& random, const InputCase& c) : c_(c), weights_(static_cast<std::size_t>(LayerInputSlot::kCount)) {
    using enum LayerInputSlot;
    const auto matrix = [&](std::uint32_t rows, std::uint32_t cols) {
      return HarnessWeight::random(random, c.type, {rows, cols});
    };
    at(kGate) = matrix(c.inner, c.width), at(kProj) = matrix(c.width, c.inner), at(kContext) = matrix(c.inner, c.width);
    at(kNorm) = HarnessWeight::random(random, DType::kF32, {c.inner});
    at(kTable) = matrix(kVocab, c.layers * c.inner);
    x_ = random.normals(kRows * c.width), e_ = random.normals(kRows * c.width);
    for (std::uint32_t r = 0; r < kRows; ++r) ids_.push_back(r * 7 % kVocab);
  }

  LayerInputParams params() const {
    return {.kind_version = plan::kind_version(Opcode::kLayerInput),
            .width = c_.width,
            .inner = c_.inner,
            .rows = kVocab,
            .layers = c_.layers,
            .layer = c_.layer,
            .table_scale = 1.75f,
            .context_scale = 0.3f,
            .sum_scale = 0x1.6a09e6p-1f,
            .norm_eps = 1e-5f,
            .act = plan::Activation::kGeluTanh,
            .padding = {}};
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  std::vector<float> run(const HarnessOptions& device, std::uint32_t first, std::uint32_t rows) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    std::vector<float> y(rows * c_.width);
    plan::ExecutionContext ctx;
    ctx.total_rows = rows, ctx.row_ids = ids_.data() + first;
    harness.run(ctx, {x_.data() + first * c_.width, e_.data() + first * c_.width}, y.data());
    return y;
  }

  std::vector<float> expected() {
    using enum LayerInputSlot;
    const auto table = reference::dequantize(c_.type, at(kTable).stored, kVocab, c_.layers * c_.inner);
    const auto gate = matmul_rows(at(kGate), x_);
    auto context = matmul_rows(at(kContext), e_);
    for (float& v : context) v *= 0.3f;
    std::vector<float> inputs;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const auto normed = reference::rms_norm_exact(std::span(context).subspan(r * c_.inner, c_.inner),
                                                    at(kNorm).floats(), {.eps = 1e-5f, .weight_offset = 0});
      for (std::uint32_t i = 0; i < c_.inner; ++i) {
        const float row = 1.75f * table[(ids_[r] * c_.layers + c_.layer) * c_.inner + i];
        inputs.push_back(reference::gelu_tanh_exact(gate[r * c_.inner + i]) * ((row + normed[i]) * 0x1.6a09e6p-1f));
      }
    }
    return matmul_rows(at(kProj), inputs);
  }

  // The formula in double. REQUIRES: F32 weights.
  std::vector<double> direct() {
    using enum LayerInputSlot;
    const auto rows_of = [&](LayerInputSlot slot, const std::vector<float>& x, std::uint32_t r) {
      return reference::matmul_reference(at(slot).floats(), std::span(x).subspan(r * c_.width, c_.width));
    };
    const auto table = at(kTable).floats(), proj = at(kProj).floats(), norm = at(kNorm).floats();
    std::vector<double> y;
    for (std::uint32_t r = 0; r < kRows; ++r) {
      const auto gate = rows_of(kGate, x_, r), context = rows_of(kContext, e_, r);
      double squares = 0;
      for (double v : context) squares += 0.09 * v * v;
      const double length = 1 / std::sqrt(squares / c_.inner + 1e-5);
      std::vector<double> inputs;
      for (std::uint32_t i = 0; i < c_.inner; ++i) {
        const double row = 1.75 * table[(ids_[r] * c_.layers + c_.layer) * c_.inner + i];
        inputs.push_back(reference::gelu_tanh_reference(gate[i]) * (row + 0.3 * context[i] * length * norm[i]) *
                         std::sqrt(0.5));
      }
      for (std::uint32_t n = 0; n < c_.width; ++n) {
        double sum = 0;
        for (std::uint32_t i = 0; i < c_.inner; ++i) sum += proj[n * c_.inner + i] * inputs[i];
        y.push_back(sum);
      }
    }
    return y;
  }

 private:
  HarnessWeight& at(LayerInputSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  InputCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_, e_;
  std::vector<std::uint32_t> ids_;
};

TEST(LayerInput, EqualsItsTwinRowByRow) {
  Random random(80);
  for (const InputCase& c : kInputCases) {
    SCOPED_TRACE(::testing::Message() << "width " << c.width << " " << random.note());
    InputWorld world(random, c);
    ASSERT_NO_FATAL_FAILURE(testing::expect_same_row_by_row(world));
  }
}

TEST(LayerInput, IsCloseToTheFormula) {
  Random random(81);
  SCOPED_TRACE(random.note());
  InputWorld world(random, kInputCases[0]);
  const auto exact = world.direct();
  const auto y = world.run(testing::devices().back(), 0, InputWorld::kRows);
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(y[i], exact[i], 1e-5) << i;
}

TEST(LayerInput, WhatItCannotDoIsRefusedAtLoad) {
  Random random(82);
  InputWorld world(random, kInputCases[0]);
  const auto code = [&](auto change) {
    LayerInputParams params = world.params();
    change(params);
    const Harness harness(params, world.weights(), {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  EXPECT_EQ(code([](LayerInputParams&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](LayerInputParams& p) { p.layer = 3; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](LayerInputParams& p) { p.act = plan::Activation::kXielu; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](LayerInputParams& p) { p.layers = 4; }), ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
