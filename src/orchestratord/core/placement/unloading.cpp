// Workers nobody needs: purged ones, workers of a pool that is being emptied, idle beyond their time, or too many on a
// device. Only idle ones are stopped; a worker that was told to go gets no job, so that no request can meet its end.
#include <algorithm>
#include <limits>

#include "orchestratord/core/placement/eviction.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using pools::Device;
using pools::Pool;
using wire::WorkerStatus;

void Core::State::retire(Worker& worker) {
  worker.retiring = true;
  retiring.insert(worker.id);
  dirty = true;
}

void Core::State::stop_retiring() {
  std::vector<Worker*> idle;
  for (const base::WorkerId& id : retiring) {
    Worker& w = *registry.find_worker(id);
    if (w.info.status == WorkerStatus::kReady && w.slots_in_use == 0) idle.push_back(&w);
  }
  for (Worker* w : idle) stop_worker(*w, "purge");
  for (const auto& [pool_id, control] : controls) {
    Pool* pool = control.empties() ? registry.find_pool(pool_id) : nullptr;
    if (!pool) continue;
    for (auto& [id, w] : pool->workers) {
      const bool ready = w.info.status == WorkerStatus::kReady;
      // The deadline of a drain is for what loads, too; nobody's job depends on it.
      const bool given_up = w.info.status == WorkerStatus::kStarting && control.draining() && control.forced;
      if ((ready && w.slots_in_use == 0) || given_up) stop_worker(w, control.draining() ? "drain" : "reload");
    }
  }
}

bool Core::State::unused(const Worker& w) const {
  if (w.info.status != WorkerStatus::kReady || w.slots_in_use > 0 || w.claimed_by || w.retiring) return false;
  const auto known = model_of.find(w.info.model_digest);
  return known == model_of.end() || !first_waiting_for(w, model(known->second));
}

// Stops what has been idle for too long. Looks again when the next worker may have been.
void Core::State::unload_idle() {
  std::int64_t again_ms = std::numeric_limits<std::int64_t>::max();
  const std::int64_t ttl_ms = config.eviction.worker_idle_ttl_ms;
  const bool trims = config.eviction.worker_policy != config::EvictionPolicy::kManual;
  for (auto& [pool_id, pool] : registry.pools()) {
    if (!pool_open(pool_id)) continue;
    for (auto& [gpu_id, device] : pool.devices) {
      if (trims) again_ms = std::min(again_ms, trim(device));
    }
    for (auto& [id, w] : pool.workers) {
      if (ttl_ms == 0 || !unused(w)) continue;
      const std::int64_t due_ms = w.last_used_ms + ttl_ms;
      if (due_ms <= now.mono_ms) {
        stop_worker(w, "idle");
      } else {
        again_ms = std::min(again_ms, due_ms);
      }
    }
  }
  timers.cancel(unload_timer);
  if (again_ms == std::numeric_limits<std::int64_t>::max()) return;
  unload_timer = timers.arm(again_ms, {.kind = TimerKind::kSchedule});
}

// A device that is fuller than vram_threshold gives up one worker, never its last, and none before it was idle for as long
// as its start took: keeping it until then costs no more than starting it again would. Returns when to look again.
std::int64_t Core::State::trim(Device& device) {
  constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  const std::int64_t total = device.info.vram_total_bytes;
  const std::int64_t used = std::max(device.accounted_bytes(), total - device.info.vram_available_bytes);
  if (device.workers.size() < 2 || in_motion(device) ||
      static_cast<double>(used) <= config.eviction.vram_threshold * static_cast<double>(total)) {
    return kNever;
  }
  std::int64_t again_ms = kNever;
  Worker* first = nullptr;
  placement::Tenant first_tenant;
  for (std::uint32_t i = 0; i < device.workers.size(); ++i) {
    Worker* w = device.workers[i];
    if (!unused(*w)) continue;
    // Of a worker we did not start nobody knows what starting it again would cost.
    const std::int64_t cost_ms = w->start_took_ms > 0 ? w->start_took_ms : config.worker_start_timeout_ms;
    const std::int64_t due_ms = w->last_used_ms + cost_ms;
    if (due_ms > now.mono_ms) {
      again_ms = std::min(again_ms, due_ms);
      continue;
    }
    const placement::Tenant t = tenant(*w, device.info.gpu_id, i);
    if (first && !placement::goes_before(t, first_tenant, config.eviction.worker_policy)) continue;
    first = w;
    first_tenant = t;
  }
  if (!first) return again_ms;
  stop_worker(*first, "threshold");
  return kNever;  // the next look is when its memory is free
}

}  // namespace llorch::orchestratord::core
