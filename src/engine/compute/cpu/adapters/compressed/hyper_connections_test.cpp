#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/compressed.h"

namespace llorch::engine::compute::cpu::adapters::compressed {
namespace {

using plan::DType;
using plan::HyperAddParams;
using plan::HyperCollapseParams;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::matmul_rows;
using testing::Random;
using testing::same_bits;

struct HyperCase {
  DType fn;
  std::uint32_t streams, width, iterations;
  bool is_spread, ends;
};
const HyperCase kHyperCases[] = {{DType::kF32, 2, 20, 20, false, false},
                                 {DType::kBF16, 4, 64, 3, false, false},
                                 {DType::kF32, 3, 17, 1, true, false},
                                 {DType::kQ8_0, 4, 32, 20, true, false},
                                 {DType::kF32, 4, 33, 20, false, true}};

// Rows of residual streams, and what a branch gave for each.
class HyperWorld {
 public:
  static constexpr std::uint32_t kRows = 37;
  static constexpr float kEps = 1e-5f, kFloor = 1e-3f;

  HyperWorld(Random& random, const HyperCase& c) : c_(c) {
    const std::uint32_t rows = c.ends ? c.streams : c.streams * (c.streams + 2);
    weights_ = {HarnessWeight::random(random, c.fn, {rows, c.streams * c.width}),
                HarnessWeight::random(random, DType::kF32, {rows}),
                HarnessWeight::random(random, DType::kF32, {c.ends ? 1U : 3U})};
    x_ = random.normals(kRows * c.width * (c.is_spread ? 1 : c.streams));
    branch_ = random.normals(kRows * c.width);
  }

  template <class Params>
  Params params() const {
    Params p{};
    p.kind_version = plan::kind_version(Params::kOpcode);
    p.width = c_.width, p.streams = c_.streams, p.mix_rows = weights_[0].shape[0];
    p.norm_eps = kEps, p.floor_eps = kFloor, p.is_spread = c_.is_spread;
    if constexpr (std::is_same_v<Params, HyperAddParams>) p.iterations = c_.iterations;
    return p;
  }
  std::vector<HarnessWeight>& weights() { return weights_; }

  // `chunk` rows a step.
  template <class Params>
  std::vector<float> run(const HarnessOptions& device, std::uint32_t chunk) {
    constexpr bool kAdds = std::is_same_v<Params, HyperAddParams>;
    Harness harness(params<Params>(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    const std::size_t x_row = x_.size() / kRows, y_row = c_.width * (kAdds ? c_.streams : 1);
    std::vector<float> y(kRows * y_row);
    for (std::uint32_t row = 0; row < kRows; row += chunk) {
      plan::ExecutionContext ctx;
      ctx.total_rows = std::min(chunk, kRows - row);
      std::vector<const float*> inputs{x_.data() + row * x_row};
      if (kAdds) inputs.push_back(branch_.data() + row * c_.width);
      harness.run(ctx, inputs, y.data() + row * y_row);
    }
    return y;
  }

  std::vector<float> streams_of(std::uint32_t row) const {
    const std::size_t all = c_.streams * c_.width;
    if (!c_.is_spread) return {x_.begin() + row * all, x_.begin() + (row + 1) * all};
    std::vector<float> out;
    for (std::uint32_t s = 0; s < c_.streams; ++s)
      out.insert(out.end(), x_.begin() + row * c_.width, x_.begin() + (row + 1) * c_.width);
    return out;
  }
  template <class Params>
  std::vector<float> expected() const {
    std::vector<float> y;
    for (std::uint32_t row = 0; row < kRows; ++row) {
      const auto streams = streams_of(row);
      const std::vector<float> ones(streams.size(), 1.0f);
      const auto mixes = matmul_rows(weights_[0], reference::rms_norm_exact(streams, ones, {.eps = kEps}));
      const auto w =
          reference::hyper_weights_exact(mixes, weights_[1].floats(), weights_[2].floats(),
                                         {.streams = c_.streams, .iterations = c_.iterations, .floor_eps = kFloor});
      const auto own = std::span(branch_).subspan(row * c_.width, c_.width);
      const auto part = std::is_same_v<Params, HyperAddParams> ? reference::hyper_add_exact(streams, own, w)
                                                               : reference::hyper_collapse_exact(streams, w);
      y.insert(y.end(), part.begin(), part.end());
    }
    return y;
  }

 private:
  HyperCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_, branch_;
};

template <class Params>
void expect_twin(HyperWorld& world) {
  const auto expected = world.expected<Params>();
  for (const auto& device : testing::devices())
    for (const std::uint32_t chunk : {1U, 37U})
      ASSERT_TRUE(same_bits(world.run<Params>(device, chunk), expected))
          << device.isa << " threads " << device.threads << " chunk " << chunk;
}

TEST(HyperConnections, EqualTheirTwinsWhateverTheChunks) {
  Random random(91);
  SCOPED_TRACE(random.note());
  for (const HyperCase& c : kHyperCases) {
    HyperWorld world(random, c);
    SCOPED_TRACE(c.streams);
    expect_twin<HyperCollapseParams>(world);
    if (!c.ends) expect_twin<HyperAddParams>(world);
  }
}

TEST(HyperConnections, TheirWeightsAreWhatTheFormulaSays) {
  Random random(92);
  SCOPED_TRACE(random.note());
  for (const std::size_t n : {1U, 2U, 4U, 16U}) {
    const auto mixes = random.normals(n * (n + 2)), base = random.normals(n * (n + 2)), scale = random.normals(3);
    const reference::HyperOptions options{.streams = n, .iterations = 20, .floor_eps = 1e-6f};
    const auto w = reference::hyper_weights_exact(mixes, base, scale, options);
    const auto exact =
        reference::hyper_weights_reference(std::vector<double>(mixes.begin(), mixes.end()), base, scale, options);
    for (std::size_t i = 0; i < n; ++i) {
      EXPECT_NEAR(w.pre[i], exact.pre[i], 1e-6);
      EXPECT_NEAR(w.post[i], exact.post[i], 2e-6);
      double row = 0, column = 0;
      for (std::size_t k = 0; k < n; ++k) {
        EXPECT_NEAR(w.mix[i * n + k], exact.mix[i * n + k], 2e-5) << n;  // 40 divisions by sums of n
        row += w.mix[i * n + k], column += w.mix[k * n + i];
      }
      EXPECT_NEAR(column, 1, 1e-4);  // the columns come last
      EXPECT_NEAR(row, 1, 0.2);
    }
  }
}

TEST(HyperConnections, WhatTheyCannotDoIsRefusedAtLoad) {
  Random random(93);
  HyperWorld world(random, kHyperCases[0]);
  const auto code = [&](auto params, auto change) {
    change(params);
    const Harness harness(params, world.weights(), {});
    return harness.error() ? harness.error()->code : base::ErrorCode::kInternal;
  };
  using base::ErrorCode;
  const auto add = world.params<HyperAddParams>();
  const auto collapse = world.params<HyperCollapseParams>();
  EXPECT_EQ(code(add, [](HyperAddParams&) {}), ErrorCode::kInternal);  // nothing wrong
  EXPECT_EQ(code(add, [](HyperAddParams& p) { p.iterations = 0; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code(add, [](HyperAddParams& p) { p.mix_rows = p.streams; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code(collapse, [](HyperCollapseParams& p) { p.streams = 17; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code(collapse, [](HyperCollapseParams& p) { p.mix_rows = 7; }), ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(code(collapse, [](HyperCollapseParams& p) { p.width = 21; }), ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::compressed
