#pragma once
// Looks over a queue that has grown long and says what would shorten it (SYS-6.1.4). Advice only: it sees a copy, changes
// nothing, and the scheduling pass decides what becomes of it. Pure; runs outside the core's thread.
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "orchestratord/core/jobs/ids.h"
#include "wire/task.h"

namespace llorch::orchestratord::core::queue {

// Jobs of one model that accept the same places.
struct WaitingGroup {
  jobs::GroupIndex group;
  base::JobId first_job;
  std::string model_digest;
  wire::Placement placement;
  std::int64_t jobs = 0;
  std::int64_t memory_bytes = 0;  // of one worker
  std::int64_t slots_of_new_worker = 1;
  std::optional<std::int64_t> run_ms;    // mean run
  std::optional<std::int64_t> start_ms;  // mean start of a worker
};

struct WorkerView {
  base::WorkerId worker_id;
  std::string model_digest;
  bool serves = false;  // ready, and takes jobs of its model
  bool wanted = false;  // jobs wait for it
  std::int64_t slots_total = 0, slots_in_use = 0;
  std::int64_t idle_ms = 0;  // since it last had a job
  std::int64_t bytes = 0;    // on this device
};
struct DeviceView {
  base::PoolId pool_id;
  std::string gpu_id;
  bool usable = false;  // its pool answers and it is well
  std::int64_t free_bytes = 0;
  std::int64_t total_bytes = 0;
  std::vector<WorkerView> workers;
};

struct Snapshot {
  std::vector<WaitingGroup> groups;  // in dispatch order of their first jobs
  std::vector<DeviceView> devices;   // by (pool_id, gpu_id)
  bool pools_expected = false;       // some may still turn up
  std::int64_t workers_per_device = 1;
};

enum class Kind : std::uint8_t {
  kStale,           // nothing that is there can ever take these jobs
  kRelaxPlacement,  // they wait for busy workers while others of their model are idle
  kAddWorker,       // one more worker in the place of an idle one would end the wait sooner
};
inline constexpr int kKindsCount = 3;
std::string_view name(Kind kind);  // "stale", "relax_placement", "add_worker"

struct Suggestion {
  Kind kind = Kind::kStale;
  jobs::GroupIndex group;
  base::JobId first_job;
  std::int64_t jobs = 0;
  std::optional<base::PoolId> pool_id;      // kRelaxPlacement: where a slot is free; kAddWorker: where to
  std::optional<base::WorkerId> worker_id;  // kRelaxPlacement: the free one; kAddWorker: the idle one
  std::int64_t gain_ms = 0;                 // kAddWorker: how much sooner the group is empty
};

struct Report {
  bool aborted = false;                 // ran out of time; what was found until then
  std::vector<Suggestion> suggestions;  // at most one per group, in dispatch order
};

// A worker nobody asked for this long may make room for another model's second worker.
inline constexpr std::int64_t kIdleMsMin = 30'000;

// `out_of_time` is asked once per group. O(groups x workers).
// kAddWorker: with s slots serving a group of n jobs of r ms, start time t and k new slots,
//   gain = n*r/s - max(t, 0) - n*r/(s + k), suggested if gain >= t: it pays for the start twice.
Report review(const Snapshot& snapshot, const std::function<bool()>& out_of_time);

}  // namespace llorch::orchestratord::core::queue
