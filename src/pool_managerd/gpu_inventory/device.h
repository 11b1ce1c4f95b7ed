#pragma once
// One device that workers can run on, as facts. Values; no thread rule.
#include <cstdint>
#include <optional>
#include <string>

namespace llorch::pool_managerd::gpu_inventory {

struct Device {
  std::string gpu_id;               // "0", "1", ... as NVML counts, or "cpu" for the reference device
  std::string model;                // "NVIDIA H200"
  std::string device_class;         // model + sm, or "cpu-x86"
  std::string memory_architecture;  // "vram-only" | "host"
  std::optional<std::string> compute_capability;
  std::string pci_bus_id;
  std::string uuid;  // "GPU-...": what CUDA_VISIBLE_DEVICES takes; empty when the driver does not tell
  std::int64_t total_bytes = 0;
  // What the driver says is free, whoever holds the rest. Absent for the CPU device: its total is a budget of ours alone.
  std::optional<std::int64_t> free_bytes;
  std::int64_t headroom_bytes = 0;  // never given to workers: contexts, fragmentation, what others take meanwhile
  std::optional<int> temperature_celsius;
  bool healthy = true;
  std::string fault;  // why it is not
};

struct DeviceUse {
  std::int64_t allocated_bytes = 0;  // accounted to our workers, those still starting included
  std::int64_t starting_bytes = 0;   // of these, promised to workers that may not have taken them yet
};

// min(total - allocated - headroom, free - starting), at least 0. `free` already lacks what ready workers hold;
// what starting ones will take is subtracted, or two starts at once could share it.
std::int64_t available_bytes(const Device& device, const DeviceUse& use);

}  // namespace llorch::pool_managerd::gpu_inventory
