#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "wire/placement_snapshot.h"

namespace llorch::orchestratord::core {

struct CoreConfig {
  config::QueueConfig queue;
  config::SchedulingConfig scheduling;
  config::QueueOptimizerConfig queue_optimizer;
  config::EvictionConfig eviction;
  config::TimeoutConfig timeout;
  config::HeartbeatConfig heartbeat;
  config::RetryConfig retry;
  config::RestartConfig restart;
  config::SessionConfig sessions;
  config::ThrottleConfig throttle;  // these four until SetLimits
  config::QuotaConfig quotas;
  std::vector<config::TenantConfig> tenants;
  std::optional<config::QuotaConfig> former_tenants;  // limits of who is none of them any more; omitted: `quotas`
  std::int64_t workers_per_gpu = 1;
  std::int64_t worker_start_timeout_ms = 60000;
  std::int64_t worker_slots = 1;
  std::optional<std::int64_t> worker_context_tokens;  // omitted: the model's own
  std::int64_t worker_kv_tokens = 0;                  // of the cache of all slots; 0: slots x context
  std::int64_t worker_image_tokens_max = 0;
  bool stage_models = true;
  std::string kv_dtype = "f16";
  std::vector<std::string> pool_endpoints;  // asked for their state at start and until they answer

  // An unhealthy pool is dropped from the registry after this long.
  std::int64_t pool_offline_grace_ms = 300000;
  // A job that waited this long for memory may reserve a device whose workers serve only later jobs: they get no new
  // work and are stopped when idle. Keeps a steady stream for one model from starving another.
  std::int64_t memory_patience_ms = 30000;
  // Pause before a failed write of a terminal row is tried again.
  std::int64_t store_retry_ms = 1000;
  // A scheduling pass decides only what an event may have changed. With this it decides everything, to the same effect.
  bool decide_every_group = false;
  // Called with every decision before it is carried out: one job and all that was looked at. For recorders; null: none.
  std::function<void(const wire::PlacementSnapshot&)> record;

  static CoreConfig from(const config::OrchestratordConfig& config);
};

}  // namespace llorch::orchestratord::core
