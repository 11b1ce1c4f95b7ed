#include <cmath>

#include "engine/compute/cpu/adapters/adapter_harness.h"
#include "engine/compute/reference/exact.h"
#include "engine/compute/reference/oracle.h"

namespace llorch::engine::compute::cpu::adapters::vision {
namespace {

using plan::DType;
using plan::kind_version;
using plan::Opcode;
using plan::VisionGrid;
using plan::VisionPatchEmbedParams;
using testing::Harness;
using testing::HarnessOptions;
using testing::HarnessWeight;
using testing::Random;
using testing::same_bits;

struct Case {
  DType weights;
  std::uint32_t width, patch, merge, grid_side;
  bool bias;
  std::vector<VisionGrid> grids;
};
const Case kCases[] = {
    {DType::kF32, 37, 3, 2, 5, true, {{4, 6}, {2, 2}, {8, 2}}},
    {DType::kQ8_0, 32, 4, 2, 48, true, {{2, 4}, {6, 6}}},
    {DType::kF16, 16, 2, 1, 3, false, {{1, 5}, {3, 1}, {1, 1}}},  // one row or column stands at the table's edge
    {DType::kF32, 20, 2, 3, 1, false, {{3, 6}}},                  // a table of one entry
};

class PatchWorld {
 public:
  PatchWorld(Random& random, const Case& c) : c_(c) {
    weights_ = {HarnessWeight::random(random, c.weights, {c.width, row_width()}),
                c.bias ? HarnessWeight::random(random, DType::kF32, {c.width}) : HarnessWeight{},
                HarnessWeight::random(random, DType::kF32, {c.grid_side * c.grid_side, c.width})};
    for (const VisionGrid& grid : c.grids) rows_ += grid.height * grid.width;
    patches_ = random.normals(rows_ * row_width());
  }
  VisionPatchEmbedParams params() const {
    return {kind_version(Opcode::kVisionPatchEmbed), c_.width, c_.patch, 2, c_.merge, c_.grid_side};
  }
  const std::vector<HarnessWeight>& weights() const { return weights_; }
  std::uint32_t row_width() const { return 3 * 2 * c_.patch * c_.patch; }

  // Frames in one step, or each in its own.
  std::vector<float> run(const HarnessOptions& device, bool together) const {
    Harness harness(params(), weights_, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    std::vector<float> y(rows_ * c_.width);
    std::size_t row = 0;
    for (std::size_t first = 0; first < c_.grids.size();) {
      const std::size_t count = together ? c_.grids.size() : 1;
      std::vector<std::uint32_t> offsets{0};
      for (std::size_t i = first; i < first + count; ++i)
        offsets.push_back(offsets.back() + c_.grids[i].height * c_.grids[i].width);
      plan::ExecutionContext ctx;
      ctx.mode = plan::ExecutionMode::kVisionEncode;
      ctx.batch_size = static_cast<std::uint32_t>(count), ctx.total_rows = offsets.back(), ctx.row_offsets = offsets;
      ctx.patch_rows = patches_.data() + row * row_width();
      ctx.grids = std::span(c_.grids).subspan(first, count);
      harness.run(ctx, {}, y.data() + row * c_.width);
      row += offsets.back(), first += count;
    }
    return y;
  }

  // Frame by frame, block row by block row, with the place of every patch spelled out.
  std::vector<float> expected() const {
    const auto table = weights_[2].floats();
    auto y = testing::matmul_rows(weights_[0], patches_);
    if (c_.bias) testing::add_bias(y, weights_[1].floats());
    std::size_t row = 0;
    visit([&](std::uint32_t r, std::uint32_t c, const VisionGrid& grid) {
      const auto split = [&](std::uint32_t i, std::uint32_t n, float& high_share) {
        const std::uint32_t steps = n == 1 ? 0 : i * (c_.grid_side - 1), unit = n == 1 ? 1 : n - 1;
        high_share = static_cast<float>(steps % unit) / static_cast<float>(unit);
        return steps / unit;
      };
      float dr = 0, dc = 0;
      const std::uint32_t r0 = split(r, grid.height, dr), c0 = split(c, grid.width, dc);
      const std::uint32_t r1 = std::min(r0 + 1, c_.grid_side - 1), c1 = std::min(c0 + 1, c_.grid_side - 1);
      for (std::uint32_t i = 0; i < c_.width; ++i) {
        const auto entry = [&](std::uint32_t er, std::uint32_t ec) {
          return table[(er * c_.grid_side + ec) * c_.width + i];
        };
        float sum = ((1.0f - dr) * (1.0f - dc)) * entry(r0, c0);
        sum = std::fma((1.0f - dr) * dc, entry(r0, c1), sum);
        sum = std::fma(dr * (1.0f - dc), entry(r1, c0), sum);
        sum = std::fma(dr * dc, entry(r1, c1), sum);
        y[row * c_.width + i] += sum;
      }
      ++row;
    });
    return y;
  }

  // In double, from the definition: patch i of n at i (side - 1) / (n - 1) of the table. REQUIRES: F32 weights.
  std::vector<double> oracle() const {
    const auto table = weights_[2].floats(), w = weights_[0].floats(), bias = weights_[1].floats();
    std::vector<double> y;
    std::size_t row = 0;
    visit([&](std::uint32_t r, std::uint32_t c, const VisionGrid& grid) {
      const auto at = [&](std::uint32_t i, std::uint32_t n) {
        return n == 1 ? 0.0 : static_cast<double>(i) * (c_.grid_side - 1.0) / (n - 1.0);
      };
      auto out = reference::matmul_reference(w, std::span(patches_).subspan(row++ * row_width(), row_width()));
      for (std::uint32_t er = 0; er < c_.grid_side; ++er)
        for (std::uint32_t ec = 0; ec < c_.grid_side; ++ec) {
          const double share = std::max(0.0, 1 - std::fabs(at(r, grid.height) - er)) *
                               std::max(0.0, 1 - std::fabs(at(c, grid.width) - ec));
          for (std::uint32_t i = 0; i < c_.width; ++i) out[i] += share * table[(er * c_.grid_side + ec) * c_.width + i];
        }
      for (std::size_t i = 0; i < bias.size(); ++i) out[i] += bias[i];
      y.insert(y.end(), out.begin(), out.end());
    });
    return y;
  }

 private:
  template <class Body>
  void visit(const Body& body) const {  // patches in the order of rows
    for (const VisionGrid& grid : c_.grids)
      for (std::uint32_t block_row = 0; block_row < grid.height; block_row += c_.merge)
        for (std::uint32_t block_column = 0; block_column < grid.width; block_column += c_.merge)
          for (std::uint32_t r = block_row; r < block_row + c_.merge; ++r)
            for (std::uint32_t c = block_column; c < block_column + c_.merge; ++c) body(r, c, grid);
  }

  Case c_;
  std::vector<HarnessWeight> weights_;
  std::size_t rows_ = 0;
  std::vector<float> patches_;
};

TEST(VisionPatchEmbed, EqualsItsTwinWhateverFramesShareAStep) {
  Random random(80);
  for (const Case& c : kCases) {
    const PatchWorld world(random, c);
    const auto expected = world.expected();
    for (const auto& device : testing::devices())
      for (bool together : {false, true})
        ASSERT_TRUE(same_bits(world.run(device, together), expected))
            << "patch " << c.patch << " " << device.isa << " threads " << device.threads << " together " << together
            << " " << random.note();
  }
}

TEST(VisionPatchEmbed, IsCloseToTheFormula) {
  Random random(81);
  SCOPED_TRACE(random.note());
  const PatchWorld world(random, kCases[0]);
  const auto exact = world.oracle();
  const auto y = world.run(testing::devices().back(), true);
  // 54 products of magnitude up to 4 and a few of the interpolation, each rounding 2^-24 of a sum below 40.
  for (std::size_t i = 0; i < exact.size(); ++i) ASSERT_NEAR(y[i], exact[i], 60 * 40 * 0x1p-24) << i;
}

TEST(VisionPatchEmbed, WhatItCannotDoIsRefusedAtLoad) {
  Random random(82);
  const PatchWorld world(random, kCases[0]);
  VisionPatchEmbedParams params = world.params();
  EXPECT_FALSE(Harness(params, world.weights(), {}).error());
  params.merge = 0;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  params = world.params(), params.grid_side = 0;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  params = world.params(), params.grid_side = 6;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kWeightShapeMismatch);
  params = world.params(), params.temporal = 1;
  EXPECT_EQ(Harness(params, world.weights(), {}).error()->code, base::ErrorCode::kWeightShapeMismatch);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::vision
