// What a layer that predicts a further token reads: an embedding and a hidden state, each normed, side by side through a matrix.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::ExecutionContext;
using plan::PredictorInputParams;
using plan::PredictorInputSlot;
using plan::PreparedInsn;
using plan::Status;

namespace {

struct JoinedRows {
  JoinedRows(Arena& arena, const PredictorInputParams& p, std::uint64_t rows)
      : joined(arena.take<float>(rows * 2 * p.width)), narrowed(arena.take_narrowed(rows, 2 * p.width)) {}
  float* joined;  // [T, 2 D]
  Arena::Narrowed narrowed;
};

}  // namespace

Status PredictorInputAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<PredictorInputParams>();
  ASSERT(ctx.hidden_rows != nullptr, "no hidden states for a plan that predicts");
  const CudaStream& stream = stream_of(ctx);
  const std::uint32_t joined_width = 2 * p.width;
  Arena arena(ctx);
  const JoinedRows scratch(arena, p, ctx.total_rows);
  const auto norm = [&](const float* x, PredictorInputSlot slot, float* y) {
    stream.launch<kernels::RmsNorm>({1, ctx.total_rows}, {.x = x,
                                                          .weight = vector_of(insn.weight(slot)),
                                                          .y = y,
                                                          .x_stride = p.width,
                                                          .y_stride = joined_width,
                                                          .width = p.width,
                                                          .eps = p.norm_eps,
                                                          .weight_offset = p.weight_offset});
  };
  norm(insn.input(0), PredictorInputSlot::kEmbeddingNorm, scratch.joined);
  norm(ctx.hidden_rows, PredictorInputSlot::kHiddenNorm, scratch.joined + p.width);
  project(stream,
          {.x = scratch.joined,
           .x_stride = joined_width,
           .rows = ctx.total_rows,
           .narrowed = scratch.narrowed,
           .staged = {},
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(PredictorInputSlot::kWeight)), insn.output(0)}});
  return stream.status();
}

std::uint64_t PredictorInputAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                     const plan::Backend&) noexcept {
  Arena arena;
  JoinedRows(arena, plan::param_as<PredictorInputParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters
