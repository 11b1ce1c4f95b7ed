// What a layer takes from a table of its own: a row by id and a projection of the embedding, behind a gate.
#include <array>

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::layer_input {

using plan::Backend;
using plan::ExecutionContext;
using plan::LayerInputParams;
using plan::LayerInputSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

constexpr std::size_t kGrainElements = 1u << 13;  // an exponential each

struct Scratch {
  Scratch(Arena& arena, const LayerInputParams& p, std::size_t rows)
      : input(arena.take<float>(rows * p.inner)),
        table(arena.take<float>(rows * p.inner)),
        gate(arena.take<float>(rows * p.inner)),
        wide(arena.take_quantized(rows, p.width)),
        narrow(arena.take_quantized(rows, p.inner)) {}
  float* input;  // [T, P] each
  float* table;
  float* gate;
  QuantizedRows wide, narrow;
};

// The input of every row, and what its gate lets through in its place.
void gate_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LayerInputParams& p, const Scratch& scratch,
               Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const Range elements{rows.begin * p.inner, rows.end * p.inner};
  stream.kernels.scale_softcap({.y = scratch.input, .scale = p.context_scale}, elements);
  stream.kernels.rms_norm({.x = scratch.input,
                           .weight = vector_of(insn.weight(LayerInputSlot::kNorm)),
                           .y = scratch.input,
                           .width = p.inner,
                           .x_stride = p.inner,
                           .y_stride = p.inner,
                           .eps = p.norm_eps},
                          rows);
  stream.kernels.gather({.w = weight_of(insn.weight(LayerInputSlot::kTable))->matrix,
                         .row_ids = ctx.row_ids,
                         .y = scratch.table,
                         .scale = p.table_scale,
                         .first_col = std::size_t{p.layer} * p.inner,
                         .cols = p.inner},
                        rows);
  stream.kernels.residual_add({.a = scratch.table, .b = scratch.input, .y = scratch.input, .scale = 1}, elements);
  stream.kernels.scale_softcap({.y = scratch.input, .scale = p.sum_scale}, elements);
  stream.kernels.swiglu({.gate = scratch.gate,
                         .up = scratch.input,
                         .x_stride = p.inner,
                         .y = scratch.input,
                         .y_stride = p.inner,
                         .width = p.inner,
                         .act = kernel_activation(p.act)},
                        rows);
}

}  // namespace

Status LayerInputAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LayerInputParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  for (std::size_t row = 0; row < rows; ++row) ASSERT(ctx.row_ids[row] < p.rows, "a row of {} is out of range", p.rows);
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows);
  using enum LayerInputSlot;
  const auto project_one = [&](const float* x, std::size_t width, QuantizedRows quantized, LayerInputSlot slot,
                               float* y, std::size_t y_stride) {
    project(stream, {.x = x, .x_stride = width, .rows = rows, .quantized = quantized, .y_stride = y_stride},
            std::array{Projection{weight_of(insn.weight(slot)), y}});
  };
  project_one(insn.input(0), p.width, scratch.wide, kGate, scratch.gate, p.inner);
  project_one(insn.input(1), p.width, scratch.wide, kContext, scratch.input, p.inner);
  stream.pool.run(rows, kGrainElements / p.inner + 1,
                  [&](Range range, std::size_t) { gate_rows(ctx, insn, p, scratch, range); });
  project_one(scratch.input, p.inner, scratch.narrow, kProj, insn.output(0), p.width);
  return Status::ok();
}

std::uint64_t LayerInputAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<LayerInputParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::layer_input
