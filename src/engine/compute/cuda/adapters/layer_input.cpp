// What a layer takes from a table of its own: a row by id and a projection of the embedding, behind a gate.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::ExecutionContext;
using plan::LayerInputParams;
using plan::LayerInputSlot;
using plan::PreparedInsn;
using plan::Status;

namespace {

struct Scratch {
  Scratch(Arena& arena, const LayerInputParams& p, std::uint64_t rows)
      : input(arena.take<float>(rows * p.inner)),
        table(arena.take<float>(rows * p.inner)),
        gate(arena.take<float>(rows * p.inner)),
        wide(arena.take_narrowed(rows, p.width)),
        narrow(arena.take_narrowed(rows, p.inner)) {}
  float* input;  // [T, P] each
  float* table;
  float* gate;
  Arena::Narrowed wide, narrow;
};

void scale(const CudaStream& stream, float* y, std::uint64_t count, float by) {
  stream.launch<kernels::ScaleSoftcap>({blocks_of(count, kernels::ScaleSoftcap::kThreads)},
                                       {.y = y, .count = count, .scale = by});
}

// In `input`, what the gate lets through of it.
void gate_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LayerInputParams& p,
               const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const std::uint64_t count = std::uint64_t{ctx.total_rows} * p.inner;
  scale(stream, scratch.input, count, p.context_scale);
  stream.launch<kernels::RmsNorm>({1, ctx.total_rows}, {.x = scratch.input,
                                                        .weight = vector_of(insn.weight(LayerInputSlot::kNorm)),
                                                        .y = scratch.input,
                                                        .x_stride = p.inner,
                                                        .y_stride = p.inner,
                                                        .width = p.inner,
                                                        .eps = p.norm_eps});
  const CudaWeight& table = *weight_of(insn.weight(LayerInputSlot::kTable));
  const kernels::GatherArgs gather{.w = table.matrix,
                                   .row_ids = ctx.row_ids,
                                   .y = scratch.table,
                                   .scale = p.table_scale,
                                   .first_column = p.layer * p.inner,
                                   .columns = p.inner};
  visit_matrix_type(table.dtype, [&]<plan::DType kType>() {
    using Kernel = kernels::Gather<kType>;
    stream.launch<Kernel>({blocks_of(p.inner, Kernel::kThreads), ctx.total_rows}, gather);
  });
  stream.launch<kernels::ResidualAdd>(
      {blocks_of(count, kernels::ResidualAdd::kThreads)},
      {.a = scratch.table, .b = scratch.input, .y = scratch.input, .count = count, .sum_scale = p.sum_scale});
  stream.launch<kernels::Swiglu>({blocks_of(p.inner, kernels::Swiglu::kThreads), ctx.total_rows}, {.gate = scratch.gate,
                                                                                                   .up = scratch.input,
                                                                                                   .y = scratch.input,
                                                                                                   .x_stride = p.inner,
                                                                                                   .y_stride = p.inner,
                                                                                                   .width = p.inner,
                                                                                                   .act = p.act});
}

}  // namespace

Status LayerInputAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LayerInputParams>();
  const CudaStream& stream = stream_of(ctx);
  Arena arena(ctx);
  const Scratch scratch(arena, p, ctx.total_rows);
  using enum LayerInputSlot;
  const auto project_one = [&](const float* x, std::uint32_t width, const Arena::Narrowed& narrowed,
                               LayerInputSlot slot, float* y, std::uint32_t y_stride) {
    project(
        stream,
        {.x = x, .x_stride = width, .rows = ctx.total_rows, .narrowed = narrowed, .staged = {}, .y_stride = y_stride},
        std::array{Projection{weight_of(insn.weight(slot)), y}});
  };
  project_one(insn.input(0), p.width, scratch.wide, kGate, scratch.gate, p.inner);
  project_one(insn.input(1), p.width, scratch.wide, kContext, scratch.input, p.inner);
  gate_rows(ctx, insn, p, scratch);
  project_one(scratch.input, p.inner, scratch.narrow, kProj, insn.output(0), p.width);
  return stream.status();
}

std::uint64_t LayerInputAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                 const plan::Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<LayerInputParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters
