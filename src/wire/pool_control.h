#pragma once
// Wire types of an operator's levers on a pool: drain, reload, purge, health; and the part of them that outlives
// orchestratord.
// Field tables: pool_control.cpp.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "wire/pool.h"

namespace llorch::wire {

// 201 of POST /v2/pools/{id}/credential
struct PoolCredentialReply {
  std::string pool_id;
  std::string credential;  // the text of a PoolCredential; told this once
};

// POST /v2/pools/{id}/drain
struct DrainRequest {
  std::int64_t deadline_ms = 0;  // what still runs then goes back to the queue; 0: at once
};
// POST /v2/pools/{id}/reload
struct ReloadRequest {
  std::string new_model_ref;
  std::int64_t deadline_ms = 30'000;  // for running jobs, as with a drain
};
// POST /v2/pools/{id}/purge
struct PurgeRequest {
  bool purge_engine = false;
  std::vector<std::string> purge_models;  // aliases, references or digests; none: every model
  bool drain_first = true;                // jobs on these workers may finish
  bool delete_cache_dirs = false;
  bool force = false;  // they go back to the queue instead
};

// 202 of drain, reload and purge.
struct PoolControlReply {
  std::string pool_id;
  std::string status;                // "draining" | "reloading" | "purging" | "serving"
  std::vector<std::string> workers;  // that are stopped
};

enum class PoolOperationKind : std::uint8_t { kDrain, kReload };
enum class PoolOperationState : std::uint8_t { kRunning, kDone, kRolledBack, kFailed };

// The drain or reload of a pool that runs, or the last one.
struct PoolOperation {
  PoolOperationKind kind = PoolOperationKind::kDrain;
  PoolOperationState state = PoolOperationState::kRunning;
  std::string step;                         // what it waits for, in words
  std::string model_ref;                    // kReload: the new one
  std::optional<std::int64_t> deadline_ms;  // from now; until what runs is sent back to the queue
};

// A reload that was accepted, and how it ended.
struct DesiredReload {
  struct Place {
    std::string gpu_id;
    ModelFacts model;
  };
  PoolOperationState state = PoolOperationState::kRunning;
  ModelFacts model;                  // the new one
  std::vector<Place> before;         // to come back to
  std::optional<std::string> error;  // why it did not succeed
};
// What an operator has asked of a pool, as it is stored.
struct PoolDesiredState {
  bool draining = false;                // a column of its own, not in the JSON
  std::optional<DesiredReload> reload;  // the one that runs, or the last
  std::vector<std::string> purged;      // workers that are to leave
  // What is stored, if nobody can read it: it stays so until an operator's next word. The two above are not known then.
  std::optional<std::string> unreadable{};

  bool any() const { return draining || reload || !purged.empty() || unreadable; }
};

struct PoolHealthMetrics {
  std::int64_t active_leases = 0;  // jobs on its workers
  std::int64_t workers_total = 0;
  std::int64_t workers_ready = 0;
  std::int64_t workers_starting = 0;
  std::int64_t slots_total = 0;
  std::int64_t slots_free = 0;
  std::int64_t vram_total_bytes = 0;
  std::int64_t vram_available_bytes = 0;
  std::int64_t worker_failures = 0;  // since orchestratord started
};

// GET /v2/pools/{id}/health
struct PoolHealthReport {
  std::string pool_id;
  bool live = false;      // it is heard
  bool ready = false;     // it takes jobs
  bool draining = false;  // an operator said so
  PoolHealthMetrics metrics;
  std::optional<std::int64_t> last_heartbeat_ms;  // ago; omitted: not heard of since orchestratord started
  std::optional<std::string> version;
  std::optional<PoolOperation> operation;
  std::optional<std::string> last_error;
};

}  // namespace llorch::wire
