// Multi-head attention: projections, bias, norm of queries and keys, rotation, append, attention, output projection.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/adapters.h"
#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/layouts.h"
#include "engine/compute/temperature.h"

namespace llorch::engine::compute::cpu::adapters::attention {

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

static_assert(kPagePositions == plan::kPageTokens);

// Rows of the row-wise part below which a region stays on the caller.
constexpr std::size_t kGrainRows = 4;

// Column ranges of the projected rows [T, q | k | v].
KvLayout kv_layout(const AttentionParams& p) {
  const bool f32 = p.causal == 0 || static_cast<DType>(p.kv_dtype) == DType::kF32;  // what is not cached is not rounded
  return {.type = f32 ? KvType::kF32 : KvType::kF16, .kv_heads = p.kv_heads, .key_dim = p.d_qk, .value_dim = p.d_v};
}

// Without a cache the step's rows are its keys and values: row r of the step takes the place of position r, in pages of
// the workspace.
struct StepPages {
  StepPages(Arena& arena, const AttentionParams& p, std::size_t rows)
      : count(plan::pages_of(rows)),
        page_bytes(kv_layout(p).value_offset(p.kv_heads)),
        pages(arena.take<std::byte*>(count)),
        storage(arena.take<std::byte>(count * page_bytes)),
        sequence_of_row(arena.take<std::uint32_t>(rows)),
        row_numbers(arena.take<std::uint32_t>(rows)),
        span_begin(arena.take<std::uint32_t>(rows)),
        span_end(arena.take<std::uint32_t>(rows)) {}
  void fill(const ExecutionContext& ctx) const {
    ASSERT(!ctx.row_offsets.empty() && ctx.row_offsets.front() == 0 && ctx.row_offsets.back() == ctx.total_rows,
           "spans that do not cover {} rows", ctx.total_rows);
    for (std::size_t i = 0; i < count; ++i) pages[i] = storage + i * page_bytes;
    for (std::size_t span = 0; span + 1 < ctx.row_offsets.size(); ++span)
      for (std::uint32_t row = ctx.row_offsets[span]; row < ctx.row_offsets[span + 1]; ++row) {
        sequence_of_row[row] = 0;
        row_numbers[row] = row;
        span_begin[row] = ctx.row_offsets[span];
        span_end[row] = ctx.row_offsets[span + 1];
      }
  }
  std::size_t count, page_bytes;
  std::byte** pages;
  std::byte* storage;
  std::uint32_t *sequence_of_row, *row_numbers, *span_begin, *span_end;  // [T]
};

// Scores of the queries of a tile. Rows share one only while they stay in the second-level cache: there a tile saves reading the
// keys and values again, past it the scores would travel as far.
constexpr std::size_t kTileScoresBytes = 512u << 10;
std::size_t scores_stride(std::size_t positions) { return plan::pages_of(positions) * kPagePositions + 16; }
std::size_t scores_floats(const AttentionParams& p, std::size_t positions) {
  const std::size_t query = scores_stride(positions);
  return std::max(tile_heads(p.heads / p.kv_heads) * query,
                  std::min(kTileQueries * query, kTileScoresBytes / sizeof(float)));
}
std::size_t widened_floats(const AttentionParams& p) { return kPagePositions * std::max(p.d_qk, p.d_v); }

struct Scratch {
  Scratch(Arena& arena, const AttentionParams& p, std::size_t rows, std::size_t context, std::size_t threads)
      : qkv(arena.take<float>(rows * AttentionColumns(p).count)),
        cosines(arena.take<float>(rows * p.rotary_dims)),
        sines(arena.take<float>(rows * p.rotary_dims)),
        axis_of_pair(arena.take<std::uint8_t>(p.rotary_dims / 2)),
        attended(arena.take<float>(rows * p.heads * p.d_v)),
        gate(arena.take<float>(rows * gate_columns(p))),
        ones(arena.take<float>(std::max(p.d_qk, p.d_v))),
        x(arena.take_quantized(rows, p.width)),
        attended_quantized(arena.take_quantized(rows, std::size_t{p.heads} * p.d_v)),
        thread_scores(scores_floats(p, context)),
        scores(arena.take<float>(threads * thread_scores)),
        widened(arena.take<float>(threads * widened_floats(p))),
        step_pages(arena, p, p.causal != 0 ? 0 : rows) {}
  float* qkv;
  float* cosines;              // [T, R]
  float* sines;                // [T, R]
  std::uint8_t* axis_of_pair;  // [R / 2]
  float* attended;             // [T, H * d_v]
  float* gate;                 // [T, H] or [T, H * d_v]
  float* ones;                 // [d_qk] or [d_v], the weight of a norm without one
  QuantizedRows x, attended_quantized;
  std::size_t thread_scores;  // floats of a thread
  float* scores;              // [threads, thread_scores]
  float* widened;             // [threads, widened_floats()]
  StepPages step_pages;
};

KvPages kv_pages(const ExecutionContext& ctx, const PreparedInsn& insn, const Scratch& scratch) {
  const auto& p = insn.param<AttentionParams>();
  if (p.causal == 0)
    return {.pages = scratch.step_pages.pages,
            .sequence_of_row = scratch.step_pages.sequence_of_row,
            .positions = scratch.step_pages.row_numbers};
  const plan::StateBlockHandle& state = insn.states.front();
  return {.pages = state.pages,
          .pages_stride = state.pages_stride,
          .offset_bytes = p.kv_page_offset_bytes,
          .sequence_of_row = ctx.slot_of_row,
          .positions = ctx.positions};
}

// The most keys a row of this step can see.
std::size_t keys_max(const ExecutionContext& ctx, const AttentionParams& p) {
  if (p.causal == 0) return ctx.total_rows;
  return std::size_t{*std::max_element(ctx.positions, ctx.positions + ctx.total_rows)} + 1;
}

void project_qkv(const CpuStream& stream, const PreparedInsn& insn, const AttentionParams& p, const Scratch& scratch,
                 std::size_t rows) {
  const AttentionColumns columns(p);
  const ProjectionInput input{
      .x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = columns.count};
  const Projection projections[] = {{weight_of(insn.weight(AttentionSlot::kQ)), scratch.qkv},
                                    {weight_of(insn.weight(AttentionSlot::kK)), scratch.qkv + columns.k},
                                    {weight_of(insn.weight(AttentionSlot::kV)), scratch.qkv + columns.v}};
  project(stream, input, std::span(projections, p.shares_cache != 0 ? 1 : 3));
}

void project_gate(const CpuStream& stream, const PreparedInsn& insn, const AttentionParams& p, const Scratch& scratch,
                  std::size_t rows) {
  if (p.gate == plan::AttentionGate::kNone) return;
  project(stream,
          {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = gate_columns(p)},
          std::array{Projection{weight_of(insn.weight(AttentionSlot::kGate)), scratch.gate}});
}

// attended *= sigmoid(gate)
void gate_rows(const CpuStream& stream, const AttentionParams& p, const Scratch& scratch, Range rows) {
  const std::size_t columns = gate_columns(p), width = std::size_t{p.heads} * p.d_v;
  if (p.gate == plan::AttentionGate::kPerElement) {
    stream.kernels.swiglu({.gate = scratch.gate,
                           .up = scratch.attended,
                           .x_stride = width,
                           .y = scratch.attended,
                           .y_stride = width,
                           .width = width,
                           .act = Activation::kSigmoid},
                          rows);
    return;
  }
  stream.kernels.probabilities({.x = scratch.gate, .width = columns, .kind = Probabilities::kSigmoid}, rows);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    for (std::size_t head = 0; head < p.heads; ++head)
      stream.kernels.scale_softcap(
          {.y = scratch.attended + row * width + head * p.d_v, .scale = scratch.gate[row * columns + head]},
          {0, p.d_v});
  }
}

void add_biases(const CpuStream& stream, const PreparedInsn& insn, const AttentionParams& p, const Scratch& scratch,
                Range rows) {
  const AttentionColumns columns(p);
  const auto add = [&](AttentionSlot which, std::size_t begin, std::size_t end) {
    if (const float* bias = vector_of(insn.weight(which)))
      stream.kernels.add_bias({.x = scratch.qkv + begin, .x_stride = columns.count, .width = end - begin, .bias = bias},
                              rows);
  };
  add(AttentionSlot::kQBias, 0, columns.k);
  add(AttentionSlot::kKBias, columns.k, columns.v);
  add(AttentionSlot::kVBias, columns.v, columns.count);
}

void norm_heads(const CpuStream& stream, const AttentionParams& p, float* x, std::size_t heads, const float* weight,
                std::size_t stride, Range rows) {
  for (std::size_t row = rows.begin; row < rows.end; ++row)
    stream.kernels.rms_norm({.x = x + row * stride,
                             .weight = weight,
                             .y = x + row * stride,
                             .width = p.d_qk,
                             .x_stride = p.d_qk,
                             .y_stride = p.d_qk,
                             .eps = p.qk_norm_eps,
                             .weight_offset = p.qk_norm_offset},
                            {0, heads});
}

// One norm over `width` elements of every row: all heads together.
void norm_row(const CpuStream& stream, const AttentionParams& p, float* x, std::size_t width, const float* weight,
              std::size_t stride, Range rows) {
  stream.kernels.rms_norm({.x = x,
                           .weight = weight,
                           .y = x,
                           .width = width,
                           .x_stride = stride,
                           .y_stride = stride,
                           .eps = p.qk_norm_eps,
                           .weight_offset = p.qk_norm_offset},
                          rows);
}

// LayerNorm of every head, with weights of its own.
void center_heads(const CpuStream& stream, const AttentionParams& p, float* x, std::size_t heads, const float* weight,
                  std::size_t stride, Range rows) {
  for (std::size_t head = 0; head < heads; ++head) {
    stream.kernels.layer_norm({.x = x + head * p.d_qk,
                               .weight = weight + head * p.d_qk,
                               .y = x + head * p.d_qk,
                               .width = p.d_qk,
                               .x_stride = stride,
                               .y_stride = stride,
                               .eps = p.qk_norm_eps},
                              rows);
  }
}

void norm_queries_and_keys(const CpuStream& stream, const PreparedInsn& insn, const AttentionParams& p,
                           const Scratch& scratch, Range rows) {
  const AttentionColumns columns(p);
  const bool unit = p.qk_norm == plan::QkNorm::kUnitRotated;
  const float* q_norm = unit ? scratch.ones : vector_of(insn.weight(AttentionSlot::kQNorm));
  const float* k_norm = unit ? scratch.ones : vector_of(insn.weight(AttentionSlot::kKNorm));
  if (p.qk_norm == plan::QkNorm::kPerRow) {
    norm_row(stream, p, scratch.qkv, columns.k, q_norm, columns.count, rows);
    norm_row(stream, p, scratch.qkv + columns.k, columns.v - columns.k, k_norm, columns.count, rows);
    return;
  }
  const auto norm = p.qk_norm == plan::QkNorm::kCenteredPerHead ? center_heads : norm_heads;
  norm(stream, p, scratch.qkv, p.heads, q_norm, columns.count, rows);
  norm(stream, p, scratch.qkv + columns.k, own_kv_heads(p), k_norm, columns.count, rows);
}

void norm_values(const CpuStream& stream, const AttentionParams& p, const Scratch& scratch, Range rows) {
  const AttentionColumns columns(p);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* v = scratch.qkv + row * columns.count + columns.v;
    stream.kernels.rms_norm({.x = v,
                             .weight = scratch.ones,
                             .y = v,
                             .width = p.d_v,
                             .x_stride = p.d_v,
                             .y_stride = p.d_v,
                             .eps = p.qk_norm_eps},
                            {0, p.kv_heads});
  }
}

void scale_rows(const ExecutionContext& ctx, const AttentionParams& p, const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const AttentionColumns columns(p);
  for (std::size_t row = rows.begin; row < rows.end; ++row) {
    float* x = scratch.qkv + row * columns.count;
    if (p.temperature_length != 0)
      stream.kernels.scale_softcap({.y = x, .scale = query_temperature(p, ctx.positions[row])}, {0, columns.k});
    if (p.value_scale != 0) stream.kernels.scale_softcap({.y = x, .scale = p.value_scale}, {columns.v, columns.count});
  }
}

// Which of a row's three positions turns pair i of a head.
std::uint8_t axis_of_pair(const AttentionParams& p, std::uint32_t i) {
  const auto* sections = p.sections;
  if (p.rope_layout == plan::RopeLayout::kVision2d) return i < p.rotary_dims / 4 ? 1 : 2;
  if (p.mrope == plan::MropeKind::kChunked) return i < sections[0] ? 0 : i < sections[0] + sections[1] ? 1 : 2;
  if (i % 3 != 0 && i < 3 * sections[i % 3]) return static_cast<std::uint8_t>(i % 3);
  return 0;
}

// Without several positions per row, rows stand at the same place on every axis.
bool several_axes(const ExecutionContext& ctx, const AttentionParams& p) {
  return p.rope_layout == plan::RopeLayout::kVision2d ||
         (p.mrope != plan::MropeKind::kNone && ctx.positions3 != nullptr);
}

const plan::RopeTable& rope_table_of(const ExecutionContext& ctx, const AttentionParams& p, std::size_t row) {
  const bool is_long = ctx.long_rope_of_slot != nullptr && p.rope_table_long_id != plan::kNoRopeTable &&
                       ctx.long_rope_of_slot[ctx.slot_of_row[row]] != 0;
  const std::uint32_t id = is_long ? p.rope_table_long_id : p.rope_table_id;
  ASSERT(id < ctx.rope_tables.size() && ctx.rope_tables[id].count * 2 == p.rotary_dims,
         "table {} of {}, {} rotary dims", id, ctx.rope_tables.size(), p.rotary_dims);
  return ctx.rope_tables[id];
}

void rotate_rows(const ExecutionContext& ctx, const AttentionParams& p, const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const RopeLayout layout =
      p.rope_layout == plan::RopeLayout::kInterleaved ? RopeLayout::kInterleaved : RopeLayout::kHalf;
  const bool axes = several_axes(ctx, p);
  ASSERT(!axes || ctx.positions3 != nullptr, "rows of an image without their places in it");
  for (std::size_t row = rows.begin, end = row; row < rows.end; row = end) {  // rows of one table at a time
    const plan::RopeTable& table = rope_table_of(ctx, p, row);
    for (end = row + 1; end < rows.end && &rope_table_of(ctx, p, end) == &table;) ++end;
    stream.kernels.rope_table({.positions = axes ? ctx.positions3 : ctx.positions,
                               .axis_of_pair = axes ? scratch.axis_of_pair : nullptr,
                               .axis_stride = ctx.total_rows,
                               .inv_freq = table.inv_freq,
                               .cosines = scratch.cosines,
                               .sines = scratch.sines,
                               .rotary_dims = p.rotary_dims,
                               .attn_factor = table.attn_factor,
                               .layout = layout},
                              {row, end});
  }
  const AttentionColumns columns(p);
  RopeArgs args{.x = scratch.qkv,
                .x_stride = columns.count,
                .heads = p.heads,
                .head_dim = p.d_qk,
                .cosines = scratch.cosines,
                .sines = scratch.sines,
                .rotary_dims = p.rotary_dims,
                .layout = layout};
  stream.kernels.rope(args, rows);
  args.x = scratch.qkv + columns.k;
  args.heads = own_kv_heads(p);
  stream.kernels.rope(args, rows);
}

// Everything between the projections and the attention that concerns a row alone.
void finish_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                 const Scratch& scratch, Range rows) {
  const CpuStream& stream = stream_of(ctx);
  const AttentionColumns columns(p);
  add_biases(stream, insn, p, scratch, rows);
  const bool norms_rotated = p.qk_norm == plan::QkNorm::kPerHeadRotated || p.qk_norm == plan::QkNorm::kUnitRotated;
  if (p.qk_norm != plan::QkNorm::kNone && !norms_rotated) norm_queries_and_keys(stream, insn, p, scratch, rows);
  if (p.rope_layout != plan::RopeLayout::kNone) rotate_rows(ctx, p, scratch, rows);
  if (norms_rotated) norm_queries_and_keys(stream, insn, p, scratch, rows);
  scale_rows(ctx, p, scratch, rows);
  if (p.shares_cache != 0) return;
  if (p.unit_values != 0) norm_values(stream, p, scratch, rows);
  stream.kernels.kv_append({.layout = kv_layout(p),
                            .pages = kv_pages(ctx, insn, scratch),
                            .keys = scratch.qkv + columns.k,
                            .values = scratch.qkv + columns.v,
                            .key_stride = columns.count,
                            .value_stride = columns.count},
                           rows);
}

void attend_rows(const ExecutionContext& ctx, const PreparedInsn& insn, const AttentionParams& p,
                 const Scratch& scratch) {
  const CpuStream& stream = stream_of(ctx);
  const std::size_t heads = tile_heads(p.heads / p.kv_heads), rows = ctx.total_rows,
                    threads = stream.pool.threads_count();
  const std::size_t keys = keys_max(ctx, p), stride = scores_stride(keys);
  // A tile of rows shares its pages; there are several units for every thread all the same.
  const std::size_t fitting = std::min(scratch.thread_scores / stride, kTileQueries) / heads;
  const std::size_t row_tile = std::clamp<std::size_t>(rows * p.kv_heads / (kLanesPerThread * threads), 1, fitting);
  const std::size_t units = (rows + row_tile - 1) / row_tile * p.kv_heads;
  const AttentionArgs all{.layout = kv_layout(p),
                          .pages = kv_pages(ctx, insn, scratch),
                          .q = scratch.qkv,
                          .q_stride = AttentionColumns(p).count,
                          .out = scratch.attended,
                          .out_stride = std::size_t{p.heads} * p.d_v,
                          .heads = p.heads,
                          .scale = p.scale,
                          .softcap = p.logit_softcap,
                          .window = p.window,
                          .chunked = p.chunked != 0,
                          .sinks = vector_of(insn.weight(AttentionSlot::kSinks)),
                          .span_begin = p.causal != 0 ? nullptr : scratch.step_pages.span_begin,
                          .span_end = scratch.step_pages.span_end,
                          .rows = rows,
                          .row_tile = row_tile,
                          .scores_stride = stride};
  const std::size_t products = rows * p.heads * (p.d_qk + p.d_v) * keys;
  attend_units(stream, units, products, stream.kernels.attention, [&](std::size_t thread) {
    AttentionArgs args = all;
    args.scores = scratch.scores + thread * scratch.thread_scores;
    args.widened = scratch.widened + thread * widened_floats(p);
    return args;
  });
}

}  // namespace

Status AttentionAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<AttentionParams>();
  const CpuStream& stream = stream_of(ctx);
  const std::size_t rows = ctx.total_rows;
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, rows, keys_max(ctx, p), stream.pool.threads_count());
  if (p.causal == 0) scratch.step_pages.fill(ctx);
  for (std::uint32_t i = 0; i < p.rotary_dims / 2; ++i) scratch.axis_of_pair[i] = axis_of_pair(p, i);
  if (p.qk_norm == plan::QkNorm::kUnitRotated || p.unit_values != 0)
    std::fill_n(scratch.ones, std::max(p.d_qk, p.d_v), 1.0f);
  project_qkv(stream, insn, p, scratch, rows);
  project_gate(stream, insn, p, scratch, rows);
  stream.pool.run(rows, kGrainRows, [&](Range range, std::size_t) { finish_rows(ctx, insn, p, scratch, range); });
  attend_rows(ctx, insn, p, scratch);
  if (p.gate != plan::AttentionGate::kNone)
    stream.pool.run(rows, kGrainRows, [&](Range range, std::size_t) { gate_rows(stream, p, scratch, range); });
  float* y = insn.output(0);
  project(stream,
          {.x = scratch.attended,
           .x_stride = std::size_t{p.heads} * p.d_v,
           .rows = rows,
           .quantized = scratch.attended_quantized,
           .y_stride = p.width},
          std::array{Projection{weight_of(insn.weight(AttentionSlot::kO)), y}});
  if (const float* bias = vector_of(insn.weight(AttentionSlot::kOBias)))
    stream.kernels.add_bias({.x = y, .x_stride = p.width, .width = p.width, .bias = bias}, {0, rows});
  return Status::ok();
}

std::uint64_t AttentionAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                const Backend& backend) noexcept {
  Arena arena;
  const auto& p = plan::param_as<AttentionParams>(params);
  Scratch(arena, p, limits.rows_max, p.causal != 0 ? limits.context_tokens_max : limits.rows_max,
          static_cast<const CpuBackend&>(backend).threads_count());
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::attention
