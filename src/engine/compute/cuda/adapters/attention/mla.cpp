// Multi-head latent attention, absorbed: the cache holds one compressed row per position for all heads, queries go into
// its space and what attention gives comes back out of it.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters::mla {

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

// Rows that are in the compressed space at a time: there a row is heads * (kv_lora + d_rope) wide, 288 KiB for 128 heads
// of 576. A step of decode fits whole.
constexpr std::uint32_t kLatentRows = 64;

struct Scratch {
  Scratch(Arena& arena, const MlaAttentionParams& p, const float* input, std::uint64_t rows)
      : Scratch(arena, p, input, rows, std::min<std::uint64_t>(rows, kLatentRows)) {}
  Scratch(Arena& arena, const MlaAttentionParams& p, const float* input, std::uint64_t rows, std::uint64_t latent_rows)
      : widths(p),
        staged(arena.take_staged(input, rows, p.width)),
        projected(arena.take<float>(rows * widths.projected)),
        expanded(arena.take<float>(p.q_lora != 0 ? rows * widths.q : 0)),
        latent_q(arena.take<float>(latent_rows * widths.latent_q)),
        latent(arena.take<float>(latent_rows * widths.latent)),
        attended(arena.take<float>(rows * widths.attended)),
        x(arena.take_narrowed(rows, p.width)),
        q_a(arena.take_narrowed(rows, p.q_lora)),
        nope(arena.take_narrowed(latent_rows * p.heads, p.d_nope)),
        latent_narrowed(arena.take_narrowed(latent_rows * p.heads, p.kv_lora)),
        attended_narrowed(arena.take_narrowed(rows, widths.attended)) {}

  float* q(const MlaAttentionParams& p) const { return p.q_lora != 0 ? expanded : projected; }
  std::uint64_t q_stride(const MlaAttentionParams& p) const { return p.q_lora != 0 ? widths.q : widths.projected; }
  float* c() const { return projected + widths.first; }

  MlaWidths widths;
  Arena::Staged staged;
  float* projected;  // [T, q or q_a | c | k_pe]
  float* expanded;   // [T, H * (d_nope + d_rope)], with query compression
  float* latent_q;   // [kLatentRows, H, kv_lora + d_rope]
  float* latent;     // [kLatentRows, H, kv_lora]
  float* attended;   // [T, H * d_v]
  Arena::Narrowed x, q_a, nope, latent_narrowed, attended_narrowed;
};

const float* vector_of_slot(const PreparedInsn& insn, MlaSlot which) { return vector_of(insn.weight(which)); }

bool is_f32(const MlaAttentionParams& p) { return static_cast<DType>(p.kv_dtype) == DType::kF32; }

kernels::Rotation rotation_of(const ExecutionContext& ctx, const MlaAttentionParams& p) {
  kernels::Rotation rotation{.layout = p.rope_layout, .dims = p.d_rope, .positions = ctx.positions};
  if (p.rope_layout == plan::RopeLayout::kNone) return rotation;
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  rotation.inv_freq = ctx.rope_tables[p.rope_table_id].inv_freq;
  rotation.factor = ctx.rope_tables[p.rope_table_id].attn_factor;
  return rotation;
}

// Rows into the compressed vectors, those normed, k_pe rotated, both appended; queries in their heads.
void project_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const MlaAttentionParams& p,
                  const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const MlaWidths& widths = scratch.widths;
  const MlaSlot first = p.q_lora != 0 ? MlaSlot::kQA : MlaSlot::kQ;
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = widths.projected},
          std::array{
              Projection{weight_of(insn.weight(first)), scratch.projected, vector_of_slot(insn, MlaSlot::kQABias)},
              Projection{weight_of(insn.weight(MlaSlot::kKvA)), scratch.c(), vector_of_slot(insn, MlaSlot::kKvABias)}});
  const kernels::FinishLatentArgs finish{.rows = scratch.c(),
                                         .stride = widths.projected,
                                         .latent_dim = p.kv_lora,
                                         .rest_dim = p.d_rope,
                                         .norm = vector_of_slot(insn, MlaSlot::kKvANorm),
                                         .eps = p.norm_eps,
                                         .rotation = rotation_of(ctx, p),
                                         .cache = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes)};
  if (is_f32(p)) {
    stream.launch<kernels::FinishLatent<DType::kF32>>({ctx.total_rows}, finish);
  } else {
    stream.launch<kernels::FinishLatent<DType::kF16>>({ctx.total_rows}, finish);
  }
  if (p.q_lora == 0) return;
  const CudaWeight* expand = weight_of(insn.weight(MlaSlot::kQB));
  const Arena::Staged normed = staged_in(scratch.q_a, form_of(expand->dtype));
  stream.launch<kernels::RmsNorm>({1, ctx.total_rows}, {.x = scratch.projected,
                                                        .weight = vector_of_slot(insn, MlaSlot::kQANorm),
                                                        .y = scratch.projected,
                                                        .x_stride = widths.projected,
                                                        .y_stride = widths.projected,
                                                        .width = p.q_lora,
                                                        .eps = p.norm_eps,
                                                        .narrowed = wanted(normed)});
  project(stream,
          {.x = scratch.projected,
           .x_stride = widths.projected,
           .rows = ctx.total_rows,
           .staged = normed,
           .y_stride = widths.q},
          std::array{Projection{expand, scratch.expanded}});
}

// Into the compressed space, attention there, and back, for rows [first, first + rows).
void attend_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const MlaAttentionParams& p,
                 const Scratch& scratch, std::uint32_t first, std::uint32_t rows, const plan::Workspace& rest) {
  const CudaStream& stream = stream_of(ctx);
  const MlaWidths& widths = scratch.widths;
  const float* q = scratch.q(p) + first * scratch.q_stride(p);
  project(stream,
          {.x = q,
           .x_stride = scratch.q_stride(p),
           .rows = rows,
           .narrowed = scratch.nope,
           .y_stride = widths.latent_q,
           .matrices = p.heads,
           .x_stack_stride = widths.head,
           .y_stack_stride = widths.key},
          std::array{Projection{weight_of(insn.weight(MlaSlot::kKB)), scratch.latent_q}});
  stream.launch<kernels::LatentQuery>({p.heads, rows}, {.q = q,
                                                        .q_stride = scratch.q_stride(p),
                                                        .d_nope = p.d_nope,
                                                        .rest_dim = p.d_rope,
                                                        .latent_dim = p.kv_lora,
                                                        .heads = p.heads,
                                                        .first_row = first,
                                                        .latent = scratch.latent_q,
                                                        .rotation = rotation_of(ctx, p)});
  kernels::AttentionArgs<kernels::KvPages> args{.q = scratch.latent_q,
                                                .q_stride = widths.latent_q,
                                                .out = scratch.latent,
                                                .heads = p.heads,
                                                .kv_heads = 1,
                                                .d_qk = static_cast<std::uint32_t>(widths.key),
                                                .d_v = p.kv_lora,
                                                .scale = p.scale,
                                                .first_row = first,
                                                .from = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes)};
  if (p.index_words != 0) args.chosen = insn.input<std::uint32_t>(1), args.chosen_words = p.index_words;
  if (is_f32(p)) {
    attend<kernels::LatentKeys<DType::kF32>>(stream, args, rows, longest_of(ctx), rest);
  } else {
    attend<kernels::LatentKeys<DType::kF16>>(stream, args, rows, longest_of(ctx), rest);
  }
  project(stream,
          {.x = scratch.latent,
           .x_stride = widths.latent,
           .rows = rows,
           .narrowed = scratch.latent_narrowed,
           .y_stride = widths.attended,
           .matrices = p.heads,
           .x_stack_stride = p.kv_lora,
           .y_stack_stride = p.d_v},
          std::array{Projection{weight_of(insn.weight(MlaSlot::kVB)),
                                scratch.attended + std::uint64_t{first} * widths.attended}});
}

}  // namespace

Status MlaAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<MlaAttentionParams>();
  const CudaStream& stream = stream_of(ctx);
  Arena arena(ctx);
  const Scratch scratch(arena, p, insn.input(0), ctx.total_rows);
  project_rows(ctx, insn, p, scratch);
  for (std::uint32_t first = 0; first < ctx.total_rows; first += kLatentRows)
    attend_rows(ctx, insn, p, scratch, first, std::min(kLatentRows, ctx.total_rows - first), arena.rest());
  project(stream,
          {.x = scratch.attended,
           .x_stride = scratch.widths.attended,
           .rows = ctx.total_rows,
           .narrowed = scratch.attended_narrowed,
           .y_stride = p.width},
          std::array{
              Projection{weight_of(insn.weight(MlaSlot::kO)), insn.output(0), vector_of_slot(insn, MlaSlot::kOBias)}});
  return stream.status();
}

std::uint64_t MlaAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits, const Backend&) noexcept {
  const auto& p = plan::param_as<MlaAttentionParams>(params);
  const AttentionShape shape{.heads = p.heads, .kv_heads = 1, .d_v = p.kv_lora};
  Arena arena;
  Scratch(arena, p, nullptr, limits.rows_max);
  arena.take<std::byte>(shape.parts_bytes_wanted(std::min(limits.rows_max, kLatentRows), limits.context_tokens_max));
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::mla
