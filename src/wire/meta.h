#pragma once
// Wire types in which orchestratord tells about itself. Field tables: meta.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/pool.h"

namespace llorch::wire {

// GET /v2/health
struct PoolHealth {
  std::string pool_id;
  std::string status;  // a PoolStatus
  std::int64_t gpus = 0;
  std::int64_t workers = 0;
};
struct HealthReason {
  std::string code;   // of the error table
  std::string human;  // what is wrong and what to do
};
enum class PreloadState : std::uint8_t { kLoading, kReady, kWaiting };
// A model of models.preload.
struct PreloadStatus {
  std::string model;
  PreloadState state = PreloadState::kLoading;  // kWaiting: the last attempt failed, the next one follows
  std::int64_t attempts = 0;
  std::optional<std::string> error_code;  // of the last attempt
  std::optional<std::string> error_message;
};
struct HealthReply {
  std::string status;                 // "healthy" | "degraded" | "stopping"
  bool ready = true;                  // a pool is healthy and every preload is ready
  std::vector<HealthReason> reasons;  // why it is degraded
  std::int64_t uptime_seconds = 0;
  std::vector<PoolHealth> pools;
  std::vector<PreloadStatus> preloads;
};

// GET /v2/meta/version
struct VersionReply {
  std::string api_version;
  std::string version;
  std::string build;
};

// GET /v2/meta/capabilities: engines with what each can do, and the service's features and limits.
struct EngineCapability {
  std::string engine;
  std::string engine_version;
  std::string sampler_profile_version;
  std::int64_t ctx_max = 0;
  std::int64_t max_tokens_out = 0;
  std::int64_t slots_total = 0;
  bool batching = false;  // a worker of it runs several jobs at once
  std::vector<std::string> supported_workloads;
  std::vector<std::string> pools;
};
struct FeatureFlags {
  bool determinism = true;
  bool streaming = true;
  bool sessions = true;
  bool cancellation = true;
};
struct ServiceLimits {
  std::int64_t max_context_length = 0;
  std::int64_t max_batch_size = 1;
  std::int64_t queue_capacity = 0;
  std::int64_t max_tokens = 0;
  std::int64_t prompt_bytes_max = 0;
  std::int64_t request_bytes_max = 0;
  std::int64_t session_ttl_ms = 0;
  std::int64_t session_turns_max = 0;
  std::int64_t sessions_max = 0;
  double requests_per_second = 0;  // of one caller; 0 is no limit
  double tokens_per_second = 0;
};
// What a request for one model may ask for now, by the workers that it has.
struct ModelCapability {
  std::string model_digest;
  std::vector<std::string> model_ids;  // that requests may name it by
  std::int64_t ctx_max = 0;
  std::int64_t max_tokens_out = 0;
  std::int64_t slots_total = 0;
  std::int64_t image_tokens_max = 0;  // of one request; 0: takes no images
};
struct CapabilitiesReply {
  std::string api_version;
  std::string version;
  std::vector<EngineCapability> engines;  // one per engine build of the ready workers
  std::vector<ModelCapability> models;    // one per model of them
  FeatureFlags features;
  ServiceLimits limits;
};

}  // namespace llorch::wire
