// Gated short convolution: [b|c|x] = in(u); y = out(c * conv(b * x)).
#include <array>

#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/mixers/sequences.h"

namespace llorch::engine::compute::cpu::adapters::mixers::shortconv {

using plan::Backend;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::ShortconvParams;
using plan::ShortconvSlot;
using plan::Status;
using plan::StepLimits;

namespace {

struct Scratch {
  Scratch(Arena& arena, const ShortconvParams& p, std::size_t rows)
      : bcx(arena.take<float>(rows * 3 * p.width)),
        x(arena.take_quantized(rows, p.width)),
        convolved(arena.take_quantized(rows, p.width)) {}
  float* bcx;  // [T, b | c | x]
  QuantizedRows x, convolved;
};

const float* vector_of(const PreparedInsn& insn, ShortconvSlot which) {
  const CpuWeight* weight = weight_of(insn.weight(which));
  return weight != nullptr ? weight->vector : nullptr;
}

}  // namespace

Status ShortconvAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<ShortconvParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows, stride = 3 * std::size_t{p.width};
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows);
  project(stream, {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = stride},
          std::array{Projection{weight_of(insn.weight(ShortconvSlot::kInProj)), scratch.bcx}});
  if (const float* bias = vector_of(insn, ShortconvSlot::kInBias))
    stream.kernels.add_bias({.x = scratch.bcx, .x_stride = stride, .width = stride, .bias = bias}, {0, rows});
  float* x = scratch.bcx + 2 * std::size_t{p.width};
  run_causal_conv(stream,
                  {.spans = spans_of(ctx),
                   .state = state_part(insn, {.offset_bytes = p.state_offset_bytes,
                                              .bytes = plan::shortconv_state_bytes(p.width, p.l_cache)}),
                   .x = x,
                   .gate_in = scratch.bcx,
                   .gate_out = scratch.bcx + p.width,
                   .x_stride = stride,
                   .y = x,
                   .y_stride = stride,
                   .channels = p.width,
                   .taps = p.l_cache,
                   .weight = vector_of(insn, ShortconvSlot::kConvWeight),
                   .bias = vector_of(insn, ShortconvSlot::kConvBias)},
                  rows);
  float* y = insn.output(0);
  project(stream, {.x = x, .x_stride = stride, .rows = rows, .quantized = scratch.convolved, .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(ShortconvSlot::kOutProj)), y}});
  if (const float* bias = vector_of(insn, ShortconvSlot::kOutBias))
    stream.kernels.add_bias({.x = y, .x_stride = p.width, .width = p.width, .bias = bias}, {0, rows});
  return Status::ok();
}

std::uint64_t ShortconvAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<ShortconvParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers::shortconv
