// Linear attention by the gated delta rule: projections, convolution, the rule, gated norm, projection. Every row one after the
// other.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/mixers/sequences.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::mixers::gated_delta {

using plan::Backend;
using plan::ExecutionContext;
using plan::GatedDeltaParams;
using plan::GatedDeltaSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

constexpr std::size_t kGrainProducts = 1u << 15;  // multiply-adds below which a region stays on the caller

struct Scratch {
  Scratch(Arena& arena, const GatedDeltaParams& p, std::size_t rows)
      : mixed(arena.take<float>(rows * DeltaColumns(p).count)),
        beta(arena.take<float>(rows * p.value_heads)),
        delta(arena.take<float>(rows * DeltaColumns(p).decays)),
        decay(arena.take<float>(rows * DeltaColumns(p).decays)),
        rate(arena.take<float>(DeltaColumns(p).decays)),
        q_length(arena.take<float>(p.d_k)),
        k_length(arena.take<float>(p.d_k)),
        x(arena.take_quantized(rows, p.width)),
        low(arena.take_quantized(rows, p.rank)),
        inner(arena.take_quantized(rows, std::size_t{p.value_heads} * p.d_v)) {}
  float* mixed;     // [T, columns]
  float* beta;      // [T, value heads]
  float* delta;     // [T, decays]
  float* decay;     // [T, decays]
  float* rate;      // [decays], `a` of each
  float* q_length;  // [d_k], what the norm of a query head is multiplied with
  float* k_length;  // [d_k]
  QuantizedRows x, low, inner;
};

const float* vector(const PreparedInsn& insn, GatedDeltaSlot which) { return vector_of(insn.weight(which)); }

void project_rows(const CpuStream& stream, const PreparedInsn& insn, const GatedDeltaParams& p, const Scratch& scratch,
                  std::size_t rows) {
  const DeltaColumns columns(p);
  using enum GatedDeltaSlot;
  project(stream,
          {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = columns.count},
          std::array{Projection{weight_of(insn.weight(kQkv)), scratch.mixed},
                     Projection{weight_of(insn.weight(p.rank != 0 ? kZA : kZ)),
                                scratch.mixed + (p.rank != 0 ? columns.z_a : columns.z)},
                     Projection{weight_of(insn.weight(kBeta)), scratch.mixed + columns.beta},
                     Projection{weight_of(insn.weight(p.rank != 0 ? kDecayA : kDecay)),
                                scratch.mixed + (p.rank != 0 ? columns.decay_a : columns.decay)}});
  if (p.rank == 0) return;
  const auto second = [&](std::uint64_t from, GatedDeltaSlot slot, std::uint64_t to) {
    project(stream,
            {.x = scratch.mixed + from,
             .x_stride = columns.count,
             .rows = rows,
             .quantized = scratch.low,
             .y_stride = columns.count},
            std::array{Projection{weight_of(insn.weight(slot)), scratch.mixed + to}});
  };
  second(columns.z_a, kZ, columns.z);
  second(columns.decay_a, kDecay, columns.decay);
}

void convolve(const ExecutionContext& ctx, const PreparedInsn& insn, const GatedDeltaParams& p,
              const Scratch& scratch) {
  const DeltaColumns columns(p);
  const plan::GatedDeltaStateLayout layout = delta_state_layout(p);
  run_causal_conv(stream_of(ctx),
                  {.spans = spans_of(ctx),
                   .state = state_part(insn, {.offset_bytes = p.state_offset_bytes, .bytes = layout.conv_bytes()}),
                   .x = scratch.mixed,
                   .x_stride = columns.count,
                   .y = scratch.mixed,
                   .y_stride = columns.count,
                   .channels = layout.conv_rows,
                   .taps = p.d_conv,
                   .weight = vector(insn, GatedDeltaSlot::kConvWeight),
                   .silu = true},
                  ctx.total_rows);
}

// Unit vectors: the mean of squares is their sum by d_k, which epsilon and weight make up for.
void unit_heads(const CpuStream& stream, const GatedDeltaParams& p, float* x, const float* length) {
  stream.kernels.rms_norm({.x = x,
                           .weight = length,
                           .y = x,
                           .width = p.d_k,
                           .x_stride = p.d_k,
                           .y_stride = p.d_k,
                           .eps = p.unit_eps / static_cast<float>(p.d_k)},
                          {0, p.key_heads});
}

// Everything between convolution and the rule that concerns a row alone.
void begin_rows(const CpuStream& stream, const PreparedInsn& insn, const GatedDeltaParams& p, const Scratch& scratch,
                Range rows) {
  const DeltaColumns columns(p);
  stream.kernels.ssm_step({.dt = scratch.mixed + columns.decay,
                           .dt_stride = columns.count,
                           .bias = vector(insn, GatedDeltaSlot::kDtBias),
                           .a = scratch.rate,
                           .dt_min = 0,
                           .dt_max = std::numeric_limits<float>::infinity(),
                           .delta = scratch.delta,
                           .decay = scratch.decay,
                           .heads = columns.decays},
                          rows);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = scratch.mixed + row * columns.count;
    unit_heads(stream, p, x, scratch.q_length);
    unit_heads(stream, p, x + columns.k, scratch.k_length);
    std::copy_n(x + columns.beta, p.value_heads, scratch.beta + row * p.value_heads);
  }
  stream.kernels.probabilities({.x = scratch.beta, .width = p.value_heads, .kind = Probabilities::kSigmoid}, rows);
}

void scan(const ExecutionContext& ctx, const PreparedInsn& insn, const GatedDeltaParams& p, const Scratch& scratch) {
  const CpuStream& stream = stream_of(ctx);
  const DeltaColumns columns(p);
  const plan::GatedDeltaStateLayout layout = delta_state_layout(p);
  const DeltaScanArgs args{.spans = spans_of(ctx),
                           .state = state_part(insn, {.offset_bytes = p.state_offset_bytes + layout.conv_bytes(),
                                                      .bytes = layout.delta_bytes()}),
                           .q = scratch.mixed,
                           .k = scratch.mixed + columns.k,
                           .v = scratch.mixed + columns.v,
                           .y = scratch.mixed + columns.v,
                           .stride = columns.count,
                           .beta = scratch.beta,
                           .decay = scratch.decay,
                           .heads = p.value_heads,
                           .key_heads = p.key_heads,
                           .key_dim = p.d_k,
                           .value_dim = p.d_v,
                           .keys_take_turns = p.keys_take_turns != 0,
                           .channel_decay = p.channel_decay != 0};
  stream.pool.run(std::size_t{ctx.batch_size} * p.value_heads,
                  kGrainProducts / (std::size_t{2} * p.d_k * p.d_v * ctx.total_rows) + 1,
                  [&](Range units, std::size_t) { stream.kernels.delta_scan(args, units); });
}

// y = norm of every head, times silu(z) or sigmoid(z).
void gate_rows(const CpuStream& stream, const PreparedInsn& insn, const GatedDeltaParams& p, const Scratch& scratch,
               Range rows) {
  const DeltaColumns columns(p);
  float* y = scratch.mixed + columns.v;
  for (std::size_t row = rows.begin; row < rows.end; ++row)
    stream.kernels.rms_norm({.x = y + row * columns.count,
                             .weight = vector(insn, GatedDeltaSlot::kNorm),
                             .y = y + row * columns.count,
                             .width = p.d_v,
                             .x_stride = p.d_v,
                             .y_stride = p.d_v,
                             .eps = p.norm_eps},
                            {0, p.value_heads});
  stream.kernels.swiglu({.gate = scratch.mixed + columns.z,
                         .up = y,
                         .x_stride = columns.count,
                         .y = y,
                         .y_stride = columns.count,
                         .width = std::size_t{p.value_heads} * p.d_v,
                         .act = p.sigmoid_gate != 0 ? Activation::kSigmoid : Activation::kSilu},
                        rows);
}

}  // namespace

Status GatedDeltaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<GatedDeltaParams>();
  const CpuStream& stream = stream_of(ctx);
  const DeltaColumns columns(p);
  const std::size_t rows = ctx.total_rows, grain = kGrainProducts / columns.count + 1;
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows);
  const float unit = 1.0f / std::sqrt(static_cast<float>(p.d_k));
  std::fill_n(scratch.k_length, p.d_k, unit);
  std::fill_n(scratch.q_length, p.d_k, 1.0f / static_cast<float>(p.d_k));
  const float* a = vector(insn, GatedDeltaSlot::kA);
  for (std::size_t i = 0; i < columns.decays; ++i) scratch.rate[i] = a[i / (columns.decays / p.value_heads)];
  project_rows(stream, insn, p, scratch, rows);
  convolve(ctx, insn, p, scratch);
  stream.pool.run(rows, grain, [&](Range range, std::size_t) { begin_rows(stream, insn, p, scratch, range); });
  scan(ctx, insn, p, scratch);
  stream.pool.run(rows, grain, [&](Range range, std::size_t) { gate_rows(stream, insn, p, scratch, range); });
  project(stream,
          {.x = scratch.mixed + columns.v,
           .x_stride = columns.count,
           .rows = rows,
           .quantized = scratch.inner,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(GatedDeltaSlot::kOutProj)), insn.output(0)}});
  return Status::ok();
}

std::uint64_t GatedDeltaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<GatedDeltaParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers::gated_delta
