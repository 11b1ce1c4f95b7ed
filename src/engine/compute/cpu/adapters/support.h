#pragma once
// What the adapters share: the workspace arena, projections, load-time checks.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/assert.h"
#include "engine/compute/arena.h"
#include "engine/compute/cpu/device.h"
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

inline const CpuStream& stream_of(const plan::ExecutionContext& ctx) {
  return *static_cast<const CpuStream*>(ctx.stream.ptr);
}

inline const CpuWeight* weight_of(const void* weight) { return static_cast<const CpuWeight*>(weight); }
// Of a slot read element by element; null when it is absent.
inline const float* vector_of(const void* weight) { return weight != nullptr ? weight_of(weight)->vector : nullptr; }

class Arena : public WorkspaceArena {
 public:
  using WorkspaceArena::WorkspaceArena;

  // Room for `rows` activation rows as int8 blocks; none when no quantized matrix can have this width.
  QuantizedRows take_quantized(std::size_t rows, std::size_t width) {
    if (width % 32 != 0) return {};
    QuantizedRows out;
    out.blocks = take<QuantizedBlock>(rows * (width / 32));
    out.width = width;
    return out;
  }
};

// y = x W^T for one weight of several that share x.
struct Projection {
  const CpuWeight* weight = nullptr;
  float* y = nullptr;  // [rows, weight rows], row stride y_stride
};
struct ProjectionInput {
  const float* x = nullptr;  // [rows, width], row stride x_stride
  std::size_t x_stride = 0;
  std::size_t rows = 0;
  QuantizedRows quantized;  // scratch, filled here when a weight needs it
  std::size_t y_stride = 0;
  bool has_quantized = false;  // whoever made the rows has filled it, which pays: they come from the first-level cache
};
// Multiplies rows `rows` of the input with groups `groups` of a matrix. The first row's outputs go to y.
void multiply(const CpuStream& stream, const ProjectionInput& input, Range rows, const PackedMatrix& w, Range groups,
              float* y, std::size_t y_stride);
// Quantizes the input if one of the weights needs it; returns whether one does.
bool quantize_input(const CpuStream& stream, const ProjectionInput& input, std::span<const CpuWeight* const> weights);
// Up to four projections in one parallel region.
void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections);

// Groups of weights that make a part of their product with `rows` rows at least: work worth waking a thread for. Every part of a product
// of many rows reads them again, so it has `most` groups at least, or less where they would be more than a share of 1/`parts` of what
// a thread does; pairs, which kernels multiply together.
std::size_t grain_of_groups(const CpuStream& stream, std::size_t groups, std::size_t width, std::size_t rows,
                            std::size_t parts = 16, std::size_t most = 8);

// Cuts a range of units at multiples of `length`: work(which piece, its units, counted from where the piece begins).
template <class Work>
void split_range(Range range, std::size_t length, const Work& work) {
  for (std::size_t begin = range.begin; begin < range.end;) {
    const std::size_t piece = begin / length, end = std::min(range.end, (piece + 1) * length);
    work(piece, Range{begin - piece * length, end - piece * length});
    begin = end;
  }
}

// Products of rows with weights in one parallel region.
struct Products {
  std::size_t rows = 0;
  std::size_t width = 0;        // of the rows
  bool quantized = false;       // the rows are
  std::size_t units = 0;        // that the weights are dealt out in
  std::size_t unit_groups = 1;  // groups of weights of a unit
};
// Calls work(rows, units, thread) for all units of every panel of rows, as many as a kernel takes at once. A thread mostly stays
// with a panel: its cache keeps the activations from part to part.
template <class Work>
void for_panels(const CpuStream& stream, const Products& products, const Work& work) {
  const std::size_t rows = products.rows, units = products.units, most = stream.kernels.panel_rows(products.quantized);
  const std::size_t panels = (rows + most - 1) / most;
  // Full panels have full tiles. Where few rows would be left for the last, all are even: it reads the weights again.
  const bool even = rows - (panels - 1) * most < most / 2;
  const auto first_row = [&](std::size_t panel) { return even ? rows * panel / panels : std::min(panel * most, rows); };
  const std::size_t grain =
      grain_of_groups(stream, panels * units * products.unit_groups, products.width, (rows + panels - 1) / panels);
  const auto of_range = [&](Range range, std::size_t thread) {
    split_range(range, units, [&](std::size_t panel, Range of_panel) {
      work(Range{first_row(panel), first_row(panel + 1)}, of_panel, thread);
    });
  };
  stream.pool.run(panels * units, (grain + products.unit_groups - 1) / products.unit_groups, of_range);
}

// Attention of `units` units, `products` multiply-adds together: kernel(args of the thread, one unit). Later units see more positions
// and cost more, so they are dealt out in turn to several lanes for every thread; few products stay on the caller.
inline constexpr std::size_t kLanesPerThread = 4;
template <class Kernel, class ArgsOfThread>
void attend_units(const CpuStream& stream, std::size_t units, std::size_t products, const Kernel& kernel,
                  const ArgsOfThread& args_of) {
  constexpr std::size_t kGrainProducts = 1u << 15;
  const std::size_t lanes =
      products < kGrainProducts ? 1 : std::min(units, kLanesPerThread * stream.pool.threads_count());
  stream.pool.run(lanes, 1, [&](Range range, std::size_t thread) {
    const auto args = args_of(thread);
    for (std::size_t lane = range.begin; lane < range.end; ++lane)
      for (std::size_t unit = lane; unit < units; unit += lanes) kernel(args, {unit, unit + 1});
  });
}

// The kernels' name of an activation.
Activation kernel_activation(plan::Activation act);

// Load-time checks of an instruction (compute/adapter_checks.h).
base::Result<> prepare(const plan::PrepareArgs& args);

}  // namespace llorch::engine::compute::cpu::adapters
