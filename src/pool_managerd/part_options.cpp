#include "pool_managerd/part_options.h"

#include <sched.h>

#include <algorithm>
#include <charconv>

#include "base/file.h"

namespace llorch::pool_managerd {
namespace {

// The processors this process may use, which a container may have narrowed.
std::int64_t cores_count() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof set, &set) == 0 ? std::max(1, CPU_COUNT(&set)) : 1;
}

}  // namespace

std::optional<std::string> read_small_file(const std::string& path) {
  auto text = base::read_file(path, 1 << 20);
  return text ? std::optional(std::move(*text)) : std::nullopt;
}

Bind split_bind(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  Bind out{text.substr(0, colon), 0};
  std::from_chars(text.data() + colon + 1, text.data() + text.size(), out.port);
  if (out.address.starts_with('[')) out.address = out.address.substr(1, out.address.size() - 2);
  return out;
}

std::uint32_t proposals_max(const config::PoolManagerdConfig& config) {
  return config.worker_speculation == "off" ? 0 : static_cast<std::uint32_t>(config.worker_speculation_tokens);
}

std::int64_t worker_threads(const config::Config& config) {
  return config.pool_managerd.worker_threads > 0 ? config.pool_managerd.worker_threads : cores_count();
}

model_catalog::ModelCatalogOptions catalog_options(const PoolManagerOptions& options,
                                                   const std::vector<gpu_inventory::Device>& devices) {
  model_catalog::ModelCatalogOptions out;
  out.digest_cache_file = options.state_directory / "model_digests.json";
  out.allowed_roots = options.model_roots;
  const auto& models = options.config.models;
  out.allowed_roots.push_back(models.cache_dir.empty() ? base::default_model_cache()
                                                       : std::filesystem::path(models.cache_dir));
  for (const std::string& root : models.allowed_roots) out.allowed_roots.emplace_back(root);
  for (const std::string& directory : models.watched_directories) out.allowed_roots.emplace_back(directory);
  using model_catalog::DeviceKind;
  for (const auto& device : devices) {
    if (device.device_class == "external") continue;
    const DeviceKind kind = device.gpu_id == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda;
    if (std::ranges::find(out.device_kinds, kind) == out.device_kinds.end()) out.device_kinds.push_back(kind);
  }
  if (out.device_kinds.empty()) out.device_kinds.push_back(DeviceKind::kCpu);  // engines alone: what files say is told
  return out;
}

std::filesystem::path repacked_dir(const PoolManagerOptions& options) {
  const std::string& named = options.config.models.repacked_dir;
  return named.empty() ? std::filesystem::absolute(options.state_directory) / "repacked" : std::filesystem::path(named);
}

engine::inference::repack_cache::RepackCache repack_cache(const PoolManagerOptions& options) {
  const std::int64_t bytes_max = options.config.models.repacked_bytes_max;
  return engine::inference::repack_cache::RepackCache(
      {.directory = repacked_dir(options), .bytes_max = static_cast<std::uint64_t>(bytes_max)});
}

// Of what is left, three quarters stay for workers, the system and everybody else.
std::int64_t staging_bytes(const config::Config& config) {
  if (config.pool_managerd.staging_bytes_max) return *config.pool_managerd.staging_bytes_max;
  return gpu_inventory::host_memory_left(read_small_file).value_or(0) / 4;
}

std::vector<std::filesystem::path> watched_directories(const config::Config& config) {
  return {config.models.watched_directories.begin(), config.models.watched_directories.end()};
}

worker_lifecycle::LifecycleConfig lifecycle_config(const config::Config& config) {
  const auto& pool = config.pool_managerd;
  worker_lifecycle::LifecycleConfig out;
  out.pool_id = pool.pool_id;
  out.start_timeout_ms = pool.worker_start_timeout_ms;
  out.health_interval_ms = pool.worker_health_interval_ms;
  out.drain_grace_ms = pool.worker_drain_grace_ms;
  out.workers_per_gpu = config.orchestratord.limits.workers_per_gpu;
  return out;
}

}  // namespace llorch::pool_managerd
