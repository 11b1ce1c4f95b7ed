// Entries of windows of rows: a mean per channel that goes along the sequence, norm, rotation by the window's first position.
#include <array>

#include "engine/compute/cuda/adapters/adapters.h"
#include "engine/compute/cuda/adapters/support.h"
#include "engine/compute/layouts.h"

namespace llorch::engine::compute::cuda::adapters::compressor {

using plan::CompressorParams;
using plan::CompressorSlot;
using plan::ExecutionContext;
using plan::PreparedInsn;
using plan::Status;

namespace {

struct Scratch {
  Scratch(Arena& arena, const CompressorParams& p, const float* input, std::uint64_t rows)
      : staged(arena.take_staged(input, rows, p.width)),
        projected(arena.take<float>(rows * CompressorColumns(p).count)),
        x(arena.take_narrowed(rows, p.width)) {}
  Arena::Staged staged;
  float* projected;  // [T, columns]
  Arena::Narrowed x;
};

// One of the two kinds of entries.
struct Entries {
  CompressorSlot bias, norm;
  std::uint64_t kv, gate;  // columns
  std::uint64_t state_offset_bytes;
  std::uint32_t dim;
  float* y;  // [T, d_head + d_index]
};

void make_entries(const ExecutionContext& ctx, const PreparedInsn& insn, const CompressorParams& p,
                  const Scratch& scratch, const Entries& entries) {
  const CudaStream& stream = stream_of(ctx);
  const std::uint64_t y_stride = std::uint64_t{p.d_head} + p.d_index;
  const plan::StateBlockHandle& state = insn.states[0];
  stream.launch<kernels::CompressScan>(
      {blocks_of(entries.dim, kernels::CompressScan::kThreads), ctx.total_rows},
      {.sequences = {.sequence_of_row = ctx.slot_of_row,
                     .rows = ctx.total_rows,
                     .state = state.ptr + p.state_offset_bytes + entries.state_offset_bytes,
                     .state_stride = state.size},
       .positions = ctx.positions,
       .kv = scratch.projected + entries.kv,
       .gate = scratch.projected + entries.gate,
       .bias = vector_of(insn.weight(entries.bias)),
       .y = entries.y,
       .stride = CompressorColumns(p).count,
       .y_stride = y_stride,
       .dim = entries.dim,
       .rate = p.rate,
       .overlaps = p.overlaps != 0});
  const plan::RopeTable& table = ctx.rope_tables[p.rope_table_id];
  stream.launch<kernels::FinishTails>({1, ctx.total_rows}, {.x = entries.y,
                                                            .stride = y_stride,
                                                            .dim = entries.dim,
                                                            .norm = vector_of(insn.weight(entries.norm)),
                                                            .norms = true,
                                                            .rate = p.rate,
                                                            .tail = p.d_rope,
                                                            .eps = p.norm_eps,
                                                            .factor = table.attn_factor,
                                                            .layout = p.rope_layout,
                                                            .positions = ctx.positions,
                                                            .inv_freq = table.inv_freq});
}

}  // namespace

Status CompressorAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<CompressorParams>();
  ASSERT(p.rope_table_id < ctx.rope_tables.size() && ctx.rope_tables[p.rope_table_id].count * 2 == p.d_rope,
         "table {} of {}, {} rotary dims", p.rope_table_id, ctx.rope_tables.size(), p.d_rope);
  ASSERT(insn.states.size() == 1 && p.state_offset_bytes + compressor_state_layout(p).bytes() <= insn.states[0].size,
         "{} states", insn.states.size());
  Arena arena(ctx);
  const Scratch scratch(arena, p, insn.input(0), ctx.total_rows);
  const CompressorColumns columns(p);
  using enum CompressorSlot;
  const std::array all{Projection{weight_of(insn.weight(kKv)), scratch.projected},
                       Projection{weight_of(insn.weight(kGate)), scratch.projected + columns.gate},
                       Projection{weight_of(insn.weight(kIndexKv)), scratch.projected + columns.index_kv},
                       Projection{weight_of(insn.weight(kIndexGate)), scratch.projected + columns.index_gate}};
  project(stream_of(ctx),
          {.x = insn.input(0),
           .x_stride = p.width,
           .rows = ctx.total_rows,
           .narrowed = scratch.x,
           .staged = scratch.staged,
           .y_stride = columns.count},
          std::span(all).first(p.d_index != 0 ? 4 : 2));
  make_entries(ctx, insn, p, scratch, {kBias, kNorm, 0, columns.gate, 0, p.d_head, insn.output(0)});
  if (p.d_index != 0)
    make_entries(ctx, insn, p, scratch,
                 {kIndexBias, kIndexNorm, columns.index_kv, columns.index_gate,
                  compressor_state_layout(p).index_offset_bytes(), p.d_index, insn.output(0) + p.d_head});
  return stream_of(ctx).status();
}

std::uint64_t CompressorAdapter::workspace_bytes(const plan::ParamBlock& params, const plan::StepLimits& limits,
                                                 const plan::Backend&) noexcept {
  Arena arena;
  Scratch(arena, plan::param_as<CompressorParams>(params), nullptr, limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cuda::adapters::compressor
