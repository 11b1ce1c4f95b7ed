#pragma once
// What ExecutionContext::stream points to on a CUDA backend: launches, typed.
#include <array>

#include "engine/compute/cuda/driver.h"
#include "engine/compute/cuda/graphs/step_record.h"
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda {

// Since the counters were cleared. A step is what begin_step() and end_step() enclose.
struct LaunchCounters {
  std::array<std::uint64_t, kernels::AllKernels::kCount> per_kernel{};
  std::uint64_t total = 0;  // kernels, however they were sent
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;  // of those steps
  double per_step() const { return steps != 0 ? static_cast<double>(total) / static_cast<double>(steps) : 0; }
  double per_row() const { return rows != 0 ? static_cast<double>(total) / static_cast<double>(rows) : 0; }
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
    if (held_ != nullptr) {
      held_->add<Kernel>(grid, args);
      return;
    }
    driver_.launch(kId, grid, &args);
  }
  // What an adapter returns once it has enqueued its work.
  contract::Status status() const noexcept {
    return driver_.is_healthy() ? contract::Status::ok() : contract::Status::failed(base::ErrorCode::kCudaError);
  }

  void count(LaunchCounters* counters) { counters_ = counters; }  // null = not counted
  void count_step(std::uint32_t rows) const {
    if (counters_ == nullptr) return;
    ++counters_->steps;
    counters_->rows += rows;
  }
  // Launches go into `record` instead of to the driver; null = to the driver.
  void hold(StepRecord* record) { held_ = record; }
  bool holds() const { return held_ != nullptr; }

 private:
  Driver& driver_;
  LaunchCounters* counters_ = nullptr;
  StepRecord* held_ = nullptr;
};

}  // namespace llorch::engine::compute::cuda
