// Adapters around projections: the dense feed-forward, the output head, layers over pooled rows.
#include "engine/compute/cpu/adapters/feed_forward.h"

#include <array>
#include <cstring>

#include "engine/compute/cpu/adapters/adapters.h"

namespace llorch::engine::compute::cpu::adapters {

using plan::Backend;
using plan::DenseParams;
using plan::DenseSlot;
using plan::ExecutionContext;
using plan::FfnSlot;
using plan::LmHeadParams;
using plan::LmHeadSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;
using plan::SwigluParams;

namespace {

constexpr std::size_t kGrainActivations = 1u << 13;  // an exponential each

FeedForwardShape shape_of(const SwigluParams& p) { return {.width = p.width, .ffn = p.ffn, .gated = p.gated != 0}; }

struct LmHeadScratch {
  LmHeadScratch(Arena& arena, const LmHeadParams& p, std::size_t rows)
      : x(arena.take<float>(rows * p.width)), quantized(arena.take_quantized(rows, p.width)) {}
  float* x;  // [O, D]
  QuantizedRows quantized;
};

}  // namespace

void feed_forward(const CpuStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows) {
  const bool gated = ffn.gate != nullptr;
  const std::size_t stride = scratch.stride;
  float* up = scratch.up_gate;
  float* gate = gated ? up + ffn.ffn : nullptr;
  const Projection projections[] = {{ffn.up, up}, {ffn.gate, gate}};
  project(stream, {.x = rows.x, .x_stride = ffn.width, .rows = rows.rows, .quantized = scratch.x, .y_stride = stride},
          std::span(projections, gated ? 2 : 1));
  const SwigluArgs args{.gate = gated ? gate : up,
                        .up = gated ? up : nullptr,
                        .x_stride = stride,
                        .y = up,
                        .y_stride = stride,
                        .width = ffn.ffn,
                        .act = ffn.act,
                        .alpha = ffn.alpha,
                        .limit = ffn.limit,
                        .alpha_negative = ffn.alpha_negative,
                        .beta = ffn.beta,
                        .eps = ffn.eps};
  const bool quantizes = plan::is_quantized(ffn.down->matrix.dtype);
  const auto add_bias = [&](float* x, const float* bias, Range range) {
    if (bias != nullptr) stream.kernels.add_bias({.x = x, .x_stride = stride, .width = ffn.ffn, .bias = bias}, range);
  };
  stream.pool.run(rows.rows, kGrainActivations / ffn.ffn + 1, [&](Range range, std::size_t) {
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const Range one{row, row + 1};
      add_bias(up, ffn.up_bias, one);
      add_bias(gate, ffn.gate_bias, one);
      stream.kernels.swiglu(args, one);
      if (quantizes) stream.kernels.quantize({.x = up, .x_stride = stride, .out = scratch.hidden}, one);
    }
  });
  project(stream,
          {.x = up,
           .x_stride = stride,
           .rows = rows.rows,
           .quantized = scratch.hidden,
           .y_stride = ffn.width,
           .has_quantized = quantizes},
          std::array{Projection{ffn.down, rows.y}});
  if (ffn.down_bias != nullptr)
    stream.kernels.add_bias({.x = rows.y, .x_stride = ffn.width, .width = ffn.width, .bias = ffn.down_bias},
                            {0, rows.rows});
}

Status SwigluAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<SwigluParams>();
  Arena arena(ctx.workspace);
  const FeedForwardScratch scratch(arena, shape_of(p), ctx.total_rows);
  const FeedForward ffn{.width = p.width,
                        .ffn = p.ffn,
                        .gate = weight_of(insn.weight(FfnSlot::kGate)),
                        .up = weight_of(insn.weight(FfnSlot::kUp)),
                        .down = weight_of(insn.weight(FfnSlot::kDown)),
                        .gate_bias = vector_of(insn.weight(FfnSlot::kGateBias)),
                        .up_bias = vector_of(insn.weight(FfnSlot::kUpBias)),
                        .down_bias = vector_of(insn.weight(FfnSlot::kDownBias)),
                        .act = kernel_activation(p.act),
                        .alpha = p.alpha,
                        .limit = p.limit,
                        .alpha_negative = p.alpha_negative,
                        .beta = p.beta,
                        .eps = p.eps};
  feed_forward(stream_of(ctx), ffn, scratch, {.x = insn.input(0), .y = insn.output(0), .rows = ctx.total_rows});
  return Status::ok();
}

std::uint64_t SwigluAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  Arena arena;
  FeedForwardScratch(arena, shape_of(plan::param_as<SwigluParams>(params)), limits.rows_max);
  return arena.used_bytes();
}

Status LmHeadAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LmHeadParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.output_rows.size();
  if (rows == 0) return Status::ok();
  Arena arena(ctx.workspace);
  const LmHeadScratch scratch(arena, p, rows);
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(scratch.x + i * p.width, insn.input(0) + std::size_t{ctx.output_rows[i]} * p.width,
                p.width * sizeof(float));
  float* y = insn.output(0);
  project(stream,
          {.x = scratch.x, .x_stride = p.width, .rows = rows, .quantized = scratch.quantized, .y_stride = p.rows},
          std::array{Projection{weight_of(insn.weight(LmHeadSlot::kWeight)), y}});
  if (const float* bias = vector_of(insn.weight(LmHeadSlot::kBias)))
    stream.kernels.add_bias({.x = y, .x_stride = p.rows, .width = p.rows, .bias = bias}, {0, rows});
  if (p.logit_mul != 1.0f || p.softcap > 0) {
    const ScaleSoftcapArgs args{.y = y, .scale = p.logit_mul, .softcap = p.softcap};
    stream.pool.run(rows * p.rows, kGrainActivations,
                    [&](Range range, std::size_t) { stream.kernels.scale_softcap(args, range); });
  }
  return Status::ok();
}

std::uint64_t LmHeadAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  Arena arena;
  LmHeadScratch(arena, plan::param_as<LmHeadParams>(params), limits.output_rows_max);
  return arena.used_bytes();
}

Status DenseAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<DenseParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.output_rows.size();
  if (rows == 0) return Status::ok();
  Arena arena(ctx.workspace);
  const QuantizedRows quantized = arena.take_quantized(rows, p.width);
  float* y = insn.output(0);
  project(stream, {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = quantized, .y_stride = p.rows},
          std::array{Projection{weight_of(insn.weight(DenseSlot::kWeight)), y}});
  if (const float* bias = vector_of(insn.weight(DenseSlot::kBias)))
    stream.kernels.add_bias({.x = y, .x_stride = p.rows, .width = p.rows, .bias = bias}, {0, rows});
  if (p.act == plan::DenseActivation::kTanh)
    stream.kernels.scale_softcap({.y = y, .scale = 1, .softcap = 1}, {0, rows * p.rows});
  return Status::ok();
}

std::uint64_t DenseAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                            const Backend&) noexcept {
  Arena arena;
  arena.take_quantized(limits.output_rows_max, plan::param_as<DenseParams>(params).width);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters
