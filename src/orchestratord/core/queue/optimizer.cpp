#include "orchestratord/core/queue/optimizer.h"

#include <algorithm>

#include "orchestratord/core/placement/preference.h"

namespace llorch::orchestratord::core::queue {
namespace {

using placement::Tier;

bool accepts(const WaitingGroup& group, const DeviceView& device) {
  return placement::tier_of(group.placement, device.pool_id, device.gpu_id) != Tier::kExcluded;
}

struct Supply {
  std::int64_t slots = 0;                 // of workers that the group accepts
  bool place = false;                     // some usable device could hold a worker if it were empty
  const DeviceView* elsewhere = nullptr;  // has a free slot for its model, but the group does not accept it
  const WorkerView* free_worker = nullptr;
};

Supply supply_of(const WaitingGroup& group, const Snapshot& snapshot) {
  Supply supply;
  for (const DeviceView& device : snapshot.devices) {
    const bool accepted = accepts(group, device);
    supply.place |= accepted && device.usable && device.total_bytes >= group.memory_bytes;
    for (const WorkerView& w : device.workers) {
      if (!w.serves || w.model_digest != group.model_digest) continue;
      if (accepted) {
        supply.slots += w.slots_total;
      } else if (w.slots_in_use < w.slots_total && !supply.free_worker) {
        supply.elsewhere = &device;
        supply.free_worker = &w;
      }
    }
  }
  return supply;
}

struct Place {
  const DeviceView* device = nullptr;
  const WorkerView* idle = nullptr;
};

// The worker that was idle longest among those whose place is large enough.
Place place_of_idle(const WaitingGroup& group, const Snapshot& snapshot) {
  Place best;
  for (const DeviceView& device : snapshot.devices) {
    if (!device.usable || !accepts(group, device)) continue;
    if (static_cast<std::int64_t>(device.workers.size()) > snapshot.workers_per_device) continue;
    for (const WorkerView& w : device.workers) {
      const bool may_go = w.serves && !w.wanted && w.slots_in_use == 0 && w.idle_ms >= kIdleMsMin &&
                          w.model_digest != group.model_digest && device.free_bytes + w.bytes >= group.memory_bytes;
      if (may_go && (!best.idle || w.idle_ms > best.idle->idle_ms)) best = {&device, &w};
    }
  }
  return best;
}

std::optional<Suggestion> look_at(const WaitingGroup& group, const Snapshot& snapshot) {
  Suggestion s{.group = group.group, .first_job = group.first_job, .jobs = group.jobs, .pool_id = {}, .worker_id = {}};
  const Supply supply = supply_of(group, snapshot);
  if (supply.slots == 0 && !supply.place) {
    if (snapshot.pools_expected) return std::nullopt;
    s.kind = Kind::kStale;
    return s;
  }
  if (supply.free_worker) {
    s.kind = Kind::kRelaxPlacement;
    s.pool_id = supply.elsewhere->pool_id;
    s.worker_id = supply.free_worker->worker_id;
    return s;
  }
  if (supply.slots == 0 || !group.run_ms || !group.start_ms) return std::nullopt;  // the scheduler starts the first one
  const Place place = place_of_idle(group, snapshot);
  if (!place.idle) return std::nullopt;
  const std::int64_t work_ms = group.jobs * *group.run_ms;
  const std::int64_t more = supply.slots + std::max<std::int64_t>(1, group.slots_of_new_worker);
  s.gain_ms = work_ms / supply.slots - *group.start_ms - work_ms / more;
  if (s.gain_ms < *group.start_ms || s.gain_ms <= 0) return std::nullopt;
  s.kind = Kind::kAddWorker;
  s.pool_id = place.device->pool_id;
  s.worker_id = place.idle->worker_id;
  return s;
}

}  // namespace

std::string_view name(Kind kind) {
  switch (kind) {
    case Kind::kStale: return "stale";
    case Kind::kRelaxPlacement: return "relax_placement";
    case Kind::kAddWorker: return "add_worker";
  }
  return "stale";
}

Report review(const Snapshot& snapshot, const std::function<bool()>& out_of_time) {
  Report report;
  for (const WaitingGroup& group : snapshot.groups) {
    if (out_of_time()) {
      report.aborted = true;
      break;
    }
    if (auto suggestion = look_at(group, snapshot)) report.suggestions.push_back(std::move(*suggestion));
  }
  return report;
}

}  // namespace llorch::orchestratord::core::queue
