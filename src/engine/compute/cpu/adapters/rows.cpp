// Adapters whose rows need no projection: embedding, norm, residual.
#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters {

using base::Result;
using contract::Backend;
using contract::ExecutionContext;
using contract::ParamBlock;
using contract::PrepareArgs;
using contract::PreparedInsn;
using contract::Status;
using contract::StepLimits;

namespace {

// Elements per thread below which a region stays on the caller.
constexpr std::size_t kGrainElements = 1u << 15;

constexpr std::size_t slot(auto value) { return static_cast<std::size_t>(value); }

}  // namespace

Status EmbeddingAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<contract::EmbeddingParams>();
  const CpuStream& stream = stream_of(ctx);
  for (std::uint32_t row = 0; row < ctx.total_rows; ++row)
    ASSERT(ctx.row_ids[row] < p.rows, "a row of {} is out of range", p.rows);
  const GatherArgs args{.w = weight_of(insn.weight(contract::EmbeddingSlot::kWeight))->matrix,
                        .row_ids = ctx.row_ids,
                        .y = insn.output(0),
                        .scale = p.scale};
  stream.pool.run(ctx.total_rows, kGrainElements / p.width + 1,
                  [&](Range rows, std::size_t) { stream.kernels.gather(args, rows); });
  return Status::ok();
}
Result<const void*> EmbeddingAdapter::prepare(const PrepareArgs& args) {
  TRY(check_weights(args, {slot(contract::EmbeddingSlot::kWeight)}));
  return nullptr;
}
std::uint64_t EmbeddingAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

Status RmsNormAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<contract::RmsNormParams>();
  const CpuStream& stream = stream_of(ctx);
  const RmsNormArgs args{.x = insn.input(0),
                         .weight = weight_of(insn.weight(contract::NormSlot::kWeight))->vector,
                         .y = insn.output(0),
                         .width = p.width,
                         .x_stride = p.width,
                         .y_stride = p.width,
                         .eps = p.eps,
                         .weight_offset = p.weight_offset};
  stream.pool.run(ctx.total_rows, kGrainElements / p.width + 1,
                  [&](Range rows, std::size_t) { stream.kernels.rms_norm(args, rows); });
  return Status::ok();
}
Result<const void*> RmsNormAdapter::prepare(const PrepareArgs& args) {
  const auto& p = contract::param_as<contract::RmsNormParams>(args.params);
  TRY(require(args, p.kind == contract::NormKind::kRms, "LayerNorm"));
  TRY(require(args, p.rows_per_group == 0, "groups"));
  TRY(check_weights(args, {slot(contract::NormSlot::kWeight)}));
  return nullptr;
}
std::uint64_t RmsNormAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

Status ResidualAddAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<contract::ResidualAddParams>();
  const CpuStream& stream = stream_of(ctx);
  const ResidualAddArgs args{.a = insn.input(0), .b = insn.input(1), .y = insn.output(0), .scale = p.scale};
  const std::size_t count = std::size_t{ctx.total_rows} * p.width;
  stream.pool.run(count, kGrainElements, [&](Range range, std::size_t) { stream.kernels.residual_add(args, range); });
  return Status::ok();
}
Result<const void*> ResidualAddAdapter::prepare(const PrepareArgs&) { return nullptr; }
std::uint64_t ResidualAddAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

}  // namespace llorch::engine::compute::cpu::adapters
