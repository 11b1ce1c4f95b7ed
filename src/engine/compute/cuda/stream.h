#pragma once
// What ExecutionContext::stream points to on a CUDA backend: launches, typed.
#include <array>

#include "engine/compute/cuda/driver.h"
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda {

// Launches since the counters were cleared.
struct LaunchCounters {
  std::array<std::uint64_t, kernels::AllKernels::kCount> per_kernel{};
  std::uint64_t total = 0;
};

class CudaStream {
 public:
  explicit CudaStream(Driver& driver) : driver_(driver) {}

  // An empty grid launches nothing.
  template <class Kernel>
  void launch(const Grid& grid, const typename Kernel::Args& args) const noexcept {
    if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
    constexpr kernels::KernelId kId = kernels::kernel_id<Kernel>();
    if (counters_ != nullptr) {
      ++counters_->per_kernel[static_cast<std::size_t>(kId)];
      ++counters_->total;
    }
    driver_.launch(kId, grid, &args);
  }
  // What an adapter returns once it has enqueued its work.
  contract::Status status() const noexcept {
    return driver_.is_healthy() ? contract::Status::ok() : contract::Status::failed(base::ErrorCode::kCudaError);
  }

  void count(LaunchCounters* counters) { counters_ = counters; }  // null = not counted

 private:
  Driver& driver_;
  LaunchCounters* counters_ = nullptr;
};

}  // namespace llorch::engine::compute::cuda
