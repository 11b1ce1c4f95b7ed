// Adapters whose rows need no projection: embedding, norm, residual.
#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters {

using plan::Backend;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Elements per thread below which a region stays on the caller.
constexpr std::size_t kGrainElements = 1u << 15;

}  // namespace

Status EmbeddingAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::EmbeddingParams>();
  const CpuStream& stream = stream_of(ctx);
  for (std::uint32_t row = 0; row < ctx.total_rows; ++row)
    ASSERT(ctx.row_ids[row] < p.rows, "a row of {} is out of range", p.rows);
  const GatherArgs args{.w = weight_of(insn.weight(plan::EmbeddingSlot::kWeight))->matrix,
                        .row_ids = ctx.row_ids,
                        .y = insn.output(0),
                        .scale = p.scale};
  stream.pool.run(ctx.total_rows, kGrainElements / p.width + 1,
                  [&](Range rows, std::size_t) { stream.kernels.gather(args, rows); });
  return Status::ok();
}
std::uint64_t EmbeddingAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

Status RmsNormAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::RmsNormParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t width = p.rows_per_group != 0 ? p.rows_per_group : p.width;  // what one norm runs over
  const std::size_t norms = std::size_t{ctx.total_rows} * (p.width / width), grain = kGrainElements / width + 1;
  const float* weight = vector_of(insn.weight(plan::NormSlot::kWeight));
  if (p.kind == plan::NormKind::kLayerNorm) {
    const LayerNormArgs args{.x = insn.input(0),
                             .weight = weight,
                             .bias = vector_of(insn.weight(plan::NormSlot::kBias)),
                             .y = insn.output(0),
                             .width = width,
                             .x_stride = width,
                             .y_stride = width,
                             .eps = p.eps};
    stream.pool.run(norms, grain, [&](Range rows, std::size_t) { stream.kernels.layer_norm(args, rows); });
    return Status::ok();
  }
  const RmsNormArgs args{.x = insn.input(0),
                         .weight = weight,
                         .y = insn.output(0),
                         .width = width,
                         .x_stride = width,
                         .y_stride = width,
                         .eps = p.eps,
                         .weight_offset = p.weight_offset};
  stream.pool.run(norms, grain, [&](Range rows, std::size_t) { stream.kernels.rms_norm(args, rows); });
  return Status::ok();
}
std::uint64_t RmsNormAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

Status ResidualAddAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::ResidualAddParams>();
  const CpuStream& stream = stream_of(ctx);
  const ResidualAddArgs args{.a = insn.input(0), .b = insn.input(1), .y = insn.output(0), .scale = p.scale};
  const std::size_t count = std::size_t{ctx.total_rows} * p.width;
  stream.pool.run(count, kGrainElements, [&](Range range, std::size_t) { stream.kernels.residual_add(args, range); });
  return Status::ok();
}
std::uint64_t ResidualAddAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

}  // namespace llorch::engine::compute::cpu::adapters
