// Workers nobody needs: purged ones, workers of a pool that is being emptied, idle beyond their time, or too many on a
// device. Only idle ones are stopped; a worker that was told to go gets no job, so that no request can meet its end.
#include <algorithm>
#include <limits>

#include "base/assert.h"
#include "orchestratord/core/placement/eviction.h"
#include "orchestratord/core/state.h"
#include "wire/device_mask.h"

namespace llorch::orchestratord::core {

using placement::WaitCode;
using pools::Device;
using wire::WorkerStatus;

void Workers::retire(Worker& worker) {
  worker.retiring = true;
  retiring_.insert(worker.id);
  recheck_.all();
}

void Workers::stop_retiring() {
  std::vector<Worker*> idle;
  for (const base::WorkerId& id : retiring_) {
    Worker& w = *registry_.find_worker(id);
    if (w.info.status == WorkerStatus::kReady && w.slots_in_use == 0) idle.push_back(&w);
  }
  for (Worker* w : idle) stop_worker(*w, "purge");
}

// Its memory is for the first job of that group.
void Workers::reserve(Worker& worker, GroupIndex group_index) {
  worker.reserved_by = group_index.value;
  reserved_workers_.insert(worker.id);
  serves_no_more(worker);
}

void Workers::reserve(const base::PoolId& pool, const std::string& mask, GroupIndex group_index) {
  for (const std::string& gpu_id : wire::devices_of(mask)) reservations_[{pool, gpu_id}] = group_index;
}

std::optional<placement::Reservation> Workers::reservation(const base::PoolId& pool, const std::string& gpu_id) const {
  if (reservations_.empty()) return std::nullopt;
  const auto it = reservations_.find({pool, gpu_id});
  if (it == reservations_.end()) return std::nullopt;
  const auto head = queue_.head_of(it->second);
  if (!head) return std::nullopt;
  return placement::Reservation{group(it->second).model, {head->first, head->second}};
}

// A reservation lives only while its group waits for memory, and so does its hold on the device.
void Workers::give_up_reservations() {
  const auto waits_for_memory = [&](const JobGroup& l) { return l.wait && l.wait->code == WaitCode::kMemory; };
  if (std::erase_if(reservations_, [&](const auto& item) { return !waits_for_memory(group(item.second)); }) > 0) {
    recheck_.all();
  }
  for (auto it = reserved_workers_.begin(); it != reserved_workers_.end();) {
    Worker& w = *registry_.find_worker(*it);
    if (waits_for_memory(group({*w.reserved_by}))) {
      ++it;
      continue;
    }
    w.reserved_by.reset();
    it = reserved_workers_.erase(it);
    recheck_.all();
  }
}

void Workers::stop_reserved() {
  std::vector<Worker*> idle;
  for (const base::WorkerId& id : reserved_workers_) {
    Worker& w = *registry_.find_worker(id);
    if (w.slots_in_use == 0) idle.push_back(&w);
  }
  for (Worker* w : idle) stop_worker(*w, "evict");
}

bool Workers::unused(const Worker& w) const {
  if (w.info.status != WorkerStatus::kReady || w.slots_in_use > 0 || w.reserved_by || w.retiring) return false;
  const Model* known = models_.find(w.info.model_digest);
  return !known || !s_.replicas.first_waiting_for(w, *known);
}

// Stops what has been idle for too long. Looks again when the next worker may have been.
void Workers::unload_idle() {
  std::int64_t again_ms = std::numeric_limits<std::int64_t>::max();
  const std::int64_t ttl_ms = config_.eviction.worker_idle_ttl_ms;
  const bool trims = config_.eviction.worker_policy != config::EvictionPolicy::kManual;
  for (auto& [pool_id, pool] : registry_.pools()) {
    if (!s_.desired.pool_open(pool_id)) continue;
    for (auto& [gpu_id, device] : pool.devices) {
      if (trims) again_ms = std::min(again_ms, trim(device));
    }
    for (auto& [id, w] : pool.workers) {
      if (ttl_ms == 0 || !unused(w)) continue;
      const std::int64_t due_ms = w.last_used_ms + ttl_ms;
      if (due_ms <= now_.mono_ms) {
        stop_worker(w, "idle");
      } else {
        again_ms = std::min(again_ms, due_ms);
      }
    }
  }
  timers_.cancel(unload_timer_);
  if (again_ms == std::numeric_limits<std::int64_t>::max()) return;
  unload_timer_ = timers_.arm(again_ms, {.kind = TimerKind::kSchedule});
}

// A device that is fuller than vram_threshold gives up one worker, never its last, and none before it was idle for as long
// as its start took: keeping it until then costs no more than starting it again would. Returns when to look again.
std::int64_t Workers::trim(Device& device) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::int64_t total = device.info.vram_total_bytes;
  const std::int64_t used = std::max(device.accounted_bytes(), total - device.info.vram_available_bytes);
  if (device.workers.size() < 2 || in_motion(device) ||
      static_cast<double>(used) <= config_.eviction.vram_threshold * static_cast<double>(total)) {
    return kNever;
  }
  std::int64_t again_ms = kNever;
  Worker* first = nullptr;
  placement::Resident first_resident;
  for (std::uint32_t i = 0; i < device.workers.size(); ++i) {
    Worker* w = device.workers[i];
    if (!unused(*w)) continue;
    // Of a worker we did not start nobody knows what starting it again would cost.
    const std::int64_t cost_ms = w->start_took_ms > 0 ? w->start_took_ms : config_.worker_start_timeout_ms;
    const std::int64_t due_ms = w->last_used_ms + cost_ms;
    if (due_ms > now_.mono_ms) {
      again_ms = std::min(again_ms, due_ms);
      continue;
    }
    const placement::Resident t = s_.scheduler.resident(*w, device.info.gpu_id, i);
    if (first && !placement::goes_before(t, first_resident, config_.eviction.worker_policy)) continue;
    first = w;
    first_resident = t;
  }
  if (!first) return again_ms;
  stop_worker(*first, "threshold");
  return kNever;  // the next look is when its memory is free
}

void Workers::verify() const {
  std::map<base::WorkerId, std::int64_t> slots;
  for (const Execution& x : std::as_const(jobs_).executions()) ++slots[x.worker_id];
  std::size_t reserved = 0, leaving = 0;
  for (const auto& [pool_id, pool] : registry_.pools()) {
    for (const auto& [id, w] : pool.workers) {
      ASSERT(w.slots_in_use == slots[id], "worker {}: {} in use, {} executions", id.value, w.slots_in_use, slots[id]);
      ASSERT(w.reserved_by.has_value() == reserved_workers_.contains(id), "worker {}", id.value);
      ASSERT(w.retiring == retiring_.contains(id), "worker {}", id.value);
      reserved += w.reserved_by.has_value();
      leaving += w.retiring;
    }
  }
  ASSERT(reserved == reserved_workers_.size() && leaving == retiring_.size(), "{} of {} reserved, {} of {} retiring",
         reserved, reserved_workers_.size(), leaving, retiring_.size());
}

}  // namespace llorch::orchestratord::core
