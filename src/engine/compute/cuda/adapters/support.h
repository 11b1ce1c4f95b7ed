#pragma once
// What the adapters share: the workspace arena, grids, projections, load-time checks.
#include <algorithm>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "engine/compute/arena.h"
#include "engine/compute/cuda/device.h"
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

inline const CudaStream& stream_of(const plan::ExecutionContext& ctx) {
  return *static_cast<const CudaStream*>(ctx.stream.ptr);
}

inline const CudaWeight* weight_of(const void* weight) { return static_cast<const CudaWeight*>(weight); }
// Of a slot read element by element; null when it is absent.
inline const float* vector_of(const void* weight) { return weight != nullptr ? weight_of(weight)->vector : nullptr; }

constexpr std::size_t slot(auto value) { return static_cast<std::size_t>(value); }

// Blocks of `of` that cover `count`.
constexpr std::uint32_t blocks_of(std::uint64_t count, std::uint32_t of) {
  return static_cast<std::uint32_t>((count + of - 1) / of);
}

class Arena : public WorkspaceArena {
 public:
  Arena() = default;
  explicit Arena(const plan::Workspace& workspace) : WorkspaceArena(workspace) {}
  // Of an instruction: take_staged() finds what the one before it staged there.
  explicit Arena(const plan::ExecutionContext& ctx) : WorkspaceArena(ctx.workspace), staged_(stream_of(ctx).staged()) {
    if (staged_.workspace != ctx.workspace.ptr) staged_ = {};
  }

  // Room for `rows` activation rows as the weights they meet want them.
  kernels::ByteRows take_bytes(std::uint64_t rows, std::uint32_t width) {
    kernels::ByteRows out;
    out.q = take<std::int8_t>(rows * width);
    out.scales = take<float>(rows * (width / kernels::kBlockElements));
    out.sums = take<std::uint32_t>(rows * (width / kernels::kBlockElements));
    out.width = width;
    return out;
  }
  kernels::HalfRows take_halves(std::uint64_t rows, std::uint32_t width) {
    kernels::HalfRows out;
    out.width = width;
    out.stride = kernels::padded_columns(width);
    out.values = take<std::uint16_t>(rows * out.stride);
    out.scales = take<float>(rows);
    return out;
  }
  // Room for one form at a time.
  struct Narrowed {
    kernels::ByteRows bytes;
    kernels::HalfRows halves;
  };
  // Rows in the form they were staged in, if they were.
  struct Staged {
    Form form = Form::kFloat;  // none
    kernels::ByteRows bytes;
    kernels::HalfRows halves;

    Staged from_row(std::uint64_t row) const {
      Staged rest = *this;
      if (form == Form::kBytes) {
        rest.bytes.q += row * bytes.width;
        rest.bytes.scales += row * (bytes.width / kernels::kBlockElements);
        rest.bytes.sums += row * (bytes.width / kernels::kBlockElements);
      } else if (form == Form::kHalves) {
        rest.halves.values += row * halves.stride;
        rest.halves.scales += row;
      }
      return rest;
    }
  };
  // The front of the workspace, where stage() puts rows of x. REQUIRES: nothing was taken before.
  Staged take_staged(const float* x, std::uint64_t rows, std::uint32_t width) {
    ASSERT(used_bytes() == 0, "{} bytes were taken before what was staged", used_bytes());
    const Narrowed memory = take_narrowed(rows, width);
    if (staged_.form == Form::kFloat || staged_.x != x || staged_.rows != rows || staged_.width != width) return {};
    return {.form = staged_.form, .bytes = memory.bytes, .halves = memory.halves};
  }
  Narrowed take_narrowed(std::uint64_t rows, std::uint32_t width) {
    Arena as_bytes, as_halves;
    as_bytes.take_bytes(rows, width);
    as_halves.take_halves(rows, width);
    const std::uint64_t bytes = std::max(as_bytes.used_bytes(), as_halves.used_bytes());
    std::byte* memory = take<std::byte>(bytes);
    Narrowed out;
    if (memory == nullptr) return out;
    out.bytes = Arena(plan::Workspace{memory, bytes}).take_bytes(rows, width);
    out.halves = Arena(plan::Workspace{memory, bytes}).take_halves(rows, width);
    return out;
  }

 private:
  StagedActivations staged_;
};

// `memory` as a kernel is to stage rows in it, and what that kernel is told. Nothing for weights that take floats.
inline Arena::Staged staged_in(const Arena::Narrowed& memory, Form form) {
  return {.form = form, .bytes = memory.bytes, .halves = memory.halves};
}
inline kernels::NarrowedRows wanted(const Arena::Staged& staged) {
  if (staged.form == Form::kBytes) return {.bytes = staged.bytes};
  return {.halves = staged.form == Form::kHalves ? staged.halves : kernels::HalfRows{}};
}

// y = x W^T + bias for one weight of several that share x.
struct Projection {
  const CudaWeight* weight = nullptr;
  float* y = nullptr;           // [rows, weight rows], row stride y_stride
  const float* bias = nullptr;  // [matrices, weight rows] or null
};
// Which matrix of a stack a row meets when each has its own.
struct RowMatrices {
  const std::uint32_t* matrix_of_row = nullptr;  // [rows]
  // Rows of one matrix together, in tiles of at most tile_rows; null = every row by itself.
  const kernels::RowTile* tiles = nullptr;  // [tiles_count]
  const std::uint32_t* row_at = nullptr;    // [rows]
  std::uint32_t tiles_count = 0;
  std::uint32_t tile_rows = 0;
};
struct ProjectionInput {
  const float* x = nullptr;  // [rows / rows_per_x, width], row stride x_stride
  std::uint64_t x_stride = 0;
  std::uint32_t rows = 0;
  Arena::Narrowed narrowed;  // scratch
  Arena::Staged staged;      // x as it was staged; weights of that form narrow nothing
  std::uint64_t y_stride = 0;
  // Stacks: matrix z takes x + z * x_stack_stride to y + z * y_stack_stride; or every row meets the one `own` says.
  std::uint32_t matrices = 1;
  std::uint64_t x_stack_stride = 0;
  std::uint64_t y_stack_stride = 0;
  const RowMatrices* own = nullptr;
  std::uint32_t rows_per_x = 1;
};
// Weights of one type are one launch, and one more narrows x for each of int8 and F16 that they want.
// REQUIRES: at most MatmulArgs::kTargetsMax projections.
void project(const CudaStream& stream, const ProjectionInput& input, std::span<const Projection> projections);

// Calls visitor.template operator()<DType>() with a matrix type.
template <class Visitor>
void visit_matrix_type(plan::DType dtype, const Visitor& visitor) {
  using enum plan::DType;
  switch (dtype) {
    case kF32: return visitor.template operator()<kF32>();
    case kF16: return visitor.template operator()<kF16>();
    case kBF16: return visitor.template operator()<kBF16>();
    case kQ8_0: return visitor.template operator()<kQ8_0>();
    case kQ4_0: return visitor.template operator()<kQ4_0>();
    case kQ4_1: return visitor.template operator()<kQ4_1>();
    case kQ5_0: return visitor.template operator()<kQ5_0>();
    case kQ5_1: return visitor.template operator()<kQ5_1>();
    case kQ2_K: return visitor.template operator()<kQ2_K>();
    case kQ3_K: return visitor.template operator()<kQ3_K>();
    case kQ4_K: return visitor.template operator()<kQ4_K>();
    case kQ5_K: return visitor.template operator()<kQ5_K>();
    case kQ6_K: return visitor.template operator()<kQ6_K>();
    case kIQ4_NL: return visitor.template operator()<kIQ4_NL>();
    case kIQ4_XS: return visitor.template operator()<kIQ4_XS>();
    case kMXFP4: return visitor.template operator()<kMXFP4>();
    case kF8_E4M3: return visitor.template operator()<kF8_E4M3>();
    case kI32: break;  // check_tensor() said no
  }
  ASSERT(false, "type {}", static_cast<int>(dtype));
}

// The spans of a step from span `first` on, as many as a launch takes. Grids and image rows as far as the step has them.
kernels::Frames frames_from(const plan::ExecutionContext& ctx, std::uint32_t first);
// Calls work(frames) until all spans of the step had their turn.
template <class Work>
void for_frames(const plan::ExecutionContext& ctx, const Work& work) {
  for (std::uint32_t first = 0; first < ctx.batch_size; first += kernels::Frames::kFramesMax)
    work(frames_from(ctx, first));
}
inline std::uint32_t rows_of(const kernels::Frames& frames) {
  return frames.frame[frames.count - 1].row_end - frames.frame[0].row_begin;
}

// Load-time checks of an instruction (compute/adapter_checks.h).
base::Result<> prepare(const plan::PrepareArgs& args);

}  // namespace llorch::engine::compute::cuda::adapters
