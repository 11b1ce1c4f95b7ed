// Adapters whose rows need no projection: embedding, positions, norm, residual, pool.
#include <algorithm>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/pooled_rows.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::ExecutionContext;
using plan::PreparedInsn;
using plan::Status;

namespace {

// Most rows that are normed are multiplied next: they are staged in the form most matrices take.
kernels::NarrowedRows stage(const ExecutionContext& ctx, const float* y, std::uint32_t width) {
  const Form form = stream_of(ctx).form();
  if (form == Form::kFloat || (form == Form::kBytes && width % kernels::kBlockElements != 0)) return {};
  Arena arena(ctx);
  const Arena::Narrowed rows = arena.take_narrowed(ctx.total_rows, width);
  stream_of(ctx).stage({.form = form, .x = y, .rows = ctx.total_rows, .width = width, .workspace = ctx.workspace.ptr});
  return wanted(staged_in(rows, form));
}

}  // namespace

Status EmbeddingAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::EmbeddingParams>();
  const CudaStream& stream = stream_of(ctx);
  const CudaWeight& weight = *weight_of(insn.weight(plan::EmbeddingSlot::kWeight));
  const kernels::GatherArgs args{
      .w = weight.matrix, .row_ids = ctx.row_ids, .y = insn.output(0), .scale = p.scale, .columns = p.width};
  visit_matrix_type(weight.dtype, [&]<plan::DType kType>() {
    using Kernel = kernels::Gather<kType>;
    stream.launch<Kernel>({blocks_of(p.width, Kernel::kThreads), ctx.total_rows}, args);
  });
  return stream.status();
}
Status PositionEmbeddingAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::PositionEmbeddingParams>();
  const CudaStream& stream = stream_of(ctx);
  const kernels::EmbedPositionsArgs args{.x = insn.input(0),
                                         .y = insn.output(0),
                                         .types = vector_of(insn.weight(plan::PositionEmbeddingSlot::kTypes)),
                                         .positions = vector_of(insn.weight(plan::PositionEmbeddingSlot::kPositions)),
                                         .first_position = p.first,
                                         .type_of_row = ctx.row_types,
                                         .position_of_row = ctx.positions,
                                         .width = p.width};
  stream.launch<kernels::EmbedPositions>({blocks_of(p.width, kernels::EmbedPositions::kThreads), ctx.total_rows}, args);
  return stream.status();
}
Status RmsNormAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::RmsNormParams>();
  const CudaStream& stream = stream_of(ctx);
  const std::uint32_t width = p.rows_per_group != 0 ? p.rows_per_group : p.width;  // what one norm runs over
  kernels::NormArgs args{.x = insn.input(0),
                         .weight = vector_of(insn.weight(plan::NormSlot::kWeight)),
                         .bias = vector_of(insn.weight(plan::NormSlot::kBias)),
                         .y = insn.output(0),
                         .x_stride = p.width,
                         .y_stride = p.width,
                         .inner_stride = width,
                         .width = width,
                         .eps = p.eps,
                         .weight_offset = p.weight_offset};
  if (width == p.width) args.narrowed = stage(ctx, insn.output(0), width);
  const Grid grid{p.width / width, ctx.total_rows};
  if (p.kind == plan::NormKind::kLayerNorm) {
    stream.launch<kernels::LayerNorm>(grid, args);
  } else {
    stream.launch<kernels::RmsNorm>(grid, args);
  }
  return stream.status();
}
std::uint64_t RmsNormAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                              const plan::Backend&) noexcept {
  Arena arena;
  arena.take_staged(nullptr, limits.rows_max, plan::param_as<plan::RmsNormParams>(params).width);
  return arena.used_bytes();
}
Status ResidualAddAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::ResidualAddParams>();
  const CudaStream& stream = stream_of(ctx);
  const kernels::ResidualAddArgs args{.a = insn.input(0),
                                      .b = insn.input(1),
                                      .y = insn.output(0),
                                      .count = std::uint64_t{ctx.total_rows} * p.width,
                                      .scale = p.scale,
                                      .sum_scale = p.sum_scale != 0 ? p.sum_scale : 1.0f};
  stream.launch<kernels::ResidualAdd>({blocks_of(args.count, kernels::ResidualAdd::kThreads)}, args);
  return stream.status();
}
Status PoolAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<plan::PoolParams>();
  const CudaStream& stream = stream_of(ctx);
  constexpr std::size_t kAtOnce = kernels::PoolRowsArgs::kRowsMax;
  for (std::size_t first = 0; first < ctx.output_rows.size(); first += kAtOnce) {
    const auto outputs = ctx.output_rows.subspan(first, std::min(kAtOnce, ctx.output_rows.size() - first));
    kernels::PoolRowsArgs args{
        .x = insn.input(0), .y = insn.output(0) + first * p.width, .width = p.width, .begin = {}, .end = {}};
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const PooledRows rows = pooled_rows(ctx, p.pooling, outputs[i]);
      args.begin[i] = rows.begin;
      args.end[i] = rows.end;
    }
    stream.launch<kernels::PoolRows>(
        {blocks_of(p.width, kernels::PoolRows::kThreads), static_cast<std::uint32_t>(outputs.size())}, args);
  }
  return stream.status();
}
std::uint64_t PoolAdapter::workspace_bytes(const plan::ParamBlock&, const plan::StepLimits&,
                                           const plan::Backend&) noexcept {
  return 0;
}
}  // namespace llorch::engine::compute::cuda::adapters
