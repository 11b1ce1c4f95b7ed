#pragma once
// From the names that people give devices to the devices of an engine.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/inference/parallel/devices.h"
#include "engine/plan/step_meter.h"

namespace llorch::engine::inference::devices {

struct DevicesOptions {
  std::string names;  // "cpu", "0", "cuda:0"; of several that share a model "0,1", "cuda:0,1", "cpu,cpu"
  std::uint32_t cpu_threads_count = 1;               // shared out over the CPU devices, at least one each
  std::string cpu_isa{};                             // of CPU devices; empty: the best there is
  std::vector<std::uint64_t> memory_budget_bytes{};  // by rank; 0 = what is there, as are those that are missing
  bool count_steps = false;                          // of GPUs: OpenDevices::meters
};

// Devices and how they all-reduce. Outlives the engine on them.
struct OpenDevices {
  std::vector<std::unique_ptr<plan::Backend>> backends;
  std::unique_ptr<plan::Collective> collective;          // of several
  std::vector<std::unique_ptr<plan::StepMeter>> meters;  // by rank, where asked for; the CPU device has none

  parallel::Devices of_engine() const;
  std::vector<std::uint64_t> memory_used_bytes() const;  // by rank
};

// Threads of each of so many CPU devices: `threads_count` shared out, at least one.
constexpr std::uint32_t cpu_threads_each(std::uint32_t threads_count, std::int64_t devices_count) {
  return std::max(1U, threads_count / static_cast<std::uint32_t>(devices_count));
}
// How many it names. REQUIRES: check_names() found nothing.
std::uint32_t devices_count(std::string_view names);
// Whether it names the CPU device, or several.
bool names_cpu(std::string_view names);
// Empty, or what is wrong with it.
std::string check_names(std::string_view names);
// Never another device than named, and all of them or none. REQUIRES: check_names() found nothing.
// Errors: those of compute/cuda's make_cuda_group and compute/cpu's make_cpu_backend.
base::Result<OpenDevices> open_devices(const DevicesOptions& options);

}  // namespace llorch::engine::inference::devices
