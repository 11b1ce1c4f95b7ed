#include "pool_managerd/gpu_inventory/nvml.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/shared_library.h"

namespace llorch::pool_managerd::gpu_inventory {
namespace {

using base::ErrorCode;

// nvmlReturn_t, nvmlDevice_t, nvmlMemory_t, nvmlPciInfo_t of the NVML API reference.
constexpr int kNvmlSuccess = 0;
using NvmlDevice = void*;
struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
constexpr unsigned kNameBytes = 96;            // NVML_DEVICE_NAME_V2_BUFFER_SIZE
constexpr unsigned kUuidBytes = 96;            // NVML_DEVICE_UUID_V2_BUFFER_SIZE
constexpr unsigned kDriverVersionBytes = 80;   // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
constexpr unsigned kTemperatureSensorGpu = 0;  // NVML_TEMPERATURE_GPU

// Text of a driver goes into JSON and logs: printable ASCII only.
std::string printable(const char* text, std::size_t bytes_max) {
  std::string out(text, strnlen(text, bytes_max));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return c < 0x20 || c > 0x7e; }, '?');
  return out;
}

}  // namespace

struct Nvml::Api {
  base::SharedLibrary library;
  bool initialised = false;
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*device_count)(unsigned*) = nullptr;
  int (*device_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*device_name)(NvmlDevice, char*, unsigned) = nullptr;
  int (*device_memory)(NvmlDevice, NvmlMemory*) = nullptr;
  // Optional from here: an old driver may lack them.
  int (*compute_capability)(NvmlDevice, int*, int*) = nullptr;
  int (*pci_info)(NvmlDevice, NvmlPciInfo*) = nullptr;
  int (*uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*temperature)(NvmlDevice, unsigned, unsigned*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;

  ~Api() {
    if (initialised) shutdown();
  }

  bool load_all() {
    library.load(compute_capability, "nvmlDeviceGetCudaComputeCapability");
    library.load(pci_info, "nvmlDeviceGetPciInfo_v3");
    library.load(uuid, "nvmlDeviceGetUUID");
    library.load(temperature, "nvmlDeviceGetTemperature");
    library.load(driver_version, "nvmlSystemGetDriverVersion");
    library.load(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    return library.load(init, "nvmlInit_v2") && library.load(shutdown, "nvmlShutdown") &&
           library.load(error_string, "nvmlErrorString") && library.load(device_count, "nvmlDeviceGetCount_v2") &&
           library.load(device_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           library.load(device_name, "nvmlDeviceGetName") && library.load(device_memory, "nvmlDeviceGetMemoryInfo");
  }
  std::string why(int code) const { return printable(error_string(code), 200); }
};

Nvml::Nvml(std::unique_ptr<Api> api) : api_(std::move(api)) {}
Nvml::Nvml(Nvml&&) noexcept = default;
Nvml& Nvml::operator=(Nvml&&) noexcept = default;
Nvml::~Nvml() = default;

base::Result<Nvml> Nvml::open(const std::string& library) {
  auto api = std::make_unique<Api>();
  api->library = base::SharedLibrary(library);
  if (!api->library.is_open()) {
    return base::fail(ErrorCode::kNoGpu, fmt::format("the NVIDIA driver library {} cannot be opened", library));
  }
  if (!api->load_all()) {
    return base::fail(ErrorCode::kNoGpu, fmt::format("{} lacks functions of the NVIDIA management library", library));
  }
  if (const int code = api->init(); code != kNvmlSuccess) {
    return base::fail(ErrorCode::kNoGpu, fmt::format("the NVIDIA driver does not start: {}", api->why(code)));
  }
  api->initialised = true;
  return Nvml(std::move(api));
}

base::Result<std::vector<Device>> Nvml::read_devices() const {
  unsigned count = 0;
  if (const int code = api_->device_count(&count); code != kNvmlSuccess) {
    return base::fail(ErrorCode::kIoError, fmt::format("the NVIDIA driver counts no devices: {}", api_->why(code)));
  }
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) devices.push_back(read_device(i));
  return devices;
}

Device Nvml::read_device(unsigned index) const {
  Device out;
  out.gpu_id = std::to_string(index);
  out.memory_architecture = "vram-only";
  NvmlDevice handle = nullptr;
  int code = api_->device_by_index(index, &handle);
  NvmlMemory memory{};
  if (code == kNvmlSuccess) {
    char name[kNameBytes] = {};
    if (api_->device_name(handle, name, kNameBytes) == kNvmlSuccess) out.model = printable(name, kNameBytes);
    code = api_->device_memory(handle, &memory);
  }
  // Past 2^53 bytes no device exists; JSON readers would round it.
  if (code == kNvmlSuccess && (memory.total == 0 || memory.total > (1ULL << 53) || memory.free > memory.total)) {
    out.healthy = false;
    out.fault = "the driver reports an impossible memory size";
    return out;
  }
  if (code != kNvmlSuccess) {
    out.healthy = false;
    out.fault = api_->why(code);
    return out;
  }
  out.total_bytes = static_cast<std::int64_t>(memory.total);
  out.free_bytes = static_cast<std::int64_t>(memory.free);
  out.device_class = out.model;
  int major = 0, minor = 0;
  if (api_->compute_capability != nullptr && api_->compute_capability(handle, &major, &minor) == kNvmlSuccess) {
    out.compute_capability = fmt::format("{}.{}", major, minor);
    out.device_class += fmt::format(" sm_{}{}", major, minor);
  }
  NvmlPciInfo pci{};
  if (api_->pci_info != nullptr && api_->pci_info(handle, &pci) == kNvmlSuccess) {
    out.pci_bus_id = printable(pci.bus_id, sizeof pci.bus_id);
  }
  char uuid[kUuidBytes] = {};
  if (api_->uuid != nullptr && api_->uuid(handle, uuid, kUuidBytes) == kNvmlSuccess)
    out.uuid = printable(uuid, kUuidBytes);
  unsigned celsius = 0;
  if (api_->temperature != nullptr && api_->temperature(handle, kTemperatureSensorGpu, &celsius) == kNvmlSuccess) {
    out.temperature_celsius = static_cast<int>(celsius);
  }
  return out;
}

DriverInfo Nvml::driver() const {
  DriverInfo out;
  char version[kDriverVersionBytes] = {};
  if (api_->driver_version != nullptr && api_->driver_version(version, kDriverVersionBytes) == kNvmlSuccess) {
    out.driver_version = printable(version, kDriverVersionBytes);
  }
  if (api_->cuda_version != nullptr) api_->cuda_version(&out.cuda_driver_version);
  return out;
}

}  // namespace llorch::pool_managerd::gpu_inventory
