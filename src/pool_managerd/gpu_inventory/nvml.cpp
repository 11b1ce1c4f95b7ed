#include "pool_managerd/gpu_inventory/nvml.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
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
// nvmlReturn_t: what the whole library answers once its driver was unloaded or replaced, and what one device does.
constexpr int kUninitialized = 1, kDriverNotLoaded = 9, kGpuIsLost = 15, kResetRequired = 16, kVersionMismatch = 18;
struct NvmlUtilization {
  unsigned gpu, memory;  // percent
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_bytes;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned kProcessesMax = 256;
constexpr unsigned long long kBytesNotTold = ~0ULL;                        // NVML_VALUE_NOT_AVAILABLE
constexpr unsigned kCorrected = 0, kUncorrected = 1, kSinceTheDriver = 0;  // nvmlMemoryErrorType_t, NVML_VOLATILE_ECC
struct NvmlEvent {
  NvmlDevice device;
  unsigned long long type, data;
  unsigned gpu_instance, compute_instance;
};
constexpr unsigned long long kXidEvent = 8;  // nvmlEventTypeXidCriticalError
constexpr int kEventsMax = 64;               // of one reading

// nvmlClocksThrottleReason*, but for an idle GPU and for limits that somebody set.
struct ThrottleReason {
  unsigned long long bit;
  const char* name;
};
constexpr ThrottleReason kThrottleReasons[] = {{0x04, "power_cap"},
                                               {0x08, "hardware_slowdown"},
                                               {0x20, "software_thermal"},
                                               {0x40, "hardware_thermal"},
                                               {0x80, "power_brake"}};

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
  int (*utilization)(NvmlDevice, NvmlUtilization*) = nullptr;
  int (*power)(NvmlDevice, unsigned*) = nullptr;
  int (*ecc_errors)(NvmlDevice, unsigned, unsigned, unsigned long long*) = nullptr;
  int (*throttle_reasons)(NvmlDevice, unsigned long long*) = nullptr;
  int (*compute_processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  int (*graphics_processes)(NvmlDevice, unsigned*, NvmlProcess*) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*cuda_version)(int*) = nullptr;
  int (*make_events)(void**) = nullptr;
  int (*register_events)(NvmlDevice, unsigned long long, void*) = nullptr;
  int (*next_event)(void*, NvmlEvent*, unsigned) = nullptr;
  int (*free_events)(void*) = nullptr;
  void* events = nullptr;                     // null: the driver tells none
  std::atomic<int> last_code = kNvmlSuccess;  // of the library as a whole

  ~Api() {
    if (events != nullptr) free_events(events);
    if (initialised) shutdown();
  }

  bool load_all() {
    library.load(compute_capability, "nvmlDeviceGetCudaComputeCapability");
    library.load(pci_info, "nvmlDeviceGetPciInfo_v3");
    library.load(uuid, "nvmlDeviceGetUUID");
    library.load(temperature, "nvmlDeviceGetTemperature");
    library.load(utilization, "nvmlDeviceGetUtilizationRates");
    library.load(power, "nvmlDeviceGetPowerUsage");
    library.load(ecc_errors, "nvmlDeviceGetTotalEccErrors");
    library.load(throttle_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    library.load(compute_processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    library.load(graphics_processes, "nvmlDeviceGetGraphicsRunningProcesses_v3");
    library.load(make_events, "nvmlEventSetCreate");
    library.load(register_events, "nvmlDeviceRegisterEvents");
    library.load(next_event, "nvmlEventSetWait_v2");
    library.load(free_events, "nvmlEventSetFree");
    library.load(driver_version, "nvmlSystemGetDriverVersion");
    library.load(cuda_version, "nvmlSystemGetCudaDriverVersion_v2");
    return library.load(init, "nvmlInit_v2") && library.load(shutdown, "nvmlShutdown") &&
           library.load(error_string, "nvmlErrorString") && library.load(device_count, "nvmlDeviceGetCount_v2") &&
           library.load(device_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
           library.load(device_name, "nvmlDeviceGetName") && library.load(device_memory, "nvmlDeviceGetMemoryInfo");
  }
  std::string why(int code) const { return printable(error_string(code), 200); }
  void read_condition(NvmlDevice handle, Device& out) const;
  void read_processes(NvmlDevice handle, Device& out) const;
};

void Nvml::Api::read_condition(NvmlDevice handle, Device& out) const {
  NvmlUtilization busy{};
  if (utilization != nullptr && utilization(handle, &busy) == kNvmlSuccess && busy.gpu <= 100) {
    out.utilization_percent = static_cast<int>(busy.gpu);
  }
  unsigned milliwatts = 0;
  if (power != nullptr && power(handle, &milliwatts) == kNvmlSuccess) out.power_milliwatts = milliwatts;
  const auto errors = [&](unsigned type) -> std::optional<std::int64_t> {
    unsigned long long count = 0;
    if (ecc_errors == nullptr || ecc_errors(handle, type, kSinceTheDriver, &count) != kNvmlSuccess) return std::nullopt;
    return static_cast<std::int64_t>(std::min(count, 1ULL << 53));
  };
  out.ecc_corrected_errors = errors(kCorrected);
  out.ecc_uncorrected_errors = errors(kUncorrected);
  unsigned long long reasons = 0;
  if (throttle_reasons != nullptr && throttle_reasons(handle, &reasons) == kNvmlSuccess) {
    for (const ThrottleReason& reason : kThrottleReasons) {
      if ((reasons & reason.bit) != 0) out.throttle_reasons.emplace_back(reason.name);
    }
  }
  read_processes(handle, out);
}

void Nvml::Api::read_processes(NvmlDevice handle, Device& out) const {
  for (const auto list : {compute_processes, graphics_processes}) {
    std::array<NvmlProcess, kProcessesMax> found{};
    unsigned count = kProcessesMax;
    if (list == nullptr || list(handle, &count, found.data()) != kNvmlSuccess) continue;
    for (unsigned i = 0; i < std::min(count, kProcessesMax); ++i) {
      const NvmlProcess& process = found[i];
      const auto bytes = process.used_bytes == kBytesNotTold ? 0 : std::min(process.used_bytes, 1ULL << 53);
      const auto same = [&](const DeviceProcess& known) { return known.pid == process.pid; };
      if (std::none_of(out.processes.begin(), out.processes.end(), same)) {
        out.processes.push_back({.pid = process.pid, .bytes = static_cast<std::int64_t>(bytes)});
      }
    }
  }
}

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
  Nvml out(std::move(api));
  out.watch_errors();
  return out;
}

// Errors that the driver tells of itself; without them a device that was reset between two readings would look well.
void Nvml::watch_errors() {
  Api& api = *api_;
  if (api.make_events == nullptr || api.register_events == nullptr || api.next_event == nullptr ||
      api.free_events == nullptr || api.make_events(&api.events) != kNvmlSuccess) {
    api.events = nullptr;
    return;
  }
  unsigned count = 0;
  api.device_count(&count);
  for (unsigned i = 0; i < count; ++i) {
    NvmlDevice handle = nullptr;
    if (api.device_by_index(i, &handle) == kNvmlSuccess) api.register_events(handle, kXidEvent, api.events);
  }
}

void Nvml::add_errors(std::vector<Device>& devices) const {
  NvmlEvent event{};
  for (int i = 0; i < kEventsMax && api_->events != nullptr; ++i) {
    if (api_->next_event(api_->events, &event, 0) != kNvmlSuccess) return;  // a time-out: there is none
    for (unsigned index = 0; index < devices.size(); ++index) {
      NvmlDevice handle = nullptr;
      if (api_->device_by_index(index, &handle) == kNvmlSuccess && handle == event.device) {
        devices[index].xids.push_back(static_cast<unsigned>(event.data));
      }
    }
  }
}

bool Nvml::is_gone() const {
  const int code = api_->last_code;
  return code == kUninitialized || code == kDriverNotLoaded || code == kVersionMismatch;
}

base::Result<std::vector<Device>> Nvml::read_devices() const {
  unsigned count = 0;
  api_->last_code = api_->device_count(&count);
  if (const int code = api_->last_code; code != kNvmlSuccess) {
    return base::fail(ErrorCode::kIoError, fmt::format("the NVIDIA driver counts no devices: {}", api_->why(code)));
  }
  std::vector<Device> devices;
  for (unsigned i = 0; i < count; ++i) devices.push_back(read_device(i));
  add_errors(devices);
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
    out.fault_kind = FaultKind::kLost;
    out.fault = "the driver reports an impossible memory size";
    return out;
  }
  if (code != kNvmlSuccess) {
    out.healthy = false;
    out.fault_kind = code == kResetRequired ? FaultKind::kReset : FaultKind::kLost;
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
  api_->read_condition(handle, out);
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
