// Patches to rows, blocks of patches to rows of the image state, and those into the rows of a batch that stand for them.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::Backend;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PatchEmbedSlot;
using plan::PreparedInsn;
using plan::ScatterMode;
using plan::SpatialMergeSlot;
using plan::Status;
using plan::StepLimits;
using plan::VisionDeepstackExtractParams;
using plan::VisionPatchEmbedParams;
using plan::VisionScatterParams;
using plan::VisionSpatialMergeParams;

namespace {

std::uint32_t patch_row_width(const VisionPatchEmbedParams& p) { return 3 * p.temporal * p.patch * p.patch; }

struct MergerScratch {
  MergerScratch(Arena& arena, const Merger& m, std::uint64_t merged)
      : normed(arena.take<float>(merged * m.width_joined())),
        hidden(arena.take<float>(merged * m.width_joined())),
        out(arena.take<float>(merged * m.width_out)),
        narrowed(arena.take_narrowed(merged, m.width_joined())) {}
  float* normed;  // [T, width_in] and [merged, joined] at once: consecutive rows are what is joined
  float* hidden;  // [merged, joined]
  float* out;     // [merged, width_out]
  Arena::Narrowed narrowed;
};

kernels::ImageState image_state(const PreparedInsn& insn, std::uint32_t parts, std::uint32_t part,
                                std::uint32_t width) {
  ASSERT(insn.states.size() == 1, "{} states", insn.states.size());
  return {
      .state = insn.states[0].ptr, .state_stride = insn.states[0].size, .parts = parts, .part = part, .width = width};
}

// The merged rows of every span are where its slot keeps them.
void check_image_rows(const ExecutionContext& ctx, const PreparedInsn& insn, std::uint32_t patches,
                      std::uint64_t row_elements) {
  ASSERT(ctx.image_rows.size() == ctx.batch_size, "{} spans, {} ranges of rows", ctx.batch_size, ctx.image_rows.size());
  for (std::uint32_t b = 0; b < ctx.batch_size; ++b) {
    const plan::ImageRows& rows = ctx.image_rows[b];
    const std::uint32_t count = ctx.row_offsets[b + 1] - ctx.row_offsets[b];
    ASSERT((patches == 0 || (rows.end - rows.begin) * patches == count) &&
               rows.end * row_elements * sizeof(float) <= insn.states[0].size,
           "rows {} to {} from {} patches, state of {} bytes", rows.begin, rows.end, count, insn.states[0].size);
  }
}

Status run_merger(ExecutionContext& ctx, const PreparedInsn& insn, const Merger& m) {
  const CudaStream& stream = stream_of(ctx);
  const std::uint32_t merged = ctx.total_rows / m.block, joined = m.width_joined();
  check_image_rows(ctx, insn, m.block, std::uint64_t{m.parts} * m.width_out);
  Arena arena(ctx);
  const MergerScratch scratch(arena, m, merged);
  using enum SpatialMergeSlot;
  stream.launch<kernels::LayerNorm>({1, static_cast<std::uint32_t>(std::uint64_t{merged} * joined / m.norm_width)},
                                    {.x = insn.input(0),
                                     .weight = vector_of(insn.weight(kNorm)),
                                     .bias = vector_of(insn.weight(kNormBias)),
                                     .y = scratch.normed,
                                     .x_stride = m.norm_width,
                                     .y_stride = m.norm_width,
                                     .width = static_cast<std::uint32_t>(m.norm_width),
                                     .eps = m.eps});
  ProjectionInput input{
      .x = scratch.normed, .x_stride = joined, .rows = merged, .narrowed = scratch.narrowed, .y_stride = joined};
  project(stream, input,
          std::array{Projection{weight_of(insn.weight(kFc1)), scratch.hidden, vector_of(insn.weight(kFc1Bias))}});
  stream.launch<kernels::Swiglu>({blocks_of(joined, kernels::Swiglu::kThreads), merged},
                                 {.gate = scratch.hidden,
                                  .y = scratch.hidden,
                                  .x_stride = joined,
                                  .y_stride = joined,
                                  .width = joined,
                                  .act = plan::Activation::kGeluErf});
  input.x = scratch.hidden, input.y_stride = m.width_out;
  project(stream, input,
          std::array{Projection{weight_of(insn.weight(kFc2)), scratch.out, vector_of(insn.weight(kFc2Bias))}});
  for_frames(ctx, [&](const kernels::Frames& frames) {
    stream.launch<kernels::KeepRows>(
        {blocks_of(m.width_out, kernels::KeepRows::kThreads), static_cast<std::uint32_t>(rows_of(frames) / m.block)},
        {.x = scratch.out,
         .patches = static_cast<std::uint32_t>(m.block),
         .image = image_state(insn, m.parts, m.part, m.width_out),
         .frames = frames});
  });
  return stream.status();
}

std::uint64_t merger_workspace_bytes(const Merger& m, const StepLimits& limits) {
  Arena arena;
  MergerScratch(arena, m, m.block != 0 ? limits.rows_max / m.block : 0);
  return arena.used_bytes();
}

}  // namespace

Status PatchEmbedAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<VisionPatchEmbedParams>();
  const CudaStream& stream = stream_of(ctx);
  ASSERT(ctx.grids.size() == ctx.batch_size, "{} frames, {} grids", ctx.batch_size, ctx.grids.size());
  Arena arena(ctx);
  const Arena::Narrowed patches = arena.take_narrowed(ctx.total_rows, patch_row_width(p));
  float* y = insn.output(0);
  project(stream,
          {.x = ctx.patch_rows,
           .x_stride = patch_row_width(p),
           .rows = ctx.total_rows,
           .narrowed = patches,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(PatchEmbedSlot::kWeight)), y,
                                vector_of(insn.weight(PatchEmbedSlot::kBias))}});
  for_frames(ctx, [&](const kernels::Frames& frames) {
    stream.launch<kernels::AddPositions>({blocks_of(p.width, kernels::AddPositions::kThreads), rows_of(frames)},
                                         {.x = y,
                                          .table = vector_of(insn.weight(PatchEmbedSlot::kPositions)),
                                          .width = p.width,
                                          .side = p.grid_side,
                                          .merge = p.merge,
                                          .frames = frames});
  });
  return stream.status();
}

std::uint64_t PatchEmbedAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  arena.take_narrowed(limits.rows_max, patch_row_width(plan::param_as<VisionPatchEmbedParams>(params)));
  return arena.used_bytes();
}

Status SpatialMergeAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  return run_merger(ctx, insn, Merger(insn.param<VisionSpatialMergeParams>()));
}
std::uint64_t SpatialMergeAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                   const Backend&) noexcept {
  return merger_workspace_bytes(Merger(plan::param_as<VisionSpatialMergeParams>(params)), limits);
}

Status DeepstackExtractAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  return run_merger(ctx, insn, Merger(insn.param<VisionDeepstackExtractParams>()));
}
std::uint64_t DeepstackExtractAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                       const Backend&) noexcept {
  return merger_workspace_bytes(Merger(plan::param_as<VisionDeepstackExtractParams>(params)), limits);
}

Status ScatterAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<VisionScatterParams>();
  const CudaStream& stream = stream_of(ctx);
  const float* x = insn.input(0);
  float* y = insn.output(0);
  if (x == y && ctx.image_rows.empty()) return Status::ok();
  if (!ctx.image_rows.empty()) check_image_rows(ctx, insn, 0, std::uint64_t{p.parts} * p.width);
  for_frames(ctx, [&](const kernels::Frames& spans) {
    stream.launch<kernels::Scatter>({rows_of(spans)}, {.x = x,
                                                       .y = y,
                                                       .row_ids = ctx.row_ids,
                                                       .image_row_ids = {p.image_row_ids[0], p.image_row_ids[1]},
                                                       .adds = p.mode == ScatterMode::kAdd,
                                                       .image = image_state(insn, p.parts, p.part, p.width),
                                                       .spans = spans});
  });
  return stream.status();
}

}  // namespace llorch::engine::compute::cuda::adapters
