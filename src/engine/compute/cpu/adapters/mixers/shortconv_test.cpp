#include <cmath>

#include "engine/compute/cpu/adapters/mixers/mixer_harness.h"
#include "engine/compute/reference/mixers.h"

namespace llorch::engine::compute::cpu::adapters::mixers {
namespace {

using plan::DType;
using plan::kind_version;
using plan::Opcode;
using plan::ShortconvParams;
using plan::ShortconvSlot;
using testing::Harness;
using testing::HarnessWeight;
using testing::Random;
using testing::same_bits;

struct Case {
  DType weights;
  std::uint32_t width, taps;
  bool biases;
};
const Case kCases[] = {
    {DType::kF32, 37, 3, false}, {DType::kQ4_0, 64, 3, true}, {DType::kBF16, 50, 8, true}, {DType::kF32, 16, 1, true}};

class ShortconvWorld {
 public:
  static constexpr std::uint32_t kLength = 19;

  ShortconvWorld(Random& random, const Case& c) : c_(c), weights_(static_cast<std::size_t>(ShortconvSlot::kCount)) {
    using enum ShortconvSlot;
    const auto vector = [&](std::vector<std::uint32_t> shape) {
      return HarnessWeight::random(random, DType::kF32, std::move(shape));
    };
    at(kInProj) = HarnessWeight::random(random, c.weights, {3 * c.width, c.width});
    at(kOutProj) = HarnessWeight::random(random, c.weights, {c.width, c.width});
    at(kConvWeight) = vector({c.width, c.taps});
    if (c.biases)
      at(kConvBias) = vector({c.width}), at(kInBias) = vector({3 * c.width}), at(kOutBias) = vector({c.width});
    x_ = random.normals(kLength * c.width);
  }
  ShortconvParams params() const { return {kind_version(Opcode::kShortconv), c_.width, c_.taps, 0, 64}; }
  std::vector<HarnessWeight>& weights() { return weights_; }
  const std::vector<float>& x() const { return x_; }
  testing::StateShape state() const {
    return {.offset_bytes = 64, .bytes = plan::shortconv_state_bytes(c_.width, c_.taps)};
  }

  std::vector<float> expected(std::span<const float> x) {
    using enum ShortconvSlot;
    const auto bcx = testing::project_exact(at(kInProj), at(kInBias), x);
    auto channels = convolution();
    std::vector<float> gated;
    for (std::size_t r = 0; r < x.size() / c_.width; ++r)
      for (std::size_t i = 0; i < c_.width; ++i) {
        const float* row = bcx.data() + r * 3 * c_.width;
        gated.push_back(row[c_.width + i] * channels[i].next_exact(row[i] * row[2 * c_.width + i]));
      }
    return testing::project_exact(at(kOutProj), at(kOutBias), gated);
  }
  std::vector<double> oracle() {
    using enum ShortconvSlot;
    const auto bcx = testing::project_reference(at(kInProj), at(kInBias), std::vector<double>(x_.begin(), x_.end()));
    auto channels = convolution();
    std::vector<double> gated;
    for (std::size_t r = 0; r < kLength; ++r)
      for (std::size_t i = 0; i < c_.width; ++i) {
        const double* row = bcx.data() + r * 3 * c_.width;
        gated.push_back(row[c_.width + i] * channels[i].next_reference(row[i] * row[2 * c_.width + i]));
      }
    return testing::project_reference(at(kOutProj), at(kOutBias), gated);
  }

 private:
  HarnessWeight& at(ShortconvSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  std::vector<reference::ConvChannel> convolution() {
    const auto weight = at(ShortconvSlot::kConvWeight).floats(), bias = at(ShortconvSlot::kConvBias).floats();
    std::vector<reference::ConvChannel> channels;
    for (std::size_t i = 0; i < c_.width; ++i)
      channels.emplace_back(std::span(weight).subspan(i * c_.taps, c_.taps), bias.empty() ? 0.0f : bias[i]);
    return channels;
  }

  Case c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_;
};

TEST(Shortconv, EqualsItsTwinWhateverTheChunksAndNeighbours) {
  Random random(63);
  for (const Case& c : kCases) {
    ShortconvWorld world(random, c);
    const auto expected = world.expected(world.x());
    const auto neighbour = world.expected(testing::reversed_rows(world.x(), c.width));
    for (const auto& device : testing::devices())
      for (std::uint32_t chunk : {1u, 2u, 5u, ShortconvWorld::kLength}) {
        SCOPED_TRACE(::testing::Message() << "width " << c.width << " " << device.isa << " threads " << device.threads
                                          << " chunk " << chunk << " " << random.note());
        const auto run =
            testing::run_sequences(world.params(), world.weights(), device, world.state(), world.x(), chunk);
        ASSERT_TRUE(same_bits(run.rows, expected));
        ASSERT_TRUE(same_bits(run.neighbour, std::span(neighbour).first(run.neighbour.size())));
        ASSERT_TRUE(run.rest_untouched);
      }
  }
}

TEST(Shortconv, IsCloseToTheFormula) {
  Random random(64);
  SCOPED_TRACE(random.note());
  ShortconvWorld world(random, kCases[0]);
  const auto exact = world.oracle();
  const auto run =
      testing::run_sequences(world.params(), world.weights(), testing::devices().back(), world.state(), world.x(), 7);
  double largest = 0;
  for (double v : exact) largest = std::max(largest, std::fabs(v));
  // 37 + 3 + 37 roundings and two gates of 2^-24 of a sum of magnitudes some eight times the result.
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(run.rows[i], exact[i], 4e-5 * largest) << i;
}

TEST(Shortconv, WhatItCannotDoIsRefusedAtLoad) {
  Random random(65);
  ShortconvWorld world(random, kCases[0]);
  ShortconvParams params = world.params();
  EXPECT_FALSE(Harness(params, world.weights(), {}).error());
  params.l_cache = 9;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  params.l_cache = 0;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  params.l_cache = 4;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::mixers
