// Hyper-connections: what a branch reads of the residual streams, and where what it gives goes.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/compressed/compressed.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::compressed::hyper_connections {

using plan::Backend;
using plan::ExecutionContext;
using plan::HyperAddParams;
using plan::HyperCollapseParams;
using plan::HyperSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Elements of all streams below which a region stays on the caller.
constexpr std::size_t kGrainElements = 1u << 13;

template <class Params>
struct Scratch {
  Scratch(Arena& arena, const Params& p, std::size_t rows)
      : all(std::size_t{p.streams} * p.width),
        normed(arena.take<float>(rows * all)),
        ones(arena.take<float>(all)),
        mixes(arena.take<float>(rows * p.mix_rows)),
        quantized(arena.take_quantized(rows, all)) {}
  std::size_t all;  // elements of the streams of a row
  float* normed;    // [T, all]
  float* ones;      // [all]
  float* mixes;     // [T, mix_rows]
  QuantizedRows quantized;
};

// What the kernels share: the mixes of all rows, and where streams lie.
template <class Params>
HyperArgs mix_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const Params& p,
                   const Scratch<Params>& scratch) {
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows, x_stride = p.is_spread != 0 ? p.width : scratch.all;
  const float* x = insn.input(0);
  std::fill_n(scratch.ones, scratch.all, 1.0f);
  stream.pool.run(rows, kGrainElements / scratch.all + 1, [&](Range range, std::size_t) {
    for (std::size_t row = range.begin; row < range.end && p.is_spread != 0; ++row)
      for (std::size_t s = 0; s < p.streams; ++s)
        std::copy_n(x + row * p.width, p.width, scratch.normed + row * scratch.all + s * p.width);
    stream.kernels.rms_norm({.x = p.is_spread != 0 ? scratch.normed : x,
                             .weight = scratch.ones,
                             .y = scratch.normed,
                             .width = scratch.all,
                             .x_stride = scratch.all,
                             .y_stride = scratch.all,
                             .eps = p.norm_eps},
                            range);
  });
  project(stream,
          {.x = scratch.normed,
           .x_stride = scratch.all,
           .rows = rows,
           .quantized = scratch.quantized,
           .y_stride = p.mix_rows},
          std::array{Projection{weight_of(insn.weight(HyperSlot::kFn)), scratch.mixes}});
  return {.mixes = scratch.mixes,
          .mix_rows = p.mix_rows,
          .base = vector_of(insn.weight(HyperSlot::kBase)),
          .scale = vector_of(insn.weight(HyperSlot::kScale)),
          .streams = p.streams,
          .floor_eps = p.floor_eps,
          .x = x,
          .x_stride = x_stride,
          .stream_stride = p.is_spread != 0 ? 0 : p.width,
          .y = insn.output(0),
          .width = p.width};
}

template <class Params>
std::uint64_t scratch_bytes(const ParamBlock& params, const StepLimits& limits) {
  Arena arena;
  Scratch<Params>(arena, plan::param_as<Params>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace

Status HyperCollapseAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<HyperCollapseParams>();
  const CpuStream& stream = stream_of(ctx);
  Arena arena(ctx.workspace);
  const Scratch<HyperCollapseParams> scratch(arena, p, ctx.total_rows);
  const HyperArgs args = mix_rows(ctx, insn, p, scratch);
  stream.pool.run(ctx.total_rows, kGrainElements / scratch.all + 1,
                  [&](Range rows, std::size_t) { stream.kernels.hyper_collapse(args, rows); });
  return Status::ok();
}

Status HyperAddAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<HyperAddParams>();
  const CpuStream& stream = stream_of(ctx);
  Arena arena(ctx.workspace);
  const Scratch<HyperAddParams> scratch(arena, p, ctx.total_rows);
  HyperArgs args = mix_rows(ctx, insn, p, scratch);
  args.branch = insn.input(1);
  args.iterations = p.iterations;
  stream.pool.run(ctx.total_rows, kGrainElements / scratch.all + 1,
                  [&](Range rows, std::size_t) { stream.kernels.hyper_add(args, rows); });
  return Status::ok();
}

std::uint64_t HyperCollapseAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                    const Backend&) noexcept {
  return scratch_bytes<HyperCollapseParams>(params, limits);
}
std::uint64_t HyperAddAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                               const Backend&) noexcept {
  return scratch_bytes<HyperAddParams>(params, limits);
}

}  // namespace llorch::engine::compute::cpu::adapters::compressed::hyper_connections
