#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::cpu::adapters {
namespace {

using plan::DType;
using plan::kind_version;
using plan::Opcode;
using testing::add_bias;
using testing::devices;
using testing::Harness;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;
using Row = std::span<const float>;

constexpr std::size_t kRows = 9;

TEST(Adapters, EmbeddingScalesExactRows) {
  Random random(40);
  SCOPED_TRACE(random.note());
  const plan::EmbeddingParams params{kind_version(Opcode::kEmbedding), 50, 64, 3.0f};
  const auto w = HarnessWeight::random(random, DType::kQ4_0, {50, 64});
  const auto table = reference::dequantize(w.dtype, w.stored, 50, 64);
  std::vector<std::uint32_t> ids(kRows);
  for (auto& id : ids) id = static_cast<std::uint32_t>(random.below(50));
  std::vector<float> expected;
  for (auto id : ids)
    for (std::size_t k = 0; k < 64; ++k) expected.push_back(3.0f * table[id * 64 + k]);
  for (const auto& device : devices()) {
    Harness harness(params, {w}, device);
    std::vector<float> y(expected.size());
    plan::ExecutionContext ctx;
    ctx.total_rows = kRows;
    ctx.row_ids = ids.data();
    harness.run(ctx, {}, y.data());
    EXPECT_TRUE(same_bits(y, expected)) << device.isa;
  }
}

TEST(Adapters, NormAndResidual) {
  Random random(41);
  SCOPED_TRACE(random.note());
  plan::RmsNormParams norm{};
  norm.kind_version = kind_version(Opcode::kRmsNorm), norm.width = 96, norm.eps = 1e-5f, norm.weight_offset = 1;
  const plan::ResidualAddParams add{kind_version(Opcode::kResidualAdd), 96, 0.22f, 0};
  const plan::ResidualAddParams scaled{kind_version(Opcode::kResidualAdd), 96, 0.22f, 0.7f};
  const auto w = HarnessWeight::random(random, DType::kF32, {96});
  const auto x = random.normals(kRows * 96), b = random.normals(kRows * 96);
  std::vector<float> normed, sums, scaled_sums;
  for (std::size_t r = 0; r < kRows; ++r) {
    const auto y =
        reference::rms_norm_exact(Row(x).subspan(r * 96, 96), w.floats(), {.eps = 1e-5f, .weight_offset = 1});
    normed.insert(normed.end(), y.begin(), y.end());
  }
  for (std::size_t i = 0; i < x.size(); ++i) sums.push_back(std::fma(0.22f, b[i], x[i]));
  for (const float sum : sums) scaled_sums.push_back(sum * 0.7f);
  for (const auto& device : devices()) {
    plan::ExecutionContext ctx;
    ctx.total_rows = kRows;
    std::vector<float> y(x.size());
    Harness(norm, {w}, device).run(ctx, {x.data()}, y.data());
    EXPECT_TRUE(same_bits(y, normed)) << device.isa;
    y = x;
    Harness(add, {}, device).run(ctx, {y.data(), b.data()}, y.data());  // in place
    EXPECT_TRUE(same_bits(y, sums)) << device.isa;
    y = x;
    Harness(scaled, {}, device).run(ctx, {y.data(), b.data()}, y.data());
    EXPECT_TRUE(same_bits(y, scaled_sums)) << device.isa;
  }
}

// Two sequences of 4 and 5 rows, of which rows 2, 3 and 8 are asked for.
TEST(Adapters, PoolsRowsOfTheirSequence) {
  Random random(48);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 50;
  const auto x = random.normals(kRows * kWidth);
  const std::vector<std::uint32_t> offsets{0, 4, 9}, outputs{2, 3, 8};
  const auto mean = [&](std::uint32_t begin, std::uint32_t end) {
    return reference::mean_exact(Row(x).subspan(begin * kWidth, (end - begin) * kWidth), kWidth);
  };
  const auto joined = [](const std::vector<std::vector<float>>& rows) {
    std::vector<float> all;
    for (const auto& row : rows) all.insert(all.end(), row.begin(), row.end());
    return all;
  };
  using enum plan::Pooling;
  for (const auto& [pooling, expected] : {std::pair(kMean, joined({mean(0, 3), mean(0, 4), mean(4, 9)})),
                                          std::pair(kFirst, joined({mean(0, 1), mean(0, 1), mean(4, 5)})),
                                          std::pair(kLast, joined({mean(2, 3), mean(3, 4), mean(8, 9)}))}) {
    const plan::PoolParams params{kind_version(Opcode::kPool), kWidth, pooling, {}};
    for (const auto& device : devices()) {
      std::vector<float> y(expected.size());
      plan::ExecutionContext ctx;
      ctx.total_rows = kRows;
      ctx.row_offsets = offsets;
      ctx.output_rows = outputs;
      Harness(params, {}, device).run(ctx, {x.data()}, y.data());
      EXPECT_TRUE(same_bits(y, expected)) << static_cast<int>(pooling) << ' ' << device.isa;
    }
  }
  EXPECT_TRUE(Harness(plan::PoolParams{kind_version(Opcode::kPool), kWidth, kNone, {}}, {}, devices().front()).error());
}

TEST(Adapters, PositionsAndTypesAreAddedInThatOrder) {
  Random random(52);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 50;
  const auto positions = HarnessWeight::random(random, DType::kF32, {12, kWidth}),
             types = HarnessWeight::random(random, DType::kF32, {2, kWidth});
  const auto x = random.normals(kRows * kWidth);
  std::vector<std::uint32_t> position_of(kRows), type_of(kRows);
  for (std::uint32_t r = 0; r < kRows; ++r) position_of[r] = r * 7 % 10, type_of[r] = r % 3 == 0;
  const auto expected = [&](bool has_positions, const std::uint32_t* row_types) {
    std::vector<float> y = x;
    for (std::uint32_t i = 0; i < y.size(); ++i) {
      const std::uint32_t row = i / kWidth, column = i % kWidth, type = row_types != nullptr ? row_types[row] : 0;
      y[i] += types.floats()[type * kWidth + column];
      if (has_positions) y[i] += positions.floats()[(2 + position_of[row]) * kWidth + column];
    }
    return y;
  };
  for (const bool has_positions : {true, false}) {
    plan::PositionEmbeddingParams params{kind_version(Opcode::kPositionEmbedding), kWidth, 12, 2, 2, 0};
    if (!has_positions) params.positions = 0;
    for (const std::uint32_t* row_types :
         {static_cast<const std::uint32_t*>(type_of.data()), static_cast<const std::uint32_t*>(nullptr)}) {
      const auto wanted = expected(has_positions, row_types);
      for (const auto& device : devices()) {
        plan::ExecutionContext ctx;
        ctx.total_rows = kRows, ctx.positions = position_of.data(), ctx.row_types = row_types;
        std::vector<float> y(x.size());
        Harness harness(params, {has_positions ? positions : HarnessWeight{}, types}, device);
        harness.run(ctx, {x.data()}, y.data());
        EXPECT_TRUE(same_bits(y, wanted)) << device.isa;
        y = x;
        harness.run(ctx, {y.data()}, y.data());  // in place
        EXPECT_TRUE(same_bits(y, wanted)) << device.isa;
      }
    }
  }
}

TEST(Adapters, DenseLayersTakeEveryOutputRow) {
  Random random(53);
  SCOPED_TRACE(random.note());
  const auto w = HarnessWeight::random(random, DType::kQ8_0, {77, 64}),
             bias = HarnessWeight::random(random, DType::kF32, {77});
  const auto x = random.normals(3 * 64);
  const std::vector<std::uint32_t> outputs{1, 4, 8};
  for (const auto act : {plan::DenseActivation::kNone, plan::DenseActivation::kTanh}) {
    auto expected = matmul_rows(w, x);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += bias.floats()[i % 77];
      if (act == plan::DenseActivation::kTanh) expected[i] = reference::softcap_exact(expected[i], 1.0f);
    }
    const plan::DenseParams params{kind_version(Opcode::kDense), 64, 77, act, {}};
    for (const auto& device : devices()) {
      Harness harness(params, {w, bias}, device);
      std::vector<float> y(expected.size());
      plan::ExecutionContext ctx;
      ctx.total_rows = kRows;
      ctx.output_rows = outputs;
      harness.run(ctx, {x.data()}, y.data());
      EXPECT_TRUE(same_bits(y, expected)) << device.isa;
    }
  }
}

TEST(Adapters, NormsOfGroupsAndLayerNorm) {
  Random random(46);
  SCOPED_TRACE(random.note());
  const auto x = random.normals(kRows * 96);
  const auto w = HarnessWeight::random(random, DType::kBF16, {24}),
             b = HarnessWeight::random(random, DType::kF16, {24});
  const auto weight = reference::dequantize(w.dtype, w.stored, 1, 24),
             bias = reference::dequantize(b.dtype, b.stored, 1, 24);
  for (const auto kind : {plan::NormKind::kRms, plan::NormKind::kLayerNorm}) {
    const bool layer = kind == plan::NormKind::kLayerNorm;
    plan::RmsNormParams params{};
    params.kind_version = kind_version(Opcode::kRmsNorm), params.width = 96, params.rows_per_group = 24;
    params.eps = 1e-6f, params.kind = kind;
    std::vector<float> expected;
    for (std::size_t i = 0; i < x.size(); i += 24) {
      const Row group = Row(x).subspan(i, 24);
      const auto y = layer ? reference::layer_norm_exact(group, weight, bias, 1e-6f)
                           : reference::rms_norm_exact(group, weight, {.eps = 1e-6f, .weight_offset = 0});
      expected.insert(expected.end(), y.begin(), y.end());
    }
    for (const auto& device : devices()) {
      Harness harness(params, layer ? std::vector{w, b} : std::vector{w}, device);
      ASSERT_FALSE(harness.error()) << harness.error()->message;
      std::vector<float> y(x.size());
      plan::ExecutionContext ctx;
      ctx.total_rows = kRows;
      harness.run(ctx, {x.data()}, y.data());
      EXPECT_TRUE(same_bits(y, expected)) << device.isa;
    }
  }
}

TEST(Adapters, FeedForwardOfEveryActivation) {
  Random random(47);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 50, kHidden = 70;  // no multiples of 32: float weights have no blocks
  constexpr reference::SwigluOaiOptions kOai{.alpha = 1.702f, .limit = 1.5f};
  constexpr reference::XieluOptions kXielu{.alpha = 1.702f, .alpha_negative = 0.8f, .beta = 0.5f, .eps = -1e-6f};
  using plan::Activation;
  const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
    return HarnessWeight::random(random, DType::kF16, {n, k});
  };
  const auto gate = matrix(kHidden, kWidth), up = matrix(kHidden, kWidth), down = matrix(kWidth, kHidden);
  const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
  const auto gate_bias = vector(kHidden), up_bias = vector(kHidden), down_bias = vector(kWidth);
  auto x = random.normals(kRows * kWidth);
  for (float& v : x) v *= 4;
  for (const bool gated : {true, false}) {
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kSwigluOai,
                                 Activation::kRelu2, Activation::kXielu, Activation::kSiluClamped}) {
      const bool needs_gate = act == Activation::kSwigluOai || act == Activation::kSiluClamped;
      if (gated ? act == Activation::kXielu : needs_gate) continue;
      auto gates = matmul_rows(gate, x), hidden = matmul_rows(up, x);
      add_bias(gates, gate_bias.floats()), add_bias(hidden, up_bias.floats());
      for (std::size_t i = 0; i < hidden.size(); ++i) {
        const float g = gated ? gates[i] : hidden[i], u = gated ? hidden[i] : 1.0f;
        switch (act) {
          case Activation::kSilu: hidden[i] = reference::silu_exact(g) * u; break;
          case Activation::kGeluTanh: hidden[i] = reference::gelu_tanh_exact(g) * u; break;
          case Activation::kGeluErf: hidden[i] = reference::gelu_erf_exact(g) * u; break;
          case Activation::kSwigluOai: hidden[i] = reference::swiglu_oai_exact(g, u, kOai); break;
          case Activation::kRelu2: hidden[i] = reference::relu2_exact(g) * u; break;
          case Activation::kXielu: hidden[i] = reference::xielu_exact(g, kXielu); break;
          case Activation::kSiluClamped: hidden[i] = reference::silu_clamped_exact(g, u, kOai.limit); break;
        }
      }
      auto expected = matmul_rows(down, hidden);
      add_bias(expected, down_bias.floats());
      plan::SwigluParams params{};
      params.kind_version = kind_version(Opcode::kSwiglu), params.width = kWidth, params.ffn = kHidden;
      params.gated = gated, params.act = act, params.alpha = kOai.alpha, params.limit = kOai.limit;
      params.alpha_negative = kXielu.alpha_negative, params.beta = kXielu.beta, params.eps = kXielu.eps;
      const HarnessWeight none;
      const std::vector weights{gated ? gate : none, up, down, gated ? gate_bias : none, up_bias, down_bias};
      for (const auto& device : devices()) {
        Harness harness(params, weights, device);
        ASSERT_FALSE(harness.error()) << harness.error()->message;
        std::vector<float> y(expected.size());
        plan::ExecutionContext ctx;
        ctx.total_rows = kRows;
        harness.run(ctx, {x.data()}, y.data());
        EXPECT_TRUE(same_bits(y, expected)) << device.isa << " activation " << static_cast<int>(act);
      }
    }
  }
}

TEST(Adapters, FeedForwardWithAndWithoutBias) {
  Random random(42);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 64;
  struct Size {
    std::size_t rows;
    std::uint32_t hidden;
  };
  // The larger has more rows than a panel, and more columns than a thread makes at a time.
  for (const auto [rows, hidden_width] : {Size{kRows, 160}, Size{140, 480}})
    for (DType dtype : {DType::kF32, DType::kF16, DType::kQ8_0, DType::kQ4_0}) {
      const bool bias = dtype == DType::kF32 || dtype == DType::kQ8_0;
      const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
        return HarnessWeight::random(random, dtype, {n, k});
      };
      const auto vector = [&](std::uint32_t n) {
        return bias ? HarnessWeight::random(random, DType::kF32, {n}) : HarnessWeight{};
      };
      const auto gate = matrix(hidden_width, kWidth), up = matrix(hidden_width, kWidth),
                 down = matrix(kWidth, hidden_width);
      const auto gate_bias = vector(hidden_width), up_bias = vector(hidden_width), down_bias = vector(kWidth);
      const auto x = random.normals(rows * kWidth);
      auto hidden = matmul_rows(gate, x), ups = matmul_rows(up, x);
      if (bias) add_bias(hidden, gate_bias.floats()), add_bias(ups, up_bias.floats());
      for (std::size_t i = 0; i < hidden.size(); ++i) hidden[i] = reference::silu_exact(hidden[i]) * ups[i];
      auto expected = matmul_rows(down, hidden);
      if (bias) add_bias(expected, down_bias.floats());
      plan::SwigluParams params{};
      params.kind_version = kind_version(Opcode::kSwiglu), params.width = kWidth, params.ffn = hidden_width;
      params.gated = 1;
      const std::vector weights{gate, up, down, gate_bias, up_bias, down_bias};
      for (auto device : devices()) {
        device.limits.rows_max = 140;
        Harness harness(params, weights, device);
        ASSERT_FALSE(harness.error()) << harness.error()->message;
        std::vector<float> y(expected.size());
        plan::ExecutionContext ctx;
        ctx.total_rows = static_cast<std::uint32_t>(rows);
        harness.run(ctx, {x.data()}, y.data());
        EXPECT_TRUE(same_bits(y, expected)) << device.isa;
      }
    }
}

TEST(Adapters, LmHeadTakesTheWantedRows) {
  Random random(43);
  SCOPED_TRACE(random.note());
  const plan::LmHeadParams params{kind_version(Opcode::kLmHead), 77, 64, 0.5f, 30.0f, 0, {}};
  const auto w = HarnessWeight::random(random, DType::kQ8_0, {77, 64});
  const auto b = HarnessWeight::random(random, DType::kF32, {77});
  const auto x = random.normals(kRows * 64);
  const std::vector<std::uint32_t> wanted = {1, 4, 8};
  std::vector<float> chosen;
  for (auto r : wanted) chosen.insert(chosen.end(), x.begin() + r * 64, x.begin() + (r + 1) * 64);
  auto expected = matmul_rows(w, chosen);
  for (std::size_t i = 0; i < expected.size(); ++i)
    expected[i] = reference::softcap_exact((expected[i] + b.floats()[i % 77]) * 0.5f, 30.0f);
  for (const auto& device : devices()) {
    Harness harness(params, {w, b}, device);
    std::vector<float> y(expected.size());
    plan::ExecutionContext ctx;
    ctx.total_rows = kRows;
    ctx.output_rows = wanted;
    harness.run(ctx, {x.data()}, y.data());
    EXPECT_TRUE(same_bits(y, expected)) << device.isa;
    ctx.output_rows = {};
    harness.run(ctx, {x.data()}, nullptr);  // nothing wanted: nothing written
  }
}

TEST(Adapters, WhatTheyCannotDoIsRefusedAtLoad) {
  Random random(45);
  using base::ErrorCode;
  const auto vector = HarnessWeight::random(random, DType::kF32, {8});
  plan::RmsNormParams norm{};
  norm.kind_version = kind_version(Opcode::kRmsNorm), norm.width = 8;
  const auto norm_error = [&](const std::vector<HarnessWeight>& weights) {
    const Harness harness(norm, weights, {});
    return harness.error() ? harness.error()->code : ErrorCode::kInternal;
  };
  EXPECT_EQ(norm_error({vector}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(norm_error({vector, vector}), ErrorCode::kUnsupportedOpcode);
  norm.rows_per_group = 3;
  EXPECT_EQ(norm_error({vector}), ErrorCode::kUnsupportedOpcode);
  norm.rows_per_group = 4;
  EXPECT_EQ(norm_error({vector}), ErrorCode::kWeightShapeMismatch);
  norm.rows_per_group = 0, norm.kind = plan::NormKind::kLayerNorm;
  EXPECT_EQ(norm_error({vector, vector}), ErrorCode::kInternal);
  norm.weight_offset = 1;
  EXPECT_EQ(norm_error({vector, vector}), ErrorCode::kUnsupportedOpcode);

  plan::SwigluParams ffn{};
  ffn.kind_version = kind_version(Opcode::kSwiglu), ffn.width = 32, ffn.ffn = 32, ffn.gated = 1;
  const auto w = HarnessWeight::random(random, DType::kF32, {32, 32}),
             b = HarnessWeight::random(random, DType::kF32, {32});
  const auto ffn_error = [&](const std::vector<HarnessWeight>& weights) {
    const Harness harness(ffn, weights, {});
    return harness.error() ? harness.error()->code : ErrorCode::kInternal;
  };
  EXPECT_EQ(ffn_error({w, w, w}), ErrorCode::kInternal);
  EXPECT_EQ(ffn_error({{}, w, w}), ErrorCode::kUnsupportedOpcode);
  ffn.act = plan::Activation::kSwigluOai;  // without a limit
  EXPECT_EQ(ffn_error({w, w, w}), ErrorCode::kUnsupportedOpcode);
  ffn.limit = 7;
  EXPECT_EQ(ffn_error({w, w, w}), ErrorCode::kInternal);
  ffn.gated = 0;
  EXPECT_EQ(ffn_error({{}, w, w}), ErrorCode::kUnsupportedOpcode);
  ffn.act = plan::Activation::kGeluErf;
  EXPECT_EQ(ffn_error({{}, w, w}), ErrorCode::kInternal);
  EXPECT_EQ(ffn_error({w, w, w}), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(ffn_error({{}, w, w, b}), ErrorCode::kUnsupportedOpcode);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters
