// Patches to rows: a projection, and a position embedding interpolated to the frame's grid.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/cpu/adapters/vision/vision.h"

namespace llorch::engine::compute::cpu::adapters::vision::patch_embed {

using plan::Backend;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PatchEmbedSlot;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;
using plan::VisionGrid;
using plan::VisionPatchEmbedParams;

namespace {

constexpr std::size_t kGrainElements = 1u << 14;  // four multiply-adds each

std::size_t patch_row_width(const VisionPatchEmbedParams& p) { return std::size_t{3} * p.temporal * p.patch * p.patch; }

struct Scratch {
  Scratch(Arena& arena, const VisionPatchEmbedParams& p, std::size_t rows)
      : taps(arena.take<std::uint32_t>(4 * rows)),
        weights(arena.take<float>(4 * rows)),
        patches(arena.take_quantized(rows, patch_row_width(p))) {}
  std::uint32_t* taps;  // [T, 4]
  float* weights;       // [T, 4]
  QuantizedRows patches;
};

// Where patch i of n stands among `side` table entries when the first and last of both coincide.
struct Place {
  std::uint32_t low, high;
  float beyond;  // share of `high`
};
Place place_of(std::uint32_t i, std::uint32_t n, std::uint32_t side) {
  if (n == 1) return {0, 0, 0.0f};
  const std::uint64_t steps = std::uint64_t{i} * (side - 1);  // in units of 1 / (n - 1): exact
  const auto low = static_cast<std::uint32_t>(steps / (n - 1));
  return {low, std::min(low + 1, side - 1), static_cast<float>(steps % (n - 1)) / static_cast<float>(n - 1)};
}

void interpolate_row(const VisionPatchEmbedParams& p, const VisionGrid& grid, std::uint32_t row, std::uint32_t* taps,
                     float* weights) {
  const std::uint32_t block = row / (p.merge * p.merge), within = row % (p.merge * p.merge);
  const std::uint32_t blocks_wide = grid.width / p.merge;
  const Place y = place_of(block / blocks_wide * p.merge + within / p.merge, grid.height, p.grid_side);
  const Place x = place_of(block % blocks_wide * p.merge + within % p.merge, grid.width, p.grid_side);
  const float y_rest = 1.0f - y.beyond, x_rest = 1.0f - x.beyond;
  taps[0] = y.low * p.grid_side + x.low, weights[0] = y_rest * x_rest;
  taps[1] = y.low * p.grid_side + x.high, weights[1] = y_rest * x.beyond;
  taps[2] = y.high * p.grid_side + x.low, weights[2] = y.beyond * x_rest;
  taps[3] = y.high * p.grid_side + x.high, weights[3] = y.beyond * x.beyond;
}

void interpolate(const ExecutionContext& ctx, const VisionPatchEmbedParams& p, const Scratch& scratch) {
  ASSERT(ctx.grids.size() == ctx.batch_size && ctx.row_offsets.size() == ctx.batch_size + std::size_t{1},
         "{} frames, {} grids", ctx.batch_size, ctx.grids.size());
  for (std::uint32_t b = 0; b < ctx.batch_size; ++b) {
    const VisionGrid& grid = ctx.grids[b];
    const std::uint32_t first = ctx.row_offsets[b], count = ctx.row_offsets[b + 1] - first;
    ASSERT(grid.height % p.merge == 0 && grid.width % p.merge == 0 && std::uint64_t{grid.height} * grid.width == count,
           "{} rows for a grid of {} x {}", count, grid.height, grid.width);
    for (std::uint32_t i = 0; i < count; ++i) {
      const std::size_t at = 4 * (std::size_t{first} + i);
      interpolate_row(p, grid, i, scratch.taps + at, scratch.weights + at);
    }
  }
}

}  // namespace

Status PatchEmbedAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<VisionPatchEmbedParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows);
  interpolate(ctx, p, scratch);
  float* y = insn.output(0);
  project(stream,
          {.x = ctx.patch_rows,
           .x_stride = patch_row_width(p),
           .rows = rows,
           .quantized = scratch.patches,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(PatchEmbedSlot::kWeight)), y}});
  const CpuWeight* bias = weight_of(insn.weight(PatchEmbedSlot::kBias));
  const AddInterpolatedArgs positions{.x = y,
                                      .x_stride = p.width,
                                      .width = p.width,
                                      .table = weight_of(insn.weight(PatchEmbedSlot::kPositions))->vector,
                                      .taps = scratch.taps,
                                      .weights = scratch.weights};
  stream.pool.run(rows, kGrainElements / p.width + 1, [&](Range range, std::size_t) {
    if (bias != nullptr)
      stream.kernels.add_bias({.x = y, .x_stride = p.width, .width = p.width, .bias = bias->vector}, range);
    stream.kernels.add_interpolated(positions, range);
  });
  return Status::ok();
}

std::uint64_t PatchEmbedAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<VisionPatchEmbedParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::vision::patch_embed
