// Multi-head latent attention, absorbed: the cache holds one compressed row per position for all heads, queries go into
// its space and what attention gives comes back out of it.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/mixers/head_projection.h"
#include "engine/compute/cpu/adapters/mixers/mixers.h"
#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::mixers::mla {

using plan::Backend;
using plan::DType;
using plan::ExecutionContext;
using plan::MlaAttentionParams;
using plan::MlaSlot;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Rows of the row-wise part below which a region stays on the caller.
constexpr std::size_t kGrainRows = 4;
// Rows that are in the compressed space at a time: there a row is heads * (kv_lora + d_rope) wide, 288 KiB for 128 heads
// of 576. A pass over k_b and v_b per 32 rows is shared well enough.
constexpr std::size_t kLatentRows = 32;

struct Scratch {
  Scratch(Arena& arena, const MlaAttentionParams& p, std::size_t rows, std::size_t context, std::size_t threads)
      : widths(p),
        projected(arena.take<float>(rows * widths.projected)),
        expanded(arena.take<float>(p.q_lora != 0 ? rows * widths.q : 0)),
        cosines(arena.take<float>(rows * p.d_rope)),
        sines(arena.take<float>(rows * p.d_rope)),
        latent_q(arena.take<float>(kLatentRows * widths.latent_q)),
        latent(arena.take<float>(kLatentRows * widths.latent)),
        attended(arena.take<float>(rows * widths.attended)),
        x(arena.take_quantized(rows, p.width)),
        q_a(arena.take_quantized(rows, p.q_lora)),
        nope(arena.take_quantized(kLatentRows * p.heads, p.d_nope)),
        latent_quantized(arena.take_quantized(kLatentRows * p.heads, p.kv_lora)),
        attended_quantized(arena.take_quantized(rows, widths.attended)),
        scores_stride(plan::pages_of(context) * kPagePositions),
        scores(arena.take<float>(threads * kLatentHeads * scores_stride)) {}

  float* q(const MlaAttentionParams& p) const { return p.q_lora != 0 ? expanded : projected; }
  std::size_t q_stride(const MlaAttentionParams& p) const { return p.q_lora != 0 ? widths.q : widths.projected; }
  float* c() const { return projected + widths.first; }

  MlaWidths widths;
  float* projected;  // [T, q or q_a | c | k_pe]
  float* expanded;   // [T, H * (d_nope + d_rope)], with query compression
  float* cosines;    // [T, d_rope]
  float* sines;      // [T, d_rope]
  float* latent_q;   // [kLatentRows, H, kv_lora + d_rope]
  float* latent;     // [kLatentRows, H, kv_lora]
  float* attended;   // [T, H * d_v]
  QuantizedRows x, q_a, nope, latent_quantized, attended_quantized;
  std::size_t scores_stride;
  float* scores;  // [threads, kLatentHeads, scores_stride]
};

const float* vector_of(const PreparedInsn& insn, MlaSlot which) {
  const CpuWeight* weight = weight_of(insn.weight(which));
  return weight != nullptr ? weight->vector : nullptr;
}

KvType kv_type(const MlaAttentionParams& p) {
  return static_cast<DType>(p.kv_dtype) == DType::kF32 ? KvType::kF32 : KvType::kF16;
}
RopeLayout rope_layout(const MlaAttentionParams& p) {
  return p.rope_layout == plan::RopeLayout::kHalf ? RopeLayout::kHalf : RopeLayout::kInterleaved;
}

KvPages kv_pages(const ExecutionContext& ctx, const PreparedInsn& insn, std::size_t first_row) {
  const plan::StateBlockHandle& state = insn.states.front();
  return {.pages = state.pages,
          .pages_stride = state.pages_stride,
          .offset_bytes = insn.param<MlaAttentionParams>().kv_page_offset_bytes,
          .sequence_of_row = ctx.slot_of_row + first_row,
          .positions = ctx.positions + first_row};
}

// Rotates `heads` parts of d_rope elements, head_stride apart, in every row of the range.
struct Rotation {
  float* x = nullptr;
  std::size_t x_stride = 0;
  std::size_t heads = 0;
  std::size_t head_stride = 0;
};
void rotate(const CpuStream& stream, const MlaAttentionParams& p, const Scratch& scratch, const Rotation& part,
            Range rows) {
  if (p.rope_layout == plan::RopeLayout::kNone) return;
  stream.kernels.rope({.x = part.x,
                       .x_stride = part.x_stride,
                       .heads = part.heads,
                       .head_dim = part.head_stride,
                       .cosines = scratch.cosines,
                       .sines = scratch.sines,
                       .rotary_dims = p.d_rope,
                       .layout = rope_layout(p)},
                      rows);
}

void make_rope_table(const ExecutionContext& ctx, const MlaAttentionParams& p, const Scratch& scratch, Range rows) {
  if (p.rope_layout == plan::RopeLayout::kNone) return;
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  const plan::RopeTable& table = ctx.rope_tables[p.rope_table_id];
  stream_of(ctx).kernels.rope_table({.positions = ctx.positions,
                                     .inv_freq = table.inv_freq,
                                     .cosines = scratch.cosines,
                                     .sines = scratch.sines,
                                     .rotary_dims = p.d_rope,
                                     .attn_factor = table.attn_factor,
                                     .layout = rope_layout(p)},
                                    rows);
}

// Biases and norms of the compressed vectors, rotation of k_pe, append.
void finish_compressed(const ExecutionContext& ctx, const PreparedInsn& insn, const MlaAttentionParams& p,
                       const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const std::size_t stride = scratch.widths.projected;
  const auto norm = [&](float* x, std::size_t width, MlaSlot weight) {
    stream.kernels.rms_norm({.x = x,
                             .weight = vector_of(insn, weight),
                             .y = x,
                             .width = width,
                             .x_stride = stride,
                             .y_stride = stride,
                             .eps = p.norm_eps},
                            rows);
  };
  const auto add_bias = [&](float* x, std::size_t width, MlaSlot which) {
    if (const float* bias = vector_of(insn, which))
      stream.kernels.add_bias({.x = x, .x_stride = stride, .width = width, .bias = bias}, rows);
  };
  if (p.q_lora != 0) {
    add_bias(scratch.projected, p.q_lora, MlaSlot::kQABias);
    norm(scratch.projected, p.q_lora, MlaSlot::kQANorm);
  }
  add_bias(scratch.c(), scratch.widths.key, MlaSlot::kKvABias);
  norm(scratch.c(), p.kv_lora, MlaSlot::kKvANorm);
  make_rope_table(ctx, p, scratch, rows);
  rotate(stream, p, scratch, {.x = scratch.c() + p.kv_lora, .x_stride = stride, .heads = 1, .head_stride = p.d_rope},
         rows);
  stream.kernels.kv_append({.layout = {.type = kv_type(p), .kv_heads = 1, .key_dim = scratch.widths.key},
                            .pages = kv_pages(ctx, insn, 0),
                            .keys = scratch.c(),
                            .key_stride = stride},
                           rows);
}

void make_queries(const ExecutionContext& ctx, const PreparedInsn& insn, const MlaAttentionParams& p,
                  const Scratch& scratch) {
  const CpuStream& stream = stream_of(ctx);
  if (p.q_lora != 0)
    project(stream,
            {.x = scratch.projected,
             .x_stride = scratch.widths.projected,
             .rows = ctx.total_rows,
             .quantized = scratch.q_a,
             .y_stride = scratch.widths.q},
            std::array{Projection{weight_of(insn.weight(MlaSlot::kQB)), scratch.expanded}});
  const Rotation part{.x = scratch.q(p) + p.d_nope,
                      .x_stride = scratch.q_stride(p),
                      .heads = p.heads,
                      .head_stride = scratch.widths.head};
  stream.pool.run(ctx.total_rows, kGrainRows, [&](Range rows, std::size_t) { rotate(stream, p, scratch, part, rows); });
}

void attend_latent(const ExecutionContext& ctx, const PreparedInsn& insn, const Scratch& scratch, Range rows) {
  const auto& p = insn.param<MlaAttentionParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t count = rows.end - rows.begin;
  const LatentAttentionArgs all{
      .type = kv_type(p),
      .pages = kv_pages(ctx, insn, rows.begin),
      .q = scratch.latent_q,
      .q_stride = scratch.widths.latent_q,
      .out = scratch.latent,
      .out_stride = scratch.widths.latent,
      .heads = p.heads,
      .latent_dim = p.kv_lora,
      .key_dim = scratch.widths.key,
      .scale = p.scale,
      .scores_stride = scratch.scores_stride,
      .chosen = p.index_words != 0 ? insn.input<std::uint32_t>(1) + rows.begin * p.index_words : nullptr,
      .chosen_words = p.index_words};
  // Heads of a unit share what they read of a cache; fewer where threads would go without.
  std::size_t unit_heads = kLatentHeads;
  const auto units_of = [&] { return count * ((p.heads + unit_heads - 1) / unit_heads); };
  while (unit_heads > 1 && units_of() < stream.pool.threads_count()) unit_heads /= 2;
  const std::size_t units = units_of();
  const std::size_t last = *std::max_element(ctx.positions + rows.begin, ctx.positions + rows.end);
  const std::size_t products = count * p.heads * (scratch.widths.key + p.kv_lora) * (last + 1);
  attend_units(stream, units, products, stream.kernels.latent_attention, [&](std::size_t thread) {
    LatentAttentionArgs args = all;
    args.unit_heads = unit_heads;
    args.scores = scratch.scores + thread * kLatentHeads * scratch.scores_stride;
    return args;
  });
}

// Into the compressed space, attention there, and back, for a few rows.
void attend_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const MlaAttentionParams& p,
                 const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const MlaWidths& widths = scratch.widths;
  const std::size_t count = rows.end - rows.begin, q_stride = scratch.q_stride(p);
  const float* q = scratch.q(p) + rows.begin * q_stride;
  project_heads(stream, {.stack = weight_of(insn.weight(MlaSlot::kKB)),
                         .x = q,
                         .x_stride = q_stride,
                         .x_head_stride = widths.head,
                         .quantized = scratch.nope,
                         .y = scratch.latent_q,
                         .y_stride = widths.latent_q,
                         .y_head_stride = widths.key,
                         .rows = count});
  for (std::size_t row = 0; row < count; ++row)
    for (std::size_t head = 0; head < p.heads; ++head)
      std::copy_n(q + row * q_stride + head * widths.head + p.d_nope, p.d_rope,
                  scratch.latent_q + row * widths.latent_q + head * widths.key + p.kv_lora);
  attend_latent(ctx, insn, scratch, rows);
  project_heads(stream, {.stack = weight_of(insn.weight(MlaSlot::kVB)),
                         .x = scratch.latent,
                         .x_stride = widths.latent,
                         .x_head_stride = p.kv_lora,
                         .quantized = scratch.latent_quantized,
                         .y = scratch.attended + rows.begin * widths.attended,
                         .y_stride = widths.attended,
                         .y_head_stride = p.d_v,
                         .rows = count});
}

}  // namespace

Status MlaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<MlaAttentionParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  const std::size_t context = *std::max_element(ctx.positions, ctx.positions + rows) + std::size_t{1};
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows, context, stream.pool.threads_count());
  const CpuWeight* first = weight_of(insn.weight(p.q_lora != 0 ? MlaSlot::kQA : MlaSlot::kQ));
  project(
      stream,
      {.x = insn.input(0),
       .x_stride = p.width,
       .rows = rows,
       .quantized = scratch.x,
       .y_stride = scratch.widths.projected},
      std::array{Projection{first, scratch.projected}, Projection{weight_of(insn.weight(MlaSlot::kKvA)), scratch.c()}});
  stream.pool.run(rows, kGrainRows, [&](Range range, std::size_t) { finish_compressed(ctx, insn, p, scratch, range); });
  make_queries(ctx, insn, p, scratch);
  for (std::size_t row = 0; row < rows; row += kLatentRows)
    attend_rows(ctx, insn, p, scratch, {row, std::min(rows, row + kLatentRows)});
  float* y = insn.output(0);
  project(stream,
          {.x = scratch.attended,
           .x_stride = scratch.widths.attended,
           .rows = rows,
           .quantized = scratch.attended_quantized,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(MlaSlot::kO)), y}});
  if (const float* bias = vector_of(insn, MlaSlot::kOBias))
    stream.kernels.add_bias({.x = y, .x_stride = p.width, .width = p.width, .bias = bias}, {0, rows});
  return Status::ok();
}

std::uint64_t MlaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                          const Backend& backend) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<MlaAttentionParams>(params), limits.rows_max, limits.context_tokens_max,
          static_cast<const CpuBackend&>(backend).threads_count());
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers::mla
