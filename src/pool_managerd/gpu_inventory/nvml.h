#pragma once
// The NVIDIA management library, opened at run time so that this builds and runs on machines without it (SYS-2.5.1:
// read-only, no CUDA context, no VRAM). Own declarations of the few functions used, after the public NVML API reference.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "pool_managerd/gpu_inventory/device.h"

namespace llorch::pool_managerd::gpu_inventory {

struct DriverInfo {
  std::string driver_version;
  int cuda_driver_version = 0;  // 12040 = 12.4; 0 = not told
};

// An initialised library. Thread-safe as NVML is; the destructor shuts it down.
class Nvml {
 public:
  // `library`: a name for the dynamic linker, or a path. NO_GPU: no such library, not a driver library, or the driver
  // refuses; the message says which.
  static base::Result<Nvml> open(const std::string& library);
  Nvml(Nvml&&) noexcept;
  Nvml& operator=(Nvml&&) noexcept;
  ~Nvml();

  // Every device the driver counts, in its order; one that stopped answering is listed unhealthy. IO_ERROR when not
  // even the count can be had.
  base::Result<std::vector<Device>> read_devices() const;
  // The driver was unloaded or replaced since this was opened: open another one.
  bool is_gone() const;
  DriverInfo driver() const;

 private:
  struct Api;
  explicit Nvml(std::unique_ptr<Api> api);
  Device read_device(unsigned index) const;
  void watch_errors();
  void add_errors(std::vector<Device>& devices) const;

  std::unique_ptr<Api> api_;
};

}  // namespace llorch::pool_managerd::gpu_inventory
