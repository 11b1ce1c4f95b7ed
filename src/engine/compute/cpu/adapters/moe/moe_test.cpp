// A whole moe instruction against its scalar reference (bits) and against the formula in double precision.
#include <algorithm>
#include <cmath>
#include <functional>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/routing.h"

namespace llorch::engine::compute::cpu::adapters::moe {
namespace {

using plan::Activation;
using plan::DType;
using plan::GroupScore;
using plan::MoeGate;
using plan::MoeParams;
using plan::MoeSlot;
using testing::add_bias;
using testing::devices;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;
using Row = std::span<const float>;
using enum plan::MoeSlot;

struct Case {
  const char* name;
  DType weights = DType::kF32;
  MoeGate gate = MoeGate::kSoftmax;
  Activation act = Activation::kSilu;
  std::uint32_t width = 64, ffn = 96, experts = 8, used = 2, groups = 0, groups_used = 0, shared = 0, latent = 0;
  GroupScore group_score = GroupScore::kTop2Sum;
  bool router_bias = false, selection_bias = false, expert_bias = false, norm = false;
  float scale = 1;
  DType down = weights;
  bool table = false;  // that names expert 0 for every choice of its one row
};

constexpr std::size_t kRows = 45;
constexpr reference::SwigluOaiOptions kOai{.alpha = 1.702f, .limit = 2.0f};

class World {
 public:
  World(Random& random, const Case& c) : c_(c), weights_(static_cast<std::size_t>(kCount)) {
    const auto matrix = [&](DType dtype, std::vector<std::uint32_t> shape) {
      return HarnessWeight::random(random, dtype, std::move(shape));
    };
    at(kRouter) = matrix(DType::kF32, {c.experts, c.width});
    at(kGate) = matrix(c.weights, {c.experts, c.ffn, inner()}),
    at(kUp) = matrix(c.weights, {c.experts, c.ffn, inner()});
    at(kDown) = matrix(c.down, {c.experts, inner(), c.ffn});
    if (c.latent != 0)
      at(kLatentDown) = matrix(c.weights, {c.latent, c.width}), at(kLatentUp) = matrix(c.weights, {c.width, c.latent});
    if (c.router_bias) at(kRouterBias) = matrix(DType::kF32, {c.experts});
    if (c.selection_bias) at(kSelectionBias) = matrix(DType::kF32, {c.experts});
    if (c.expert_bias)
      at(kGateBias) = matrix(DType::kF32, {c.experts, c.ffn}), at(kUpBias) = matrix(DType::kF32, {c.experts, c.ffn}),
      at(kDownBias) = matrix(DType::kF32, {c.experts, inner()});
    if (c.shared != 0)
      at(kSharedGate) = matrix(c.weights, {c.shared, c.width}), at(kSharedUp) = matrix(c.weights, {c.shared, c.width}),
      at(kSharedDown) = matrix(c.weights, {c.width, c.shared});
    if (c.table) at(kExpertTable) = {DType::kF32, {1, c.used}, std::vector<std::byte>(c.used * sizeof(float))};
    x_ = random.normals(kRows * c.width);
    for (std::size_t i = 0; i < 5 * c.width; ++i) x_[i + 7 * c.width] = x_[i];  // some rows alike
  }

  MoeParams params() const {
    MoeParams p{};
    p.kind_version = plan::kind_version(plan::Opcode::kMoe);
    p.width = c_.width, p.experts = c_.experts, p.experts_used = c_.used, p.ffn_expert = c_.ffn;
    p.groups = c_.groups, p.groups_used = c_.groups_used, p.group_score = c_.group_score, p.ffn_shared = c_.shared;
    p.norm_epsilon = 1e-20f, p.weights_scale = c_.scale, p.alpha = kOai.alpha, p.limit = kOai.limit;
    p.gate = c_.gate, p.act = c_.act, p.has_router_bias = c_.router_bias, p.has_selection_bias = c_.selection_bias;
    p.norm_topk = c_.norm, p.has_expert_bias = c_.expert_bias, p.latent = c_.latent;
    p.table_rows = c_.table ? 1 : 0;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // `chunk` rows a step; `lead` rows of something else before them.
  std::vector<float> run(const HarnessOptions& device, std::size_t chunk, std::size_t lead) {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    std::vector<float> out;
    for (std::size_t row = 0; row < kRows; row += chunk) {
      const std::size_t n = std::min(chunk, kRows - row), width = c_.width;
      std::vector<float> x(x_.rbegin(), x_.rbegin() + static_cast<std::ptrdiff_t>(lead * width));
      x.insert(x.end(), x_.begin() + static_cast<std::ptrdiff_t>(row * width),
               x_.begin() + static_cast<std::ptrdiff_t>((row + n) * width));
      std::vector<float> y(x.size(), NAN);
      plan::ExecutionContext ctx;
      ctx.total_rows = static_cast<std::uint32_t>(lead + n);
      const std::vector<std::uint32_t> ids(lead + n);
      ctx.row_ids = ids.data();
      harness.run(ctx, {x.data()}, y.data());
      out.insert(out.end(), y.begin() + static_cast<std::ptrdiff_t>(lead * width), y.end());
    }
    return out;
  }

  std::vector<float> expected() {
    auto logits = matmul_rows(at(kRouter), x_);
    if (c_.router_bias) add_bias(logits, at(kRouterBias).floats());
    std::vector<float> out;
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::vector<float> x(x_.begin() + static_cast<std::ptrdiff_t>(row * c_.width),
                                 x_.begin() + static_cast<std::ptrdiff_t>((row + 1) * c_.width));
      const auto route = reference::route_exact(Row(logits).subspan(row * c_.experts, c_.experts),
                                                at(kSelectionBias).floats(), params());
      const std::vector<float> inner_x = c_.latent != 0 ? matmul_rows(at(kLatentDown), x) : x;
      std::vector<float> y(inner(), 0.0f);
      for (std::size_t j = 0; j < c_.used; ++j) {
        const std::uint32_t e = route.experts[j];
        auto gate = matmul_rows(expert(kGate, e), inner_x), up = matmul_rows(expert(kUp, e), inner_x);
        if (c_.expert_bias) add_bias(gate, bias_of(kGateBias, e)), add_bias(up, bias_of(kUpBias, e));
        activate(up, gate);
        auto down = matmul_rows(expert(kDown, e), up);
        if (c_.expert_bias) add_bias(down, bias_of(kDownBias, e));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = std::fma(route.weights[j], down[i], y[i]);
      }
      if (c_.latent != 0) y = matmul_rows(at(kLatentUp), y);
      if (c_.shared != 0) {
        auto up = matmul_rows(at(kSharedUp), x);
        activate(up, matmul_rows(at(kSharedGate), x));
        const auto down = matmul_rows(at(kSharedDown), up);
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += down[i];
      }
      out.insert(out.end(), y.begin(), y.end());
    }
    return out;
  }

  // The formula for F32 weights, every expert computed and weighed by 0 when not chosen; a row whose choice hangs on
  // less than `margin` is empty.
  std::vector<std::vector<double>> oracle(double margin) {
    std::vector<std::vector<double>> out;
    for (std::size_t row = 0; row < kRows; ++row) {
      const std::vector<double> x(x_.begin() + static_cast<std::ptrdiff_t>(row * c_.width),
                                  x_.begin() + static_cast<std::ptrdiff_t>((row + 1) * c_.width));
      auto weights = oracle_weights(x, margin);
      const std::vector<double> inner_x = c_.latent != 0 ? product(at(kLatentDown), x) : x;
      std::vector<double> y;
      if (!weights.empty()) y.assign(inner(), 0);
      for (std::uint32_t e = 0; e < weights.size(); ++e) {
        auto up = product(expert(kUp, e), inner_x), gate = product(expert(kGate, e), inner_x);
        if (c_.expert_bias) add(gate, bias_of(kGateBias, e)), add(up, bias_of(kUpBias, e));
        auto down = product(expert(kDown, e), oracle_activation(up, gate));
        if (c_.expert_bias) add(down, bias_of(kDownBias, e));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += weights[e] * down[i];
      }
      if (c_.latent != 0 && !y.empty()) y = product(at(kLatentUp), y);
      if (c_.shared != 0 && !y.empty()) {
        const auto down =
            product(at(kSharedDown), oracle_activation(product(at(kSharedUp), x), product(at(kSharedGate), x)));
        for (std::size_t i = 0; i < y.size(); ++i) y[i] += down[i];
      }
      out.push_back(y);
    }
    return out;
  }

 private:
  std::uint32_t inner() const { return c_.latent != 0 ? c_.latent : c_.width; }
  HarnessWeight& at(MoeSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  HarnessWeight expert(MoeSlot slot, std::uint32_t e) {
    const HarnessWeight& stack = at(slot);
    const std::size_t bytes = stack.stored.size() / stack.shape[0];
    const auto begin = stack.stored.begin() + static_cast<std::ptrdiff_t>(e * bytes);
    return {stack.dtype, {stack.shape[1], stack.shape[2]}, {begin, begin + static_cast<std::ptrdiff_t>(bytes)}};
  }
  std::vector<float> bias_of(MoeSlot slot, std::uint32_t e) {
    const auto all = at(slot).floats();
    const std::size_t width = at(slot).shape[1];
    return {all.begin() + static_cast<std::ptrdiff_t>(e * width),
            all.begin() + static_cast<std::ptrdiff_t>((e + 1) * width)};
  }
  void activate(std::vector<float>& up, const std::vector<float>& gate) const {
    for (std::size_t i = 0; i < up.size(); ++i) {
      switch (c_.act) {
        case Activation::kSilu: up[i] = reference::silu_exact(gate[i]) * up[i]; break;
        case Activation::kGeluTanh: up[i] = reference::gelu_tanh_exact(gate[i]) * up[i]; break;
        case Activation::kGeluErf: up[i] = reference::gelu_erf_exact(gate[i]) * up[i]; break;
        case Activation::kSwigluOai: up[i] = reference::swiglu_oai_exact(gate[i], up[i], kOai); break;
        case Activation::kRelu2: up[i] = reference::relu2_exact(gate[i]) * up[i]; break;
        case Activation::kSiluClamped: up[i] = reference::silu_clamped_exact(gate[i], up[i], kOai.limit); break;
        case Activation::kXielu: break;  // of dense feed-forwards alone
      }
    }
  }

  static std::vector<double> product(const HarnessWeight& w, const std::vector<double>& x) {
    const auto values = w.floats();
    std::vector<double> y(w.shape[0]);
    for (std::size_t n = 0; n < y.size(); ++n)
      for (std::size_t k = 0; k < x.size(); ++k) y[n] += values[n * x.size() + k] * x[k];
    return y;
  }
  static void add(std::vector<double>& y, const std::vector<float>& bias) {
    for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i];
  }
  std::vector<double> oracle_activation(std::vector<double> up, const std::vector<double>& gate) const {
    for (std::size_t i = 0; i < up.size(); ++i) {
      const double g = gate[i];
      if (c_.act == Activation::kSwigluOai) {
        const double limit = kOai.limit, clamped = std::min(g, limit);
        up[i] = (std::clamp(up[i], -limit, limit) + 1) * clamped / (1 + std::exp(-kOai.alpha * clamped));
      } else {
        up[i] *= c_.act == Activation::kGeluErf ? 0.5 * g * std::erfc(-g / std::sqrt(2.0)) : g / (1 + std::exp(-g));
      }
    }
    return up;
  }
  // Per expert; empty when the last one chosen and the first one left out are closer than `margin`.
  std::vector<double> oracle_weights(const std::vector<double>& x, double margin) {
    std::vector<double> shares = product(at(kRouter), x);
    if (c_.router_bias) add(shares, at(kRouterBias).floats());
    double total = 0;
    for (double s : shares) total += std::exp(s);
    if (c_.gate == MoeGate::kSoftmax)
      for (double& s : shares) s = std::exp(s) / total;
    if (c_.gate == MoeGate::kSigmoid)
      for (double& s : shares) s = 1 / (1 + std::exp(-s));
    std::vector<double> scores = shares;
    if (c_.selection_bias) add(scores, at(kSelectionBias).floats());
    std::vector<double> sorted = scores;
    std::ranges::sort(sorted, std::greater<>());
    if (c_.used < c_.experts && sorted[c_.used - 1] - sorted[c_.used] < margin) return {};
    std::vector<double> weights(c_.experts);
    double sum = 0;
    for (std::size_t e = 0; e < weights.size(); ++e)
      if (scores[e] >= sorted[c_.used - 1])
        sum += weights[e] = c_.gate == MoeGate::kSoftmaxAfterTopk ? std::exp(shares[e]) : shares[e];
    const bool divide = c_.norm || c_.gate == MoeGate::kSoftmaxAfterTopk;
    for (double& w : weights) w *= c_.scale / (divide ? sum : 1);
    return weights;
  }

  Case c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_;
};

const Case kCases[] = {
    {.name = "softmax"},
    {.name = "softmax, normed, many experts", .weights = DType::kF16, .experts = 40, .used = 8, .norm = true},
    {.name = "odd widths", .width = 37, .ffn = 29, .experts = 5, .used = 3},
    {.name = "sigmoid, biased choice, shared",
     .gate = MoeGate::kSigmoid,
     .experts = 12,
     .used = 4,
     .shared = 64,
     .selection_bias = true,
     .norm = true,
     .scale = 2.5f},
    {.name = "groups",
     .weights = DType::kQ8_0,
     .gate = MoeGate::kSigmoid,
     .experts = 12,
     .used = 4,
     .groups = 4,
     .groups_used = 2,
     .shared = 32,
     .selection_bias = true,
     .norm = true,
     .scale = 2.5f},
    {.name = "best of groups",
     .weights = DType::kQ4_0,
     .experts = 12,
     .used = 3,
     .groups = 3,
     .groups_used = 2,
     .group_score = GroupScore::kMax,
     .scale = 16},
    {.name = "biases everywhere",
     .gate = MoeGate::kSoftmaxAfterTopk,
     .act = Activation::kSwigluOai,
     .experts = 8,
     .used = 4,
     .router_bias = true,
     .expert_bias = true},
    {.name = "biases, quantized",
     .weights = DType::kQ8_0,
     .gate = MoeGate::kSoftmaxAfterTopk,
     .act = Activation::kSwigluOai,
     .router_bias = true,
     .expert_bias = true,
     .down = DType::kF16},
    {.name = "gelu", .weights = DType::kF16, .act = Activation::kGeluErf, .down = DType::kQ8_0},
    {.name = "every expert", .experts = 4, .used = 4},
    {.name = "between projections", .width = 72, .experts = 12, .used = 4, .shared = 64, .latent = 28, .norm = true},
    {.name = "between projections, quantized",
     .weights = DType::kQ8_0,
     .gate = MoeGate::kSigmoid,
     .shared = 32,
     .latent = 32,
     .selection_bias = true,
     .scale = 2.5f},
    {.name = "between projections wider than the rows, biases",
     .weights = DType::kF16,
     .used = 3,
     .latent = 96,
     .expert_bias = true},
};

TEST(MoeAdapter, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(61);
  for (const Case& c : kCases) {
    World world(random, c);
    const auto expected = world.expected();
    for (const auto& device : devices())
      for (const auto& [chunk, lead] : {std::pair<std::size_t, std::size_t>{kRows, 0}, {1, 0}, {7, 11}, {1, 3}})
        ASSERT_TRUE(same_bits(world.run(device, chunk, lead), expected))
            << c.name << ": " << device.isa << " threads " << device.threads << " chunk " << chunk << " after " << lead
            << " " << random.note();
  }
}

// More pairs than one batch holds: rows of the experts arrive in several.
TEST(MoeAdapter, ALargeStepGivesTheBitsOfSmallOnes) {
  Random random(62);
  SCOPED_TRACE(random.note());
  Case c{.name = "", .experts = 20, .used = 10, .norm = true};  // 450 pairs
  World world(random, c);
  HarnessOptions device = devices().back();
  EXPECT_TRUE(same_bits(world.run(device, kRows, 0), world.run(device, 3, 1)));
}

// What a table says is the file's: an expert that it names for every choice has more pairs than the step has rows.
TEST(MoeAdapter, AnExpertThatATableRepeatsHasRoomForAllItsPairs) {
  Random random(65);
  SCOPED_TRACE(random.note());
  for (const DType weights : {DType::kF32, DType::kQ8_0}) {
    World world(random, {.name = "", .weights = weights, .used = 8, .norm = true, .table = true});  // 360 pairs
    const HarnessOptions device = devices().back();
    EXPECT_TRUE(same_bits(world.run(device, kRows, 0), world.run(device, 1, 0)));
  }
}

TEST(MoeAdapter, IsCloseToTheFormula) {
  Random random(63);
  SCOPED_TRACE(random.note());
  for (Case c : kCases) {
    if (c.groups != 0) continue;  // shown by hand in routing_test.cpp
    c.weights = c.down = DType::kF32;
    World world(random, c);
    // Router logits (sums of 64 products below 3) are within 64 * 2^-24 * 20 < 1e-4 of the exact ones.
    const auto exact = world.oracle(1e-4);
    const auto y = world.run(devices().back(), kRows, 0);
    std::size_t compared = 0;
    for (std::size_t row = 0; row < kRows; ++row) {
      double largest = 0;
      for (double v : exact[row]) largest = std::max(largest, std::fabs(v));
      compared += !exact[row].empty();
      // Three products of at most 96 terms, each of relative error 96 * 2^-24 of its absolute sum, which is some ten times
      // the result: 2e-4.
      for (std::size_t i = 0; i < exact[row].size(); ++i)
        ASSERT_NEAR(y[row * c.width + i], exact[row][i], 2e-4 * largest) << c.name << " row " << row;
    }
    EXPECT_GT(compared, kRows / 2) << c.name;
  }
}

TEST(MoeAdapter, WhatItCannotDoIsRefusedAtLoad) {
  Random random(64);
  const Case c{.name = "", .act = Activation::kSwigluOai, .shared = 32, .router_bias = true, .expert_bias = true};
  World world(random, c);
  using base::ErrorCode;
  using Weights = std::vector<HarnessWeight>;
  const auto code = [&](auto change) {
    MoeParams params = world.params();
    auto weights = world.weights();
    change(params, weights);
    const Harness harness(params, weights, {});
    return harness.error() ? harness.error()->code : ErrorCode::kInternal;
  };
  const auto slot = [](MoeSlot s) { return static_cast<std::size_t>(s); };
  EXPECT_EQ(code([](MoeParams&, Weights&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.experts_used = 9; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.groups = 3, p.groups_used = 1; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.limit = 0; }), ErrorCode::kUnsupportedOpcode);
  for (MoeSlot absent : {kRouterBias, kGateBias, kDownBias, kSharedUp})
    EXPECT_EQ(code([&](MoeParams&, Weights& w) { w[slot(absent)] = {}; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.has_router_bias = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.has_expert_bias = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.has_selection_bias = 1; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MoeParams& p, Weights&) { p.latent = 64; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([&](MoeParams&, Weights& w) {
              w[slot(kLatentUp)] = HarnessWeight::random(random, DType::kF32, {64, 64});
            }),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code([&](MoeParams&, Weights& w) {
              w[slot(kDown)] = HarnessWeight::random(random, DType::kF32, {8, 64, 95});
            }),
            ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code([&](MoeParams&, Weights& w) {
              w[slot(kUp)] = HarnessWeight::random(random, DType::kF32, {7, 96, 64});
            }),
            ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::moe
