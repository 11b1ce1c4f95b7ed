// Adapters around projections: the dense feed-forward and the output head.
#include <cstring>

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters {

using base::Result;
using contract::Backend;
using contract::ExecutionContext;
using contract::FfnSlot;
using contract::LmHeadParams;
using contract::LmHeadSlot;
using contract::ParamBlock;
using contract::PrepareArgs;
using contract::PreparedInsn;
using contract::Status;
using contract::StepLimits;
using contract::SwigluParams;

namespace {

constexpr std::size_t kGrainElements = 1u << 13;  // an exponential each

constexpr std::size_t slot(auto value) { return static_cast<std::size_t>(value); }

// x[rows, begin of a row .. width) += the bias of a slot, if there is one.
void add_bias(const CpuStream& stream, const PreparedInsn& insn, FfnSlot which, AddBiasArgs args, Range rows) {
  const CpuWeight* weight = weight_of(insn.weight(which));
  if (weight == nullptr) return;
  args.bias = weight->vector;
  stream.kernels.add_bias(args, rows);
}

struct SwigluScratch {
  SwigluScratch(Carver& carver, const SwigluParams& p, std::size_t rows)
      : stride((p.gated != 0 ? 2 : 1) * std::size_t{p.ffn}),
        gate_up(carver.take<float>(rows * stride)),
        x(carver.take_quantised(rows, p.width)),
        hidden(carver.take_quantised(rows, p.ffn)) {}
  std::size_t stride;
  float* gate_up;  // [T, F or 2F]: up, then gate
  QuantisedRows x, hidden;
};

struct LmHeadScratch {
  LmHeadScratch(Carver& carver, const LmHeadParams& p, std::size_t rows)
      : x(carver.take<float>(rows * p.width)), quantised(carver.take_quantised(rows, p.width)) {}
  float* x;  // [O, D]
  QuantisedRows quantised;
};

}  // namespace

Status SwigluAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<SwigluParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  Carver carver(ctx.workspace);
  const SwigluScratch scratch(carver, p, rows);
  const std::size_t stride = scratch.stride;
  float* up = scratch.gate_up;
  float* gate = p.gated != 0 ? up + p.ffn : nullptr;
  const Projection projections[] = {{weight_of(insn.weight(FfnSlot::kUp)), up},
                                    {weight_of(insn.weight(FfnSlot::kGate)), gate}};
  const ProjectionInput input{
      .x = insn.input(0), .x_stride = p.width, .rows = rows, .quantised = scratch.x, .y_stride = stride};
  project(stream, input, std::span(projections, gate != nullptr ? 2 : 1));
  const SwigluArgs args{.gate = gate != nullptr ? gate : up,
                        .up = gate != nullptr ? up : nullptr,
                        .x_stride = stride,
                        .y = up,
                        .y_stride = stride,
                        .width = p.ffn,
                        .act = kernel_activation(p.act),
                        .alpha = p.alpha,
                        .limit = p.limit};
  stream.pool.run(rows, kGrainElements / p.ffn + 1, [&](Range range, std::size_t) {
    add_bias(stream, insn, FfnSlot::kGateBias, {.x = gate, .x_stride = stride, .width = p.ffn}, range);
    add_bias(stream, insn, FfnSlot::kUpBias, {.x = up, .x_stride = stride, .width = p.ffn}, range);
    stream.kernels.swiglu(args, range);
  });
  project(stream, {.x = up, .x_stride = stride, .rows = rows, .quantised = scratch.hidden, .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(FfnSlot::kDown)), insn.output(0)}});
  add_bias(stream, insn, FfnSlot::kDownBias, {.x = insn.output(0), .x_stride = p.width, .width = p.width}, {0, rows});
  return Status::ok();
}

Result<const void*> SwigluAdapter::prepare(const PrepareArgs& args) {
  const auto& p = contract::param_as<SwigluParams>(args.params);
  if (p.act == contract::Activation::kSwigluOai)
    TRY(require(args, p.gated != 0 && p.limit > 0, "swiglu_oai without a gate or a limit"));
  TRY(check_weights(args, {slot(FfnSlot::kGate), slot(FfnSlot::kUp), slot(FfnSlot::kDown), slot(FfnSlot::kGateBias),
                           slot(FfnSlot::kUpBias), slot(FfnSlot::kDownBias)}));
  const auto present = [&](FfnSlot which) { return args.weights[slot(which)].ptr != nullptr; };
  TRY(require(args, present(FfnSlot::kGate) == (p.gated != 0) && (p.gated != 0 || !present(FfnSlot::kGateBias)),
              "a gate that params and weights disagree on"));
  return nullptr;
}

std::uint64_t SwigluAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  Carver carver;
  SwigluScratch(carver, contract::param_as<SwigluParams>(params), limits.rows_max);
  return carver.used_bytes();
}

Status LmHeadAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LmHeadParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.output_rows.size();
  if (rows == 0) return Status::ok();
  Carver carver(ctx.workspace);
  const LmHeadScratch scratch(carver, p, rows);
  for (std::size_t i = 0; i < rows; ++i)
    std::memcpy(scratch.x + i * p.width, insn.input(0) + std::size_t{ctx.output_rows[i]} * p.width,
                p.width * sizeof(float));
  float* y = insn.output(0);
  project(stream,
          {.x = scratch.x, .x_stride = p.width, .rows = rows, .quantised = scratch.quantised, .y_stride = p.rows},
          std::array{Projection{weight_of(insn.weight(LmHeadSlot::kWeight)), y}});
  if (p.logit_mul != 1.0f || p.softcap > 0) {
    const ScaleSoftcapArgs args{.y = y, .scale = p.logit_mul, .softcap = p.softcap};
    stream.pool.run(rows * p.rows, kGrainElements,
                    [&](Range range, std::size_t) { stream.kernels.scale_softcap(args, range); });
  }
  return Status::ok();
}

Result<const void*> LmHeadAdapter::prepare(const PrepareArgs& args) {
  TRY(check_weights(args, {slot(LmHeadSlot::kWeight)}));
  return nullptr;
}

std::uint64_t LmHeadAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                             const Backend&) noexcept {
  Carver carver;
  LmHeadScratch(carver, contract::param_as<LmHeadParams>(params), limits.output_rows_max);
  return carver.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters
