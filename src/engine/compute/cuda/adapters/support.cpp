#include "engine/compute/cuda/adapters/support.h"

#include <algorithm>

#include "engine/compute/adapter_checks.h"
#include "engine/compute/cuda/adapters/tables.h"

namespace llorch::engine::compute::cuda::adapters {

using contract::is_quantised;
using kernels::kTileRows;

namespace {

// Rows stand on an axis of the grid that ends here.
constexpr std::uint32_t kRowsMax = 65535;
// Range reduction of the rotation angles is exact enough up to here.
constexpr std::uint32_t kPositionsMax = 1u << 20;

void multiply(const CudaStream& stream, const ProjectionInput& input, const Projection& projection) {
  const CudaWeight& weight = *projection.weight;
  const kernels::MatmulArgs args{.w = weight.matrix,
                                 .x = input.x,
                                 .x_stride = input.x_stride,
                                 .x_stack_stride = input.x_stack_stride,
                                 .xq = input.quantised,
                                 .xq_parts = input.matrices,
                                 .rows_per_x = input.rows_per_x,
                                 .y = projection.y,
                                 .y_stride = input.y_stride,
                                 .y_stack_stride = input.y_stack_stride,
                                 .bias = projection.bias,
                                 .matrix_of_row = input.matrix_of_row,
                                 .rows = input.rows};
  const bool single = input.rows == 1 || input.matrix_of_row != nullptr;
  visit_matrix_type(weight.dtype, [&]<contract::DType kType>() {
    const auto launch = [&]<class Kernel>(std::uint32_t columns, std::uint32_t tile) {
      stream.launch<Kernel>({blocks_of(args.w.n, columns), blocks_of(args.rows, tile), input.matrices}, args);
    };
    if constexpr (is_quantised(kType)) {
      if (single) return launch.template operator()<kernels::QuantMatmul<kType, 1>>(kernels::kPackRows, 1);
      launch.template operator()<kernels::QuantMatmul<kType, kTileRows>>(kernels::kPackRows, kTileRows);
    } else {
      using Single = kernels::FloatMatmul<kType, 1>;
      if (single) return launch.template operator()<Single>(Single::kRows, 1);
      launch.template operator()<kernels::FloatMatmul<kType, kTileRows>>(Single::kRows, kTileRows);
    }
  });
}

}  // namespace

void quantise(const CudaStream& stream, const ProjectionInput& input) {
  const kernels::QuantiseArgs args{.x = input.x,
                                   .x_stride = input.x_stride,
                                   .inner_stride = static_cast<std::uint32_t>(input.x_stack_stride),
                                   .parts = input.matrices,
                                   .out = input.quantised};
  stream.launch<kernels::Quantise>({blocks_of(args.out.width / kernels::kBlockElements, kernels::Quantise::kThreads),
                                    input.rows / input.rows_per_x, input.matrices},
                                   args);
}

void project(const CudaStream& stream, const ProjectionInput& input, std::span<const Projection> projections) {
  if (!input.is_quantised &&
      std::ranges::any_of(projections, [](const Projection& p) { return is_quantised(p.weight->dtype); }))
    quantise(stream, input);
  for (const Projection& projection : projections) multiply(stream, input, projection);
}

kernels::Frames frames_from(const contract::ExecutionContext& ctx, std::uint32_t first) {
  ASSERT(ctx.row_offsets.size() == ctx.batch_size + std::size_t{1} && ctx.active_slots.size() == ctx.batch_size,
         "{} slots, {} offsets, {} spans", ctx.active_slots.size(), ctx.row_offsets.size(), ctx.batch_size);
  kernels::Frames frames;
  frames.count = std::min(ctx.batch_size - first, kernels::Frames::kFramesMax);
  for (std::uint32_t i = 0; i < frames.count; ++i) {
    const std::size_t b = first + i;
    kernels::Frame& frame = frames.frame[i];
    frame = {.row_begin = ctx.row_offsets[b], .row_end = ctx.row_offsets[b + 1], .slot = ctx.active_slots[b]};
    if (!ctx.grids.empty()) frame.height = ctx.grids[b].height, frame.width = ctx.grids[b].width;
    if (!ctx.image_rows.empty()) frame.image_begin = ctx.image_rows[b].begin, frame.image_end = ctx.image_rows[b].end;
  }
  return frames;
}

base::Result<const void*> prepare(const contract::PrepareArgs& args) {
  TRY(check_instruction(args, {.device = "CUDA",
                               .matrix_types = kCudaTables.capabilities[slot(args.insn.opcode)].dtype_mask_weights,
                               .positions_max = kPositionsMax,
                               .conv_taps_max = kernels::kTapsMax,
                               .rows_max = kRowsMax,
                               .key_dims_max = kernels::kKeyDimMax,
                               .value_dims_max = kernels::kValueDimMax,
                               .experts_max = kernels::kExpertsMax,
                               .experts_used_max = kernels::kExpertsUsedMax,
                               .expert_groups_max = kernels::kExpertGroupsMax}));
  return nullptr;
}

}  // namespace llorch::engine::compute::cuda::adapters
