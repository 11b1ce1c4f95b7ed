// Hyper-connections: what a branch reads of the residual streams, and where what it gives goes.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters::hyper_connections {

using plan::ExecutionContext;
using plan::HyperAddParams;
using plan::HyperCollapseParams;
using plan::HyperSlot;
using plan::PreparedInsn;
using plan::Status;

namespace {

template <class Params>
struct Scratch {
  Scratch(Arena& arena, const Params& p, std::uint64_t rows)
      : all(p.streams * p.width),
        normed(arena.take<float>(rows * all)),
        mixes(arena.take<float>(rows * p.mix_rows)),
        narrowed(arena.take_narrowed(rows, all)) {}
  std::uint32_t all;  // elements of the streams of a row
  float* normed;      // [T, all]
  float* mixes;       // [T, mix_rows]
  Arena::Narrowed narrowed;
};

template <class Params>
kernels::HyperArgs mix_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const Params& p,
                            const Scratch<Params>& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const bool is_spread = p.is_spread != 0;
  const std::uint32_t stored = is_spread ? p.width : scratch.all;
  stream.launch<kernels::SpreadRows>(
      {blocks_of(stored, kernels::SpreadRows::kThreads), ctx.total_rows},
      {.x = insn.input(0), .y = scratch.normed, .width = stored, .copies = is_spread ? p.streams : 1});
  stream.launch<kernels::FinishTails>(
      {1, ctx.total_rows},
      {.x = scratch.normed, .stride = scratch.all, .dim = scratch.all, .norms = true, .eps = p.norm_eps});
  project(stream,
          {.x = scratch.normed,
           .x_stride = scratch.all,
           .rows = ctx.total_rows,
           .narrowed = scratch.narrowed,
           .staged = {},
           .y_stride = p.mix_rows},
          std::array{Projection{weight_of(insn.weight(HyperSlot::kFn)), scratch.mixes}});
  return {.mixes = scratch.mixes,
          .base = vector_of(insn.weight(HyperSlot::kBase)),
          .scale = vector_of(insn.weight(HyperSlot::kScale)),
          .x = insn.input(0),
          .y = insn.output(0),
          .x_stride = is_spread ? p.width : scratch.all,
          .stream_stride = is_spread ? 0 : p.width,
          .width = p.width,
          .streams = p.streams,
          .mix_rows = p.mix_rows,
          .floor_eps = p.floor_eps};
}

template <class Params>
std::uint64_t scratch_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits) {
  Arena arena;
  Scratch<Params>(arena, plan::param_as<Params>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace

Status HyperCollapseAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<HyperCollapseParams>();
  Arena arena(ctx);
  const Scratch<HyperCollapseParams> scratch(arena, p, ctx.total_rows);
  stream_of(ctx).launch<kernels::HyperCollapse>({ctx.total_rows}, mix_rows(ctx, insn, p, scratch));
  return stream_of(ctx).status();
}

Status HyperAddAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<HyperAddParams>();
  Arena arena(ctx);
  const Scratch<HyperAddParams> scratch(arena, p, ctx.total_rows);
  kernels::HyperArgs args = mix_rows(ctx, insn, p, scratch);
  args.branch = insn.input(1);
  args.iterations = p.iterations;
  stream_of(ctx).launch<kernels::HyperAdd>({ctx.total_rows}, args);
  return stream_of(ctx).status();
}

std::uint64_t HyperCollapseAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                    const plan::Backend&) noexcept {
  return scratch_bytes<HyperCollapseParams>(params, limits);
}
std::uint64_t HyperAddAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                               const plan::Backend&) noexcept {
  return scratch_bytes<HyperAddParams>(params, limits);
}

}  // namespace llorch::engine::compute::cuda::adapters::hyper_connections
