// Rows of the vision state into the rows of a batch that stand for them.
#include <cstring>

#include "engine/compute/cpu/adapters/support.h"
#include "engine/compute/cpu/adapters/vision/vision.h"

namespace llorch::engine::compute::cpu::adapters::vision {

using plan::Backend;
using plan::ExecutionContext;
using plan::ParamBlock;
using plan::PreparedInsn;
using plan::ScatterMode;
using plan::Status;
using plan::StepLimits;
using plan::VisionScatterParams;

namespace {

constexpr std::size_t kGrainElements = 1u << 15;

bool is_image_row(const VisionScatterParams& p, std::uint32_t id) {
  return id != plan::kNoRowId && (id == p.image_row_ids[0] || id == p.image_row_ids[1]);
}

// Per row of the batch, the part of the state row it takes; null for a row that is no image's.
void find_sources(const ExecutionContext& ctx, const PreparedInsn& insn, const VisionScatterParams& p,
                  const float** sources) {
  ASSERT(insn.states.size() == 1 && (ctx.image_rows.empty() || ctx.image_rows.size() == ctx.batch_size),
         "{} states, {} spans, {} ranges of rows", insn.states.size(), ctx.batch_size, ctx.image_rows.size());
  const plan::StateBlockHandle& state = insn.states[0];
  const std::size_t row_elements = std::size_t{p.parts} * p.width;
  for (std::uint32_t b = 0; b < ctx.batch_size; ++b) {
    const plan::ImageRows rows = ctx.image_rows.empty() ? plan::ImageRows{} : ctx.image_rows[b];
    ASSERT(rows.end * row_elements * sizeof(float) <= state.size, "row {} of a state of {} bytes", rows.end,
           state.size);
    const auto* kept = reinterpret_cast<const float*>(state.ptr + ctx.active_slots[b] * state.size);
    std::size_t next = rows.begin;
    for (std::uint32_t row = ctx.row_offsets[b]; row < ctx.row_offsets[b + 1]; ++row) {
      const bool takes = next < rows.end && is_image_row(p, ctx.row_ids[row]);
      sources[row] = takes ? kept + next++ * row_elements + std::size_t{p.part} * p.width : nullptr;
    }
  }
}

}  // namespace

Status ScatterAdapter::run(ExecutionContext& ctx, const PreparedInsn& insn) noexcept {
  const auto& p = insn.param<VisionScatterParams>();
  const CpuStream& stream = stream_of(ctx);
  const float* x = insn.input(0);
  float* y = insn.output(0);
  if (x == y && ctx.image_rows.empty()) return Status::ok();
  Arena arena(ctx.workspace);
  const float** sources = arena.take<const float*>(ctx.total_rows);
  find_sources(ctx, insn, p, sources);
  stream.pool.run(ctx.total_rows, kGrainElements / p.width + 1, [&](Range rows, std::size_t) {
    for (std::size_t row = rows.begin; row < rows.end; ++row) {
      const float* from = x + row * p.width;
      float* to = y + row * p.width;
      if (sources[row] != nullptr && p.mode == ScatterMode::kAdd) {
        stream.kernels.residual_add({.a = from, .b = sources[row], .y = to}, {0, p.width});
      } else if (sources[row] != nullptr) {
        std::memcpy(to, sources[row], p.width * sizeof(float));
      } else if (from != to) {
        std::memcpy(to, from, p.width * sizeof(float));
      }
    }
  });
  return Status::ok();
}

std::uint64_t ScatterAdapter::workspace_bytes(const ParamBlock&, const StepLimits& limits, const Backend&) noexcept {
  Arena arena;
  arena.take<const float*>(limits.rows_max);
  return arena.used_bytes();
}

}  // namespace llorch::engine::compute::cpu::adapters::vision
