#pragma once
// The devices of this host: every NVIDIA GPU, and the CPU reference device if the operator asked for it by name.
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool_managerd/gpu_inventory/device.h"
#include "pool_managerd/gpu_inventory/host_memory.h"
#include "pool_managerd/gpu_inventory/nvml.h"

namespace llorch::pool_managerd::gpu_inventory {

struct InventoryOptions {
  bool allow_cpu = false;
  std::optional<std::int64_t> cpu_memory_bytes;  // absent: half of host_memory_left at opening
  std::int64_t vram_headroom_bytes = 0;          // per GPU
  std::string nvml_library = "libnvidia-ml.so.1";
  // Why workers cannot run on a GPU of this compute capability ("9.0"; empty: the driver does not tell); empty when they
  // can. A GPU they cannot run on is listed unhealthy, with the reason. Null: they run on every one.
  std::function<std::string(const std::string& compute_capability)> missing_kernels;
  std::vector<Device> external;  // that stand for engines elsewhere; always there
};

// Never falls back: without allow_cpu there is no CPU device (ORCH-1102, POOL-2110). Thread-safe.
class Inventory {
 public:
  // Errors: NO_GPU, with what to do, when there is no device at all; CONFIG_INVALID for an impossible CPU budget;
  // IO_ERROR from host_memory_left.
  static base::Result<Inventory> open(const InventoryOptions& options, const ReadText& read);

  // Reads the devices anew. The set is that of opening: a GPU that left stays, unhealthy. So does one that had a fault, until it
  // has been away or its count of errors has begun anew: then it was reset. Each error that the driver tells is in one reading.
  std::vector<Device> read() const;
  // Absent when there is no driver.
  std::optional<DriverInfo> driver() const;

 private:
  // Of one GPU, over readings.
  struct Told {
    FaultKind kind = FaultKind::kNone;
    unsigned xid = 0;
  };
  struct History {
    std::int64_t errors_before = 0;  // ECC errors, uncorrected, that were there when it was first seen
    std::int64_t errors = 0;         // at the last reading
    Told told{};
    bool was_away = false;  // the driver did not reach it at the last reading
  };
  struct Driver {
    std::mutex mutex;
    std::optional<Nvml> nvml;  // absent: the driver has gone, and is looked for at every reading
    std::vector<History> histories;
  };

  Inventory() = default;
  base::Result<std::vector<Device>> read_gpus(Driver& driver) const;
  void judge(Device& device, History& history) const;

  InventoryOptions options_;
  std::unique_ptr<Driver> driver_;  // null: no GPU
  std::vector<Device> gpus_at_open_;
  std::optional<Device> cpu_;
};

}  // namespace llorch::pool_managerd::gpu_inventory
