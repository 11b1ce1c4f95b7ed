#pragma once
// The one decision of what to do about the first waiting job of a model: which worker takes it, or where to start one, or
// which idle workers make room, or what it waits for. A pure function of its input; nothing else chooses.
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <variant>
#include <vector>

#include "config/config.h"
#include "orchestratord/core/jobs/ids.h"
#include "orchestratord/core/placement/preference.h"
#include "wire/task.h"

namespace llorch::orchestratord::core::placement {

// Dispatch order over all models.
struct Rank {
  wire::Priority priority = wire::Priority::kInteractive;
  jobs::Arrival arrival;
  auto operator<=>(const Rank&) const = default;
};

// What was measured of a model on a device.
struct Speed {
  std::int64_t first_token_ms = 0;
  std::int64_t us_per_token = 0;
};

// A Ready worker that holds the model, meets its requirements and is not excluded by the job. `worker` is the caller's
// number for it and rises with (pool_id, worker_id), the last tie-breaker of every algorithm.
struct WorkerChoice {
  std::uint32_t worker = 0;
  Tier tier = Tier::kPreferred;
  std::int64_t slots_free = 0;
  std::int64_t active = 0;
  bool doubted = false;  // its connection broke, and its pool has not spoken since
  std::int64_t device_free_bytes = 0;
  std::optional<Speed> speed;  // absent: nothing ran there yet
};

// Any worker on a device.
struct Resident {
  std::uint32_t worker = 0;
  std::int64_t bytes = 0;
  std::int64_t last_used_ms = 0;
  bool ready = false;
  bool leaving = false;  // draining, failed, or reserved for a waiting model
  bool idle = false;
  bool kept = false;                      // its load has not paid off yet (eviction.h)
  std::int64_t frequency = 0;             // of its model's use
  std::optional<jobs::ModelIndex> model;  // absent: nobody ever asked for what it holds
  bool elsewhere = false;                 // it spans other devices than the waiting job accepts
  bool useful = true;                     // can serve its model's jobs at all
  std::optional<Rank> queued;             // first job waiting for its model
};

// A device being cleared for the first job of a model: later jobs of other models start nothing there, or it would be
// filled again as fast as it is cleared, and nobody would ever run.
struct Reservation {
  jobs::ModelIndex model;
  Rank rank;
};

// A device, or several that a worker of the model would share. `device` rises with (pool_id, gpu_id).
struct DeviceChoice {
  std::uint32_t device = 0;
  bool usable = true;                // its pool is healthy and the device itself is
  std::int64_t free_bytes = 0;       // of several: for one rank, on the tightest; so are the next two
  std::int64_t potential_bytes = 0;  // with none of our workers on it
  std::int64_t total_bytes = 0;
  bool overfull =
      false;  // of one device: its pool reports more on it than there is, so not even what needs nothing goes there
  std::optional<Reservation> reserved;
  std::vector<Resident> residents;  // of one device
  std::int64_t ranks = 1;           // of a part: shares of the worker that come to lie on it
  std::vector<DeviceChoice> parts;  // of several: each of them, whole; a worker on two of them has one number
};
// The devices one by one.
inline std::span<const DeviceChoice> parts_of(const DeviceChoice& device) {
  return device.parts.empty() ? std::span(&device, 1) : std::span(device.parts);
}

struct PlacementInput {
  Rank rank;
  jobs::ModelIndex model;
  std::int64_t memory_bytes = 0;  // of one worker of the model, on each of its devices
  config::PlacementAlgorithm algorithm = config::PlacementAlgorithm::kLeastLoaded;
  std::int64_t tokens_expected = 0;  // predicted-end: how much the job will probably generate
  config::EvictionPolicy eviction = config::EvictionPolicy::kLru;
  std::optional<std::uint32_t> last_worker;    // round-robin: who got the last job
  std::optional<std::uint32_t> affine_worker;  // where the session's last job ended well: its prefix may still be there
  std::span<const WorkerChoice> workers;
  std::int64_t workers_excluded = 0;  // would do, but the job does not want them
  bool quota_reached = false;         // its tenant runs as many jobs as it may
  bool other_version = false;         // one of them is free, and of another version than those in use
  bool has_worker = false;            // a Ready worker of the model exists, free or not
  bool starting = false;              // a start of the model is in flight
  bool start_backing_off = false;     // the last start failed a moment ago
  bool impatient = false;             // waited long enough to reserve memory from models with later jobs
  bool may_add_worker = false;        // evict idle workers for it although it has one already
  bool pools_expected = false;        // pools that did not answer yet may have what nobody has
  std::int64_t workers_per_device = 1;
};

enum class WaitCode : std::uint8_t {
  kTurn,         // jobs for the same model go first
  kSlot,         // every worker of the model is busy
  kWorkerCheck,  // the connection to every worker of the model broke; their pools are asked
  kQuota,        // its tenant runs as many jobs as it may
  kWorkerStart,  // a worker is starting
  kStartRetry,   // the last start failed; the next one is delayed
  kMemory,       // no device has room now
  kEviction,     // a worker would have to go, and the policy leaves that to an operator
  kPool,         // no healthy pool that could hold it
  kRetry,        // the last attempt failed; the next one is delayed
  kRestart,      // orchestratord is stopping; the next process goes on
};
std::string_view code(WaitCode wait);  // "WAITING_FOR_SLOT", ...

struct UseWorker {
  std::uint32_t worker = 0;
};
struct StartOn {
  std::uint32_t device = 0;
};
// Stop these idle workers, then wait until the pool reports the memory free.
struct Evict {
  std::uint32_t device = 0;
  std::vector<std::uint32_t> workers;
  std::int64_t free_bytes_max = 0;  // as in Wait
};
// Give these workers no more jobs; stop each when it is idle.
struct Reserve {
  std::uint32_t device = 0;
  std::vector<std::uint32_t> workers;
  std::int64_t free_bytes_max = 0;  // as in Wait
};
struct Wait {
  WaitCode code = WaitCode::kSlot;
  std::int64_t free_bytes_max = 0;  // kMemory: the best device's room now
  bool kept = false;                // kMemory: a worker could go once its load has paid off
  bool other_version = false;       // kSlot: a free worker would break the replica set
};
// No device we know of can hold the model, however long we wait; or others hold the memory, and we have waited long enough.
struct Infeasible {
  std::int64_t potential_bytes_max = 0;
};
using Decision = std::variant<UseWorker, StartOn, Evict, Reserve, Wait, Infeasible>;
std::string_view outcome(const Decision& decision);  // "use_worker", "start_worker", ...

// For the log: how the decision came about (ORCH-3900, ORCH-3906). The caller knows which pool was selected.
struct DecisionLog {
  std::int64_t candidates_considered = 0;
  std::int64_t candidates_feasible = 0;
  std::vector<std::string_view> filters_applied;
  std::vector<std::string_view> tie_breakers_applied;
  bool fallback_used = false;  // a place was taken that is not among the preferred ones
};

// The other half of what a decision looks at; asked for only if no worker has a free slot, because it is the larger one.
// `all` says nothing about the waiting job, so it serves many decisions; the rest is of this job.
struct Devices {
  std::span<const DeviceChoice> all;
  std::span<const Tier> tiers;            // by DeviceChoice::device; empty: every place will do
  std::span<const std::uint32_t> failed;  // where the last start of the model failed
  bool too_few = false;                   // no pool that the job accepts has as many as share its model
};
using DeviceSource = std::function<Devices()>;

// Algorithms over the workers with a free slot in the best tier that has one, as tuples; the smallest wins:
//   least-loaded    (active asc, affine first, device free memory desc, pool_id, worker_id)
//   most-vram-free  (device free memory desc, active asc, affine first, pool_id, worker_id)   OC-CORE-1017
//   round-robin     the next after the last one used, by (pool_id, worker_id)
//   predicted-end   (first token + expected tokens at the measured speed, affine first, active asc, device free memory desc,
//                   pool_id, worker_id); while one of them is not measured, least-loaded, which measures all in time   ORCH-3902
// Affinity breaks ties and nothing more: a job never waits for the affine worker while another one is free.
std::int64_t predicted_end_ms(const Speed& speed, std::int64_t tokens);
// Start: the device with most room among those that hold the model, devices where the last start failed last.
// Eviction (eviction.h): only if the model has no worker at all. A device of a smaller tier comes first in both.
Decision decide(const PlacementInput& input, const DeviceSource& devices, DecisionLog& log);

}  // namespace llorch::orchestratord::core::placement
