#include <cmath>
#include <limits>

#include "engine/compute/cpu/adapters/mixers/mixer_harness.h"
#include "engine/compute/reference/mixers.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::adapters::mixers {
namespace {

using plan::DType;
using plan::kind_version;
using plan::MambaMixerParams;
using plan::MambaSlot;
using plan::Opcode;
using testing::Harness;
using testing::HarnessWeight;
using testing::Random;
using testing::same_bits;

struct MambaCase {
  DType weights;
  std::uint32_t width, heads, d_head, d_state, groups, d_conv, norm_groups;
  bool biases;
  float dt_min, dt_max;
};
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const MambaCase kMambaCases[] = {
    {DType::kF32, 48, 6, 8, 16, 2, 4, 2, false, 0, kInfinity},
    {DType::kF32, 40, 5, 7, 20, 1, 3, 1, true, 0.05f, 0.9f},
    {DType::kQ8_0, 64, 4, 16, 32, 4, 4, 1, true, 0, kInfinity},
    {DType::kF16, 33, 18, 2, 5, 3, 1, 4, false, 0, 0.3f},
};

class MambaWorld {
 public:
  static constexpr std::uint32_t kLength = 23;

  MambaWorld(Random& random, const MambaCase& c) : c_(c), weights_(static_cast<std::size_t>(MambaSlot::kCount)) {
    using enum MambaSlot;
    const auto matrix = [&](std::uint32_t n, std::uint32_t k) {
      return HarnessWeight::random(random, c.weights, {n, k});
    };
    const auto vector = [&](std::vector<std::uint32_t> shape) {
      return HarnessWeight::random(random, DType::kF32, std::move(shape));
    };
    at(kInProj) = matrix(inner() + conv_rows() + c.heads, c.width);
    at(kOutProj) = matrix(c.width, inner());
    at(kConvWeight) = vector({conv_rows(), c.d_conv});
    at(kA) = vector({c.heads});
    for (std::size_t i = 0; i < c.heads; ++i) {  // the decay rates are negative
      float a = 0;
      std::memcpy(&a, at(kA).stored.data() + 4 * i, 4);
      a = -std::fabs(a) * 4;
      std::memcpy(at(kA).stored.data() + 4 * i, &a, 4);
    }
    at(kDSkip) = vector({c.heads}), at(kDtBias) = vector({c.heads}), at(kNorm) = vector({inner()});
    if (c.biases)
      at(kConvBias) = vector({conv_rows()}), at(kInBias) = vector({inner() + conv_rows() + c.heads}),
      at(kOutBias) = vector({c.width});
    x_ = random.normals(kLength * c.width);
  }

  MambaMixerParams params() const {
    MambaMixerParams p{};
    p.kind_version = kind_version(Opcode::kMambaMixer);
    p.width = c_.width, p.d_inner = inner(), p.heads = c_.heads, p.d_head = c_.d_head, p.d_state = c_.d_state;
    p.groups = c_.groups, p.d_conv = c_.d_conv, p.dt_min = c_.dt_min, p.dt_max = c_.dt_max, p.norm_eps = 1e-5f;
    p.norm_groups = c_.norm_groups, p.state_offset_bytes = 128;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }
  const std::vector<float>& x() const { return x_; }
  testing::StateShape state() const {
    const plan::MambaStateLayout layout{conv_rows(), c_.d_conv, c_.heads, c_.d_head, c_.d_state};
    return {.offset_bytes = 128, .bytes = layout.bytes()};
  }

  std::vector<float> expected(std::span<const float> x) {
    using enum MambaSlot;
    const auto mixed = testing::project_exact(at(kInProj), at(kInBias), x);
    const auto a = at(kA).floats(), skip = at(kDSkip).floats(), dt_bias = at(kDtBias).floats(),
               norm = at(kNorm).floats();
    auto channels = convolution();
    std::vector<reference::SsmHead> heads(c_.heads, reference::SsmHead(c_.d_head, c_.d_state));
    std::vector<float> normed;
    for (std::size_t r = 0; r < x.size() / c_.width; ++r) {
      const auto row = std::span(mixed).subspan(r * columns(), columns());
      std::vector<float> xbc;
      for (std::size_t i = 0; i < conv_rows(); ++i)
        xbc.push_back(reference::silu_exact(channels[i].next_exact(row[inner() + i])));
      std::vector<float> y;
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        const auto step = reference::ssm_step_exact(options(row[columns() - c_.heads + h], dt_bias[h], a[h]));
        const auto part = heads[h].next_exact(std::span(xbc).subspan(h * c_.d_head, c_.d_head),
                                              std::span(xbc).subspan(b_column(h), c_.d_state),
                                              std::span(xbc).subspan(c_column(h), c_.d_state), step, skip[h]);
        y.insert(y.end(), part.begin(), part.end());
      }
      for (std::size_t i = 0; i < inner(); ++i) y[i] = reference::silu_exact(row[i]) * y[i];
      const std::size_t group = inner() / c_.norm_groups;
      for (std::size_t g = 0; g < inner(); g += group) {
        const auto part = reference::rms_norm_exact(std::span(y).subspan(g, group), std::span(norm).subspan(g, group),
                                                    {.eps = 1e-5f, .weight_offset = 0});
        normed.insert(normed.end(), part.begin(), part.end());
      }
    }
    return testing::project_exact(at(kOutProj), at(kOutBias), normed);
  }

  // The formula in double. REQUIRES: F32 weights.
  std::vector<double> oracle() {
    using enum MambaSlot;
    const auto mixed = testing::project_reference(at(kInProj), at(kInBias), std::vector<double>(x_.begin(), x_.end()));
    const auto a = at(kA).floats(), skip = at(kDSkip).floats(), dt_bias = at(kDtBias).floats(),
               norm = at(kNorm).floats();
    auto channels = convolution();
    std::vector<reference::SsmHead> heads(c_.heads, reference::SsmHead(c_.d_head, c_.d_state));
    std::vector<double> normed;
    for (std::size_t r = 0; r < kLength; ++r) {
      const auto row = std::span(mixed).subspan(r * columns(), columns());
      const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
      std::vector<double> xbc, y;
      for (std::size_t i = 0; i < conv_rows(); ++i) xbc.push_back(silu(channels[i].next_reference(row[inner() + i])));
      for (std::uint32_t h = 0; h < c_.heads; ++h) {
        const auto step = options(static_cast<float>(row[columns() - c_.heads + h]), dt_bias[h], a[h]);
        const auto part = heads[h].next_reference(std::span(xbc).subspan(h * c_.d_head, c_.d_head),
                                                  std::span(xbc).subspan(b_column(h), c_.d_state),
                                                  std::span(xbc).subspan(c_column(h), c_.d_state), step, skip[h]);
        y.insert(y.end(), part.begin(), part.end());
      }
      const std::size_t group = inner() / c_.norm_groups;
      for (std::size_t g = 0; g < inner(); g += group) {
        double squares = 0;
        for (std::size_t i = g; i < g + group; ++i) y[i] *= silu(row[i]), squares += y[i] * y[i];
        for (std::size_t i = g; i < g + group; ++i)
          normed.push_back(y[i] / std::sqrt(squares / static_cast<double>(group) + 1e-5) * norm[i]);
      }
    }
    return testing::project_reference(at(kOutProj), at(kOutBias), normed);
  }

 private:
  HarnessWeight& at(MambaSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  std::uint32_t inner() const { return c_.heads * c_.d_head; }
  std::uint32_t conv_rows() const { return inner() + 2 * c_.groups * c_.d_state; }
  std::size_t columns() const { return inner() + conv_rows() + c_.heads; }
  std::size_t b_column(std::uint32_t head) const { return inner() + head / (c_.heads / c_.groups) * c_.d_state; }
  std::size_t c_column(std::uint32_t head) const { return b_column(head) + c_.groups * c_.d_state; }
  reference::SsmStepOptions options(float dt, float bias, float a) const {
    return {.dt = dt, .bias = bias, .a = a, .dt_min = c_.dt_min, .dt_max = c_.dt_max};
  }
  std::vector<reference::ConvChannel> convolution() {
    const auto weight = at(MambaSlot::kConvWeight).floats(), bias = at(MambaSlot::kConvBias).floats();
    std::vector<reference::ConvChannel> channels;
    for (std::size_t i = 0; i < conv_rows(); ++i)
      channels.emplace_back(std::span(weight).subspan(i * c_.d_conv, c_.d_conv), bias.empty() ? 0.0f : bias[i]);
    return channels;
  }

  MambaCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_;
};

TEST(MambaMixer, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(60);
  for (const MambaCase& c : kMambaCases) {
    MambaWorld world(random, c);
    const auto expected = world.expected(world.x());
    const auto neighbour = world.expected(testing::reversed_rows(world.x(), c.width));
    for (const auto& device : testing::devices())
      for (std::uint32_t chunk : {1u, 2u, 5u, MambaWorld::kLength}) {
        SCOPED_TRACE(::testing::Message() << "heads " << c.heads << " " << device.isa << " threads " << device.threads
                                          << " chunk " << chunk << " " << random.note());
        const auto run =
            testing::run_sequences(world.params(), world.weights(), device, world.state(), world.x(), chunk);
        ASSERT_TRUE(same_bits(run.rows, expected));
        ASSERT_TRUE(same_bits(run.neighbour, std::span(neighbour).first(run.neighbour.size())));
        ASSERT_TRUE(run.rest_untouched);
      }
  }
}

TEST(MambaMixer, IsCloseToTheFormula) {
  Random random(61);
  for (const MambaCase& c : {kMambaCases[0], kMambaCases[1]}) {
    SCOPED_TRACE(random.note());
    MambaWorld world(random, c);
    const auto exact = world.oracle();
    const auto run = testing::run_sequences(world.params(), world.weights(), testing::devices().back(), world.state(),
                                            world.x(), MambaWorld::kLength);
    double largest = 0;
    for (double v : exact) largest = std::max(largest, std::fabs(v));
    // Two dot products of at most 48 terms, one of the state and 20 small steps, each rounding 2^-24 of a sum of
    // magnitudes some eight times the result: 140 * 8 * 2^-24.
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(run.rows[i], exact[i], 7e-5 * largest) << i;
  }
}

TEST(MambaMixer, WhatItCannotDoIsRefusedAtLoad) {
  Random random(62);
  MambaWorld world(random, kMambaCases[0]);
  const auto code = [&](auto change) {
    MambaMixerParams params = world.params();
    auto weights = world.weights();
    change(params, weights);
    const Harness harness(params, weights, {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  using Weights = std::vector<HarnessWeight>;
  const auto slot = [](MambaSlot s) { return static_cast<std::size_t>(s); };
  EXPECT_EQ(code([](MambaMixerParams&, Weights&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.d_conv = 9; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.d_conv = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.d_head = 9; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.groups = 4; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.norm_groups = 5; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.dt_min = 2, p.dt_max = 1; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code([](MambaMixerParams& p, Weights&) { p.d_state = 15; }), ErrorCode::kWeightShapeMismatch);
  EXPECT_EQ(code([&](MambaMixerParams&, Weights& w) {
              w[slot(MambaSlot::kConvWeight)] = HarnessWeight::random(random, DType::kF32, {112, 3});
            }),
            ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::mixers
