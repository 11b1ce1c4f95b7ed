// Adapters around projections: the dense feed-forward and the output head.
#include "engine/compute/cuda/adapters/feed_forward.h"

#include <algorithm>
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"

namespace llorch::engine::compute::cuda::adapters {

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

struct LmHeadScratch {
  LmHeadScratch(Arena& arena, const LmHeadParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        x(arena.take<float>(rows * p.width)),
        narrowed(arena.take_narrowed(rows, p.width)) {}
  Arena::Staged staged;
  float* x;  // [O, D]
  Arena::Narrowed narrowed;
};

// Every row is an output: the usual step of decode.
bool wants_all_rows(const ExecutionContext& ctx) { return ctx.output_rows.size() == ctx.total_rows; }

// x[i] = source[ctx.output_rows[i]].
void copy_output_rows(const ExecutionContext& ctx, const float* source, std::uint32_t width, float* x) {
  constexpr std::size_t kAtOnce = kernels::CopyRowsArgs::kRowsMax;
  for (std::size_t first = 0; first < ctx.output_rows.size(); first += kAtOnce) {
    const auto rows = ctx.output_rows.subspan(first, std::min(kAtOnce, ctx.output_rows.size() - first));
    kernels::CopyRowsArgs args{.x = source, .y = x + first * width, .width = width, .rows = {}};
    std::ranges::copy(rows, args.rows);
    stream_of(ctx).launch<kernels::CopyRows>(
        {blocks_of(width, kernels::CopyRows::kThreads), static_cast<std::uint32_t>(rows.size())}, args);
  }
}

}  // namespace

void feed_forward(const CudaStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows) {
  const bool gated = ffn.gate != nullptr;
  float* up = scratch.up_gate;
  float* gate = gated ? up + ffn.ffn : nullptr;
  const Projection projections[] = {{ffn.up, up, ffn.up_bias}, {ffn.gate, gate, ffn.gate_bias}};
  project(stream,
          {.x = rows.x,
           .x_stride = ffn.width,
           .rows = rows.rows,
           .narrowed = scratch.x,
           .staged = rows.staged,
           .y_stride = scratch.stride,
           .own = rows.own,
           .rows_per_x = rows.rows_per_x},
          std::span(projections, gated ? 2 : 1));
  const Arena::Staged hidden = staged_in(scratch.hidden, form_of(ffn.down->dtype));
  const kernels::SwigluArgs args{.gate = gated ? gate : up,
                                 .up = gated ? up : nullptr,
                                 .y = up,
                                 .x_stride = scratch.stride,
                                 .y_stride = scratch.stride,
                                 .width = ffn.ffn,
                                 .act = ffn.act,
                                 .alpha = ffn.alpha,
                                 .limit = ffn.limit,
                                 .alpha_negative = ffn.alpha_negative,
                                 .beta = ffn.beta,
                                 .eps = ffn.eps,
                                 .narrowed = wanted(hidden)};
  switch (hidden.form) {
    case Form::kFloat:
      stream.launch<kernels::Swiglu>({blocks_of(ffn.ffn, kernels::Swiglu::kThreads), rows.rows}, args);
      break;
    case Form::kBytes:
      stream.launch<kernels::SwigluBytes>({blocks_of(ffn.ffn, kernels::SwigluBytes::kThreads), rows.rows}, args);
      break;
    case Form::kHalves: stream.launch<kernels::SwigluHalves>({rows.rows}, args); break;
  }
  project(stream,
          {.x = up,
           .x_stride = scratch.stride,
           .rows = rows.rows,
           .staged = hidden,
           .y_stride = ffn.width,
           .own = rows.own},
          std::array{Projection{ffn.down, rows.y, ffn.down_bias}});
}

Status SwigluAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<SwigluParams>();
  const CudaStream& stream = stream_of(ctx);
  Arena arena(ctx);
  const Arena::Staged staged = arena.take_staged(insn.input(0), ctx.total_rows, p.width);
  const FeedForwardScratch scratch(arena,
                                   {.width = p.width, .ffn = p.ffn, .gated = p.gated != 0, .rows = ctx.total_rows});
  const FeedForward ffn{.width = p.width,
                        .ffn = p.ffn,
                        .gate = weight_of(insn.weight(FfnSlot::kGate)),
                        .up = weight_of(insn.weight(FfnSlot::kUp)),
                        .down = weight_of(insn.weight(FfnSlot::kDown)),
                        .gate_bias = vector_of(insn.weight(FfnSlot::kGateBias)),
                        .up_bias = vector_of(insn.weight(FfnSlot::kUpBias)),
                        .down_bias = vector_of(insn.weight(FfnSlot::kDownBias)),
                        .act = p.act,
                        .alpha = p.alpha,
                        .limit = p.limit,
                        .alpha_negative = p.alpha_negative,
                        .beta = p.beta,
                        .eps = p.eps};
  feed_forward(stream, ffn, scratch,
               {.x = insn.input(0), .y = insn.output(0), .rows = ctx.total_rows, .staged = staged});
  return stream.status();
}

std::uint64_t SwigluAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  const auto& p = plan::param_as<SwigluParams>(params);
  Arena arena;
  arena.take_staged(nullptr, limits.rows_max, p.width);
  FeedForwardScratch(arena, {.width = p.width, .ffn = p.ffn, .gated = p.gated != 0, .rows = limits.rows_max});
  return arena.used_bytes();
}

Status LmHeadAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LmHeadParams>();
  const CudaStream& stream = stream_of(ctx);
  const auto rows = static_cast<std::uint32_t>(ctx.output_rows.size());
  if (rows == 0) return Status::ok();
  Arena arena(ctx);
  const LmHeadScratch scratch(arena, p, insn.input(0), rows);
  const bool all = wants_all_rows(ctx);
  if (!all) copy_output_rows(ctx, insn.input(0), p.width, scratch.x);
  float* y = insn.output(0);
  project(stream,
          {.x = all ? insn.input(0) : scratch.x,
           .x_stride = p.width,
           .rows = rows,
           .narrowed = scratch.narrowed,
           .staged = all ? scratch.staged : Arena::Staged{},
           .y_stride = p.rows},
          std::array{
              Projection{weight_of(insn.weight(LmHeadSlot::kWeight)), y, vector_of(insn.weight(LmHeadSlot::kBias))}});
  if (p.logit_mul != 1.0f || p.softcap > 0) {
    const kernels::ScaleSoftcapArgs args{
        .y = y, .count = std::uint64_t{rows} * p.rows, .scale = p.logit_mul, .softcap = p.softcap};
    stream.launch<kernels::ScaleSoftcap>({blocks_of(args.count, kernels::ScaleSoftcap::kThreads)}, args);
  }
  return stream.status();
}

std::uint64_t LmHeadAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  Arena arena;
  LmHeadScratch(arena, plan::param_as<LmHeadParams>(params), nullptr, limits.output_rows_max);
  return arena.used_bytes();
}

Status DenseAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<DenseParams>();
  const CudaStream& stream = stream_of(ctx);
  const auto rows = static_cast<std::uint32_t>(ctx.output_rows.size());
  if (rows == 0) return Status::ok();
  Arena arena(ctx);
  const Arena::Narrowed narrowed = arena.take_narrowed(rows, p.width);
  float* y = insn.output(0);
  project(
      stream,
      {.x = insn.input(0), .x_stride = p.width, .rows = rows, .narrowed = narrowed, .staged = {}, .y_stride = p.rows},
      std::array{Projection{weight_of(insn.weight(DenseSlot::kWeight)), y, vector_of(insn.weight(DenseSlot::kBias))}});
  if (p.act == plan::DenseActivation::kTanh) {
    const kernels::ScaleSoftcapArgs args{.y = y, .count = std::uint64_t{rows} * p.rows, .scale = 1, .softcap = 1};
    stream.launch<kernels::ScaleSoftcap>({blocks_of(args.count, kernels::ScaleSoftcap::kThreads)}, args);
  }
  return stream.status();
}

std::uint64_t DenseAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                            const Backend&) noexcept {
  Arena arena;
  arena.take_narrowed(limits.output_rows_max, plan::param_as<DenseParams>(params).width);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters
