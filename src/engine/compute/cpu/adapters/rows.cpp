// Adapters whose rows need no projection: embedding, positions, norm, residual, pool.
#include <algorithm>

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/pooled_rows.h"

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

Status PositionEmbeddingAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::PositionEmbeddingParams>();
  const float* positions = vector_of(insn.weight(plan::PositionEmbeddingSlot::kPositions));
  const float* types = vector_of(insn.weight(plan::PositionEmbeddingSlot::kTypes));
  const auto add = [&](float* y, const float* table, std::uint32_t row, std::uint32_t rows) {
    ASSERT(row < rows, "row {} of a table of {}", row, rows);
    table += std::size_t{row} * p.width;
    for (std::uint32_t i = 0; i < p.width; ++i) y[i] += table[i];
  };
  stream_of(ctx).pool.run(ctx.total_rows, kGrainElements / p.width + 1, [&](Range rows, std::size_t) {
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      const float* x = insn.input(0) + row * p.width;
      float* y = insn.output(0) + row * p.width;
      if (x != y) std::copy_n(x, p.width, y);
      if (types != nullptr) add(y, types, ctx.row_types != nullptr ? ctx.row_types[row] : 0, p.types);
      if (positions != nullptr) add(y, positions, p.first + ctx.positions[row], p.positions);
    }
  });
  return Status::ok();
}
std::uint64_t PositionEmbeddingAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
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
  stream.pool.run(count, kGrainElements, [&](Range range, std::size_t) {
    stream.kernels.residual_add(args, range);
    if (p.sum_scale != 0) stream.kernels.scale_softcap({.y = args.y, .scale = p.sum_scale}, range);
  });
  return Status::ok();
}
std::uint64_t ResidualAddAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept {
  return 0;
}

Status PoolAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::PoolParams>();
  const auto pool_row = [&](std::size_t output) {
    const PooledRows rows = pooled_rows(ctx, p.pooling, ctx.output_rows[output]);
    const float* x = insn.input(0) + std::size_t{rows.begin} * p.width;
    float* y = insn.output(0) + output * p.width;
    std::copy_n(x, p.width, y);
    for (std::uint32_t row = rows.begin + 1; row < rows.end; ++row) {
      x += p.width;
      for (std::uint32_t i = 0; i < p.width; ++i) y[i] += x[i];
    }
    const auto count = static_cast<float>(rows.end - rows.begin);
    for (std::uint32_t i = 0; i < p.width; ++i) y[i] /= count;
  };
  const std::size_t rows_each = ctx.total_rows / std::max<std::size_t>(ctx.output_rows.size(), 1) + 1;
  stream_of(ctx).pool.run(ctx.output_rows.size(), kGrainElements / (p.width * rows_each) + 1,
                          [&](Range outputs, std::size_t) {
                            for (std::size_t i = outputs.begin; i < outputs.end; ++i) pool_row(i);
                          });
  return Status::ok();
}
std::uint64_t PoolAdapter::workspace_bytes(const ParamBlock&, const StepLimits&, const Backend&) noexcept { return 0; }

}  // namespace llorch::engine::compute::cpu::adapters
