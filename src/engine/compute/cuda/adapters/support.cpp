#include "engine/compute/cuda/adapters/support.h"

#include <algorithm>

#include "engine/compute/adapter_checks.h"
#include "engine/compute/cuda/adapters/tables.h"

namespace llorch::engine::compute::cuda::adapters {

using plan::DType;
using plan::is_quantized;

namespace {

// Rows, and matrices of a stack, stand on axes of the grid that end here.
constexpr std::uint32_t kRowsMax = 65535;
// Range reduction of the rotation angles is exact enough up to here.
constexpr std::uint32_t kPositionsMax = 1u << 20;

// Rows of x in a tile: how many a kernel can have at most decides which one it is, and nothing about the numbers.
std::uint32_t tile_rows_of(const ProjectionInput& input) {
  if (input.own == nullptr) return input.rows;
  return input.own->tiles != nullptr ? input.own->tile_rows : 1;
}

template <class Kernel>
void launch_matmul(const CudaStream& stream, const ProjectionInput& input, const kernels::MatmulArgs& args) {
  std::uint32_t blocks = 0;
  for (const kernels::MatmulTarget& target : std::span(args.targets, args.targets_count))
    blocks += blocks_of(target.w.n, Kernel::kRows);
  const std::uint32_t tiles = args.tiles != nullptr           ? input.own->tiles_count
                              : args.matrix_of_row != nullptr ? args.rows
                                                              : blocks_of(args.rows, Kernel::kRowsOfX);
  stream.launch<Kernel>({blocks, tiles, input.matrices}, args);
}

template <DType kType>
void multiply(const CudaStream& stream, const ProjectionInput& input, const kernels::MatmulArgs& args) {
  const std::uint32_t rows = tile_rows_of(input);
  if constexpr (is_quantized(kType)) {
    if (rows == 1) return launch_matmul<kernels::QuantStream<kType, 1>>(stream, input, args);
    if (rows <= 8) return launch_matmul<kernels::QuantStream<kType, 8>>(stream, input, args);
    launch_matmul<kernels::QuantTiled<kType>>(stream, input, args);
  } else if constexpr (kType == DType::kF32) {
    if (rows == 1) return launch_matmul<kernels::PlainMatmul<1>>(stream, input, args);
    ASSERT(args.tiles == nullptr || rows <= kernels::kPlainTile, "tiles of {} rows", rows);
    launch_matmul<kernels::PlainMatmul<kernels::kPlainTile>>(stream, input, args);
  } else {
    if (rows <= kernels::StreamShape::kRowsOfX)
      return launch_matmul<kernels::HalfMatmul<kType, kernels::StreamShape>>(stream, input, args);
    if (rows <= kernels::BatchShape::kRowsOfX)
      return launch_matmul<kernels::HalfMatmul<kType, kernels::BatchShape>>(stream, input, args);
    launch_matmul<kernels::HalfMatmul<kType, kernels::PrefillShape>>(stream, input, args);
  }
}

void narrow(const CudaStream& stream, const ProjectionInput& input, const kernels::SourceRows& from, Form form) {
  const std::uint32_t rows = input.rows / input.rows_per_x;
  const kernels::ByteRows& bytes = input.narrowed.bytes;
  switch (form) {
    case Form::kFloat: return;
    case Form::kBytes:
      stream.launch<kernels::Quantize>(
          {blocks_of(bytes.width / kernels::kBlockElements, kernels::Quantize::kThreads), rows, input.matrices},
          {.from = from, .out = bytes});
      return;
    case Form::kHalves:
      stream.launch<kernels::Narrow>({rows, input.matrices}, {.from = from, .out = input.narrowed.halves});
      return;
  }
}

// Those of the projections whose weights have this type.
void multiply_type(const CudaStream& stream, const ProjectionInput& input, const kernels::SourceRows& from,
                   std::span<const Projection> projections, DType dtype) {
  const bool is_staged = input.staged.form == form_of(dtype);
  kernels::MatmulArgs args{.targets = {},
                           .x = from,
                           .bytes = is_staged ? input.staged.bytes : input.narrowed.bytes,
                           .halves = is_staged ? input.staged.halves : input.narrowed.halves,
                           .rows_per_x = kernels::Divisor::of(input.rows_per_x),
                           .y_stride = input.y_stride,
                           .y_stack_stride = input.y_stack_stride,
                           .rows = input.rows};
  if (input.own != nullptr && input.own->tiles != nullptr) {
    args.tiles = input.own->tiles, args.row_at = input.own->row_at;
  } else if (input.own != nullptr) {
    args.matrix_of_row = input.own->matrix_of_row;
  }
  for (const Projection& projection : projections)
    if (projection.weight->dtype == dtype)
      args.targets[args.targets_count++] = {projection.weight->matrix, projection.y, projection.bias};
  if (args.targets_count == 0) return;
  visit_matrix_type(dtype, [&]<DType kType>() { multiply<kType>(stream, input, args); });
}

}  // namespace

static_assert(std::uint64_t{kRowsMax} * kernels::kExpertsUsedMax <= 1u << 31, "kernels::Divisor");

void project(const CudaStream& stream, const ProjectionInput& input, std::span<const Projection> projections) {
  ASSERT(projections.size() <= kernels::MatmulArgs::kTargetsMax, "{} projections", projections.size());
  const kernels::SourceRows from{.x = input.x,
                                 .x_stride = input.x_stride,
                                 .inner_stride = static_cast<std::uint32_t>(input.x_stack_stride),
                                 .parts = input.matrices};
  for (const Form form : {Form::kFloat, Form::kBytes, Form::kHalves}) {
    const auto wants = [&](const Projection& p) { return form_of(p.weight->dtype) == form; };
    if (std::ranges::none_of(projections, wants)) continue;
    if (form != input.staged.form) narrow(stream, input, from, form);
    for (std::size_t type = 0; type < plan::kDTypesCount; ++type)
      if (form_of(static_cast<DType>(type)) == form)
        multiply_type(stream, input, from, projections, static_cast<DType>(type));
  }
}

kernels::Frames frames_from(const plan::ExecutionContext& ctx, std::uint32_t first) {
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

base::Result<> prepare(const plan::PrepareArgs& args) {
  return check_instruction(args, {.device = "CUDA",
                                  .matrix_types = kCudaTables.capabilities[slot(args.insn.opcode)].dtype_mask_weights,
                                  .positions_max = kPositionsMax,
                                  .conv_taps_max = kernels::kTapsMax,
                                  .rows_max = kRowsMax,
                                  .key_dims_max = args.insn.opcode == plan::Opcode::kGatedDelta ? kernels::kDeltaKeyMax
                                                                                                : kernels::kKeyDimMax,
                                  .value_dims_max = kernels::kValueDimMax,
                                  .stack_max = kRowsMax,
                                  .experts_max = kernels::kExpertsMax,
                                  .experts_used_max = kernels::kExpertsUsedMax,
                                  .expert_groups_max = kernels::kExpertGroupsMax});
}

}  // namespace llorch::engine::compute::cuda::adapters
