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

std::string_view name(FaultKind kind) {
  switch (kind) {
    case FaultKind::kNone: return "";
    case FaultKind::kLost: return "lost";
    case FaultKind::kReset: return "reset";
    case FaultKind::kEcc: return "ecc";
    case FaultKind::kKernels: return "kernels";
  }
  return "";
}

// Of the public list of Xid errors: those after which NVIDIA asks for a reset of the GPU.
FaultKind fault_of_xid(unsigned xid) {
  switch (xid) {
    case 48:                             // double-bit error of its memory
    case 64:                             // a row could not be replaced
    case 94:                             // an error was contained in one process
    case 95: return FaultKind::kEcc;     // one was not
    case 62:                             // a microcontroller has halted
    case 79:                             // it has fallen off the bus
    case 119:                            // its system processor does not answer
    case 120: return FaultKind::kReset;  // its system processor has failed
    default: return FaultKind::kNone;
  }
}

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
      out.driver_ = std::make_unique<Driver>();
      for (const Device& gpu : out.gpus_at_open_) {
        const std::int64_t errors = gpu.ecc_uncorrected_errors.value_or(0);
        out.driver_->histories.push_back({.errors_before = errors, .errors = errors});
      }
      out.driver_->nvml = std::move(*nvml);
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

base::Result<std::vector<Device>> Inventory::read_gpus(Driver& driver) const {
  if (driver.nvml) {
    auto devices = driver.nvml->read_devices();
    if (devices || !driver.nvml->is_gone()) return devices;
    driver.nvml.reset();  // a new one begins with a new library
  }
  driver.nvml.emplace(TRY(Nvml::open(options_.nvml_library)));
  return driver.nvml->read_devices();
}

// What earlier readings say about a device, besides the present one.
void Inventory::judge(Device& device, History& history) const {
  for (const unsigned xid : device.xids) {
    if (const FaultKind kind = fault_of_xid(xid); kind != FaultKind::kNone) history.told = {kind, xid};
  }
  if (!device.healthy) {
    history.was_away = true;
    return;
  }
  const std::int64_t errors = device.ecc_uncorrected_errors.value_or(0);
  const bool has_been_reset = history.was_away || errors < history.errors;
  if (has_been_reset) history = {.errors_before = errors};
  history.errors = errors;
  if (history.told.kind != FaultKind::kNone) {
    device.fault_kind = history.told.kind;
    device.fault = fmt::format("the driver reports error {} (Xid); reset the GPU, then start pool-managerd again",
                               history.told.xid);
  } else if (errors > history.errors_before) {
    device.fault_kind = FaultKind::kEcc;
    device.fault = fmt::format("its memory had {} errors that could not be corrected; reset the GPU",
                               errors - history.errors_before);
  } else if (options_.missing_kernels) {
    device.fault = options_.missing_kernels(device.compute_capability.value_or(""));
    if (!device.fault.empty()) device.fault_kind = FaultKind::kKernels;
  }
  device.healthy = device.fault_kind == FaultKind::kNone;
}

std::vector<Device> Inventory::read() const {
  std::vector<Device> out;
  if (driver_) {
    const std::lock_guard lock(driver_->mutex);
    const auto now = read_gpus(*driver_);
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
        device.fault_kind = FaultKind::kLost;
        device.fault = now ? "the driver no longer counts it" : now.error().message;
      }
      judge(device, driver_->histories[index]);
      device.headroom_bytes = options_.vram_headroom_bytes;
      out.push_back(std::move(device));
    }
  }
  if (cpu_) out.push_back(*cpu_);
  out.insert(out.end(), options_.external.begin(), options_.external.end());
  return out;
}

std::optional<DriverInfo> Inventory::driver() const {
  if (!driver_) return std::nullopt;
  const std::lock_guard lock(driver_->mutex);
  if (!driver_->nvml) return std::nullopt;
  return driver_->nvml->driver();
}

}  // namespace llorch::pool_managerd::gpu_inventory
