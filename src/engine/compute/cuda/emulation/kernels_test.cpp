// Every kernel that has a written order (docs/internals/numerics.md) gives the bits of its scalar reference.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/compute/cpu/adapters/moe/routing.h"
#include "engine/compute/cpu/kernel_test_support.h"
#include "engine/compute/cuda/emulation/driver.h"
#include "engine/compute/cuda/stream.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/mixers.h"
#include "engine/compute/reference/routing.h"

namespace llorch::engine::compute::cuda::emulation {
namespace {

using cpu::testing::Random;
using cpu::testing::same_bits;

// An emulated machine; kernels get plain host memory.
struct Machine {
  std::unique_ptr<Driver> driver = make_driver({});
  CudaStream stream{*driver};
};

TEST(Scalar, ElementaryFunctionsAreTheReferences) {
  Random random(1);
  SCOPED_TRACE(random.note());
  std::vector<float> inputs{0.0f, -0.0f, 88.0f, 89.0f, -88.0f, -87.3f, 20.0f, 0.625f, 1.0f, 4.0f, INFINITY, -INFINITY};
  for (int i = 0; i < 20000; ++i) inputs.push_back(random.normal() * static_cast<float>(1 << random.below(7)));
  for (int i = 0; i < 2000; ++i) inputs.push_back(random.hostile());
  for (const float x : inputs) {
    const auto same = [&](float got, float expected, const char* what) {
      EXPECT_EQ(cpu::testing::bits_of(got), cpu::testing::bits_of(expected)) << what << " of " << x;
    };
    same(kernels::exponential(x), reference::exp_exact(x), "exp");
    same(kernels::hyperbolic_tangent(x), reference::tanh_exact(x), "tanh");
    same(kernels::error_function(x), reference::erf_exact(x), "erf");
    same(kernels::softplus(x), reference::softplus_exact(x), "softplus");
    if (std::fabs(x) > 0x1p20f) continue;
    float s = 0, c = 0, expected_s = 0, expected_c = 0;
    kernels::sine_cosine(x, s, c);
    reference::sincos_exact(x, expected_s, expected_c);
    same(s, expected_s, "sin");
    same(c, expected_c, "cos");
  }
  EXPECT_TRUE(std::isnan(kernels::exponential(NAN)));
}

// Widths below, at and past what is staged at a time.
TEST(Rows, Norms) {
  Machine machine;
  Random random(3);
  SCOPED_TRACE(random.note());
  for (const std::uint32_t width : {1u, 16u, 100u, 4096u, 5000u}) {
    const auto x = random.normals(2 * width), weight = random.normals(width), bias = random.normals(width);
    std::vector<float> y(2 * width), expected, expected_layer;
    kernels::NormArgs args{.x = x.data(),
                           .weight = weight.data(),
                           .y = y.data(),
                           .x_stride = width,
                           .y_stride = width,
                           .width = width,
                           .eps = 1e-5f,
                           .weight_offset = 1.0f};
    machine.stream.launch<kernels::RmsNorm>({1, 2}, args);
    for (std::size_t row = 0; row < 2; ++row) {
      const auto source = std::span(x).subspan(row * width, width);
      const auto rms = reference::rms_norm_exact(source, weight, {.eps = 1e-5f, .weight_offset = 1.0f});
      const auto layer = reference::layer_norm_exact(source, weight, bias, 1e-5f);
      expected.insert(expected.end(), rms.begin(), rms.end());
      expected_layer.insert(expected_layer.end(), layer.begin(), layer.end());
    }
    EXPECT_TRUE(same_bits(y, expected)) << width;
    args.bias = bias.data();
    machine.stream.launch<kernels::LayerNorm>({1, 2}, args);
    EXPECT_TRUE(same_bits(y, expected_layer)) << width;
  }
}

TEST(Rows, Activations) {
  Machine machine;
  Random random(4);
  const auto gate = random.hostiles(300), up = random.normals(300);
  std::vector<float> y(300);
  const auto run = [&](plan::Activation act, const float* second) {
    machine.stream.launch<kernels::Swiglu>({2, 1}, {.gate = gate.data(),
                                                    .up = second,
                                                    .y = y.data(),
                                                    .width = 300,
                                                    .act = act,
                                                    .alpha = 1.702f,
                                                    .limit = 0.9f,
                                                    .alpha_negative = 0.8f,
                                                    .beta = 0.5f,
                                                    .eps = -1e-6f});
    return y;
  };
  const auto expected = [&](const auto& value) {
    std::vector<float> out;
    for (std::size_t i = 0; i < gate.size(); ++i) out.push_back(value(gate[i], up[i]));
    return out;
  };
  using enum plan::Activation;
  EXPECT_TRUE(
      same_bits(run(kSilu, up.data()), expected([](float g, float u) { return reference::silu_exact(g) * u; })));
  EXPECT_TRUE(same_bits(run(kGeluErf, nullptr), expected([](float g, float) { return reference::gelu_erf_exact(g); })));
  EXPECT_TRUE(same_bits(run(kGeluTanh, up.data()),
                        expected([](float g, float u) { return reference::gelu_tanh_exact(g) * u; })));
  EXPECT_TRUE(same_bits(run(kXielu, nullptr), expected([](float g, float) {
                          return reference::xielu_exact(
                              g, {.alpha = 1.702f, .alpha_negative = 0.8f, .beta = 0.5f, .eps = -1e-6f});
                        })));
  EXPECT_TRUE(same_bits(run(kSiluClamped, up.data()), expected([](float g, float u) {
                          return reference::silu_exact(std::min(g, 0.9f)) * std::clamp(u, -0.9f, 0.9f);
                        })));
  EXPECT_TRUE(same_bits(run(kSwigluOai, up.data()), expected([](float g, float u) {
                          return reference::swiglu_oai_exact(g, u, {.alpha = 1.702f, .limit = 0.9f});
                        })));
}

TEST(Rows, ArePooled) {
  Machine machine;
  Random random(5);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 300;
  const auto x = random.normals(20 * kWidth);
  std::vector<float> y(3 * kWidth), expected;
  kernels::PoolRowsArgs args{.x = x.data(), .y = y.data(), .width = kWidth, .begin = {0, 7, 3}, .end = {20, 8, 10}};
  machine.stream.launch<kernels::PoolRows>({2, 3}, args);
  for (std::size_t i = 0; i < 3; ++i) {
    const auto rows = std::span(x).subspan(args.begin[i] * kWidth, (args.end[i] - args.begin[i]) * kWidth);
    const auto row = reference::mean_exact(rows, kWidth);
    expected.insert(expected.end(), row.begin(), row.end());
  }
  EXPECT_TRUE(same_bits(y, expected));
}

TEST(Rows, GetTheirPositionsAndTypes) {
  Machine machine;
  Random random(6);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kWidth = 300;
  const auto x = random.normals(3 * kWidth), types = random.normals(2 * kWidth), positions = random.normals(9 * kWidth);
  const std::uint32_t type_of[] = {0, 1, 1}, position_of[] = {4, 0, 6};
  std::vector<float> y(x.size()), expected = x;
  machine.stream.launch<kernels::EmbedPositions>({2, 3}, {.x = x.data(),
                                                          .y = y.data(),
                                                          .types = types.data(),
                                                          .positions = positions.data(),
                                                          .first_position = 2,
                                                          .type_of_row = type_of,
                                                          .position_of_row = position_of,
                                                          .width = kWidth});
  for (std::uint32_t i = 0; i < expected.size(); ++i) {
    expected[i] += types[type_of[i / kWidth] * kWidth + i % kWidth];
    expected[i] += positions[(2 + position_of[i / kWidth]) * kWidth + i % kWidth];
  }
  EXPECT_TRUE(same_bits(y, expected));
}

TEST(Moe, ChoosesLikeTheReference) {
  Machine machine;
  Random random(9);
  SCOPED_TRACE(random.note());
  for (int i = 0; i < 300; ++i) {
    plan::MoeParams p{};
    p.groups = random.below(2) == 0 ? 0 : 4;
    p.groups_used = 2;
    p.experts = static_cast<std::uint32_t>(4 * random.between(2, 40));
    p.experts_used =
        static_cast<std::uint32_t>(random.between(1, p.groups != 0 ? p.experts / 2 : std::min(p.experts, 64u)));
    p.experts_used = std::min(p.experts_used, kernels::kExpertsUsedMax);
    p.gate = static_cast<plan::MoeGate>(random.between(1, 4));
    p.group_score = static_cast<plan::GroupScore>(random.below(2));
    p.norm_topk = static_cast<std::uint8_t>(random.below(2));
    p.norm_epsilon = 1e-20f;
    p.weights_scale = 2.5f;
    std::vector<float> logits = random.normals(p.experts), bias = random.normals(p.experts);
    for (float& logit : logits)
      if (random.below(3) == 0) logit = 1.0f;  // ties
    const bool biased = random.below(2) == 0;
    std::vector<std::uint32_t> experts(p.experts_used);
    std::vector<float> weights(p.experts_used);
    machine.stream.launch<kernels::Route>({1}, {.logits = logits.data(),
                                                .selection_bias = biased ? bias.data() : nullptr,
                                                .experts = experts.data(),
                                                .weights = weights.data(),
                                                .params = p});
    const auto expected =
        reference::route_exact(logits, biased ? std::span<const float>(bias) : std::span<const float>(), p);
    EXPECT_EQ(experts, expected.experts);
    EXPECT_TRUE(same_bits(weights, expected.weights));
  }
}

// A table is a file's: it may name experts that there are none of, and one again and again. The CPU device makes the same of it.
TEST(Moe, ReadsATableAsTheCpuDoes) {
  namespace cpu_moe = cpu::adapters::moe;
  Machine machine;
  Random random(11);
  SCOPED_TRACE(random.note());
  const cpu::Kernels& cpu_kernels = cpu::kernels(cpu::testing::isas().front());
  for (int i = 0; i < 100; ++i) {
    plan::MoeParams p{};
    p.experts = 12, p.experts_used = 6, p.table_rows = 3;
    p.gate = static_cast<plan::MoeGate>(random.between(1, 4));
    p.norm_topk = static_cast<std::uint8_t>(random.below(2));
    p.norm_epsilon = 1e-20f, p.weights_scale = 1.5f;
    std::vector<float> logits = random.normals(p.experts), table(p.table_rows * p.experts_used);
    for (float& id : table) id = static_cast<float>(random.below(4) == 0 ? (1u << 24) - 1 : random.below(14));
    const auto row = static_cast<std::uint32_t>(random.below(p.table_rows));
    std::vector<std::uint32_t> experts(p.experts_used), expected_experts(p.experts_used);
    std::vector<float> weights(p.experts_used), expected_weights(p.experts_used);
    machine.stream.launch<kernels::Route>({1}, {.logits = logits.data(),
                                                .table = table.data(),
                                                .row_ids = &row,
                                                .experts = experts.data(),
                                                .weights = weights.data(),
                                                .params = p});
    std::vector<float> scores(p.experts), best(p.experts_used);
    cpu_moe::route_row(cpu_kernels, p, logits.data(), {.table_row = table.data() + row * p.experts_used},
                       {.scores = scores.data(), .best = best.data()},
                       {expected_experts.data(), expected_weights.data()});
    EXPECT_EQ(experts, expected_experts);
    EXPECT_LT(experts.back(), p.experts);
    EXPECT_TRUE(same_bits(weights, expected_weights));
  }
}

// Two sequences of several rows in one launch, then one more row each: the state carries over.
TEST(Sequences, ConvolutionAndScan) {
  Machine machine;
  Random random(10);
  SCOPED_TRACE(random.note());
  constexpr std::uint32_t kHeads = 4, kDim = 20, kState = 24, kGroups = 2, kTaps = 4;
  constexpr std::uint32_t kInner = kHeads * kDim, kChannels = kInner + 2 * kGroups * kState,
                          kWidth = kChannels + kHeads;
  const auto weight = random.normals(kChannels * kTaps), bias = random.normals(kChannels), a = random.normals(kHeads),
             skip = random.normals(kHeads), dt_bias = random.normals(kHeads);
  std::vector<float> conv_state(2 * (kTaps - 1) * kChannels), ssm_state(2 * kInner * kState);
  std::vector<std::vector<reference::ConvChannel>> channels(2);
  std::vector<std::vector<reference::SsmHead>> heads(2);
  for (std::size_t s = 0; s < 2; ++s) {
    for (std::size_t c = 0; c < kChannels; ++c)
      channels[s].emplace_back(std::span(weight).subspan(c * kTaps, kTaps), bias[c]);
    heads[s].assign(kHeads, reference::SsmHead(kDim, kState));
  }
  for (const std::vector<std::uint32_t>& sequence_of_row :
       {std::vector<std::uint32_t>{0, 0, 0, 0, 0, 1, 1}, std::vector<std::uint32_t>{0, 1}}) {
    const auto rows = static_cast<std::uint32_t>(sequence_of_row.size());
    std::vector<float> x = random.normals(rows * kWidth), expected = x;
    const auto sequences = [&](std::vector<float>& state) {
      return kernels::Sequences{.sequence_of_row = sequence_of_row.data(),
                                .rows = rows,
                                .state = reinterpret_cast<std::byte*>(state.data()),
                                .state_stride = state.size() / 2 * sizeof(float)};
    };
    machine.stream.launch<kernels::CausalConv>({2, rows}, {.sequences = sequences(conv_state),
                                                           .x = x.data(),
                                                           .x_stride = kWidth,
                                                           .y = x.data(),
                                                           .y_stride = kWidth,
                                                           .channels = kChannels,
                                                           .taps = kTaps,
                                                           .weight = weight.data(),
                                                           .bias = bias.data(),
                                                           .silu = true});
    machine.stream.launch<kernels::SsmScan>({kHeads, rows}, {.sequences = sequences(ssm_state),
                                                             .x = x.data(),
                                                             .b = x.data() + kInner,
                                                             .c = x.data() + kInner + kGroups * kState,
                                                             .dt = x.data() + kChannels,
                                                             .dt_bias = dt_bias.data(),
                                                             .a = a.data(),
                                                             .skip = skip.data(),
                                                             .stride = kWidth,
                                                             .y = x.data(),
                                                             .dt_min = 0.001f,
                                                             .dt_max = 3.0f,
                                                             .heads = kHeads,
                                                             .head_dim = kDim,
                                                             .state_dim = kState,
                                                             .groups = kGroups});
    for (std::uint32_t r = 0; r < rows; ++r) {
      float* row = expected.data() + r * kWidth;
      const std::uint32_t s = sequence_of_row[r];
      for (std::size_t c = 0; c < kChannels; ++c) row[c] = reference::silu_exact(channels[s][c].next_exact(row[c]));
      for (std::size_t h = 0; h < kHeads; ++h) {
        const std::span<const float> b(row + kInner + h / 2 * kState, kState), c(b.data() + kGroups * kState, kState);
        const auto step = reference::ssm_step_exact(
            {.dt = row[kChannels + h], .bias = dt_bias[h], .a = a[h], .dt_min = 0.001f, .dt_max = 3.0f});
        const auto y = heads[s][h].next_exact({row + h * kDim, kDim}, b, c, step, skip[h]);
        std::copy(y.begin(), y.end(), row + h * kDim);
      }
    }
    EXPECT_TRUE(same_bits(x, expected)) << rows << " rows";
  }
}

}  // namespace
}  // namespace llorch::engine::compute::cuda::emulation
