#pragma once
// What each part of the daemon is made with: derived from the configuration and from this host.
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "pool_managerd/gpu_inventory/inventory.h"
#include "pool_managerd/model_catalog/model_catalog.h"
#include "pool_managerd/pool_manager.h"
#include "pool_managerd/worker_lifecycle/lifecycle.h"

namespace llorch::pool_managerd {

// Absent: it cannot be read, or has more than 1 MiB.
std::optional<std::string> read_small_file(const std::string& path);

struct Bind {
  std::string address;  // without brackets
  std::uint16_t port = 0;
};
// REQUIRES: ADDRESS:PORT, which the configuration has checked.
Bind split_bind(const std::string& text);

std::int64_t worker_threads(const config::Config& config);
std::uint32_t proposals_max(const config::PoolManagerdConfig& config);
model_catalog::ModelCatalogOptions catalog_options(const PoolManagerOptions& options,
                                                   const std::vector<gpu_inventory::Device>& devices);
std::filesystem::path repacked_dir(const PoolManagerOptions& options);
engine::inference::repack_cache::RepackCache repack_cache(const PoolManagerOptions& options);
std::int64_t staging_bytes(const config::Config& config);
std::vector<std::filesystem::path> watched_directories(const config::Config& config);
worker_lifecycle::LifecycleConfig lifecycle_config(const config::Config& config);

}  // namespace llorch::pool_managerd
