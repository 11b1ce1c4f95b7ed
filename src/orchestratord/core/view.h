#pragma once
// Copies of the core's state for other threads. They are asked for by event and answered by command, so no lock is
// shared and every answer is one consistent moment.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/id.h"
#include "wire/pool.h"
#include "wire/task.h"

namespace llorch::orchestratord::core {

// The live half of GET /v2/tasks/{id}; the rest is in the store.
struct LiveJob {
  base::JobId job_id;
  wire::JobStatus status = wire::JobStatus::kQueued;
  wire::Priority priority = wire::Priority::kInteractive;
  std::int64_t attempts = 0;
  std::optional<std::int64_t> queue_position;      // queued only; 0 = next to be dispatched
  std::optional<std::int64_t> predicted_start_ms;  // queued only, from now; absent while nobody can say
  std::optional<wire::WaitReason> reason;          // of a job that is queued, or whose end cannot be stored now
  std::optional<base::WorkerId> worker_id;         // dispatched and running
  std::optional<base::PoolId> pool_id;
  std::optional<std::int64_t> started_unix_ms;
  std::int64_t tokens_out = 0;
};

struct PoolView {
  base::PoolId pool_id;
  wire::PoolStatus status = wire::PoolStatus::kHealthy;
  std::string endpoint;
  std::string version;
  std::int64_t last_heartbeat_ms = 0;  // ago
  std::int64_t registered_unix_ms = 0;
  std::vector<wire::GpuInfo> gpus;
  std::vector<wire::WorkerInfo> workers;  // status as the core sees it; kBusy = no free slot
};

struct Gauges {
  std::array<std::int64_t, 2> queue_depth{};  // by wire::Priority
  std::int64_t jobs_live = 0;
  std::int64_t executions_active = 0;
  std::int64_t workers_total = 0;
  std::int64_t pools_healthy = 0;
  std::int64_t pools_unhealthy = 0;
  struct WorkerConnections {
    base::WorkerId worker_id;
    base::PoolId pool_id;
    std::int64_t active = 0;
    std::string engine_version{};  // build of its engine
    std::string gpu_id{};
    std::int64_t vram_bytes = 0;
    std::vector<std::pair<std::string, std::int64_t>> utilization_percent{};  // of each of its devices that tells it
    std::int64_t kv_pages_total = 0, kv_pages_used = 0;  // of its cache, as its pool last said; total 0: not known
  };
  std::vector<WorkerConnections> worker_connections;
  struct PoolReady {
    base::PoolId pool_id;
    bool ready = false;
    std::int64_t leases = 0;
  };
  std::vector<PoolReady> pools;
};

}  // namespace llorch::orchestratord::core
