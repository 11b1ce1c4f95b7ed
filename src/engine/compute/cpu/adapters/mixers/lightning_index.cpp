// Which earlier positions latent attention attends to: the highest scores of a small attention with keys of its own.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/mixers/choose.h"
#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::mixers::lightning_index {

using plan::Backend;
using plan::DType;
using plan::ExecutionContext;
using plan::IndexSlot;
using plan::LightningIndexParams;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

constexpr std::size_t kGrainRows = 4;

// What a thread needs for one row.
struct RowScratch {
  float* head_scores;  // [heads, kPagePositions]
  float* scores;       // [positions, whole pages]
  std::int32_t* keys;  // as scores
};

struct Scratch {
  Scratch(Arena& arena, const LightningIndexParams& p, std::size_t rows, std::size_t context, std::size_t threads)
      : columns(p),
        q_a(arena.take<float>(rows * p.q_lora)),
        projected(arena.take<float>(rows * columns.count)),
        cosines(arena.take<float>(rows * p.d_rope)),
        sines(arena.take<float>(rows * p.d_rope)),
        x(arena.take_quantized(rows, p.width)),
        q_a_quantized(arena.take_quantized(rows, p.q_lora)),
        positions(plan::pages_of(context) * kPagePositions),
        heads(p.heads),
        head_scores(arena.take<float>(threads * heads * kPagePositions)),
        scores(arena.take<float>(threads * positions)),
        keys(arena.take<std::int32_t>(threads * positions)) {}
  RowScratch of_thread(std::size_t thread) const {
    return {head_scores + thread * heads * kPagePositions, scores + thread * positions, keys + thread * positions};
  }

  IndexColumns columns;
  float* q_a;        // [T, q_lora]
  float* projected;  // [T, columns]
  float* cosines;    // [T, d_rope]
  float* sines;      // [T, d_rope]
  QuantizedRows x, q_a_quantized;
  std::size_t positions, heads;
  float *head_scores, *scores;
  std::int32_t* keys;
};

const float* vector(const PreparedInsn& insn, IndexSlot which) { return vector_of(insn.weight(which)); }

KvType kv_type(const LightningIndexParams& p) {
  return static_cast<DType>(p.kv_dtype) == DType::kF32 ? KvType::kF32 : KvType::kF16;
}
RopeLayout rope_layout(const LightningIndexParams& p) {
  return p.rope_layout == plan::RopeLayout::kHalf ? RopeLayout::kHalf : RopeLayout::kInterleaved;
}
KvPages kv_pages(const ExecutionContext& ctx, const PreparedInsn& insn) {
  const plan::StateBlockHandle& state = insn.states.front();
  return {.pages = state.pages,
          .pages_stride = state.pages_stride,
          .offset_bytes = insn.param<LightningIndexParams>().kv_page_offset_bytes,
          .sequence_of_row = ctx.slot_of_row,
          .positions = ctx.positions};
}

void project_rows(const CpuStream& stream, const PreparedInsn& insn, const LightningIndexParams& p,
                  const Scratch& scratch, std::size_t rows) {
  using enum IndexSlot;
  const auto project_some = [&](const float* x, std::size_t width, const QuantizedRows& quantized, std::size_t y_stride,
                                std::span<const Projection> projections) {
    project(stream, {.x = x, .x_stride = width, .rows = rows, .quantized = quantized, .y_stride = y_stride},
            projections);
  };
  const IndexColumns& columns = scratch.columns;
  project_some(insn.input(0), p.width, scratch.x, p.q_lora,
               std::array{Projection{weight_of(insn.weight(kQA)), scratch.q_a}});
  project_some(insn.input(0), p.width, scratch.x, columns.count,
               std::array{Projection{weight_of(insn.weight(kK)), scratch.projected + columns.k},
                          Projection{weight_of(insn.weight(kWeights)), scratch.projected + columns.weights}});
  stream.pool.run(rows, kGrainRows, [&](Range range, std::size_t) {
    if (const float* bias = vector(insn, kQABias))
      stream.kernels.add_bias({.x = scratch.q_a, .x_stride = p.q_lora, .width = p.q_lora, .bias = bias}, range);
    stream.kernels.rms_norm({.x = scratch.q_a,
                             .weight = vector(insn, kQANorm),
                             .y = scratch.q_a,
                             .width = p.q_lora,
                             .x_stride = p.q_lora,
                             .y_stride = p.q_lora,
                             .eps = p.q_norm_eps},
                            range);
  });
  project_some(scratch.q_a, p.q_lora, scratch.q_a_quantized, columns.count,
               std::array{Projection{weight_of(insn.weight(kQB)), scratch.projected}});
}

// Norm of keys, rotation of both, append.
void finish_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const LightningIndexParams& p,
                 const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  float* k = scratch.projected + scratch.columns.k;
  const std::size_t stride = scratch.columns.count;
  stream.kernels.layer_norm({.x = k,
                             .weight = vector(insn, IndexSlot::kKNorm),
                             .bias = vector(insn, IndexSlot::kKNormBias),
                             .y = k,
                             .width = p.d_index,
                             .x_stride = stride,
                             .y_stride = stride,
                             .eps = p.k_norm_eps},
                            rows);
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  const plan::RopeTable& table = ctx.rope_tables[p.rope_table_id];
  stream.kernels.rope_table({.positions = ctx.positions,
                             .inv_freq = table.inv_freq,
                             .cosines = scratch.cosines,
                             .sines = scratch.sines,
                             .rotary_dims = p.d_rope,
                             .attn_factor = table.attn_factor,
                             .layout = rope_layout(p)},
                            rows);
  stream.kernels.rope({.x = scratch.projected,  // the key is one more head
                       .x_stride = stride,
                       .heads = p.heads + std::size_t{1},
                       .head_dim = p.d_index,
                       .cosines = scratch.cosines,
                       .sines = scratch.sines,
                       .rotary_dims = p.d_rope,
                       .layout = rope_layout(p)},
                      rows);
  stream.kernels.kv_append({.layout = {.type = kv_type(p), .kv_heads = 1, .key_dim = p.d_index},
                            .pages = kv_pages(ctx, insn),
                            .keys = k,
                            .key_stride = stride},
                           rows);
}

}  // namespace

Status LightningIndexAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<LightningIndexParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  const std::size_t context = *std::max_element(ctx.positions, ctx.positions + rows) + std::size_t{1};
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows, context, stream.pool.threads_count());
  project_rows(stream, insn, p, scratch, rows);
  stream.pool.run(rows, kGrainRows, [&](Range range, std::size_t) { finish_rows(ctx, insn, p, scratch, range); });
  stream.pool.run(rows, 1, [&](Range range, std::size_t thread) {
    const RowScratch mine = scratch.of_thread(thread);
    const IndexScoresArgs args{.type = kv_type(p),
                               .pages = kv_pages(ctx, insn),
                               .q = scratch.projected,
                               .weights = scratch.projected + scratch.columns.weights,
                               .q_stride = scratch.columns.count,
                               .heads = p.heads,
                               .key_dim = p.d_index,
                               .scale = p.scale,
                               .head_scores = mine.head_scores,
                               .scores = mine.scores};
    for (std::size_t row = range.begin; row < range.end; ++row) {
      const std::size_t count = ctx.positions[row] + std::size_t{1};
      if (count > p.top_k) stream.kernels.index_scores(args, {row, row + 1});
      choose_highest(mine.scores, mine.keys, count, p.top_k, {insn.output<std::uint32_t>(0) + row * p.words, p.words});
    }
  });
  return Status::ok();
}

std::uint64_t LightningIndexAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                     const Backend& backend) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<LightningIndexParams>(params), limits.rows_max, limits.context_tokens_max,
          static_cast<const CpuBackend&>(backend).threads_count());
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers::lightning_index
