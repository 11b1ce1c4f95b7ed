// Merging blocks of patches into rows of the vision state: the tower's end, and extractions on the way.
#include <array>
#include <cstring>

#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/cpu/adapters/vision/vision.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::vision::merger {

using plan::Backend;
using plan::ExecutionContext;
using plan::ImageRows;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::SpatialMergeSlot;
using plan::Status;
using plan::StepLimits;
using plan::VisionDeepstackExtractParams;
using plan::VisionSpatialMergeParams;

namespace {

constexpr std::size_t kGrainElements = 1u << 13;  // an exponential each

struct Scratch {
  Scratch(Arena& arena, const Merger& m, std::size_t merged)
      : normed(arena.take<float>(merged * m.width_joined())),
        hidden(arena.take<float>(merged * m.width_joined())),
        out(arena.take<float>(merged * m.width_out)),
        quantized(arena.take_quantized(merged, m.width_joined())) {}
  float* normed;  // [T, width_in] and [merged, joined] at once: consecutive rows are what is joined
  float* hidden;  // [merged, joined]
  float* out;     // [merged, width_out]
  QuantizedRows quantized;
};

const float* vector_of(const PreparedInsn& insn, SpatialMergeSlot which) {
  const CpuWeight* weight = weight_of(insn.weight(which));
  return weight != nullptr ? weight->vector : nullptr;
}

void norm(const CpuStream& stream, const PreparedInsn& insn, const Merger& m, const Scratch& scratch,
          std::size_t merged) {
  const LayerNormArgs args{.x = insn.input(0),
                           .weight = vector_of(insn, SpatialMergeSlot::kNorm),
                           .bias = vector_of(insn, SpatialMergeSlot::kNormBias),
                           .y = scratch.normed,
                           .width = m.norm_width,
                           .x_stride = m.norm_width,
                           .y_stride = m.norm_width,
                           .eps = m.eps};
  stream.pool.run(merged * m.width_joined() / m.norm_width, kGrainElements / m.norm_width + 1,
                  [&](Range rows, std::size_t) { stream.kernels.layer_norm(args, rows); });
}

void feed_forward(const CpuStream& stream, const PreparedInsn& insn, const Merger& m, const Scratch& scratch,
                  std::size_t merged) {
  const std::size_t joined = m.width_joined();
  ProjectionInput input{
      .x = scratch.normed, .x_stride = joined, .rows = merged, .quantized = scratch.quantized, .y_stride = joined};
  project(stream, input, std::array{Projection{weight_of(insn.weight(SpatialMergeSlot::kFc1)), scratch.hidden}});
  const float* bias = vector_of(insn, SpatialMergeSlot::kFc1Bias);
  stream.pool.run(merged, kGrainElements / joined + 1, [&](Range rows, std::size_t) {
    if (bias != nullptr)
      stream.kernels.add_bias({.x = scratch.hidden, .x_stride = joined, .width = joined, .bias = bias}, rows);
    stream.kernels.swiglu({.gate = scratch.hidden,
                           .x_stride = joined,
                           .y = scratch.hidden,
                           .y_stride = joined,
                           .width = joined,
                           .act = Activation::kGeluErf},
                          rows);
  });
  input.x = scratch.hidden, input.y_stride = m.width_out;
  project(stream, input, std::array{Projection{weight_of(insn.weight(SpatialMergeSlot::kFc2)), scratch.out}});
  if (const float* out_bias = vector_of(insn, SpatialMergeSlot::kFc2Bias))
    stream.kernels.add_bias({.x = scratch.out, .x_stride = m.width_out, .width = m.width_out, .bias = out_bias},
                            {0, merged});
}

// Copies the merged rows of every span to its slot.
void keep(const ExecutionContext& ctx, const PreparedInsn& insn, const Merger& m, const float* out) {
  const plan::StateBlockHandle& state = insn.states[0];
  const std::size_t row_elements = m.parts * m.width_out;
  for (std::uint32_t b = 0; b < ctx.batch_size; ++b) {
    const ImageRows& rows = ctx.image_rows[b];
    ASSERT((rows.end - rows.begin) * m.block == ctx.row_offsets[b + 1] - ctx.row_offsets[b] &&
               rows.end * row_elements * sizeof(float) <= state.size,
           "rows {} to {} from {} patches, state of {} bytes", rows.begin, rows.end,
           ctx.row_offsets[b + 1] - ctx.row_offsets[b], state.size);
    auto* kept = reinterpret_cast<float*>(state.ptr + ctx.active_slots[b] * state.size) + m.part * m.width_out;
    for (std::size_t row = rows.begin; row < rows.end; ++row, out += m.width_out)
      std::memcpy(kept + row * row_elements, out, m.width_out * sizeof(float));
  }
}

Status run_merger(ExecutionContext& ctx, const PreparedInsn& insn, const Merger& m) {
  ASSERT(insn.states.size() == 1 && ctx.image_rows.size() == ctx.batch_size, "{} states, {} spans, {} ranges of rows",
         insn.states.size(), ctx.batch_size, ctx.image_rows.size());
  const CpuStream& stream = stream_of(ctx);
  const std::size_t merged = ctx.total_rows / m.block;
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, m, merged);
  norm(stream, insn, m, scratch, merged);
  feed_forward(stream, insn, m, scratch, merged);
  keep(ctx, insn, m, scratch.out);
  return Status::ok();
}

std::uint64_t merger_workspace_bytes(const Merger& m, const StepLimits& limits) {
  Arena arena;
  Scratch(arena, m, m.block != 0 ? limits.rows_max / m.block : 0);
  return arena.used_bytes();
}

}  // namespace

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

}  // namespace llorch::engine::compute::cpu::adapters::vision::merger
