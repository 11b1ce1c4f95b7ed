#include "engine/inference/devices/open_devices.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "engine/compute/cpu/backend.h"
#include "engine/compute/cuda/backend.h"
#include "engine/inference/parallel/host_collective.h"
#include "engine/models/model.h"

namespace llorch::engine::inference::devices {
namespace {

// "cpu,cpu" -> 2; 0 when it names anything else.
std::uint32_t cpus_count(std::string_view names) {
  std::uint32_t count = 0;
  for (;;) {
    const std::size_t comma = names.find(',');
    if (names.substr(0, comma) != "cpu") return 0;
    ++count;
    if (comma == std::string_view::npos) return count;
    names.remove_prefix(comma + 1);
  }
}

std::uint64_t budget_of(const DevicesOptions& options, std::size_t rank) {
  return rank < options.memory_budget_bytes.size() ? options.memory_budget_bytes[rank] : 0;
}

base::Result<OpenDevices> open_cpus(std::uint32_t count, const DevicesOptions& options) {
  OpenDevices open;
  for (std::uint32_t rank = 0; rank < count; ++rank) {
    const std::uint64_t budget = budget_of(options, rank);
    open.backends.push_back(TRY(compute::cpu::make_cpu_backend(
        {.threads_count = cpu_threads_each(options.cpu_threads_count, count),
         .memory_budget_bytes = budget != 0 ? budget : std::numeric_limits<std::uint64_t>::max(),
         .isa = options.cpu_isa})));
  }
  if (count > 1) open.collective = std::make_unique<parallel::HostCollective>(open.of_engine().backends);
  return open;
}

}  // namespace

parallel::Devices OpenDevices::of_engine() const {
  parallel::Devices devices{.backends = {}, .collective = collective.get()};
  for (const auto& backend : backends) devices.backends.push_back(backend.get());
  return devices;
}

std::vector<std::uint64_t> OpenDevices::memory_used_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const auto& backend : backends) bytes.push_back(backend->memory_used_bytes());
  return bytes;
}

std::uint32_t devices_count(std::string_view names) {
  return static_cast<std::uint32_t>(std::ranges::count(names, ',')) + 1;
}

bool names_cpu(std::string_view names) { return cpus_count(names) != 0; }

std::string check_names(std::string_view names) {
  std::size_t count = cpus_count(names);
  if (count == 0) {
    const auto gpus = compute::cuda::parse_devices(names);
    if (!gpus) return gpus.error().message;
    count = gpus->size();
  }
  if (count <= models::kRanksMax) return {};
  return fmt::format("names {} devices; at most {} can share a model", count, models::kRanksMax);
}

base::Result<OpenDevices> open_devices(const DevicesOptions& options) {
  if (const std::uint32_t count = cpus_count(options.names); count != 0) return open_cpus(count, options);
  compute::cuda::CudaGroupOptions gpus{.gpus = {}, .count_steps = options.count_steps};
  for (const std::uint32_t device : TRY(compute::cuda::parse_devices(options.names)))
    gpus.gpus.push_back({.device = device, .memory_budget_bytes = budget_of(options, gpus.gpus.size())});
  auto group = TRY(compute::cuda::make_cuda_group(gpus));
  return OpenDevices{.backends = std::move(group.backends),
                     .collective = std::move(group.collective),
                     .meters = std::move(group.meters)};
}

}  // namespace llorch::engine::inference::devices
