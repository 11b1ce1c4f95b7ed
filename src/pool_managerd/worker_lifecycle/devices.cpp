// What readings of the devices mean for the workers on them.
#include <algorithm>

#include "pool_managerd/worker_lifecycle/lifecycle.h"

namespace llorch::pool_managerd::worker_lifecycle {

using gpu_inventory::Device;
using gpu_inventory::FaultKind;

namespace {

constexpr int kTemperatureWarnCelsius = 85;      // GPUINV-12040
constexpr int kTemperatureCriticalCelsius = 95;  // GPUINV-12040

bool is_over(const Device& device, int celsius) { return device.temperature_celsius.value_or(0) > celsius; }

// Told once on the way up.
void note_temperature(const Device& seen, const Device* before, std::vector<Command>& out) {
  const auto rises_over = [&](int celsius) {
    return is_over(seen, celsius) && (before == nullptr || !is_over(*before, celsius));
  };
  if (rises_over(kTemperatureCriticalCelsius)) {
    out.push_back(Note{.event = "gpu_critical_temperature",
                       .warn = true,
                       .human = "A GPU is so hot that it may stop: look at its cooling now.",
                       .gpu_id = seen.gpu_id});
  } else if (rises_over(kTemperatureWarnCelsius)) {
    out.push_back(Note{.event = "gpu_hot", .warn = true, .human = "A GPU is running hot.", .gpu_id = seen.gpu_id});
  }
}

// One event code per kind of fault.
std::string_view event_of(FaultKind kind) {
  switch (kind) {
    case FaultKind::kReset: return "gpu_needs_reset";
    case FaultKind::kEcc: return "gpu_memory_errors";
    case FaultKind::kKernels: return "gpu_without_kernels";
    case FaultKind::kNone:
    case FaultKind::kLost: break;
  }
  return "gpu_failed";
}

std::string what_happened(const Device& seen) {
  if (seen.healthy) return "A GPU answers again.";
  switch (seen.fault_kind) {
    case FaultKind::kEcc:
      return "A GPU's memory is not to be trusted: its workers finish their jobs and leave. " + seen.fault;
    case FaultKind::kReset: return "A GPU has to be reset; its workers are gone: " + seen.fault;
    case FaultKind::kNone:
    case FaultKind::kLost:
    case FaultKind::kKernels: break;
  }
  return "A GPU stopped answering: " + seen.fault;
}

}  // namespace

void Lifecycle::on(const DevicesRead& event, Time now, Out& out) {
  for (const Device& seen : event.devices) {
    const Device* before = device(seen.gpu_id);
    note_temperature(seen, before, out);
    for (const unsigned xid : seen.xids) {
      out.push_back(Note{.event = "gpu_driver_error",
                         .warn = true,
                         .human = "The driver reports error " + std::to_string(xid) + " (Xid) of a GPU.",
                         .gpu_id = seen.gpu_id});
    }
    if (before != nullptr && before->healthy != seen.healthy) {
      out.push_back(Note{.event = seen.healthy ? "gpu_recovered" : event_of(seen.fault_kind),
                         .warn = !seen.healthy,
                         .human = what_happened(seen),
                         .gpu_id = seen.gpu_id});
      if (!seen.healthy) ++counters_.device_faults[{seen.gpu_id, std::string(name(seen.fault_kind))}];
      out.push_back(PushState{});
    }
    if (!seen.healthy) leave_device(seen, now, out);
  }
  devices_ = event.devices;
}

// A device with bad memory still computes: what its workers have not read wrong is right, and their jobs may end. On every
// other fault nothing runs any more.
void Lifecycle::leave_device(const Device& device, Time now, Out& out) {
  for (auto& [id, worker] : workers_) {
    if (!worker.is_on(device.gpu_id) || worker.info.status == WorkerStatus::kFailed) continue;
    if (device.fault_kind == FaultKind::kEcc) {
      begin_stop(worker, Cause::kDrain, now, out);
    } else {
      fail_worker(worker, Cause::kDeviceLost, out);
    }
  }
}

std::vector<wire::GpuInfo> Lifecycle::gpus() const {
  std::vector<wire::GpuInfo> out;
  for (const Device& d : devices_) {
    const auto use = use_of(d.gpu_id);
    wire::GpuInfo info;
    info.gpu_id = d.gpu_id;
    info.model = d.model;
    info.device_class = d.device_class;
    info.memory_architecture = d.memory_architecture;
    info.compute_capability = d.compute_capability;
    info.vram_total_bytes = d.total_bytes;
    info.vram_allocated_bytes = use.allocated_bytes;
    info.vram_available_bytes = gpu_inventory::available_bytes(d, use);
    info.healthy = d.healthy;
    if (!d.healthy) {
      info.fault = d.fault;
      info.fault_kind = std::string(name(d.fault_kind));
    }
    info.temperature_celsius = d.temperature_celsius;
    info.utilization_percent = d.utilization_percent;
    info.power_milliwatts = d.power_milliwatts;
    info.ecc_corrected_errors = d.ecc_corrected_errors;
    info.ecc_uncorrected_errors = d.ecc_uncorrected_errors;
    info.throttle_reasons = d.throttle_reasons;
    for (const gpu_inventory::DeviceProcess& process : d.processes) {
      const bool ours = std::ranges::any_of(workers_, [&](const auto& w) { return w.second.info.pid == process.pid; });
      if (ours) continue;
      ++info.foreign_processes;
      info.foreign_bytes += process.bytes;
    }
    for (const auto& [id, worker] : workers_) {
      if (worker.is_on(d.gpu_id)) info.workers.push_back(id);
    }
    out.push_back(std::move(info));
  }
  return out;
}

}  // namespace llorch::pool_managerd::worker_lifecycle
