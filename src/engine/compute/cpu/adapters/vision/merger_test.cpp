#include <cmath>
#include <limits>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::adapters::vision {
namespace {

using plan::DType;
using plan::ImageRows;
using plan::kind_version;
using plan::Opcode;
using plan::SpatialMergeSlot;
using plan::VisionDeepstackExtractParams;
using plan::VisionSpatialMergeParams;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::Random;
using testing::same_bits;

struct MergerCase {
  DType weights;
  std::uint32_t width_in, width_out, merge_size;
  bool biases, norm_joined;
};
const MergerCase kMergerCases[] = {{DType::kF32, 9, 21, 2, true, false},
                                   {DType::kF32, 9, 21, 2, true, true},
                                   {DType::kQ8_0, 24, 40, 2, false, true},
                                   {DType::kF16, 16, 17, 1, true, false},
                                   {DType::kF32, 5, 8, 3, false, false}};

// Three frames of 3, 1 and 4 merged rows, the first and last of slot 1, the second of slot 0.
class MergerWorld {
 public:
  static constexpr std::uint32_t kParts = 3, kPart = 2, kRowsMax = 8;
  static constexpr float kEps = 1e-6f;

  MergerWorld(Random& random, const MergerCase& c)
      : c_(c), weights_(static_cast<std::size_t>(SpatialMergeSlot::kCount)) {
    using enum SpatialMergeSlot;
    const auto vector = [&](std::uint32_t n) { return HarnessWeight::random(random, DType::kF32, {n}); };
    const std::uint32_t norm_width = c.norm_joined ? joined() : c.width_in;
    at(kNorm) = vector(norm_width);
    at(kFc1) = HarnessWeight::random(random, c.weights, {joined(), joined()});
    at(kFc2) = HarnessWeight::random(random, c.weights, {c.width_out, joined()});
    if (c.biases)
      at(kNormBias) = vector(norm_width), at(kFc1Bias) = vector(joined()), at(kFc2Bias) = vector(c.width_out);
    x_ = random.normals(8 * joined());
  }
  VisionSpatialMergeParams merge_params() const {
    return {kind_version(Opcode::kVisionSpatialMerge), c_.width_in, c_.width_out, c_.merge_size, kEps, kParts};
  }
  VisionDeepstackExtractParams extract_params() const {
    return {kind_version(Opcode::kVisionDeepstackExtract),
            c_.width_in,
            c_.width_out,
            c_.merge_size,
            kEps,
            kParts,
            kPart,
            4};
  }
  const std::vector<HarnessWeight>& weights() const { return weights_; }

  // The states of three slots, NaN where nothing was written: [3][kRowsMax][kParts][width_out].
  std::vector<float> run(const HarnessOptions& device, bool together) const {
    return c_.norm_joined ? run(extract_params(), device, together) : run(merge_params(), device, together);
  }
  std::vector<float> expected() const {
    std::vector<float> state = empty_state();
    const auto rows = merged_rows();
    const std::size_t part = c_.norm_joined ? kPart : 0;
    const std::size_t slots[] = {1, 1, 1, 0, 1, 1, 1, 1}, places[] = {0, 1, 2, 5, 3, 4, 5, 6};
    for (std::size_t i = 0; i < 8; ++i)
      std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(i * c_.width_out), c_.width_out,
                  state.begin() +
                      static_cast<std::ptrdiff_t>(((slots[i] * kRowsMax + places[i]) * kParts + part) * c_.width_out));
    return state;
  }
  std::vector<float> merged_rows() const {
    using enum SpatialMergeSlot;
    std::vector<float> normed;
    const std::size_t width = at(kNorm).shape[0];
    for (std::size_t r = 0; r < x_.size(); r += width) {
      const auto y = reference::layer_norm_exact(std::span(x_).subspan(r, width), at(kNorm).floats(),
                                                 at(kNormBias).floats(), kEps);
      normed.insert(normed.end(), y.begin(), y.end());
    }
    auto hidden = testing::matmul_rows(at(kFc1), normed);
    if (c_.biases) testing::add_bias(hidden, at(kFc1Bias).floats());
    for (float& v : hidden) v = reference::gelu_erf_exact(v);
    auto y = testing::matmul_rows(at(kFc2), hidden);
    if (c_.biases) testing::add_bias(y, at(kFc2Bias).floats());
    return y;
  }
  // REQUIRES: F32 weights.
  std::vector<double> oracle() const {
    using enum SpatialMergeSlot;
    std::vector<double> normed, y;
    const std::size_t width = at(kNorm).shape[0];
    for (std::size_t r = 0; r < x_.size(); r += width) {
      const auto row = reference::layer_norm_reference(std::span(x_).subspan(r, width), at(kNorm).floats(),
                                                       at(kNormBias).floats(), static_cast<double>(kEps));
      normed.insert(normed.end(), row.begin(), row.end());
    }
    const auto project = [](const HarnessWeight& w, const HarnessWeight& bias, std::span<const double> x) {
      const auto values = w.floats(), b = bias.floats();
      std::vector<double> out;
      for (std::size_t n = 0; n < w.shape[0]; ++n) {
        out.push_back(b.empty() ? 0 : b[n]);
        for (std::size_t k = 0; k < x.size(); ++k) out.back() += values[n * x.size() + k] * x[k];
      }
      return out;
    };
    for (std::size_t r = 0; r < normed.size(); r += joined()) {
      auto hidden = project(at(kFc1), at(kFc1Bias), std::span(normed).subspan(r, joined()));
      for (double& v : hidden) v = reference::gelu_erf_reference(v);
      const auto row = project(at(kFc2), at(kFc2Bias), hidden);
      y.insert(y.end(), row.begin(), row.end());
    }
    return y;
  }

 private:
  template <class P>
  std::vector<float> run(const P& params, const HarnessOptions& device, bool together) const {
    HarnessOptions options = device;
    options.limits.rows_max = 8 * c_.merge_size * c_.merge_size;
    Harness harness(params, weights_, options);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    std::vector<float> state = empty_state();
    harness.set_state({.id = plan::kVisionStateId,
                       .align_bytes = 64,
                       .ptr = reinterpret_cast<std::byte*>(state.data()),
                       .size = state.size() / 3 * sizeof(float)});
    const std::uint32_t block = c_.merge_size * c_.merge_size;
    const std::vector<std::uint32_t> slots{1, 0, 1}, ends{0, 3 * block, 4 * block, 8 * block};
    const std::vector<ImageRows> rows{{0, 3}, {5, 6}, {3, 7}};
    for (std::uint32_t first = 0; first < 3;) {
      const std::uint32_t count = together ? 3 : 1;
      std::vector<std::uint32_t> offsets;
      for (std::uint32_t i = first; i <= first + count; ++i) offsets.push_back(ends[i] - ends[first]);
      plan::ExecutionContext ctx;
      ctx.batch_size = count, ctx.total_rows = offsets.back(), ctx.row_offsets = offsets;
      ctx.active_slots = std::span(slots).subspan(first, count);
      ctx.image_rows = std::span(rows).subspan(first, count);
      harness.run(ctx, {x_.data() + std::size_t{ends[first]} * c_.width_in}, nullptr);
      first += count;
    }
    return state;
  }
  std::vector<float> empty_state() const {
    return std::vector<float>(std::size_t{3} * kRowsMax * kParts * c_.width_out,
                              std::bit_cast<float>(std::uint32_t{0xFFFFFFFF}));
  }
  HarnessWeight& at(SpatialMergeSlot slot) { return weights_[static_cast<std::size_t>(slot)]; }
  const HarnessWeight& at(SpatialMergeSlot slot) const { return weights_[static_cast<std::size_t>(slot)]; }
  std::uint32_t joined() const { return c_.merge_size * c_.merge_size * c_.width_in; }

  MergerCase c_;
  std::vector<HarnessWeight> weights_;
  std::vector<float> x_;
};

TEST(VisionMerger, EqualsItsTwinAndWritesItsOwnPartOnly) {
  Random random(83);
  for (const MergerCase& c : kMergerCases) {
    const MergerWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : testing::devices())
      for (bool together : {false, true})
        ASSERT_TRUE(same_bits(world.run(device, together), expected))
            << "width " << c.width_in << " " << device.isa << " threads " << device.threads << " together " << together
            << " " << random.note();
  }
}

TEST(VisionMerger, IsCloseToTheFormula) {
  Random random(84);
  SCOPED_TRACE(random.note());
  for (const MergerCase& c : {kMergerCases[0], kMergerCases[1]}) {
    const MergerWorld world(random, c);
    const auto exact = world.oracle();
    const auto y = world.merged_rows();
    double largest = 0;
    for (double v : exact) largest = std::max(largest, std::fabs(v));
    // Two dot products of 36 terms and a norm of 36: 110 roundings of 2^-24 of sums of magnitudes six times the result.
    for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(y[i], exact[i], 4e-5 * largest) << i;
  }
}

TEST(VisionMerger, WhatItCannotDoIsRefusedAtLoad) {
  Random random(85);
  const MergerWorld merge(random, kMergerCases[0]), extract(random, kMergerCases[1]);
  EXPECT_FALSE(Harness(merge.merge_params(), merge.weights(), {}).error());
  EXPECT_FALSE(Harness(extract.extract_params(), extract.weights(), {}).error());
  // The norm's width tells the two apart.
  EXPECT_EQ(Harness(merge.merge_params(), extract.weights(), {}).error()->code, base::ErrorCode::kWeightShapeMismatch);
  VisionDeepstackExtractParams p = extract.extract_params();
  p.part = 3;
  EXPECT_EQ(Harness(p, extract.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  p = extract.extract_params(), p.merge_size = 0;
  EXPECT_EQ(Harness(p, extract.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  VisionSpatialMergeParams q = merge.merge_params();
  q.parts = 0;
  EXPECT_EQ(Harness(q, merge.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::vision
