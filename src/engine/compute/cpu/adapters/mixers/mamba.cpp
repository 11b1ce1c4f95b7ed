// Mamba-2: projection, convolution, selective state space, gated norm, projection. Every row one after the other.
#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/mixers/sequences.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::mixers::mamba {

using plan::Backend;
using plan::ExecutionContext;
using plan::MambaMixerParams;
using plan::MambaSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

constexpr std::size_t kGrainProducts = 1u << 15;  // multiply-adds below which a region stays on the caller

struct Scratch {
  Scratch(Arena& arena, const MambaMixerParams& p, std::size_t rows)
      : mixed(arena.take<float>(rows * MambaColumns(p).count)),
        delta(arena.take<float>(rows * p.heads)),
        decay(arena.take<float>(rows * p.heads)),
        x(arena.take_quantized(rows, p.width)),
        inner(arena.take_quantized(rows, p.d_inner)) {}
  float* mixed;  // [T, columns]
  float* delta;  // [T, heads]
  float* decay;  // [T, heads]
  QuantizedRows x, inner;
};

const float* vector_of(const PreparedInsn& insn, MambaSlot which) {
  const CpuWeight* weight = weight_of(insn.weight(which));
  return weight != nullptr ? weight->vector : nullptr;
}

void begin_rows(const CpuStream& stream, const PreparedInsn& insn, const MambaMixerParams& p, const Scratch& scratch,
                Range rows) {
  const MambaColumns columns(p);
  if (const float* bias = vector_of(insn, MambaSlot::kInBias))
    stream.kernels.add_bias({.x = scratch.mixed, .x_stride = columns.count, .width = columns.count, .bias = bias},
                            rows);
  stream.kernels.ssm_step({.dt = scratch.mixed + columns.dt,
                           .dt_stride = columns.count,
                           .bias = vector_of(insn, MambaSlot::kDtBias),
                           .a = vector_of(insn, MambaSlot::kA),
                           .dt_min = p.dt_min,
                           .dt_max = p.dt_max,
                           .delta = scratch.delta,
                           .decay = scratch.decay,
                           .heads = p.heads},
                          rows);
}

void convolve(const ExecutionContext& ctx, const PreparedInsn& insn, const MambaMixerParams& p,
              const Scratch& scratch) {
  const MambaColumns columns(p);
  const plan::MambaStateLayout layout = mamba_state_layout(p);
  float* xbc = scratch.mixed + columns.x;
  run_causal_conv(stream_of(ctx),
                  {.spans = spans_of(ctx),
                   .state = state_part(insn, {.offset_bytes = p.state_offset_bytes, .bytes = layout.conv_bytes()}),
                   .x = xbc,
                   .x_stride = columns.count,
                   .y = xbc,
                   .y_stride = columns.count,
                   .channels = layout.conv_rows,
                   .taps = p.d_conv,
                   .weight = vector_of(insn, MambaSlot::kConvWeight),
                   .bias = vector_of(insn, MambaSlot::kConvBias),
                   .silu = true},
                  ctx.total_rows);
}

void scan(const ExecutionContext& ctx, const PreparedInsn& insn, const MambaMixerParams& p, const Scratch& scratch) {
  const CpuStream& stream = stream_of(ctx);
  const MambaColumns columns(p);
  const plan::MambaStateLayout layout = mamba_state_layout(p);
  float* x = scratch.mixed + columns.x;
  const SsmScanArgs args{.spans = spans_of(ctx),
                         .state = state_part(insn, {.offset_bytes = p.state_offset_bytes + layout.ssm_offset_bytes(),
                                                    .bytes = layout.ssm_bytes()}),
                         .x = x,
                         .b = scratch.mixed + columns.b,
                         .c = scratch.mixed + columns.c,
                         .delta = scratch.delta,
                         .decay = scratch.decay,
                         .skip = vector_of(insn, MambaSlot::kDSkip),
                         .x_stride = columns.count,
                         .y = x,
                         .y_stride = columns.count,
                         .heads = p.heads,
                         .head_dim = p.d_head,
                         .state_dim = p.d_state,
                         .groups = p.groups};
  stream.pool.run(std::size_t{ctx.batch_size} * p.heads,
                  kGrainProducts / (std::size_t{p.d_head} * p.d_state * ctx.total_rows) + 1,
                  [&](Range units, std::size_t) { stream.kernels.ssm_scan(args, units); });
}

// y = norm of y * silu(z), group by group.
void gate_rows(const CpuStream& stream, const PreparedInsn& insn, const MambaMixerParams& p, const Scratch& scratch,
               Range rows) {
  const MambaColumns columns(p);
  float* y = scratch.mixed + columns.x;
  stream.kernels.swiglu({.gate = scratch.mixed,
                         .up = y,
                         .x_stride = columns.count,
                         .y = y,
                         .y_stride = columns.count,
                         .width = p.d_inner},
                        rows);
  const std::size_t width = p.d_inner / p.norm_groups;
  for (std::size_t group = 0; group < p.norm_groups; ++group)
    stream.kernels.rms_norm({.x = y + group * width,
                             .weight = vector_of(insn, MambaSlot::kNorm) + group * width,
                             .y = y + group * width,
                             .width = width,
                             .x_stride = columns.count,
                             .y_stride = columns.count,
                             .eps = p.norm_eps},
                            rows);
}

}  // namespace

Status MambaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<MambaMixerParams>();
  const CpuStream& stream = stream_of(ctx);
  const MambaColumns columns(p);
  const std::size_t rows = ctx.total_rows, grain = kGrainProducts / columns.count + 1;
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows);
  project(stream,
          {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = columns.count},
          std::array{Projection{weight_of(insn.weight(MambaSlot::kInProj)), scratch.mixed}});
  stream.pool.run(rows, grain, [&](Range range, std::size_t) { begin_rows(stream, insn, p, scratch, range); });
  convolve(ctx, insn, p, scratch);
  scan(ctx, insn, p, scratch);
  stream.pool.run(rows, grain, [&](Range range, std::size_t) { gate_rows(stream, insn, p, scratch, range); });
  float* y = insn.output(0);
  project(stream,
          {.x = scratch.mixed + columns.x,
           .x_stride = columns.count,
           .rows = rows,
           .quantized = scratch.inner,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(MambaSlot::kOutProj)), y}});
  if (const float* bias = vector_of(insn, MambaSlot::kOutBias))
    stream.kernels.add_bias({.x = y, .x_stride = p.width, .width = p.width, .bias = bias}, {0, rows});
  return Status::ok();
}

std::uint64_t MambaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                            const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<MambaMixerParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers::mamba
