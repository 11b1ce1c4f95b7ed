// Mixers that carry a state along a sequence: Mamba-2 and the gated short convolution.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::Backend;
using plan::ExecutionContext;
using plan::GatedDeltaParams;
using plan::GatedDeltaSlot;
using plan::MambaMixerParams;
using plan::MambaSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::ShortconvParams;
using plan::ShortconvSlot;
using plan::Status;
using plan::StepLimits;

namespace {

// The part [offset, offset + bytes) of every slot's fixed-size state, and the step's rows.
kernels::Sequences sequences_of(const ExecutionContext& ctx, const PreparedInsn& insn, std::uint64_t offset_bytes,
                                std::uint64_t bytes) {
  ASSERT(insn.states.size() == 1 && offset_bytes + bytes <= insn.states[0].size, "{} states, {} + {} bytes",
         insn.states.size(), offset_bytes, bytes);
  return {.sequence_of_row = ctx.slot_of_row,
          .rows = ctx.total_rows,
          .state = insn.states[0].ptr + offset_bytes,
          .state_stride = insn.states[0].size};
}

void convolve(const CudaStream& stream, const kernels::CausalConvArgs& args) {
  stream.launch<kernels::CausalConv>({blocks_of(args.channels, kernels::CausalConv::kThreads), args.sequences.rows},
                                     args);
}

struct MambaScratch {
  MambaScratch(Arena& arena, const MambaMixerParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        mixed(arena.take<float>(rows * MambaColumns(p).count)),
        x(arena.take_narrowed(rows, p.width)),
        inner(arena.take_narrowed(rows, p.d_inner)) {}
  Arena::Staged staged;
  float* mixed;  // [T, columns]
  Arena::Narrowed x, inner;
};

// Convolution and selective state space over the projected rows, in place.
void mix(const ExecutionContext& ctx, const PreparedInsn& insn, const MambaMixerParams& p, float* mixed) {
  const CudaStream& stream = stream_of(ctx);
  const MambaColumns columns(p);
  const plan::MambaStateLayout layout = mamba_state_layout(p);
  float* x = mixed + columns.x;
  convolve(stream, {.sequences = sequences_of(ctx, insn, p.state_offset_bytes, layout.conv_bytes()),
                    .x = x,
                    .x_stride = columns.count,
                    .y = x,
                    .y_stride = columns.count,
                    .channels = layout.conv_rows,
                    .taps = p.d_conv,
                    .weight = vector_of(insn.weight(MambaSlot::kConvWeight)),
                    .bias = vector_of(insn.weight(MambaSlot::kConvBias)),
                    .silu = true});
  stream.launch<kernels::SsmScan>(
      {p.heads, ctx.total_rows},
      {.sequences = sequences_of(ctx, insn, p.state_offset_bytes + layout.ssm_offset_bytes(), layout.ssm_bytes()),
       .x = x,
       .b = mixed + columns.b,
       .c = mixed + columns.c,
       .dt = mixed + columns.dt,
       .dt_bias = vector_of(insn.weight(MambaSlot::kDtBias)),
       .a = vector_of(insn.weight(MambaSlot::kA)),
       .skip = vector_of(insn.weight(MambaSlot::kDSkip)),
       .stride = columns.count,
       .y = x,
       .dt_min = p.dt_min,
       .dt_max = p.dt_max,
       .heads = p.heads,
       .head_dim = p.d_head,
       .state_dim = p.d_state,
       .groups = p.groups});
}

// y = norm of y * silu(z), group by group. A row of one group is staged as `inner` says.
void gate(const ExecutionContext& ctx, const PreparedInsn& insn, const MambaMixerParams& p, float* mixed,
          const Arena::Staged& inner) {
  const CudaStream& stream = stream_of(ctx);
  const MambaColumns columns(p);
  float* y = mixed + columns.x;
  stream.launch<kernels::Swiglu>(
      {blocks_of(p.d_inner, kernels::Swiglu::kThreads), ctx.total_rows},
      {.gate = mixed, .up = y, .y = y, .x_stride = columns.count, .y_stride = columns.count, .width = p.d_inner});
  const std::uint32_t width = p.d_inner / p.norm_groups;
  stream.launch<kernels::RmsNorm>({p.norm_groups, ctx.total_rows}, {.x = y,
                                                                    .weight = vector_of(insn.weight(MambaSlot::kNorm)),
                                                                    .y = y,
                                                                    .x_stride = columns.count,
                                                                    .y_stride = columns.count,
                                                                    .inner_stride = width,
                                                                    .weight_stride = width,
                                                                    .width = width,
                                                                    .eps = p.norm_eps,
                                                                    .narrowed = wanted(inner)});
}

struct DeltaScratch {
  DeltaScratch(Arena& arena, const GatedDeltaParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        mixed(arena.take<float>(rows * DeltaColumns(p).count)),
        x(arena.take_narrowed(rows, p.width)),
        low(arena.take_narrowed(rows, p.rank)),
        inner(arena.take_narrowed(rows, p.value_heads * p.d_v)) {}
  Arena::Staged staged;
  float* mixed;  // [T, columns]
  Arena::Narrowed x, low, inner;
};

void project_delta(const ExecutionContext& ctx, const PreparedInsn& insn, const GatedDeltaParams& p,
                   const DeltaScratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const DeltaColumns columns(p);
  const bool in_two = p.rank != 0;
  using enum GatedDeltaSlot;
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = columns.count},
          std::array{
              Projection{weight_of(insn.weight(kQkv)), scratch.mixed},
              Projection{weight_of(insn.weight(in_two ? kZA : kZ)), scratch.mixed + (in_two ? columns.z_a : columns.z)},
              Projection{weight_of(insn.weight(kBeta)), scratch.mixed + columns.beta},
              Projection{weight_of(insn.weight(in_two ? kDecayA : kDecay)),
                         scratch.mixed + (in_two ? columns.decay_a : columns.decay)}});
  if (!in_two) return;
  const auto second = [&](std::uint64_t from, GatedDeltaSlot slot, std::uint64_t to) {
    project(stream,
            {.x = scratch.mixed + from,
             .x_stride = columns.count,
             .rows = ctx.total_rows,
             .narrowed = scratch.low,
             .staged = {},
             .y_stride = columns.count},
            std::array{Projection{weight_of(insn.weight(slot)), scratch.mixed + to}});
  };
  second(columns.z_a, kZ, columns.z);
  second(columns.decay_a, kDecay, columns.decay);
}

// Convolution and the delta rule over the projected rows, in place; what comes of it stands where v stood.
void run_rule(const ExecutionContext& ctx, const PreparedInsn& insn, const GatedDeltaParams& p, float* mixed) {
  const CudaStream& stream = stream_of(ctx);
  const DeltaColumns columns(p);
  const plan::GatedDeltaStateLayout layout = delta_state_layout(p);
  convolve(stream, {.sequences = sequences_of(ctx, insn, p.state_offset_bytes, layout.conv_bytes()),
                    .x = mixed,
                    .x_stride = columns.count,
                    .y = mixed,
                    .y_stride = columns.count,
                    .channels = layout.conv_rows,
                    .taps = p.d_conv,
                    .weight = vector_of(insn.weight(GatedDeltaSlot::kConvWeight)),
                    .silu = true});
  stream.launch<kernels::DeltaScan>(
      {p.value_heads, ctx.total_rows},
      {.sequences = sequences_of(ctx, insn, p.state_offset_bytes + layout.conv_bytes(), layout.delta_bytes()),
       .q = mixed,
       .k = mixed + columns.k,
       .v = mixed + columns.v,
       .beta = mixed + columns.beta,
       .dt = mixed + columns.decay,
       .dt_bias = vector_of(insn.weight(GatedDeltaSlot::kDtBias)),
       .a = vector_of(insn.weight(GatedDeltaSlot::kA)),
       .stride = columns.count,
       .heads = p.value_heads,
       .key_heads = p.key_heads,
       .key_dim = p.d_k,
       .value_dim = p.d_v,
       .unit_eps = p.unit_eps,
       .keys_take_turns = p.keys_take_turns != 0,
       .channel_decay = p.channel_decay != 0});
  float* y = mixed + columns.v;
  stream.launch<kernels::RmsNorm>({p.value_heads, ctx.total_rows},
                                  {.x = y,
                                   .weight = vector_of(insn.weight(GatedDeltaSlot::kNorm)),
                                   .y = y,
                                   .x_stride = columns.count,
                                   .y_stride = columns.count,
                                   .inner_stride = p.d_v,
                                   .weight_stride = 0,
                                   .width = p.d_v,
                                   .eps = p.norm_eps});
  const std::uint32_t width = p.value_heads * p.d_v;
  if (p.sigmoid_gate != 0) {
    stream.launch<kernels::Gate>(
        {blocks_of(width, kernels::Gate::kThreads), ctx.total_rows},
        {.y = y, .gate = mixed + columns.z, .y_stride = columns.count, .gate_stride = columns.count, .width = width});
    return;
  }
  stream.launch<kernels::Swiglu>({blocks_of(width, kernels::Swiglu::kThreads), ctx.total_rows},
                                 {.gate = mixed + columns.z,
                                  .up = y,
                                  .y = y,
                                  .x_stride = columns.count,
                                  .y_stride = columns.count,
                                  .width = width});
}

struct ShortconvScratch {
  ShortconvScratch(Arena& arena, const ShortconvParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        bcx(arena.take<float>(rows * 3 * p.width)),
        x(arena.take_narrowed(rows, p.width)),
        convolved(arena.take_narrowed(rows, p.width)) {}
  Arena::Staged staged;
  float* bcx;  // [T, b | c | x]
  Arena::Narrowed x, convolved;
};

}  // namespace

Status MambaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<MambaMixerParams>();
  const CudaStream& stream = stream_of(ctx);
  const MambaColumns columns(p);
  Arena arena(ctx);
  const MambaScratch scratch(arena, p, insn.input(0), ctx.total_rows);
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = columns.count},
          std::array{Projection{weight_of(insn.weight(MambaSlot::kInProj)), scratch.mixed,
                                vector_of(insn.weight(MambaSlot::kInBias))}});
  mix(ctx, insn, p, scratch.mixed);
  const CudaWeight* out = weight_of(insn.weight(MambaSlot::kOutProj));
  const Arena::Staged inner = p.norm_groups == 1 ? staged_in(scratch.inner, form_of(out->dtype)) : Arena::Staged{};
  gate(ctx, insn, p, scratch.mixed, inner);
  project(stream,
          {.x = scratch.mixed + columns.x,
           .x_stride = columns.count,
           .rows = ctx.total_rows,
           .narrowed = scratch.inner,
           .staged = inner,
           .y_stride = p.width},
          std::array{Projection{out, insn.output(0), vector_of(insn.weight(MambaSlot::kOutBias))}});
  return stream.status();
}

std::uint64_t MambaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                            const Backend&) noexcept {
  Arena arena;
  MambaScratch(arena, plan::param_as<MambaMixerParams>(params), nullptr, limits.rows_max);
  return arena.used_bytes();
}

Status GatedDeltaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<GatedDeltaParams>();
  const CudaStream& stream = stream_of(ctx);
  const DeltaColumns columns(p);
  Arena arena(ctx);
  const DeltaScratch scratch(arena, p, insn.input(0), ctx.total_rows);
  project_delta(ctx, insn, p, scratch);
  run_rule(ctx, insn, p, scratch.mixed);
  project(stream,
          {.x = scratch.mixed + columns.v,
           .x_stride = columns.count,
           .rows = ctx.total_rows,
           .narrowed = scratch.inner,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(GatedDeltaSlot::kOutProj)), insn.output(0)}});
  return stream.status();
}

std::uint64_t GatedDeltaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  DeltaScratch(arena, plan::param_as<GatedDeltaParams>(params), nullptr, limits.rows_max);
  return arena.used_bytes();
}

Status ShortconvAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<ShortconvParams>();
  const CudaStream& stream = stream_of(ctx);
  const std::uint64_t stride = 3 * std::uint64_t{p.width};
  Arena arena(ctx);
  const ShortconvScratch scratch(arena, p, insn.input(0), ctx.total_rows);
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = stride},
          std::array{Projection{weight_of(insn.weight(ShortconvSlot::kInProj)), scratch.bcx,
                                vector_of(insn.weight(ShortconvSlot::kInBias))}});
  float* x = scratch.bcx + 2 * std::uint64_t{p.width};
  convolve(stream,
           {.sequences = sequences_of(ctx, insn, p.state_offset_bytes, plan::shortconv_state_bytes(p.width, p.l_cache)),
            .x = x,
            .gate_in = scratch.bcx,
            .gate_out = scratch.bcx + p.width,
            .x_stride = stride,
            .y = x,
            .y_stride = stride,
            .channels = p.width,
            .taps = p.l_cache,
            .weight = vector_of(insn.weight(ShortconvSlot::kConvWeight)),
            .bias = vector_of(insn.weight(ShortconvSlot::kConvBias))});
  project(stream,
          {.x = x, .x_stride = stride, .rows = ctx.total_rows, .narrowed = scratch.convolved, .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(ShortconvSlot::kOutProj)), insn.output(0),
                                vector_of(insn.weight(ShortconvSlot::kOutBias))}});
  return stream.status();
}

std::uint64_t ShortconvAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                const Backend&) noexcept {
  Arena arena;
  ShortconvScratch(arena, plan::param_as<ShortconvParams>(params), nullptr, limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters
