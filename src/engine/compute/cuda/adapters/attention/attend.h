#pragma once
// Attention over a cache, whole rows or splits of them: which, is a matter of speed alone (kernels/attention.h).
#include <algorithm>
#include <bit>

#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters {

// Blocks that keep a large GPU busy. With fewer, rows are cut into their splits.
inline constexpr std::uint32_t kBlocksWanted = 256;
static_assert(kBlocksWanted <= kernels::kArrivalCounters - kernels::kRowArrivalCounters);
// Most that splits may take of the workspace.
inline constexpr std::uint64_t kPartsBytesMax = 32u << 20;

struct AttentionShape {
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t d_v = 0;
  std::uint32_t window = 0;  // 0 = all

  // Splits that a row at the end of `context` positions sees at most.
  std::uint32_t parts(std::uint64_t context) const {
    const std::uint64_t all = (context + kernels::kSplit - 1) / kernels::kSplit;
    // A window may begin inside a split.
    const std::uint64_t seen = window != 0 ? (window + 2 * std::uint64_t{kernels::kSplit} - 2) / kernels::kSplit : all;
    return static_cast<std::uint32_t>(std::min(all, seen));
  }
  std::uint64_t part_bytes(std::uint64_t rows, std::uint32_t parts) const {
    return rows * heads * parts * (sizeof(kernels::Softmax) + d_v * sizeof(float));
  }
  std::uint32_t blocks_per_row() const {
    const std::uint32_t group = heads / kv_heads;
    return kv_heads * blocks_of(group, kernels::kHeadsAtOnce);
  }
  // Workspace worth having for splits, whatever a step looks like.
  std::uint64_t parts_bytes_wanted(std::uint64_t rows_max, std::uint64_t context_max) const {
    const std::uint32_t parts_most = parts(context_max);
    if (parts_most < 2) return 0;
    const std::uint64_t rows = std::min<std::uint64_t>(rows_max, blocks_of(kBlocksWanted, blocks_per_row()));
    return std::min(part_bytes(rows, parts_most), std::max(part_bytes(1, parts_most), kPartsBytesMax));
  }
};

// `args` without its parts. `rest` is what the workspace has left for them; `longest` the largest position + 1 of the rows.
// Parts go up by powers of two where there is room: a step of decode stays the same launches while its sequences grow
// (graphs/step_graphs.h), and a block that has no split is over at once.
template <class Keys>
void attend(const CudaStream& stream, typename Keys::Args args, std::uint32_t rows, std::uint64_t longest,
            const plan::Workspace& rest) {
  const AttentionShape shape{.heads = args.heads, .kv_heads = args.kv_heads, .d_v = args.d_v, .window = args.window};
  args.arrival_counters = stream.arrival_counters();
  const std::uint32_t units = shape.blocks_per_row(), needed = shape.parts(longest), doubled = std::bit_ceil(needed);
  const std::uint32_t parts = shape.part_bytes(rows, doubled) <= rest.bytes ? doubled : needed;
  const bool split =
      parts > 1 && std::uint64_t{units} * rows < kBlocksWanted && shape.part_bytes(rows, parts) <= rest.bytes;
  if (!split) {
    stream.launch<kernels::AttentionWhole<Keys>>({units, rows}, args);
    return;
  }
  args.parts_max = parts;
  args.parts = reinterpret_cast<kernels::Softmax*>(rest.ptr);
  args.part_values = reinterpret_cast<float*>(args.parts + std::uint64_t{rows} * args.heads * parts);
  stream.launch<kernels::AttentionParts<Keys>>({units, rows, parts}, args);
}

// Positions the longest slot of the step holds once it is done.
inline std::uint64_t longest_of(const plan::ExecutionContext& ctx) {
  return ctx.sequence_lengths.empty() ? 0 : *std::ranges::max_element(ctx.sequence_lengths);
}

// The pages of the step's rows, of a layer whose part begins at offset_bytes.
inline kernels::KvPages pages_of(const plan::ExecutionContext& ctx, const plan::StateBlockHandle& state,
                                 std::uint64_t offset_bytes) {
  return {.pages = state.pages,
          .pages_stride = state.pages_stride,
          .offset_bytes = offset_bytes,
          .sequence_of_row = ctx.slot_of_row,
          .positions = ctx.positions};
}

}  // namespace llorch::engine::compute::cuda::adapters
