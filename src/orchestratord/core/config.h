#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "contract/config.h"

namespace llorch::orchestratord::brain {

struct BrainConfig {
  contract::QueueConfig queue;
  contract::SchedulingConfig scheduling;
  contract::QueueOptimizerConfig queue_optimizer;
  contract::EvictionConfig eviction;
  contract::TimeoutConfig timeout;
  contract::HeartbeatConfig heartbeat;
  contract::RetryConfig retry;
  contract::RestartConfig restart;
  contract::SessionConfig sessions;
  contract::ThrottleConfig throttle;
  contract::QuotaConfig quotas;
  std::vector<contract::TenantConfig> tenants;
  std::int64_t workers_per_gpu = 1;
  std::int64_t worker_start_timeout_ms = 60000;
  std::int64_t worker_slots = 1;
  std::optional<std::int64_t> worker_context_tokens;  // omitted: the model's own
  std::int64_t worker_kv_tokens = 0;                  // of the cache of all slots; 0: slots x context
  std::int64_t worker_image_tokens_max = 0;
  std::string kv_dtype = "f16";
  std::vector<std::string> pool_endpoints;  // asked for their state at start and until they answer

  // An unhealthy pool is dropped from the registry after this long (control-plane §5.8).
  std::int64_t pool_offline_grace_ms = 300000;
  // A job that waited this long for memory may claim a device whose workers serve only later jobs: they get no new
  // work and are stopped when idle. Keeps a steady stream for one model from starving another.
  std::int64_t memory_patience_ms = 30000;
  // Pause before a failed write of a terminal row is tried again.
  std::int64_t store_retry_ms = 1000;
  // A scheduling pass decides only what an event may have changed. With this it decides everything, to the same effect.
  bool decide_every_lane = false;

  static BrainConfig from(const contract::OrchestratordConfig& config);
};

}  // namespace llorch::orchestratord::brain
