#pragma once
// What ExecutionContext::stream points to on a CUDA backend: launches, typed.
#include <array>
#include <cstdint>
#include <utility>

#include "engine/compute/cuda/driver.h"
#include "engine/compute/cuda/graphs/step_record.h"
#include "engine/plan/adapter.h"

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

// The form in which a weight's kernel takes its activations.
enum class Form : std::uint8_t { kFloat, kBytes, kHalves };
constexpr Form form_of(plan::DType dtype) {
  if (plan::is_quantized(dtype)) return Form::kBytes;
  return dtype == plan::DType::kF32 ? Form::kFloat : Form::kHalves;
}

// Activation rows that an instruction staged for the next one, and for no later one, in the form that matrices take, at the front
// of the workspace.
struct StagedActivations {
  Form form = Form::kFloat;  // none
  const float* x = nullptr;  // what they are of
  std::uint32_t rows = 0;
  std::uint32_t width = 0;
  const std::byte* workspace = nullptr;
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
  std::uint32_t* arrival_counters() const noexcept { return driver_.arrival_counters(); }
  // What an adapter returns once it has enqueued its work.
  plan::Status status() const noexcept {
    return driver_.is_healthy() ? plan::Status::ok() : plan::Status::failed(base::ErrorCode::kCudaError);
  }

  void count(LaunchCounters* counters) { counters_ = counters; }  // null = not counted
  void count_step(std::uint32_t rows) const {
    if (counters_ == nullptr) return;
    ++counters_->steps;
    counters_->rows += rows;
  }
  // The form most matrices of this device take; rows are staged in it.
  Form form() const { return form_; }
  void prefer(Form form) { form_ = form; }
  void stage(const StagedActivations& rows) const { staging_ = rows; }
  const StagedActivations& staged() const { return staged_; }
  void begin_instruction() const { staged_ = std::exchange(staging_, {}); }
  void forget_staged() const { staged_ = staging_ = {}; }

  // Launches go into `record` instead of to the driver; null = to the driver.
  void hold(StepRecord* record) { held_ = record; }
  bool holds() const { return held_ != nullptr; }

 private:
  Driver& driver_;
  LaunchCounters* counters_ = nullptr;
  StepRecord* held_ = nullptr;
  Form form_ = Form::kFloat;
  mutable StagedActivations staged_, staging_;
};

}  // namespace llorch::engine::compute::cuda
