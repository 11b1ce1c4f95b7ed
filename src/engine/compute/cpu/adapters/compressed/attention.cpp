// Attention to the last rows, and to entries of the windows before them: all, or those with the highest scores.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/compressed/compressed.h"
#include "engine/compute/cpu/adapters/mixers/choose.h"
#include "engine/compute/cpu/adapters/mixers/head_projection.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::compressed::attention {

using plan::Backend;
using plan::CompressedAttentionParams;
using plan::CompressedAttentionSlot;
using plan::DType;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Rows of the row-wise part below which a region stays on the caller.
constexpr std::size_t kGrainRows = 4;

std::size_t rounded(std::size_t count) { return (count + 15) / 16 * 16; }

struct Scratch {
  Scratch(Arena& arena, const CompressedAttentionParams& p, std::size_t rows, std::size_t context, std::size_t threads)
      : columns(p),
        heads_width(std::size_t{p.heads} * p.d_head),
        entries(p.top_k != 0 ? entries_seen(p, context) : 0),
        words((entries + 31) / 32),
        keys_max(rounded(keys_attended(p, context))),
        projected(arena.take<float>(rows * columns.count)),
        q(arena.take<float>(rows * heads_width)),
        index_q(arena.take<float>(rows * p.index_heads * p.d_index)),
        attended(arena.take<float>(rows * heads_width)),
        low(arena.take<float>(rows * p.groups * p.o_rank)),
        cosines(arena.take<float>(rows * p.d_rope)),
        sines(arena.take<float>(rows * p.d_rope)),
        ones(arena.take<float>(p.d_head)),
        bits(arena.take<std::uint32_t>(rows * words)),
        index_scores(arena.take<float>(threads * entries)),
        order(arena.take<std::int32_t>(threads * entries)),
        keys(arena.take<const void*>(threads * keys_max)),
        scores(arena.take<float>(threads * kCompressedHeads * keys_max)),
        x(arena.take_quantized(rows, p.width)),
        q_a(arena.take_quantized(rows, p.q_lora)),
        grouped(arena.take_quantized(rows * p.groups, heads_width / p.groups)),
        low_quantized(arena.take_quantized(rows, std::size_t{p.groups} * p.o_rank)) {}

  CompressedColumns columns;
  std::size_t heads_width;
  std::size_t entries, words;  // that an index chooses among, and the words of their bits
  std::size_t keys_max;
  float* projected;     // [T, columns]
  float* q;             // [T, H * d_head]
  float* index_q;       // [T, index heads * d_index]
  float* attended;      // [T, H * d_head]
  float* low;           // [T, groups * o_rank]
  float* cosines;       // [T, d_rope]
  float* sines;         // [T, d_rope]
  float* ones;          // [d_head]
  std::uint32_t* bits;  // [T, words]
  float* index_scores;  // [threads, entries]
  std::int32_t* order;  // [threads, entries]
  const void** keys;    // [threads, keys_max]
  float* scores;        // [threads, kCompressedHeads, keys_max]
  QuantizedRows x, q_a, grouped, low_quantized;
};

// One instruction of one step.
class Attention {
 public:
  Attention(const ExecutionContext& ctx, const PreparedInsn& insn)
      : ctx_(ctx),
        insn_(insn),
        p_(insn.param<CompressedAttentionParams>()),
        stream_(stream_of(ctx)),
        rows_(ctx.total_rows),
        context_(*std::max_element(ctx.positions, ctx.positions + rows_) + std::size_t{1}),
        arena_(ctx.workspace),
        scratch_(arena_, p_, rows_, context_, stream_.pool.threads_count()),
        cache_(cache()) {}

  void run() {
    std::fill_n(scratch_.ones, p_.d_head, 1.0f);
    project_rows();
    stream_.pool.run(rows_, kGrainRows, [&](Range rows, std::size_t) { finish_rows(rows); });
    stream_.kernels.compressed_append({.cache = cache_,
                                       .kv = scratch_.projected + scratch_.columns.kv,
                                       .kv_stride = scratch_.columns.count,
                                       .entries = p_.rate != 0 ? insn_.input(1) : nullptr},
                                      {0, rows_});
    if (p_.top_k != 0) choose_entries();
    attend();
    stream_.pool.run(rows_, kGrainRows, [&](Range rows, std::size_t) {
      for (std::size_t i = rows.begin * p_.d_rope; i < rows.end * p_.d_rope; ++i)
        scratch_.sines[i] = -scratch_.sines[i];
      rotate(scratch_.attended, scratch_.heads_width, p_.heads, p_.d_head, rows);
    });
    project_out();
  }

 private:
  using Slot = CompressedAttentionSlot;
  const CpuWeight* weight(Slot which) const { return weight_of(insn_.weight(which)); }
  const float* vector(Slot which) const { return vector_of(insn_.weight(which)); }
  RopeLayout layout() const {
    return p_.rope_layout == plan::RopeLayout::kHalf ? RopeLayout::kHalf : RopeLayout::kInterleaved;
  }

  CompressedCache cache() const {
    const plan::CompressedKvLayout kv = compressed_kv_layout(p_);
    const plan::StateBlockHandle& state = insn_.states.front();
    return {.type = kv.dtype == DType::kF32 ? KvType::kF32 : KvType::kF16,
            .pages = {.pages = state.pages,
                      .pages_stride = state.pages_stride,
                      .offset_bytes = p_.kv_page_offset_bytes,
                      .sequence_of_row = ctx_.slot_of_row,
                      .positions = ctx_.positions},
            .head_dim = p_.d_head,
            .index_dim = p_.d_index,
            .rate = p_.rate,
            .entry_offset = kv.entry_offset(),
            .index_offset = kv.index_offset()};
  }

  void project_some(const float* x, std::size_t x_stride, const QuantizedRows& quantized, std::size_t y_stride,
                    std::span<const Projection> projections) const {
    project(stream_, {.x = x, .x_stride = x_stride, .rows = rows_, .quantized = quantized, .y_stride = y_stride},
            projections);
  }

  void project_rows() const {
    const CompressedColumns& columns = scratch_.columns;
    float* projected = scratch_.projected;
    const std::array of_x{Projection{weight(Slot::kQA), projected},
                          Projection{weight(Slot::kKv), projected + columns.kv},
                          Projection{weight(Slot::kIndexWeights), projected + columns.weights}};
    project_some(insn_.input(0), p_.width, scratch_.x, columns.count, std::span(of_x).first(p_.top_k != 0 ? 3 : 2));
    stream_.pool.run(rows_, kGrainRows, [&](Range rows, std::size_t) {
      norm(projected, p_.q_lora, columns.count, vector(Slot::kQANorm), rows);
      norm(projected + columns.kv, p_.d_head, columns.count, vector(Slot::kKvNorm), rows);
    });
    project_some(projected, columns.count, scratch_.q_a, scratch_.heads_width,
                 std::array{Projection{weight(Slot::kQB), scratch_.q}});
    if (p_.top_k != 0)
      project_some(projected, columns.count, scratch_.q_a, std::size_t{p_.index_heads} * p_.d_index,
                   std::array{Projection{weight(Slot::kIndexQ), scratch_.index_q}});
  }

  void norm(float* x, std::size_t width, std::size_t stride, const float* by, Range rows) const {
    stream_.kernels.rms_norm(
        {.x = x, .weight = by, .y = x, .width = width, .x_stride = stride, .y_stride = stride, .eps = p_.norm_eps},
        rows);
  }
  // The last d_rope elements of every head.
  void rotate(float* x, std::size_t stride, std::size_t heads, std::size_t dim, Range rows) const {
    stream_.kernels.rope({.x = x + (dim - p_.d_rope),
                          .x_stride = stride,
                          .heads = heads,
                          .head_dim = dim,
                          .cosines = scratch_.cosines,
                          .sines = scratch_.sines,
                          .rotary_dims = p_.d_rope,
                          .layout = layout()},
                         rows);
  }
  void finish_rows(Range rows) const {
    const plan::RopeTable& table = ctx_.rope_tables[p_.rope_table_id];
    stream_.kernels.rope_table({.positions = ctx_.positions,
                                .inv_freq = table.inv_freq,
                                .cosines = scratch_.cosines,
                                .sines = scratch_.sines,
                                .rotary_dims = p_.d_rope,
                                .attn_factor = table.attn_factor,
                                .layout = layout()},
                               rows);
    norm(scratch_.q, p_.d_head, p_.d_head, scratch_.ones, {rows.begin * p_.heads, rows.end * p_.heads});
    rotate(scratch_.q, scratch_.heads_width, p_.heads, p_.d_head, rows);
    rotate(scratch_.projected + scratch_.columns.kv, scratch_.columns.count, 1, p_.d_head, rows);
    if (p_.top_k != 0)
      rotate(scratch_.index_q, std::size_t{p_.index_heads} * p_.d_index, p_.index_heads, p_.d_index, rows);
  }

  void choose_entries() const {
    stream_.pool.run(rows_, 1, [&](Range range, std::size_t thread) {
      float* scores = scratch_.index_scores + thread * scratch_.entries;
      const CompressedScoresArgs args{.cache = cache_,
                                      .q = scratch_.index_q,
                                      .q_stride = std::size_t{p_.index_heads} * p_.d_index,
                                      .weights = scratch_.projected + scratch_.columns.weights,
                                      .weights_stride = scratch_.columns.count,
                                      .heads = p_.index_heads,
                                      .scale = p_.index_scale,
                                      .scores = scores};
      for (std::size_t row = range.begin; row < range.end; ++row) {
        const std::size_t count = entries_seen(p_, ctx_.positions[row] + std::size_t{1});
        if (count > p_.top_k) stream_.kernels.compressed_scores(args, {row, row + 1});
        mixers::choose_highest(scores, scratch_.order + thread * scratch_.entries, count, p_.top_k,
                               {scratch_.bits + row * scratch_.words, scratch_.words});
      }
    });
  }

  void attend() const {
    const CompressedAttentionArgs all{.cache = cache_,
                                      .q = scratch_.q,
                                      .out = scratch_.attended,
                                      .heads = p_.heads,
                                      .window = p_.window,
                                      .scale = p_.scale,
                                      .sinks = vector(Slot::kSinks),
                                      .chosen = p_.top_k != 0 ? scratch_.bits : nullptr,
                                      .chosen_words = scratch_.words,
                                      .scores_stride = scratch_.keys_max};
    const std::size_t units = rows_ * ((p_.heads + kCompressedHeads - 1) / kCompressedHeads);
    const std::size_t products = rows_ * p_.heads * 2 * p_.d_head * keys_attended(p_, context_);
    attend_units(stream_, units, products, stream_.kernels.compressed_attention, [&](std::size_t thread) {
      CompressedAttentionArgs args = all;
      args.keys = scratch_.keys + thread * scratch_.keys_max;
      args.scores = scratch_.scores + thread * kCompressedHeads * scratch_.keys_max;
      return args;
    });
  }

  void project_out() const {
    const std::size_t low_width = std::size_t{p_.groups} * p_.o_rank;
    mixers::project_heads(stream_, {.stack = weight(Slot::kOA),
                                    .x = scratch_.attended,
                                    .x_stride = scratch_.heads_width,
                                    .x_head_stride = scratch_.heads_width / p_.groups,
                                    .quantized = scratch_.grouped,
                                    .y = scratch_.low,
                                    .y_stride = low_width,
                                    .y_head_stride = p_.o_rank,
                                    .rows = rows_});
    project_some(scratch_.low, low_width, scratch_.low_quantized, p_.width,
                 std::array{Projection{weight(Slot::kOB), insn_.output(0)}});
  }

  const ExecutionContext& ctx_;
  const PreparedInsn& insn_;
  const CompressedAttentionParams& p_;
  const CpuStream& stream_;
  std::size_t rows_, context_;
  Arena arena_;
  Scratch scratch_;
  CompressedCache cache_;
};

}  // namespace

Status CompressedAttentionAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<CompressedAttentionParams>();
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  Attention(ctx, insn).run();
  return Status::ok();
}

std::uint64_t CompressedAttentionAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                          const Backend& backend) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<CompressedAttentionParams>(params), limits.rows_max, limits.context_tokens_max,
          static_cast<const CpuBackend&>(backend).threads_count());
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::compressed::attention
