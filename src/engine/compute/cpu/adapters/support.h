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
// Up to four projections in one parallel region.
void project(const CpuStream& stream, const ProjectionInput& input, std::span<const Projection> projections);

// Groups of weights that make a part of their product with `rows` rows at least: work worth waking a thread for. Every part of a product
// of many rows reads all of them again, so it has `most` groups at least, or less where they would be more than a share of 1/`parts` of
// what a thread does; pairs, which kernels multiply together.
std::size_t grain_of_groups(const CpuStream& stream, std::size_t groups, std::size_t width, std::size_t rows,
                            std::size_t parts = 16, std::size_t most = 8);

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
