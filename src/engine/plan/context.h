#pragma once
// Everything that changes from step to step. Filled by the batch builder, read by adapters.
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/plan/opcode.h"
#include "engine/plan/plan.h"

namespace llorch::engine::plan {

// A backend's queue: a CUDA stream, the thread pool of the CPU backend. Opaque to everyone else.
struct StreamHandle {
  void* ptr = nullptr;
};

// Scratch of one instruction, sized at load to the largest need (AdapterTables::workspace_bytes). 64-byte aligned;
// contents are undefined at the start of every instruction.
struct Workspace {
  std::byte* ptr = nullptr;
  std::uint64_t bytes = 0;
};

// A frame of height x width patches, both multiples of merge. Its rows follow each other in the batch by blocks of
// merge x merge patches: blocks row-major, patches row-major inside a block.
struct VisionGrid {
  std::uint32_t height = 0;  // patches
  std::uint32_t width = 0;
};

// Rows of a slot's vision state. Encode: what a span of the batch writes; (end - begin) * merge^2 is the span's length.
// Prefill: from the row the span's first image row takes to behind the last row encoded for the request.
struct ImageRows {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// A rotation table, made once per model: angle = position * inv_freq[i] in f32, cos and sin times attn_factor.
struct RopeTable {
  const float* inv_freq = nullptr;  // [R/2], device memory; one per pair (vision2d: the row's R/4, then the column's)
  std::uint32_t count = 0;          // R/2
  float attn_factor = 1.0F;
};

// Instructions run since the counters were cleared. Plain integers: only the executor writes them.
struct DispatchCounters {
  std::array<std::uint64_t, kOpcodeTableSize> per_opcode{};
  std::uint64_t total = 0;
};

// A ragged batch. Rows of one slot are consecutive and in ascending position order; slots are in ascending order; row r of
// active slot b satisfies row_offsets[b] <= r < row_offsets[b+1]. Every page that a row sees or writes is present.
// Spans are host memory; plain pointers are device memory (the same thing on the CPU backend).
struct ExecutionContext {
  ExecutionMode mode = ExecutionMode::kDecode;
  std::uint32_t batch_size = 0;                     // B, active slots
  std::uint32_t total_rows = 0;                     // T
  std::span<const std::uint32_t> active_slots;      // [B]
  std::span<const std::uint32_t> sequence_lengths;  // [B] positions cached once this step is done
  std::span<const std::uint32_t> row_offsets;       // [B+1] prefix sums
  std::span<const std::uint32_t> output_rows;       // [O] ascending rows whose outputs are wanted; may be empty

  const std::uint32_t* row_ids = nullptr;  // [T] what each row looks up in the embedding table
  const std::uint32_t* row_types =
      nullptr;  // [T] or null: which of a pair's texts each belongs to (position_embedding)
  const std::uint32_t* positions = nullptr;    // [T] absolute
  const std::uint32_t* positions3 = nullptr;   // [3][T] or null: T, H, W (mrope); unused, row, column (vision2d)
  const std::uint32_t* slot_of_row = nullptr;  // [T]
  const float* hidden_rows = nullptr;  // [T, D] of a plan that predicts: what the model made of the position before

  std::span<const RopeTable> rope_tables;
  const std::uint8_t* long_rope_of_slot =
      nullptr;  // [slots] 1 = this slot rotates by AttentionParams::rope_table_long_id

  // vision_encode only, where a span of row_offsets is one frame and active_slots names the slot it belongs to (several
  // frames may have one slot; order and repetition are free).
  const float* patch_rows = nullptr;  // [T, patch row width]
  std::span<const VisionGrid> grids;  // [B]
  // vision_encode, and prefill steps with image rows: [B]. Empty: no row of the step is an image's.
  std::span<const ImageRows> image_rows;
  Workspace workspace;
  StreamHandle stream;
  DispatchCounters* counters = nullptr;  // null = not counted
};

}  // namespace llorch::engine::plan
