// Entries of windows of rows: a mean per channel that goes along the sequence, norm, rotation by the window's first position.
#include <algorithm>
#include <array>

#include "engine/compute/cpu/adapters/compressed/compressed.h"
#include "engine/compute/cpu/adapters/mixers/sequences.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cpu::adapters::compressed::compressor {

using plan::Backend;
using plan::CompressorParams;
using plan::CompressorSlot;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::Status;
using plan::StepLimits;

namespace {

constexpr std::size_t kGrainElements = 1u << 13;

struct Scratch {
  Scratch(Arena& arena, const CompressorParams& p, std::size_t rows)
      : projected(arena.take<float>(rows * CompressorColumns(p).count)),
        positions(arena.take<std::uint32_t>(rows)),
        cosines(arena.take<float>(rows * p.d_rope)),
        sines(arena.take<float>(rows * p.d_rope)),
        x(arena.take_quantized(rows, p.width)) {}
  float* projected;          // [T, columns]
  std::uint32_t* positions;  // [T], of the windows' first rows
  float* cosines;            // [T, d_rope]
  float* sines;              // [T, d_rope]
  QuantizedRows x;
};

// One of the two kinds of entries.
struct Entries {
  CompressorSlot bias, norm;
  std::uint64_t kv, gate;  // columns
  std::uint64_t state_bytes, state_offset_bytes;
  std::size_t dim;
  float* y;  // [T, d_head + d_index]
};

void project_rows(const CpuStream& stream, const PreparedInsn& insn, const CompressorParams& p, const Scratch& scratch,
                  std::size_t rows) {
  const CompressorColumns columns(p);
  using enum CompressorSlot;
  const std::array all{Projection{weight_of(insn.weight(kKv)), scratch.projected},
                       Projection{weight_of(insn.weight(kGate)), scratch.projected + columns.gate},
                       Projection{weight_of(insn.weight(kIndexKv)), scratch.projected + columns.index_kv},
                       Projection{weight_of(insn.weight(kIndexGate)), scratch.projected + columns.index_gate}};
  project(stream,
          {.x = insn.input(0), .x_stride = p.width, .rows = rows, .quantized = scratch.x, .y_stride = columns.count},
          std::span(all).first(p.d_index != 0 ? 4 : 2));
}

void scan(const ExecutionContext& ctx, const PreparedInsn& insn, const CompressorParams& p, const Scratch& scratch,
          const Entries& entries) {
  const CpuStream& stream = stream_of(ctx);
  const CompressScanArgs args{
      .spans = mixers::spans_of(ctx),
      .state = mixers::state_part(
          insn, {.offset_bytes = p.state_offset_bytes + entries.state_offset_bytes, .bytes = entries.state_bytes}),
      .positions = ctx.positions,
      .kv = scratch.projected + entries.kv,
      .gate = scratch.projected + entries.gate,
      .stride = CompressorColumns(p).count,
      .bias = vector_of(insn.weight(entries.bias)),
      .dim = entries.dim,
      .rate = p.rate,
      .overlaps = p.overlaps != 0,
      .y = entries.y,
      .y_stride = std::size_t{p.d_head} + p.d_index};
  stream.pool.run((entries.dim + 15) / 16, kGrainElements / (16 * std::size_t{ctx.total_rows}) + 1,
                  [&](Range blocks, std::size_t) { stream.kernels.compress_scan(args, blocks); });
}

void finish_rows(const CpuStream& stream, const PreparedInsn& insn, const CompressorParams& p, const Scratch& scratch,
                 const Entries& entries, Range rows) {
  const std::size_t stride = std::size_t{p.d_head} + p.d_index;
  stream.kernels.rms_norm({.x = entries.y,
                           .weight = vector_of(insn.weight(entries.norm)),
                           .y = entries.y,
                           .width = entries.dim,
                           .x_stride = stride,
                           .y_stride = stride,
                           .eps = p.norm_eps},
                          rows);
  stream.kernels.rope(
      {.x = entries.y + (entries.dim - p.d_rope),
       .x_stride = stride,
       .heads = 1,
       .head_dim = p.d_rope,
       .cosines = scratch.cosines,
       .sines = scratch.sines,
       .rotary_dims = p.d_rope,
       .layout = p.rope_layout == plan::RopeLayout::kHalf ? RopeLayout::kHalf : RopeLayout::kInterleaved},
      rows);
}

void make_rope_table(const ExecutionContext& ctx, const CompressorParams& p, const Scratch& scratch, Range rows) {
  const plan::RopeTable& table = ctx.rope_tables[p.rope_table_id];
  for (std::size_t row = rows.begin; row < rows.end; ++row)
    scratch.positions[row] = ctx.positions[row] / p.rate * p.rate;
  stream_of(ctx).kernels.rope_table(
      {.positions = scratch.positions,
       .inv_freq = table.inv_freq,
       .cosines = scratch.cosines,
       .sines = scratch.sines,
       .rotary_dims = p.d_rope,
       .attn_factor = table.attn_factor,
       .layout = p.rope_layout == plan::RopeLayout::kHalf ? RopeLayout::kHalf : RopeLayout::kInterleaved},
      rows);
}

}  // namespace

Status CompressorAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<CompressorParams>();
  const CpuStream& stream = stream_of(ctx);
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  Arena arena(ctx.workspace);
  const Scratch scratch(arena, p, ctx.total_rows);
  const CompressorColumns columns(p);
  const plan::CompressorStateLayout layout = compressor_state_layout(p);
  using enum CompressorSlot;
  const std::array both{
      Entries{kBias, kNorm, 0, columns.gate, layout.entry_bytes(p.d_head), 0, p.d_head, insn.output(0)},
      Entries{kIndexBias, kIndexNorm, columns.index_kv, columns.index_gate, layout.entry_bytes(p.d_index),
              layout.index_offset_bytes(), p.d_index, insn.output(0) + p.d_head}};
  const std::span kinds = std::span(both).first(p.d_index != 0 ? 2 : 1);
  project_rows(stream, insn, p, scratch, ctx.total_rows);
  for (const Entries& entries : kinds) scan(ctx, insn, p, scratch, entries);
  stream.pool.run(ctx.total_rows, kGrainElements / (p.d_head + p.d_index) + 1, [&](Range rows, std::size_t) {
    make_rope_table(ctx, p, scratch, rows);
    for (const Entries& entries : kinds) finish_rows(stream, insn, p, scratch, entries, rows);
  });
  return Status::ok();
}

std::uint64_t CompressorAdapter::workspace_bytes(const ParamBlock& params, const StepLimits& limits,
                                                 const Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<CompressorParams>(params), limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::compressed::compressor
