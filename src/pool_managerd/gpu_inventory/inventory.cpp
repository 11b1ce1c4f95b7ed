#include "pool_managerd/gpu_inventory/inventory.h"

#include <fmt/core.h>

#include <algorithm>

namespace llorch::pool_managerd::gpu_inventory {
namespace {

using base::ErrorCode;

// Below this not even a toy model with its buffers fits; a smaller number is a slip of units.
constexpr std::int64_t kCpuMemoryBytesMin = 1 << 20;

base::Result<Device> cpu_device(const InventoryOptions& options, const ReadText& read) {
  const std::int64_t budget = options.cpu_memory_bytes ? *options.cpu_memory_bytes : TRY(host_memory_left(read)) / 2;
  if (budget < kCpuMemoryBytesMin) {
    return base::fail(ErrorCode::kConfigInvalid,
                      fmt::format("the CPU reference device would have {} bytes of memory; at least {} are needed: set "
                                  "devices.cpu_memory_bytes or free memory",
                                  budget, kCpuMemoryBytesMin));
  }
  Device cpu;
  cpu.gpu_id = "cpu";
  cpu.model = "CPU reference device";
  cpu.device_class = "cpu-x86";
  cpu.memory_architecture = "host";
  cpu.total_bytes = budget;
  return cpu;
}

}  // namespace

std::int64_t available_bytes(const Device& device, const DeviceUse& use) {
  if (!device.healthy) return 0;
  std::int64_t available = device.total_bytes - use.allocated_bytes - device.headroom_bytes;
  if (device.free_bytes) available = std::min(available, *device.free_bytes - use.starting_bytes);
  return std::max<std::int64_t>(0, available);
}

base::Result<Inventory> Inventory::open(const InventoryOptions& options, const ReadText& read) {
  Inventory out;
  out.options_ = options;
  std::string why = "the NVIDIA driver counts no device";
  auto nvml = Nvml::open(options.nvml_library);
  if (nvml) {
    auto gpus = nvml->read_devices();
    if (gpus) {
      out.gpus_at_open_ = std::move(*gpus);
      out.nvml_ = std::move(*nvml);
    } else {
      why = gpus.error().message;
    }
  } else {
    why = nvml.error().message;
  }
  if (options.allow_cpu) out.cpu_ = TRY(cpu_device(options, read));
  if (out.gpus_at_open_.empty() && !out.cpu_ && options.external.empty()) {
    return base::fail(
        ErrorCode::kNoGpu,
        fmt::format("no NVIDIA GPU: {}. Install the NVIDIA driver (nvidia-smi must list the GPU), or run on "
                    "the CPU reference device with --cpu (devices.allow_cpu: true)",
                    why));
  }
  return out;
}

std::vector<Device> Inventory::read() const {
  std::vector<Device> out;
  if (nvml_) {
    const auto now = nvml_->read_devices();
    for (const Device& known : gpus_at_open_) {
      const std::size_t index = out.size();
      Device device = known;
      if (now && index < now->size()) {
        device = (*now)[index];
        if (!device.healthy) {  // keep its identity and size for the reader
          device.model = known.model;
          device.device_class = known.device_class;
          device.total_bytes = known.total_bytes;
        }
      } else {
        device.healthy = false;
        device.fault = now ? "the driver no longer counts it" : now.error().message;
      }
      if (device.healthy && options_.missing_kernels) {
        device.fault = options_.missing_kernels(device.compute_capability.value_or(""));
        device.healthy = device.fault.empty();
      }
      device.headroom_bytes = options_.vram_headroom_bytes;
      out.push_back(std::move(device));
    }
  }
  if (cpu_) out.push_back(*cpu_);
  out.insert(out.end(), options_.external.begin(), options_.external.end());
  return out;
}

std::optional<DriverInfo> Inventory::driver() const {
  if (!nvml_) return std::nullopt;
  return nvml_->driver();
}

}  // namespace llorch::pool_managerd::gpu_inventory
