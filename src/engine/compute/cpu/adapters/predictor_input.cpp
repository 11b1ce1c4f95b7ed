// What a layer that predicts a further token reads: an embedding and a hidden state, each normed, side by side through a matrix.
#include <array>

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::predictor_input {

using plan::ExecutionContext;
using plan::PredictorInputParams;
using plan::PredictorInputSlot;
using plan::PreparedInsn;
using plan::Status;

namespace {

constexpr std::size_t kGrainElements = 1u << 14;

struct JoinedRows {
  JoinedRows(Arena& arena, const PredictorInputParams& p, std::size_t rows)
      : joined(arena.take<float>(rows * 2 * p.width)), quantized(arena.take_quantized(rows, 2 * p.width)) {}
  float* joined;  // [T, 2 D]
  QuantizedRows quantized;
};

}  // namespace

Status PredictorInputAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<PredictorInputParams>();
  ASSERT(ctx.hidden_rows != nullptr, "no hidden states for a plan that predicts");
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows, joined_width = 2 * std::size_t{p.width};
  Arena arena(ctx.workspace);
  const JoinedRows scratch(arena, p, rows);
  const auto norm = [&](const float* x, PredictorInputSlot slot, float* y, Range range) {
    stream.kernels.rms_norm({.x = x,
                             .weight = vector_of(insn.weight(slot)),
                             .y = y,
                             .width = p.width,
                             .x_stride = p.width,
                             .y_stride = joined_width,
                             .eps = p.norm_eps,
                             .weight_offset = p.weight_offset},
                            range);
  };
  stream.pool.run(rows, kGrainElements / p.width + 1, [&](Range range, std::size_t) {
    norm(insn.input(0), PredictorInputSlot::kEmbeddingNorm, scratch.joined, range);
    norm(ctx.hidden_rows, PredictorInputSlot::kHiddenNorm, scratch.joined + p.width, range);
  });
  project(stream,
          {.x = scratch.joined,
           .x_stride = joined_width,
           .rows = rows,
           .quantized = scratch.quantized,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(PredictorInputSlot::kWeight)), insn.output(0)}});
  return Status::ok();
}

std::uint64_t PredictorInputAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                     const plan::Backend&) noexcept {
  Arena arena;
  JoinedRows(arena, plan::param_as<PredictorInputParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::predictor_input
