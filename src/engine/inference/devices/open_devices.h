#pragma once
// From the names that people give devices to the devices of an engine.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/inference/parallel/devices.h"

namespace llorch::engine::inference::devices {

struct DevicesOptions {
  std::string names;  // "cpu", "0", "cuda:0"; of several that share a model "0,1", "cuda:0,1", "cpu,cpu"
  std::uint32_t cpu_threads_count = 1;    // shared out over the CPU devices, at least one each
  std::uint64_t memory_budget_bytes = 0;  // of each; 0 = what is there
};

// Devices and how they meet. Outlives the engine on them.
struct OpenDevices {
  std::vector<std::unique_ptr<contract::Backend>> backends;
  std::unique_ptr<contract::Collective> collective;  // of several

  parallel::Devices of_engine() const;
  std::uint64_t memory_used_bytes() const;  // of all
};

// Whether it names the CPU device, or several.
bool names_cpu(std::string_view names);
// Empty, or what is wrong with it.
std::string check_names(std::string_view names);
// Never another device than named, and all of them or none. REQUIRES: check_names() found nothing.
// Errors: those of compute/cuda's make_cuda_group and compute/cpu's make_cpu_backend.
base::Result<OpenDevices> open_devices(const DevicesOptions& options);

}  // namespace llorch::engine::inference::devices
