#pragma once
// One device that workers can run on, as facts. Values; no thread rule.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace llorch::pool_managerd::gpu_inventory {

// Why a device takes no worker.
enum class FaultKind : std::uint8_t {
  kNone,
  kLost,     // the driver does not reach it
  kReset,    // it has to be reset
  kEcc,      // its memory had errors that could not be corrected; what runs on it may finish
  kKernels,  // this build has none for it
};
std::string_view name(FaultKind kind);  // "lost"; "" for kNone

// A process that uses a device.
struct DeviceProcess {
  std::int64_t pid = 0;
  std::int64_t bytes = 0;  // 0: the driver does not tell
};

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
  // As the driver tells; absent where it does not.
  std::optional<int> temperature_celsius;
  std::optional<int> utilization_percent;  // of the time since the last reading in which a kernel ran
  std::optional<std::int64_t> power_milliwatts;
  std::optional<std::int64_t> ecc_corrected_errors, ecc_uncorrected_errors;  // since the driver began or it was reset
  std::vector<std::string> throttle_reasons;  // why its clocks are lower than they could be; empty: they are not
  std::vector<DeviceProcess> processes;       // all that use it
  std::vector<unsigned> xids;  // errors that the driver has told since the last reading, by NVIDIA's numbers
  bool healthy = true;
  FaultKind fault_kind = FaultKind::kNone;
  std::string fault;  // why it is not healthy
};

// What an error that the driver tells by this number means for its device; kNone: it is the matter of one process.
FaultKind fault_of_xid(unsigned xid);

struct DeviceUse {
  std::int64_t allocated_bytes = 0;  // accounted to our workers, those still starting included
  std::int64_t starting_bytes = 0;   // of these, promised to workers that may not have taken them yet
};

// min(total - allocated - headroom, free - starting), at least 0. `free` already lacks what ready workers hold;
// what starting ones will take is subtracted, or two starts at once could share it.
std::int64_t available_bytes(const Device& device, const DeviceUse& use);

}  // namespace llorch::pool_managerd::gpu_inventory
