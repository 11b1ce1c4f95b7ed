#include "engine/compute/cpu/adapters/adapter_harness.h"

namespace llorch::engine::compute::cpu::adapters::vision {
namespace {

using plan::ImageRows;
using plan::kind_version;
using plan::Opcode;
using plan::ScatterMode;
using plan::VisionScatterParams;
using testing::Harness;
using testing::HarnessOptions;
using testing::Random;
using testing::same_bits;

constexpr std::uint32_t kWidth = 37, kParts = 3, kRowsMax = 8, kImage = 7, kVideo = 9;

VisionScatterParams params(ScatterMode mode, std::uint32_t part) {
  return {kind_version(Opcode::kVisionScatter), kWidth, {kImage, kVideo}, kParts, part, mode, {}};
}

// Slot 1's rows: five of its images' six, the last image id being one that came after them.
const std::vector<std::uint32_t> kIds = {1, kImage, kImage, 2, kVideo, kVideo, kImage, 3, kImage, 4};
constexpr std::uint32_t kEncoded = 5;

class ScatterWorld {
 public:
  explicit ScatterWorld(Random& random)
      : state_(random.normals(std::size_t{2} * kRowsMax * kParts * kWidth)), x_(random.normals(kIds.size() * kWidth)) {}

  // In chunks, each beside a row of slot 0 that has an image id but no image left.
  std::vector<float> run(const VisionScatterParams& p, const HarnessOptions& device, std::uint32_t chunk,
                         bool in_place) {
    Harness harness(p, {}, device);
    EXPECT_FALSE(harness.error()) << harness.error()->message;
    harness.set_state({.id = plan::kVisionStateId,
                       .align_bytes = 64,
                       .ptr = reinterpret_cast<std::byte*>(state_.data()),
                       .size = state_.size() / 2 * sizeof(float)});
    std::vector<float> out;
    std::uint32_t met = 0;  // image rows of earlier chunks
    for (std::uint32_t at = 0; at < kIds.size(); at += chunk) {
      const auto n = std::min(chunk, static_cast<std::uint32_t>(kIds.size()) - at);
      std::vector<std::uint32_t> ids{kImage}, slots{0, 1}, offsets{0, 1, n + 1};
      ids.insert(ids.end(), kIds.begin() + at, kIds.begin() + at + n);
      const std::vector<ImageRows> rows{{2, 2}, {std::min(met, kEncoded), kEncoded}};
      std::vector<float> x(x_.begin(), x_.begin() + kWidth), y((n + 1) * kWidth);
      x.insert(x.end(), x_.begin() + at * kWidth, x_.begin() + (at + n) * kWidth);
      plan::ExecutionContext ctx;
      ctx.batch_size = 2, ctx.total_rows = n + 1, ctx.row_offsets = offsets, ctx.active_slots = slots;
      ctx.row_ids = ids.data(), ctx.image_rows = rows;
      harness.run(ctx, {x.data()}, in_place ? x.data() : y.data());
      const std::vector<float>& result = in_place ? x : y;
      EXPECT_TRUE(same_bits(std::span(result).first(kWidth), std::span(x_).first(kWidth)));
      out.insert(out.end(), result.begin() + kWidth, result.end());
      for (std::uint32_t i = at; i < at + n; ++i) met += kIds[i] == kImage || kIds[i] == kVideo ? 1 : 0;
    }
    return out;
  }
  std::vector<float> expected(const VisionScatterParams& p) const {
    std::vector<float> y = x_;
    const std::size_t rows[] = {1, 2, 4, 5, 6};  // the image rows that were encoded
    for (std::size_t k = 0; k < kEncoded; ++k)
      for (std::size_t i = 0; i < kWidth; ++i) {
        const float part = state_[((kRowsMax + k) * kParts + p.part) * kWidth + i];
        float& v = y[rows[k] * kWidth + i];
        v = p.mode == ScatterMode::kAdd ? v + part : part;
      }
    return y;
  }
  const std::vector<float>& x() const { return x_; }

 private:
  std::vector<float> state_, x_;
};

TEST(VisionScatter, EveryChunkFindsItsRows) {
  Random random(86);
  ScatterWorld world(random);
  for (const auto& p : {params(ScatterMode::kReplace, 0), params(ScatterMode::kAdd, 2)}) {
    const auto expected = world.expected(p);
    for (const auto& device : testing::devices())
      for (std::uint32_t chunk : {1u, 2u, 3u, 10u})
        for (bool in_place : {false, true})
          ASSERT_TRUE(same_bits(world.run(p, device, chunk, in_place), expected))
              << device.isa << " chunk " << chunk << " in place " << in_place << " " << random.note();
  }
}

TEST(VisionScatter, AStepWithoutImageRowsPassesThrough) {
  Random random(87);
  ScatterWorld world(random);
  const std::vector<std::uint32_t> slots{1}, offsets{0, static_cast<std::uint32_t>(kIds.size())};
  plan::ExecutionContext ctx;
  ctx.batch_size = 1, ctx.total_rows = offsets[1], ctx.row_offsets = offsets, ctx.active_slots = slots;
  ctx.row_ids = kIds.data();
  Harness harness(params(ScatterMode::kReplace, 0), {}, {});
  std::vector<float> state(kWidth * kParts), y(world.x().size());
  harness.set_state({.id = plan::kVisionStateId,
                     .align_bytes = 64,
                     .ptr = reinterpret_cast<std::byte*>(state.data()),
                     .size = state.size() * sizeof(float)});
  harness.run(ctx, {world.x().data()}, y.data());
  EXPECT_TRUE(same_bits(y, world.x()));
}

TEST(VisionScatter, WhatItCannotDoIsRefusedAtLoad) {
  EXPECT_FALSE(Harness(params(ScatterMode::kAdd, 2), {}, {}).error());
  EXPECT_EQ(Harness(params(ScatterMode::kAdd, 3), {}, {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
  EXPECT_EQ(Harness(params(ScatterMode{2}, 0), {}, {}).error()->code, base::ErrorCode::kUnsupportedOpcode);
}

}  // namespace
}  // namespace llorch::engine::compute::cpu::adapters::vision
