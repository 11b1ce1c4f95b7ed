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

// Hidden columns `columns` of rows `rows`, as `down` takes them.
void make_hidden(const CpuStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                 const ProjectionInput& input, Range rows, Range columns, std::size_t thread) {
  const std::size_t count = rows.end - rows.begin, width = columns.end - columns.begin;
  ASSERT(2 * count * width <= scratch.thread_floats, "{} rows of {} columns", count, width);
  float* const up = scratch.up_gate + thread * scratch.thread_floats;
  float* const gate = ffn.gate != nullptr ? up + count * width : nullptr;
  const auto make = [&](const CpuWeight& weight, const float* bias, float* y) {
    const PackedMatrix part = weight.matrix.part(columns);
    multiply(stream, input, rows, part, {0, part.groups()}, y, width);
    if (bias != nullptr)
      stream.kernels.add_bias({.x = y, .x_stride = width, .width = width, .bias = bias + columns.begin}, {0, count});
  };
  make(*ffn.up, ffn.up_bias, up);
  if (gate != nullptr) make(*ffn.gate, ffn.gate_bias, gate);
  const bool quantizes = plan::is_quantized(ffn.down->matrix.dtype);
  stream.kernels.swiglu({.gate = gate != nullptr ? gate : up,
                         .up = gate != nullptr ? up : nullptr,
                         .x_stride = width,
                         .y = quantizes ? up : scratch.hidden + rows.begin * ffn.ffn + columns.begin,
                         .y_stride = quantizes ? width : ffn.ffn,
                         .width = width,
                         .act = ffn.act,
                         .alpha = ffn.alpha,
                         .limit = ffn.limit,
                         .alpha_negative = ffn.alpha_negative,
                         .beta = ffn.beta,
                         .eps = ffn.eps},
                        {0, count});
  if (!quantizes) return;
  QuantizedRows out = scratch.hidden_quantized.from(rows.begin);
  out.blocks += columns.begin / 32;
  stream.kernels.quantize({.x = up, .x_stride = width, .out = out, .cols = width}, {0, count});
}

struct LmHeadScratch {
  LmHeadScratch(Arena& arena, const LmHeadParams& p, std::size_t rows)
      : x(arena.take<float>(rows * p.width)), quantized(arena.take_quantized(rows, p.width)) {}
  float* x;  // [O, D]
  QuantizedRows quantized;
};

}  // namespace

void feed_forward(const CpuStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows) {
  const ProjectionInput input{.x = rows.x, .x_stride = ffn.width, .rows = rows.rows, .quantized = scratch.x};
  const CpuWeight* const weights[] = {ffn.up, ffn.gate};
  const std::size_t matrices = ffn.gate != nullptr ? 2 : 1;
  constexpr std::size_t kUnitColumns = FeedForwardScratch::kUnitColumns;
  const Products products{.rows = rows.rows,
                          .width = ffn.width,
                          .quantized = quantize_input(stream, input, std::span(weights, matrices)),
                          .units = FeedForwardScratch::units_of(ffn.ffn),
                          .unit_groups = matrices * kUnitColumns / kPackRows};
  for_panels(stream, products, [&](Range panel, Range units, std::size_t thread) {
    const std::size_t most = scratch.units_most(panel.end - panel.begin), count = units.end - units.begin;
    const std::size_t pieces = (count + most - 1) / most;
    const auto column = [&](std::size_t piece) {
      return std::min((units.begin + count * piece / pieces) * kUnitColumns, ffn.ffn);
    };
    for (std::size_t i = 0; i < pieces; ++i)
      make_hidden(stream, ffn, scratch, input, panel, {column(i), column(i + 1)}, thread);
  });
  project(stream,
          {.x = scratch.hidden,
           .x_stride = ffn.ffn,
           .rows = rows.rows,
           .quantized = scratch.hidden_quantized,
           .y_stride = ffn.width,
           .has_quantized = plan::is_quantized(ffn.down->matrix.dtype)},
          std::array{Projection{ffn.down, rows.y}});
  if (ffn.down_bias != nullptr)
    stream.kernels.add_bias({.x = rows.y, .x_stride = ffn.width, .width = ffn.width, .bias = ffn.down_bias},
                            {0, rows.rows});
}

Status SwigluAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<SwigluParams>();
  const CpuStream& stream = stream_of(ctx);
  Arena arena(ctx.workspace);
  const FeedForwardScratch scratch(arena, p.width, p.ffn, ctx.total_rows, stream.pool.threads_count());
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
  feed_forward(stream, ffn, scratch, {.x = insn.input(0), .y = insn.output(0), .rows = ctx.total_rows});
  return Status::ok();
}

std::uint64_t SwigluAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend& backend) noexcept {
  const auto& p = plan::param_as<SwigluParams>(params);
  Arena arena;
  FeedForwardScratch(arena, p.width, p.ffn, limits.rows_max, static_cast<const CpuBackend&>(backend).threads_count());
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
