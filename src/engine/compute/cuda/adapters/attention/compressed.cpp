// Attention to the last rows, and to entries of the windows before them: all, or those with the highest scores.
#include <array>
#include <bit>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters::compressed {

using plan::CompressedAttentionParams;
using plan::CompressedAttentionSlot;
using plan::DType;
using plan::ExecutionContext;
using plan::PreparedInsn;
using plan::Status;

namespace {

// Most that scores of an index may take of the workspace, unless those of one row take more.
constexpr std::uint64_t kScoresBytesMax = 32u << 20;

std::uint32_t words_of(const CompressedAttentionParams& p, std::uint64_t context) {
  return p.top_k != 0 ? blocks_of(entries_seen(p, context), 32) : 0;
}

struct Scratch {
  Scratch(Arena& arena, const CompressedAttentionParams& p, const float* input, std::uint64_t rows,
          std::uint64_t context)
      : columns(p),
        heads_width(p.heads * p.d_head),
        low_width(p.groups * p.o_rank),
        index_width(p.index_heads * p.d_index),
        words(words_of(p, context)),
        staged(arena.take_staged(input, rows, p.width)),
        projected(arena.take<float>(rows * columns.count)),
        q(arena.take<float>(rows * heads_width)),
        index_q(arena.take<float>(rows * index_width)),
        attended(arena.take<float>(rows * heads_width)),
        low(arena.take<float>(rows * low_width)),
        bits(arena.take<std::uint32_t>(rows * words)),
        x(arena.take_narrowed(rows, p.width)),
        q_a(arena.take_narrowed(rows, p.q_lora)),
        grouped(arena.take_narrowed(rows * p.groups, heads_width / p.groups)),
        low_narrowed(arena.take_narrowed(rows, low_width)) {}
  CompressedColumns columns;
  std::uint32_t heads_width, low_width, index_width, words;
  Arena::Staged staged;
  float* projected;     // [T, columns]
  float* q;             // [T, H * d_head]
  float* index_q;       // [T, index heads * d_index]
  float* attended;      // [T, H * d_head]
  float* low;           // [T, groups * o_rank]
  std::uint32_t* bits;  // [T, words]
  Arena::Narrowed x, q_a, grouped, low_narrowed;
};

// One instruction of one step.
class Attention {
 public:
  Attention(const ExecutionContext& ctx, const PreparedInsn& insn)
      : ctx_(ctx),
        insn_(insn),
        p_(insn.param<CompressedAttentionParams>()),
        stream_(stream_of(ctx)),
        arena_(ctx),
        scratch_(arena_, p_, insn.input(0), ctx.total_rows, context()),
        layout_(compressed_kv_layout(p_)) {}

  void run() {
    project_rows();
    append();
    if (p_.top_k != 0) choose_entries();
    attend();
    finish(scratch_.attended, p_.heads, p_.d_head, scratch_.heads_width, {.back = true});
    project_out();
  }

 private:
  using Slot = CompressedAttentionSlot;
  const CudaWeight* weight(Slot which) const { return weight_of(insn_.weight(which)); }
  const float* vector(Slot which) const { return vector_of(insn_.weight(which)); }
  bool is_f32() const { return layout_.dtype == DType::kF32; }
  // Up by powers of two, so that a step of decode stays the same launches while its sequences grow; bits need whole words.
  std::uint64_t context() const { return std::bit_ceil(longest_of(ctx_)); }

  kernels::CompressedCache cache() const {
    return {.pages = pages_of(ctx_, insn_.states.front(), p_.kv_page_offset_bytes),
            .entry_offset = layout_.entry_offset(),
            .index_offset = layout_.index_offset(),
            .head_dim = p_.d_head,
            .index_dim = p_.d_index,
            .rate = p_.rate};
  }

  // Norm, if any, and rotation of the heads of all rows.
  void finish(float* x, std::uint32_t heads, std::uint32_t dim, std::uint64_t stride,
              kernels::FinishTailsArgs args) const {
    const plan::RopeTable& table = ctx_.rope_tables[p_.rope_table_id];
    args.x = x, args.stride = stride, args.dim = dim, args.tail = p_.d_rope, args.eps = p_.norm_eps;
    args.factor = table.attn_factor, args.layout = p_.rope_layout, args.positions = ctx_.positions;
    args.inv_freq = table.inv_freq;
    stream_.launch<kernels::FinishTails>({heads, ctx_.total_rows}, args);
  }

  void project_some(const float* x, std::uint64_t x_stride, const Arena::Narrowed& narrowed,
                    const Arena::Staged& staged, std::uint64_t y_stride,
                    std::span<const Projection> projections) const {
    project(stream_,
            {.x = x,
             .x_stride = x_stride,
             .rows = ctx_.total_rows,
             .narrowed = narrowed,
             .staged = staged,
             .y_stride = y_stride},
            projections);
  }

  void project_rows() const {
    const CompressedColumns& columns = scratch_.columns;
    float* projected = scratch_.projected;
    const std::array of_x{Projection{weight(Slot::kQA), projected},
                          Projection{weight(Slot::kKv), projected + columns.kv},
                          Projection{weight(Slot::kIndexWeights), projected + columns.weights}};
    project_some(insn_.input(0), p_.width, scratch_.x, scratch_.staged, columns.count,
                 std::span(of_x).first(p_.top_k != 0 ? 3 : 2));
    stream_.launch<kernels::RmsNorm>({1, ctx_.total_rows}, {.x = projected,
                                                            .weight = vector(Slot::kQANorm),
                                                            .y = projected,
                                                            .x_stride = columns.count,
                                                            .y_stride = columns.count,
                                                            .width = p_.q_lora,
                                                            .eps = p_.norm_eps});
    finish(projected + columns.kv, 1, p_.d_head, columns.count, {.norm = vector(Slot::kKvNorm), .norms = true});
    project_some(projected, columns.count, scratch_.q_a, {}, scratch_.heads_width,
                 std::array{Projection{weight(Slot::kQB), scratch_.q}});
    finish(scratch_.q, p_.heads, p_.d_head, scratch_.heads_width, {.norms = true});
    if (p_.top_k == 0) return;
    project_some(projected, columns.count, scratch_.q_a, {}, scratch_.index_width,
                 std::array{Projection{weight(Slot::kIndexQ), scratch_.index_q}});
    finish(scratch_.index_q, p_.index_heads, p_.d_index, scratch_.index_width, {});
  }

  void append() const {
    const kernels::CompressedAppendArgs args{.cache = cache(),
                                             .kv = scratch_.projected + scratch_.columns.kv,
                                             .entries = p_.rate != 0 ? insn_.input(1) : nullptr,
                                             .kv_stride = scratch_.columns.count};
    if (is_f32()) {
      stream_.launch<kernels::CompressedAppend<DType::kF32>>({ctx_.total_rows}, args);
    } else {
      stream_.launch<kernels::CompressedAppend<DType::kF16>>({ctx_.total_rows}, args);
    }
  }

  // Scores of as many rows at once as the rest of the workspace holds.
  void choose_entries() const {
    const plan::Workspace rest = arena_.rest();
    const std::uint32_t stride = scratch_.words * 32;
    const std::uint64_t row_bytes = std::uint64_t{stride} * sizeof(float);
    if (stride == 0) return;
    const auto at_once = static_cast<std::uint32_t>(std::min<std::uint64_t>(rest.bytes / row_bytes, ctx_.total_rows));
    ASSERT(at_once != 0, "{} bytes do not hold the scores of a row", rest.bytes);
    auto* scores = reinterpret_cast<float*>(rest.ptr);
    for (std::uint32_t first = 0; first < ctx_.total_rows; first += at_once) {
      const std::uint32_t rows = std::min(at_once, ctx_.total_rows - first);
      const kernels::CompressedScoresArgs args{.cache = cache(),
                                               .q = scratch_.index_q,
                                               .weights = scratch_.projected + scratch_.columns.weights,
                                               .scores = scores,
                                               .weights_stride = scratch_.columns.count,
                                               .scores_stride = stride,
                                               .heads = p_.index_heads,
                                               .first_row = first,
                                               .scale = p_.index_scale};
      const Grid grid{blocks_of(stride, kernels::CompressedScores<DType::kF32>::kThreads), rows};
      if (is_f32()) {
        stream_.launch<kernels::CompressedScores<DType::kF32>>(grid, args);
      } else {
        stream_.launch<kernels::CompressedScores<DType::kF16>>(grid, args);
      }
      stream_.launch<kernels::IndexChoose>({rows}, {.scores = scores,
                                                    .positions = ctx_.positions,
                                                    .bits = scratch_.bits,
                                                    .scores_stride = stride,
                                                    .words = scratch_.words,
                                                    .top_k = p_.top_k,
                                                    .first_row = first,
                                                    .rate = p_.rate});
    }
  }

  void attend() const {
    const kernels::CompressedAttendArgs args{.cache = cache(),
                                             .q = scratch_.q,
                                             .out = scratch_.attended,
                                             .sinks = vector(Slot::kSinks),
                                             .chosen = p_.top_k != 0 ? scratch_.bits : nullptr,
                                             .chosen_words = scratch_.words,
                                             .heads = p_.heads,
                                             .window = p_.window,
                                             .scale = p_.scale};
    if (is_f32()) {
      stream_.launch<kernels::CompressedAttend<DType::kF32>>({p_.heads, ctx_.total_rows}, args);
    } else {
      stream_.launch<kernels::CompressedAttend<DType::kF16>>({p_.heads, ctx_.total_rows}, args);
    }
  }

  void project_out() const {
    project(stream_,
            {.x = scratch_.attended,
             .x_stride = scratch_.heads_width,
             .rows = ctx_.total_rows,
             .narrowed = scratch_.grouped,
             .staged = {},
             .y_stride = scratch_.low_width,
             .matrices = p_.groups,
             .x_stack_stride = scratch_.heads_width / p_.groups,
             .y_stack_stride = p_.o_rank},
            std::array{Projection{weight(Slot::kOA), scratch_.low}});
    project_some(scratch_.low, scratch_.low_width, scratch_.low_narrowed, {}, p_.width,
                 std::array{Projection{weight(Slot::kOB), insn_.output(0)}});
  }

  const ExecutionContext& ctx_;
  const PreparedInsn& insn_;
  const CompressedAttentionParams& p_;
  const CudaStream& stream_;
  Arena arena_;
  Scratch scratch_;
  plan::CompressedKvLayout layout_;
};

}  // namespace

Status CompressedAttentionAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<CompressedAttentionParams>();
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  Attention(ctx, insn).run();
  return stream_of(ctx).status();
}

std::uint64_t CompressedAttentionAdapter::workspace_bytes(const plan::ParamBlock& params,
                                                          const plan::StepLimits& limits,
                                                          const plan::Backend&) noexcept {
  const auto& p = plan::param_as<CompressedAttentionParams>(params);
  const std::uint64_t context = std::bit_ceil(std::uint64_t{limits.context_tokens_max});
  Arena arena;
  Scratch(arena, p, nullptr, limits.rows_max, context);
  const std::uint64_t row = std::uint64_t{words_of(p, context)} * 32 * sizeof(float);
  arena.take<std::byte>(std::max(row, std::min(kScoresBytesMax, limits.rows_max * row)));
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::compressed
