// A Driver with nothing behind it, for whoever asks what a model would take.
#include <limits>

#include "base/assert.h"
#include "engine/compute/cuda/backend.h"
#include "engine/compute/cuda/device.h"

namespace llorch::engine::compute::cuda {
namespace {

class NoDevice final : public Driver {
 public:
  using Driver::launch;

  const DeviceInfo& info() const override { return info_; }
  std::uint64_t free_memory_bytes() override { return 0; }
  Residency residency(const std::byte*) override { return Residency::kUnknown; }
  std::byte* malloc(std::uint64_t) override { return nullptr; }
  void free(std::byte*) noexcept override { no_device(); }
  void copy_to_device(std::byte*, std::span<const std::byte>) noexcept override { no_device(); }
  void copy_to_host(std::span<std::byte>, const std::byte*) noexcept override { no_device(); }
  void copy_on_device(std::byte*, const std::byte*, std::uint64_t) noexcept override { no_device(); }
  void zero(std::byte*, std::uint64_t) noexcept override { no_device(); }
  std::unique_ptr<Staging> make_staging(std::uint64_t) override { return nullptr; }
  std::unique_ptr<Event> make_event() override { return nullptr; }
  std::unique_ptr<Event> make_timed_event() override { return nullptr; }
  double seconds_between(Event&, Event&) override { return 0; }
  void copy_from_staging(std::byte*, std::span<const std::byte>) noexcept override { no_device(); }
  void copy_to_staging(std::span<std::byte>, const std::byte*) noexcept override { no_device(); }
  void record(Event&) noexcept override { no_device(); }
  void wait(Event&) noexcept override { no_device(); }
  std::uint32_t* arrival_counters() noexcept override { return nullptr; }
  void launch(kernels::KernelId, const Grid&, const void*) noexcept override { no_device(); }
  std::unique_ptr<Graph> make_graph(std::span<const Launch>) noexcept override { return nullptr; }
  void launch(Graph&) noexcept override { no_device(); }
  bool is_healthy() const noexcept override { return true; }
  base::Result<> synchronize() override { return {}; }

 private:
  static void no_device() { ASSERT(false, "a planner has no memory and runs nothing"); }

  DeviceInfo info_{.name = "no device", .compute_major = 0, .compute_minor = 0, .memory_bytes = 0};
};

}  // namespace

std::unique_ptr<plan::Backend> make_cuda_planner() {
  return std::make_unique<CudaBackend>(std::make_unique<NoDevice>(), std::numeric_limits<std::int64_t>::max());
}

}  // namespace llorch::engine::compute::cuda
