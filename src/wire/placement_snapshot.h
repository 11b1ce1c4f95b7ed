#pragma once
// What placement looks at and what it decides, as GET /v2/debug/snapshot prints it: enough to decide again elsewhere. Holds ids and
// quantities alone, nothing of a prompt or an output.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace llorch::wire {

enum class PlacementTier {
  kPreferred,
  kFallback,
  kExcluded
};  // a later one is tried only if no earlier one can take the job

// Dispatch order over all models: interactive before batch, then by order of admission.
struct DispatchRank {
  std::string priority;  // interactive, batch
  std::int64_t arrival = 0;
};

// A Ready worker that holds the job's model and that the job may run on.
struct CandidateWorker {
  std::string pool_id;
  std::string worker_id;
  PlacementTier tier = PlacementTier::kPreferred;
  std::int64_t slots_free = 0;
  std::int64_t slots_active = 0;
  bool in_doubt = false;               // its connection broke, and its pool has not spoken since
  std::int64_t device_free_bytes = 0;  // 0 unless it has a free slot
  std::optional<std::int64_t> first_token_ms;
  std::optional<std::int64_t> us_per_token;
};

// Any worker on a device.
struct ResidentWorker {
  std::string worker_id;
  std::int64_t bytes = 0;
  std::int64_t last_used_ms = 0;  // orchestratord's monotonic clock
  bool ready = false;
  bool leaving = false;
  bool idle = false;
  bool kept = false;                        // its load has not paid off yet
  bool elsewhere = false;                   // it spans devices that the job does not accept
  bool useful = true;                       // can serve its model's jobs at all
  std::int64_t use_frequency = 0;           // of its model
  std::optional<std::string> model_digest;  // omitted: nobody ever asked for what it holds
  std::optional<DispatchRank> queued;       // first job waiting for its model
};

// A device that is cleared for the first job of a model.
struct DeviceReservation {
  std::string model_digest;
  DispatchRank rank;
};

// A device of a place.
struct PlaceDevice {
  std::int64_t ranks = 1;  // shares of the worker that come to lie on it
  std::int64_t free_bytes = 0;
  std::int64_t potential_bytes = 0;  // with none of our workers on it
  std::int64_t total_bytes = 0;
  std::vector<ResidentWorker> workers;
};

// A device, or several that a worker of the model would share, where one could be started.
struct CandidatePlace {
  std::string pool_id;
  std::string device_mask;
  PlacementTier tier = PlacementTier::kPreferred;
  bool usable = true;
  bool failed_before = false;        // the last start of the model failed here
  std::int64_t free_bytes = 0;       // of several devices: for one rank, on the tightest; so are the next two
  std::int64_t potential_bytes = 0;  // with none of our workers there
  std::int64_t total_bytes = 0;
  std::optional<DeviceReservation> reserved;
  std::vector<PlaceDevice> devices;
};

struct PlacementDecision {
  std::string outcome;  // use_worker, start_worker, evict, reserve, wait, infeasible
  std::optional<std::string> pool_id;
  std::optional<std::string> device_mask;
  std::vector<std::string> worker_ids;  // to be used, stopped or reserved
  std::optional<std::string> wait;      // WAITING_FOR_...

  bool operator==(const PlacementDecision&) const = default;
};

// 200 of POST /v2/tasks/preview: what would become of the request now. Nothing is admitted, counted or started.
struct JobPreview {
  bool feasible = false;               // it would be admitted
  std::optional<std::string> reason;   // the code of its refusal, or WAITING_FOR_...
  std::optional<std::string> message;  // one sentence
  std::optional<std::int64_t> retry_after_ms;
  std::string model_ref;  // what the model resolved to
  std::int64_t tokens_in = 0;
  std::int64_t max_tokens = 0;
  std::optional<std::int64_t> queue_position;
  std::optional<std::int64_t> predicted_start_ms;  // absent: nothing of the model was measured yet
  std::optional<PlacementDecision> decision;       // about it alone, as if it were the first that waits
};

// The first waiting job of a model and a place preference, all that a decision about it looks at, and that decision.
struct PlacementSnapshotJob {
  std::string job_id;
  std::string model_ref;
  std::string model_digest;
  DispatchRank rank;
  std::int64_t memory_bytes = 0;  // of one worker, on each of its devices
  std::int64_t devices = 1;       // that a worker is spread over
  std::int64_t tokens_expected = 0;
  bool quota_reached = false;
  bool start_in_flight = false;
  bool start_backing_off = false;
  bool impatient = false;       // waited long enough to take memory from models with later jobs
  bool may_add_worker = false;  // the review of the queue advised another worker
  bool has_worker = false;
  bool other_version = false;  // a free worker would break the replica set
  bool too_few_devices = false;
  std::int64_t workers_excluded = 0;
  std::optional<std::string> last_worker_id;    // round-robin goes on behind it
  std::optional<std::string> affine_worker_id;  // where the session's last job ended
  std::vector<CandidateWorker> workers;
  std::vector<CandidatePlace> places;
  PlacementDecision decision;
};

// Each lists every device, so a snapshot is bounded by both.
inline constexpr std::int64_t kSnapshotJobsMax = 64;

// GET /v2/debug/snapshot
struct PlacementSnapshot {
  std::int64_t schema_version = 1;
  std::int64_t taken_unix_ms = 0;
  std::string algorithm;        // orchestratord.scheduling.algorithm
  std::string eviction_policy;  // orchestratord.eviction.worker_policy
  std::int64_t workers_per_gpu = 1;
  bool pools_expected = false;             // pools that did not answer yet may have what nobody has
  std::int64_t jobs_total = 0;             // jobs that are first in their group
  std::vector<PlacementSnapshotJob> jobs;  // the first kSnapshotJobsMax of these, in dispatch order
};

}  // namespace llorch::wire
