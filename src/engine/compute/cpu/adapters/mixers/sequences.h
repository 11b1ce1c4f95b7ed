#pragma once
// What the mixers with a recurrent state share.
#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::mixers {

inline SequenceSpans spans_of(const plan::ExecutionContext& ctx) {
  ASSERT(ctx.row_offsets.size() == ctx.batch_size + std::size_t{1} && ctx.active_slots.size() == ctx.batch_size,
         "{} slots, {} spans", ctx.active_slots.size(), ctx.row_offsets.size());
  return {.row_offsets = ctx.row_offsets.data(), .sequences = ctx.active_slots.data(), .count = ctx.batch_size};
}

// The part [offset, offset + bytes) of every slot's fixed-size state.
struct StatePart {
  std::uint64_t offset_bytes = 0;
  std::uint64_t bytes = 0;
};
inline SequenceState state_part(const plan::PreparedInsn& insn, const StatePart& part) {
  ASSERT(insn.states.size() == 1 && part.offset_bytes + part.bytes <= insn.states[0].size, "{} states, {} + {} bytes",
         insn.states.size(), part.offset_bytes, part.bytes);
  return {.data = insn.states[0].ptr + part.offset_bytes, .stride_bytes = insn.states[0].size};
}

// Work below which a region stays on the caller, in channels of the convolution (a few multiply-adds each).
inline constexpr std::size_t kGrainChannels = 1u << 13;

inline void run_causal_conv(const CpuStream& stream, const CausalConvArgs& args, std::size_t rows) {
  stream.pool.run((args.channels + 15) / 16, kGrainChannels / (16 * rows) + 1,
                  [&](Range blocks, std::size_t) { stream.kernels.causal_conv(args, blocks); });
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers
