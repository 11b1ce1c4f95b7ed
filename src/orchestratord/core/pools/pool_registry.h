#pragma once
// What the pools last said, and what follows from it: which pools are healthy, which workers exist, how much memory of a
// device is spoken for. Facts only; what to do about them is decided elsewhere.
//
// Reports may be late, doubled or out of order: a report older than the last one of the same boot is dropped, workers a
// pool declared gone are not revived by it, and a worker we just started is not lost because a report was written before.
// One thread. Iteration is by pool_id and worker_id.
#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/id.h"
#include "config/config.h"
#include "wire/pool.h"

namespace llorch::orchestratord::core::pools {

using wire::PoolStatus;
using wire::WorkerStatus;

// ORCH-1004: starting -> ready | failed, ready <-> busy, ready | busy -> draining, any -> failed.
bool is_legal(WorkerStatus from, WorkerStatus to);

// Device class, engine build, numerics and sampler in one text: a request has the same bytes on workers with the same
// text. Workers with one text and one model digest are a replica set.
std::string version_of(const wire::WorkerInfo& info);

struct Worker {
  wire::WorkerInfo info;  // status: starting, ready, draining or failed; busy is derived from slots_in_use
  base::WorkerId id;
  base::PoolId pool_id;
  std::vector<std::string> devices;  // by rank: those of its mask, info.gpu_id
  std::string version;               // version_of(info), once it is ready
  std::int64_t expected_bytes = 0;   // what the start asked for on each device; 0 for a worker we did not start
  std::int64_t reported_bytes = 0;   // what the last report of its pool counted for it
  std::string wanted_digest;         // what the start asked for; "" for a worker we did not start
  std::int64_t slots_in_use = 0;     // executions that may still hold a slot
  std::int64_t last_used_ms = 0;
  std::int64_t started_ms = 0;     // when we asked for it, or first heard of it
  std::int64_t ready_ms = 0;       // when we heard that it is ready
  std::int64_t start_took_ms = 0;  // 0 for a worker we did not start
  bool answered = true;            // false until the pool answered our StartWorker
  bool listed = false;             // a report named it
  bool reported_gone = false;      // declared gone, but its process still holds its place; failed
  int absent_reports = 0;          // in a row, while never listed
  // A connection to it failed, and nothing goes there until its pool's answer to a question asked since names it, or so many
  // of the pool's own reports do: the first of them may have been written before the failure.
  int reports_awaited = 0;
  std::int64_t doubted_ms = 0;  // when that was
  int connects_failed =
      0;  // in a row, one after the other; from the second on an answer of its pool to a later question is one report
  bool pool_answered = false;  // since the first of them, and named it
  std::optional<std::int64_t> stop_sent_ms;
  std::optional<std::uint64_t> reserved_by;  // group that waits for its memory: no new work
  std::optional<std::uint64_t> started_for;  // group whose first job asked for it
  bool retiring = false;                     // it leaves when it is idle: no new work

  void take(wire::WorkerInfo said);  // info and devices
  // Of an earlier process, of a start whose answer was lost, or of whoever else: nothing here waits for it by name.
  bool is_foreign() const { return wanted_digest.empty(); }
  bool is_on(const std::string& gpu_id) const { return std::ranges::find(devices, gpu_id) != devices.end(); }
  // Memory on all its devices; on one of them; and on one of them as far as the pool's last report did not count it.
  std::int64_t bytes() const { return std::max(info.vram_bytes, expected_bytes * std::ssize(devices)); }
  std::int64_t bytes_on(const std::string& gpu_id) const;
  std::int64_t unreported_bytes_on(const std::string& gpu_id) const;
  bool takes_work() const { return info.status == WorkerStatus::kReady && !reserved_by && !retiring; }
  bool doubted() const { return reports_awaited > 0; }
  void doubt(std::int64_t now_ms);
  // For an attempt that began at `begun_ms`: those that ran beside it fail with it.
  void connect_failed(std::int64_t begun_ms);
  void connected() { connects_failed = 0, pool_answered = false; }
  bool port_is_doubted() const { return connects_failed > 1; }
  bool port_is_closed() const { return port_is_doubted() && pool_answered; }
  std::int64_t slots_free() const { return doubted() ? 0 : std::max<std::int64_t>(0, info.slots_total - slots_in_use); }
};

struct Device {
  wire::GpuInfo info;
  std::vector<Worker*> workers;  // by worker_id
  bool doubted = false;          // its pool refused what `info` has room for: wait for the next report
  // When it did so last; none: a start has succeeded since.
  std::optional<std::int64_t> disagreed_ms;
  // The version of the last worker that was ready there since its pool started: a new worker would have the same.
  std::optional<std::string> version;
  std::string version_class;  // the device class in it

  std::int64_t accounted_bytes() const;
  // By the reports of its pool: then not even what needs no memory goes there.
  bool is_overfull() const { return accounted_bytes() > info.vram_total_bytes; }
  // What a new worker could take now: what the pool reported as available less the workers it does not count yet, and
  // never more than the total less everything accounted.
  std::int64_t free_bytes() const;
  // What the device could offer with none of our workers on it.
  std::int64_t potential_bytes() const;
};

struct Pool {
  base::PoolId id;
  std::string endpoint, version, boot_id;
  PoolStatus status = PoolStatus::kHealthy;
  std::int64_t last_seen_ms = 0;
  std::int64_t registered_unix_ms = 0;
  // Since when calls to it fail. Its own reports come another way: it is unhealthy until it answers what was asked after the
  // last failure.
  std::optional<std::int64_t> unreachable_since_ms;
  std::int64_t call_failed_ms = 0;  // last
  std::int64_t answered_ms = 0;     // when the newest question was asked that it has answered
  std::int64_t asked_ms = 0;        // last, because calls to it fail
  bool address_is_due = false;      // with its next own report: an answer listed it, or calls to it fail
  // A worker that nobody here asked for was starting there for too long: while that is so, others are not waited for.
  bool starts_hang = false;
  std::int64_t last_sequence = 0, last_timestamp_ms = 0, last_uptime_s = 0;  // of the last report taken
  std::map<std::string, Device> devices;                                     // by gpu_id
  std::vector<wire::StagedModel> staged_models;
  std::int64_t staging_bytes_max = 0;
  struct Version {
    std::string version, device_class;
  };
  std::map<std::string, Version> mask_versions;  // as Device::version, of workers over several devices
  std::map<base::WorkerId, Worker> workers;
  std::set<base::WorkerId> gone;  // declared gone; forgotten once no report names them
  struct OldBoot {
    std::string boot_id;
    std::int64_t replaced_ms = 0;
  };
  std::vector<OldBoot> old_boots;  // the last few before boot_id; their late reports are dropped
};

// Where a worker may run: one device of a pool, or several that share its model.
struct Place {
  const Pool* pool = nullptr;
  std::string mask;                    // what StartWorker names it
  std::vector<const Device*> devices;  // by rank

  bool is_healthy() const;
  // Memory for one rank, on the device that has least for it.
  std::int64_t free_bytes() const;
  std::int64_t potential_bytes() const;
  std::int64_t total_bytes() const;
  // The version of the last worker that was ready here; null: not known.
  const std::string* version() const;
};
// The places of a pool for a worker over so many devices: every device; or every run of neighbours, by number, and as many
// shares of the CPU reference device. With `mask`, that one alone, if there is such.
std::vector<Place> places_for(const Pool& pool, std::int64_t devices_count, const std::optional<std::string>& mask);

enum class GoneWhy : std::uint8_t {
  kFailed,    // the pool said so, or stopped listing it
  kStopped,   // it was asked to go
  kPoolLost,  // its pool restarted, left or was given up
};
struct GoneWorker {
  base::WorkerId id;
  base::PoolId pool_id;
  std::string gpu_id, model_digest;
  std::optional<std::uint64_t> started_for;
  GoneWhy why = GoneWhy::kFailed;
  WorkerStatus was = WorkerStatus::kStarting;
  std::int64_t bytes = 0;
  bool reported_before = false;  // only its place on the device is free now
  bool is_foreign = false;
};

struct Changes {
  enum class Taken : std::uint8_t { kYes, kStale, kConflict } taken = Taken::kYes;
  bool is_new = false, rebooted = false, recovered = false, moved = false;
  std::string conflicting_endpoint;  // kConflict: who holds this pool_id
  bool was_replaced = false;  // kConflict: by a process with its pool_id and address; it was told that it is registered
  std::vector<GoneWorker> gone;
  std::vector<base::WorkerId> became_ready;
  std::vector<base::WorkerId> adopted;  // heard of for the first time: not started by us, or given up by us
  std::vector<base::PoolId> replaced;   // other pool ids that answered at this endpoint before
};

class PoolRegistry {
 public:
  // `asked_ms`: when the question was asked that this answers. Absent: the pool says it of its own accord.
  Changes apply(const wire::PoolState& state, std::optional<std::int64_t> asked_ms, base::Time now);
  // `became_ready` and `adopted` are set. Unknown pools and workers declared gone are ignored.
  Changes worker_ready(const wire::WorkerReady& ready, base::Time now);
  std::optional<GoneWorker> worker_failed(const base::WorkerId& id, GoneWhy why);
  // Accounts for a worker the core is about to start. REQUIRES: pool and device exist, id is new.
  Worker& add_starting(const base::PoolId& pool, wire::WorkerInfo info, std::int64_t expected_bytes, base::Time now);
  // Drops a worker whose start was refused, without remembering it as gone: if the pool did start it after all, its next
  // report brings it back.
  void forget_start(const base::WorkerId& id);
  // REQUIRES: legal from its present status.
  void set_status(Worker& worker, WorkerStatus status);
  std::vector<GoneWorker> drop_pool(const base::PoolId& id);
  // True if it was healthy.
  bool mark_unhealthy(const base::PoolId& id);
  static void mark_unreachable(Pool& pool, base::Time now);

  Pool* find_pool(const base::PoolId& id);
  const Pool* find_pool(const base::PoolId& id) const { return const_cast<PoolRegistry*>(this)->find_pool(id); }
  Pool* pool_at(const std::string& endpoint);
  // The devices of the mask that the pool still has, each once.
  static std::vector<Device*> devices_at(Pool& pool, const std::string& mask);
  Worker* find_worker(const base::WorkerId& id);
  const Worker* find_worker(const base::WorkerId& id) const { return const_cast<PoolRegistry*>(this)->find_worker(id); }
  // Every worker that says it holds this model, by (pool_id, worker_id).
  const std::vector<Worker*>& workers_of(const std::string& model_digest) const;
  // How many versions the ready ones of them have.
  std::size_t versions_count(const std::string& model_digest) const;
  // Every worker that loads this file and has not said yet which model it is: a start of an earlier process, or one whose
  // answer was lost.
  const std::vector<Worker*>& loading_of(const std::string& model_ref) const { return workers_of(model_ref); }
  std::map<base::PoolId, Pool>& pools() { return pools_; }
  const std::map<base::PoolId, Pool>& pools() const { return pools_; }

 private:
  void index(Worker& worker);
  void unindex(const Worker& worker);
  GoneWorker gone_worker(const Worker& worker, GoneWhy why) const;
  GoneWorker erase(Pool& pool, const base::WorkerId& id, GoneWhy why, bool remember);
  void merge_workers(Pool& pool, const wire::PoolState& state, std::optional<std::int64_t> asked_ms, base::Time now,
                     Changes& changes);
  void merge_worker(Pool& pool, const wire::WorkerInfo& info, std::optional<std::int64_t> asked_ms, base::Time now,
                    Changes& changes);
  static bool note_contact(Pool& pool, std::optional<std::int64_t> asked_ms, base::Time now);
  void note_version(Worker& worker);
  void drop_absent(Pool& pool, const std::set<std::string>& listed, Changes& changes);
  bool is_stale(const Pool& pool, const wire::PoolState& state) const;

  std::map<base::PoolId, Pool> pools_;
  std::unordered_map<base::WorkerId, base::PoolId> pool_of_;  // look-ups only
  struct Holders {
    std::vector<Worker*> workers;
    std::map<std::string, int> versions;  // of those that have one
  };
  std::map<std::string, Holders> by_model_;  // by digest, or by model_ref while that is not known
};

}  // namespace llorch::orchestratord::core::pools
