#pragma once
// The backend object of a CUDA device, as the adapters see it. Written once over a Driver.
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "engine/compute/cuda/graphs/step_graphs.h"
#include "engine/compute/cuda/graphs/step_times.h"
#include "engine/compute/cuda/loading/weight_loader.h"
#include "engine/compute/cuda/stream.h"
#include "engine/compute/memory_ledger.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute::cuda {

// A weight on the device; Backend::upload_weights gives one of these. Either a stack of matrices or a plain f32 vector.
struct CudaWeight {
  plan::DType dtype = plan::DType::kF32;
  kernels::Matrix matrix;
  std::uint32_t stack_count = 1;
  const float* vector = nullptr;
  std::byte* memory = nullptr;  // of Backend::allocate
};

class CudaBackend final : public plan::Backend {
 public:
  CudaBackend(std::unique_ptr<Driver> driver, std::uint64_t memory_budget_bytes);
  CudaBackend(const CudaBackend&) = delete;
  CudaBackend& operator=(const CudaBackend&) = delete;

  std::string_view device_class() const override { return device_class_; }
  std::string_view numerics() const override { return "cuda-4"; }
  std::string_view implementation() const override { return "mma"; }
  const plan::AdapterTables& tables() const override;
  plan::StreamHandle stream() override { return {&stream_}; }
  void begin_step(const plan::ExecutionContext& ctx) noexcept override;
  void end_step() noexcept override;
  // A stretch of the step ends: it is sent, as a graph where one stands for it, and what follows is held anew.
  void end_stretch() noexcept;
  // Sends what a step has held so far, kernel by kernel; the rest of it is not held.
  void send_held() noexcept;

  base::Result<std::byte*> allocate(std::uint64_t bytes, plan::MemoryPurpose purpose) override;
  void release(std::byte* ptr) noexcept override;
  std::uint64_t memory_budget_bytes() const override { return ledger_.budget_bytes(); }
  std::uint64_t memory_used_bytes() const override { return ledger_.used_bytes(); }

  base::Result<> check_weight(const plan::StoredTensor& tensor) const override;
  std::uint64_t packed_weight_bytes(const plan::StoredTensor& tensor) const override;
  plan::StagingBytes staging_bytes(std::span<const plan::StoredTensor> tensors) const override {
    return loading::staging_bytes(tensors, load_limits_);
  }
  base::Result<> upload_weights(std::span<const plan::StoredTensor> tensors, std::span<void*> weights,
                                const plan::UploadProgress& progress) override;
  void release_weight(void* weight) noexcept override;

  void copy_to_device(std::byte* device, std::span<const std::byte> host) noexcept override;
  void copy_to_host(std::span<std::byte> host, const std::byte* device) noexcept override;
  void zero(std::byte* device, std::uint64_t bytes) noexcept override;
  void copy_on_device(std::byte* to, const std::byte* from, std::uint64_t bytes) noexcept override;
  base::Result<> synchronize() override;
  base::Result<> check_residency() override;
  // Every GPU gathers what all have.
  std::uint64_t sum_bytes(const plan::SumLimits& limits) const override {
    return limits.values_max * limits.ranks * sizeof(float);
  }
  std::uint64_t device_sampler_bytes(const plan::DrawLimits& limits) const override;
  base::Result<std::unique_ptr<plan::DeviceSampler>> make_device_sampler(const plan::DrawLimits& limits) override;

  std::uint64_t used_bytes(plan::MemoryPurpose purpose) const { return ledger_.used_bytes(purpose); }
  std::size_t allocations_count(plan::MemoryPurpose purpose) const;
  // Counts launches into `counters` from here on; null = not counted, which is the default.
  void count_launches(LaunchCounters* counters) { stream_.count(counters); }
  // Times steps on the device from here on, which it does not do by itself.
  void time_steps(bool on);
  // Of the steps since the last call; none when they are not timed. Waits for the last of them.
  StepTimes::Sum take_step_times() { return times_ ? times_->take() : StepTimes::Sum{}; }
  // The same without waiting, and without the newest few of them; they stay for take_step_times().
  StepTimes::Sum step_times_so_far() const { return times_ ? times_->so_far() : StepTimes::Sum{}; }
  // What later loads take beside the weights.
  void limit_loads(const loading::LoadLimits& limits) { load_limits_ = limits; }
  // Which steps of decode are remembered to be replayed as graphs; of none, every kernel is launched by itself. No bit depends on it.
  void limit_graphs(const GraphLimits& limits);
  const StepGraphs& graphs() const { return graphs_; }

 private:
  void count_matrix(plan::DType dtype, std::int32_t by);
  base::Result<> fill_weights(std::span<const plan::StoredTensor> tensors, std::span<void*> weights,
                              const plan::UploadProgress& progress);
  // The driver, with everything on its way that was held.
  Driver& driver() noexcept {
    send_held();
    return *driver_;
  }

  std::unique_ptr<Driver> driver_;
  std::string device_class_;
  MemoryLedger ledger_;
  std::array<std::int32_t, 3> matrices_by_form_{};  // by Form; those that are there
  loading::LoadLimits load_limits_;
  CudaStream stream_;
  StepGraphs graphs_;
  std::optional<StepTimes> times_;
};

}  // namespace llorch::engine::compute::cuda
