// Multi-head attention: projections with their biases, then one kernel that norms, rotates and appends heads, then attention,
// then the output projection.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/attention/attend.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters::attention {

using plan::AttentionParams;
using plan::AttentionSlot;
using plan::Backend;
using plan::DType;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

// Column ranges of the projected rows [T, q | k | v].
struct Scratch {
  Scratch(Arena& arena, const AttentionParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        qkv(arena.take<float>(rows * AttentionColumns(p).count)),
        attended(arena.take<float>(rows * p.heads * p.d_v)),
        gate(arena.take<float>(rows * gate_columns(p))),
        x(arena.take_narrowed(rows, p.width)),
        attended_narrowed(arena.take_narrowed(rows, p.heads * p.d_v)) {}
  Arena::Staged staged;
  float* qkv;
  float* attended;  // [T, H * d_v]
  float* gate;      // [T, H] or [T, H * d_v]
  Arena::Narrowed x, attended_narrowed;
};

// Without several positions per row, rows stand at the same place on every axis.
bool several_axes(const ExecutionContext& ctx, const AttentionParams& p) {
  return p.rope_layout == plan::RopeLayout::kVision2d ||
         (p.mrope != plan::MropeKind::kNone && ctx.positions3 != nullptr);
}

kernels::Rotation rotation_of(const ExecutionContext& ctx, const AttentionParams& p) {
  kernels::Rotation rotation{.layout = p.rope_layout, .mrope = p.mrope, .dims = p.rotary_dims};
  if (p.rope_layout == plan::RopeLayout::kNone) return rotation;
  const auto table = [&](std::uint32_t id) -> const plan::RopeTable& {
    ASSERT(id < ctx.rope_tables.size() && ctx.rope_tables[id].count * 2 == p.rotary_dims,
           "table {} of {}, {} rotary dims", id, ctx.rope_tables.size(), p.rotary_dims);
    return ctx.rope_tables[id];
  };
  std::ranges::copy(p.sections, rotation.sections);
  rotation.axes = several_axes(ctx, p);
  ASSERT(!rotation.axes || ctx.positions3 != nullptr, "rows of an image without their places in it");
  rotation.positions = rotation.axes ? ctx.positions3 : ctx.positions;
  rotation.axis_stride = ctx.total_rows;
  rotation.inv_freq = table(p.rope_table_id).inv_freq;
  rotation.factor = table(p.rope_table_id).attn_factor;
  rotation.sequence_of_row = ctx.slot_of_row;
  if (ctx.long_rope_of_slot != nullptr && p.rope_table_long_id != plan::kNoRopeTable) {
    rotation.inv_freq_long = table(p.rope_table_long_id).inv_freq;
    rotation.factor_long = table(p.rope_table_long_id).attn_factor;
    rotation.is_long = ctx.long_rope_of_slot;
  }
  return rotation;
}

// All query heads of a row together, and all key heads.
void norm_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
               const Scratch& scratch) {
  const AttentionColumns columns(p);
  const auto norm = [&](float* x, std::uint64_t width, AttentionSlot weight) {
    stream_of(ctx).launch<kernels::RmsNorm>({1, ctx.total_rows}, {.x = x,
                                                                  .weight = vector_of(insn.weight(weight)),
                                                                  .y = x,
                                                                  .x_stride = columns.count,
                                                                  .y_stride = columns.count,
                                                                  .width = static_cast<std::uint32_t>(width),
                                                                  .eps = p.qk_norm_eps,
                                                                  .weight_offset = p.qk_norm_offset});
  };
  norm(scratch.qkv, columns.k, AttentionSlot::kQNorm);
  norm(scratch.qkv + columns.k, columns.v - columns.k, AttentionSlot::kKNorm);
}

// Every head of a row by itself.
void center_heads(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                  const Scratch& scratch) {
  const AttentionColumns columns(p);
  const auto center = [&](float* x, std::uint32_t heads, AttentionSlot weight) {
    if (heads == 0) return;
    stream_of(ctx).launch<kernels::LayerNorm>({heads, ctx.total_rows}, {.x = x,
                                                                        .weight = vector_of(insn.weight(weight)),
                                                                        .y = x,
                                                                        .x_stride = columns.count,
                                                                        .y_stride = columns.count,
                                                                        .inner_stride = p.d_qk,
                                                                        .weight_stride = p.d_qk,
                                                                        .width = p.d_qk,
                                                                        .eps = p.qk_norm_eps});
  };
  center(scratch.qkv, p.heads, AttentionSlot::kQNorm);
  center(scratch.qkv + columns.k, own_kv_heads(p), AttentionSlot::kKNorm);
}

// attended *= sigmoid(gate)
void gate_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
               const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const auto columns = static_cast<std::uint32_t>(gate_columns(p));
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = columns},
          std::array{Projection{weight_of(insn.weight(AttentionSlot::kGate)), scratch.gate}});
  const std::uint32_t width = p.heads * p.d_v;
  stream.launch<kernels::Gate>({blocks_of(width, kernels::Gate::kThreads), ctx.total_rows}, {.y = scratch.attended,
                                                                                             .gate = scratch.gate,
                                                                                             .y_stride = width,
                                                                                             .gate_stride = columns,
                                                                                             .width = width,
                                                                                             .each = width / columns});
}

void finish_heads(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                  const Scratch& scratch) {
  const CudaStream& stream = stream_of(ctx);
  const bool is_done = plan::has_weights_of_all_heads(p.qk_norm);
  if (is_done) (p.qk_norm == plan::QkNorm::kPerRow ? norm_rows : center_heads)(ctx, insn, p, scratch);
  kernels::FinishHeadsArgs args{
      .rows = scratch.qkv,
      .stride = AttentionColumns(p).count,
      .heads = p.heads,
      .kv_heads = own_kv_heads(p),
      .d_qk = p.d_qk,
      .d_v = p.d_v,
      .q_norm = is_done ? nullptr : vector_of(insn.weight(AttentionSlot::kQNorm)),
      .k_norm = is_done ? nullptr : vector_of(insn.weight(AttentionSlot::kKNorm)),
      .norms_rotated = p.qk_norm == plan::QkNorm::kPerHeadRotated || p.qk_norm == plan::QkNorm::kUnitRotated,
      .norms_to_one = p.qk_norm == plan::QkNorm::kUnitRotated,
      .norms_values = p.unit_values != 0,
      .value_scale = p.value_scale,
      .temperature = p.temperature,
      .temperature_length = p.temperature_length,
      .temperature_offset = p.temperature_offset,
      .positions = ctx.positions,
      .eps = p.qk_norm_eps,
      .norm_offset = p.qk_norm_offset,
      .rotation = rotation_of(ctx, p)};
  const Grid grid{p.heads + 2 * own_kv_heads(p), ctx.total_rows};
  if (p.causal != 0) args.cache = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes);
  if (p.causal == 0 || static_cast<DType>(p.kv_dtype) == DType::kF32) {
    stream.launch<kernels::FinishHeads<DType::kF32>>(grid, args);
  } else {
    stream.launch<kernels::FinishHeads<DType::kF16>>(grid, args);
  }
}

template <class Source>
kernels::AttentionArgs<Source> args_of(const PreparedInsn& insn, const AttentionParams& p, const Scratch& scratch,
                                       const Arena::Staged& attended) {
  return {.q = scratch.qkv,
          .q_stride = AttentionColumns(p).count,
          .out = scratch.attended,
          .heads = p.heads,
          .kv_heads = p.kv_heads,
          .d_qk = p.d_qk,
          .d_v = p.d_v,
          .scale = p.scale,
          .softcap = p.logit_softcap,
          .window = p.window,
          .chunked = p.chunked != 0,
          .sinks = vector_of(insn.weight(AttentionSlot::kSinks)),
          .narrowed = wanted(attended)};
}

// In `attended`, what the output projection takes.
void attend_cached(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                   const Scratch& scratch, const Arena::Staged& attended, const plan::Workspace& rest) {
  const CudaStream& stream = stream_of(ctx);
  auto args = args_of<kernels::KvPages>(insn, p, scratch, attended);
  args.from = pages_of(ctx, insn.states.front(), p.kv_page_offset_bytes);
  if (static_cast<DType>(p.kv_dtype) == DType::kF32) {
    attend<kernels::PagedKeys<DType::kF32>>(stream, args, ctx.total_rows, longest_of(ctx), rest);
  } else {
    attend<kernels::PagedKeys<DType::kF16>>(stream, args, ctx.total_rows, longest_of(ctx), rest);
  }
}
void attend_spans(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                  const Scratch& scratch, const Arena::Staged& attended) {
  const AttentionColumns columns(p);
  auto args = args_of<kernels::SpanRows>(insn, p, scratch, attended);
  args.from = {
      .keys = scratch.qkv + columns.k, .values = scratch.qkv + columns.v, .stride = columns.count, .frames = {}};
  for_frames(ctx, [&](const kernels::Frames& frames) {
    args.first_row = frames.frame[0].row_begin;
    args.q = scratch.qkv + args.first_row * columns.count;
    args.out = scratch.attended + std::uint64_t{args.first_row} * p.heads * p.d_v;
    args.from.frames = frames;
    args.narrowed = wanted(attended.from_row(args.first_row));
    args.arrival_counters = stream_of(ctx).arrival_counters();
    const std::uint32_t units = p.kv_heads * args.head_groups();
    stream_of(ctx).launch<kernels::AttentionWhole<kernels::SpanKeys>>({units, rows_of(frames)}, args);
  });
}

// Attention leaves rows as the output projection takes them: int8 blocks of whole heads, F16 rows where the blocks of a row meet.
bool can_stage(const AttentionParams& p, Form form, std::uint32_t rows) {
  if (p.gate != plan::AttentionGate::kNone) return false;  // they are not done yet
  return form == Form::kBytes ? p.d_v % kernels::kBlockElements == 0 : rows <= kernels::kRowArrivalCounters;
}

AttentionShape shape_of(const AttentionParams& p) {
  return {.heads = p.heads, .kv_heads = p.kv_heads, .d_v = p.d_v, .window = p.window};
}

}  // namespace

Status AttentionAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<AttentionParams>();
  const CudaStream& stream = stream_of(ctx);
  const AttentionColumns columns(p);
  Arena arena(ctx);
  const Scratch scratch(arena, p, insn.input(0), ctx.total_rows);
  using enum AttentionSlot;
  const Projection projections[] = {
      {weight_of(insn.weight(kQ)), scratch.qkv, vector_of(insn.weight(kQBias))},
      {weight_of(insn.weight(kK)), scratch.qkv + columns.k, vector_of(insn.weight(kKBias))},
      {weight_of(insn.weight(kV)), scratch.qkv + columns.v, vector_of(insn.weight(kVBias))}};
  project(stream,
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = columns.count},
          std::span(projections, p.shares_cache != 0 ? 1 : 3));
  finish_heads(ctx, insn, p, scratch);
  const CudaWeight* o = weight_of(insn.weight(kO));
  const Arena::Staged attended = can_stage(p, form_of(o->dtype), ctx.total_rows)
                                     ? staged_in(scratch.attended_narrowed, form_of(o->dtype))
                                     : Arena::Staged{};
  if (p.causal != 0) {
    attend_cached(ctx, insn, p, scratch, attended, arena.rest());
  } else {
    attend_spans(ctx, insn, p, scratch, attended);
  }
  if (p.gate != plan::AttentionGate::kNone) gate_rows(ctx, insn, p, scratch);
  project(stream,
          {.x = scratch.attended,
           .x_stride = std::uint64_t{p.heads} * p.d_v,
           .rows = ctx.total_rows,
           .narrowed = scratch.attended_narrowed,
           .staged = attended,
           .y_stride = p.width},
          std::array{Projection{o, insn.output(0), vector_of(insn.weight(kOBias))}});
  return stream.status();
}

std::uint64_t AttentionAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                const Backend&) noexcept {
  const auto& p = plan::param_as<AttentionParams>(params);
  Arena arena;
  Scratch(arena, p, nullptr, limits.rows_max);
  if (p.causal != 0) arena.take<std::byte>(shape_of(p).parts_bytes_wanted(limits.rows_max, limits.context_tokens_max));
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::attention
