// Which earlier positions latent attention attends to: the highest scores of a small attention with keys of its own.
#include <array>
#include <bit>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters::lightning_index {

using plan::DType;
using plan::ExecutionContext;
using plan::IndexSlot;
using plan::LightningIndexParams;
using plan::PreparedInsn;
using plan::Status;

namespace {

// Most that scores may take of the workspace, unless those of one row take more.
constexpr std::uint64_t kScoresBytesMax = 32u << 20;

struct Scratch {
  Scratch(Arena& arena, const LightningIndexParams& p, const float* input, std::uint64_t rows)
      : columns(p),
        staged(arena.take_staged(input, rows, p.width)),
        q_a(arena.take<float>(rows * p.q_lora)),
        projected(arena.take<float>(rows * columns.count)),
        x(arena.take_narrowed(rows, p.width)),
        q_a_narrowed(arena.take_narrowed(rows, p.q_lora)) {}
  IndexColumns columns;
  Arena::Staged staged;
  float* q_a;        // [T, q_lora]
  float* projected;  // [T, columns]
  Arena::Narrowed x, q_a_narrowed;
};

kernels::Rotation rotation_of(const ExecutionContext& ctx, const LightningIndexParams& p) {
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  kernels::Rotation rotation{.layout = p.rope_layout, .dims = p.d_rope, .positions = ctx.positions};
  rotation.inv_freq = ctx.rope_tables[p.rope_table_id].inv_freq;
  rotation.factor = ctx.rope_tables[p.rope_table_id].attn_factor;
  return rotation;
}

void project_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LightningIndexParams& p,
                  const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const IndexColumns& columns = scratch.columns;
  using enum IndexSlot;
  const auto of_x = [&](std::uint64_t y_stride, std::span<const Projection> projections) {
    project(stream,
            {.x = insn.input(0),
             .x_stride = p.width,
             .rows = ctx.total_rows,
             .narrowed = scratch.x,
             .staged = scratch.staged,
             .y_stride = y_stride},
            projections);
  };
  of_x(p.q_lora, std::array{Projection{weight_of(insn.weight(kQA)), scratch.q_a, vector_of(insn.weight(kQABias))}});
  of_x(columns.count, std::array{Projection{weight_of(insn.weight(kK)), scratch.projected + columns.k},
                                 Projection{weight_of(insn.weight(kWeights)), scratch.projected + columns.weights}});
  stream.launch<kernels::RmsNorm>({1, ctx.total_rows}, {.x = scratch.q_a,
                                                        .weight = vector_of(insn.weight(kQANorm)),
                                                        .y = scratch.q_a,
                                                        .x_stride = p.q_lora,
                                                        .y_stride = p.q_lora,
                                                        .width = p.q_lora,
                                                        .eps = p.q_norm_eps});
  project(stream,
          {.x = scratch.q_a,
           .x_stride = p.q_lora,
           .rows = ctx.total_rows,
           .narrowed = scratch.q_a_narrowed,
           .staged = {},
           .y_stride = columns.count},
          std::array{Projection{weight_of(insn.weight(kQB)), scratch.projected}});
}

// Norm of keys, rotation of both, append: the key is a key head without a value.
void finish_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LightningIndexParams& p,
                 const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  float* k = scratch.projected + scratch.columns.k;
  stream.launch<kernels::LayerNorm>({1, ctx.total_rows}, {.x = k,
                                                          .weight = vector_of(insn.weight(IndexSlot::kKNorm)),
                                                          .bias = vector_of(insn.weight(IndexSlot::kKNormBias)),
                                                          .y = k,
                                                          .x_stride = scratch.columns.count,
                                                          .y_stride = scratch.columns.count,
                                                          .width = p.d_index,
                                                          .eps = p.k_norm_eps});
  const kernels::FinishHeadsArgs args{.rows = scratch.projected,
                                      .stride = scratch.columns.count,
                                      .heads = p.heads,
                                      .kv_heads = 1,
                                      .d_qk = p.d_index,
                                      .d_v = 0,
                                      .rotation = rotation_of(ctx, p),
                                      .cache = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes)};
  const Grid grid{p.heads + 1, ctx.total_rows};
  if (static_cast<DType>(p.kv_dtype) == DType::kF32) {
    stream.launch<kernels::FinishHeads<DType::kF32>>(grid, args);
  } else {
    stream.launch<kernels::FinishHeads<DType::kF16>>(grid, args);
  }
}

// Of rows [first, first + rows): scores, then the bits of the highest. `pages` go up by powers of two where there is room, as splits
// of attention do (attend.h).
void choose_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LightningIndexParams& p,
                 const Scratch& scratch, std::uint32_t first, std::uint32_t rows, std::uint32_t pages, float* scores) {
  const CudaStream& stream = stream_of(ctx);
  const std::uint64_t stride = std::uint64_t{pages} * kernels::kPage;
  const float* q = scratch.projected + first * scratch.columns.count;
  const kernels::IndexScoresArgs args{.cache = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes),
                                      .q = q,
                                      .weights = q + scratch.columns.weights,
                                      .stride = scratch.columns.count,
                                      .scores = scores,
                                      .scores_stride = stride,
                                      .heads = p.heads,
                                      .dims = p.d_index,
                                      .first_row = first,
                                      .scale = p.scale};
  if (static_cast<DType>(p.kv_dtype) == DType::kF32) {
    stream.launch<kernels::IndexScores<DType::kF32>>({pages, rows}, args);
  } else {
    stream.launch<kernels::IndexScores<DType::kF16>>({pages, rows}, args);
  }
  stream.launch<kernels::IndexChoose>({rows}, {.scores = scores,
                                               .positions = ctx.positions,
                                               .bits = insn.output<std::uint32_t>(0),
                                               .scores_stride = stride,
                                               .words = p.words,
                                               .top_k = p.top_k,
                                               .first_row = first});
}

std::uint64_t row_bytes(std::uint64_t pages) { return pages * kernels::kPage * sizeof(float); }

}  // namespace

Status LightningIndexAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LightningIndexParams>();
  Arena arena(ctx);
  const Scratch scratch(arena, p, insn.input(0), ctx.total_rows);
  project_rows(ctx, insn, p, scratch);
  finish_rows(ctx, insn, p, scratch);
  const plan::Workspace rest = arena.rest();
  const auto needed = static_cast<std::uint32_t>(plan::pages_of(longest_of(ctx))), doubled = std::bit_ceil(needed);
  const std::uint32_t pages = row_bytes(doubled) <= rest.bytes ? doubled : needed;
  const auto at_once =
      static_cast<std::uint32_t>(std::min<std::uint64_t>(rest.bytes / row_bytes(pages), ctx.total_rows));
  ASSERT(at_once != 0, "{} bytes do not hold the scores of a row", rest.bytes);
  for (std::uint32_t first = 0; first < ctx.total_rows; first += at_once)
    choose_rows(ctx, insn, p, scratch, first, std::min(at_once, ctx.total_rows - first), pages,
                reinterpret_cast<float*>(rest.ptr));
  return stream_of(ctx).status();
}

std::uint64_t LightningIndexAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                     const plan::Backend&) noexcept {
  const auto& p = plan::param_as<LightningIndexParams>(params);
  Arena arena;
  Scratch(arena, p, nullptr, limits.rows_max);
  const std::uint64_t row = row_bytes(plan::pages_of(limits.context_tokens_max));
  arena.take<std::byte>(std::max(row, std::min(kScoresBytesMax, limits.rows_max * row)));
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::lightning_index
