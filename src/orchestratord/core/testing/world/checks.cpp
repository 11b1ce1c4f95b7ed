// What must hold at every command and at the end.
#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/core/jobs/backoff.h"
#include "orchestratord/core/placement/preference.h"
#include "orchestratord/core/testing/world/world.h"
#include "wire/device_mask.h"

namespace llorch::orchestratord::core {

using base::ErrorCode;
using wire::JobStatus;
using wire::WorkerStatus;

void World::expire_in_flight() {
  std::erase_if(in_flight_, [&](const auto& item) {
    return item.second.aborted_ms && now_.mono_ms >= *item.second.aborted_ms + config_.timeout.cancellation_deadline_ms;
  });
}

// What the core learns with this event.
void World::before_event(const Event& event) {
  expire_in_flight();
  let_go(event);
  note_contact(event);
  const auto settle = [&](const std::string& worker_id) {
    if (const auto it = starts_.find(worker_id); it != starts_.end()) it->second.settled = true;
  };
  if (const auto* e = std::get_if<ExecuteEnded>(&event)) {
    if (const auto it = in_flight_.find(e->execution.value); it != in_flight_.end()) {
      if (e->error && jobs::is_transient(e->error->code)) known_.at(it->second.job_id.value).retried = true;
      if (e->error && e->error->code == ErrorCode::kCancelled) known_.at(it->second.job_id.value).retried = true;
      in_flight_.erase(it);
    }
  } else if (const auto* committed = std::get_if<Committed>(&event)) {
    for (auto& [id, k] : known_) k.acknowledged |= rows_.contains(id);
    seen["commits"] += static_cast<std::int64_t>(committed->commits.size());
  } else if (const auto* answered = std::get_if<StartWorkerAnswered>(&event)) {
    if (answered->error) settle(answered->worker_id.value);
  } else if (const auto* ready = std::get_if<WorkerReady>(&event)) {
    settle(ready->ready.worker.worker_id);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    settle(failed->failed.worker_id);
  } else if (const auto* pool = std::get_if<PoolSeen>(&event)) {
    std::set<std::string> starting;
    for (const auto& w : pool->state.workers) {
      if (w.status == WorkerStatus::kStarting) starting.insert(w.worker_id);
    }
    for (auto& [id, start] : starts_) {
      if (start.pool_id == pool->state.pool_id && !starting.contains(id)) start.settled = true;
    }
  }
}

// Only an answer to what was asked since shows that calls reach a pool again.
void World::note_contact(const Event& event) {
  if (const auto* lost = std::get_if<PoolUnreachable>(&event)) {
    const SimPool* pool = pool_at(lost->endpoint);
    if (!pool || !heard_of_.contains(pool->base.pool_id)) return;
    if (lost->asked_ms < answered_ms_[pool->base.pool_id]) {
      ++seen["failure that an answer overtook"];
    } else {
      out_of_reach_ms_[pool->base.pool_id] = now_.mono_ms;
    }
  } else if (const auto* seen_pool = std::get_if<PoolSeen>(&event)) {
    const std::string& pool = seen_pool->state.pool_id;
    heard_of_.insert(pool);
    if (!seen_pool->request) answered_ms_[pool] = std::max(answered_ms_[pool], seen_pool->asked_ms);
    const auto since = out_of_reach_ms_.find(pool);
    if (since == out_of_reach_ms_.end()) return;
    if (seen_pool->request) {
      ++seen["report of a pool out of reach"];
    } else if (seen_pool->asked_ms >= since->second) {
      out_of_reach_ms_.erase(since);
    }
  }
}

void World::check_execute(const Execute& c) {
  if (out_of_reach_ms_.contains(c.pool_id.value)) violate("a job goes to a pool out of reach: " + c.job_id.value);
  Known& k = known_.at(c.job_id.value);
  if (!rows_.contains(c.job_id.value) || !(k.acknowledged || k.restored))
    violate("execute before commit: " + c.job_id.value);
  if (k.sealed || k.finishes > 0 || wire::is_terminal(k.written)) violate("execute after the end: " + c.job_id.value);
  if (k.told && !k.spec.model.replayable) violate("what cannot be repeated runs again: " + c.job_id.value);
  std::int64_t on_worker = 0;
  for (const auto& [id, f] : in_flight_) {
    if (f.job_id == c.job_id) violate("two attempts at once: " + c.job_id.value);
    on_worker += f.worker_id == c.worker_id;
  }
  if (on_worker >= config_.worker_slots) violate("more attempts than slots on " + c.worker_id.value);
  const auto accepts = [&](const jobs::JobSpec& spec) {
    return placement::tier_of(spec.placement, c.pool_id, gpu_of_[c.worker_id.value]) != placement::Tier::kExcluded;
  };
  if (!accepts(k.spec)) violate(fmt::format("{} runs where it must not", c.job_id.value));
  if (!placement::is_anywhere(k.spec.placement)) ++seen["placed by wish"];
  // FIFO inside (class, model) among those that accept the worker, first attempts of this life only.
  if (!k.dispatched && !k.retried && !k.restored) {
    for (const auto& [id, other] : known_) {
      const bool same = other.spec.priority == k.spec.priority && other.spec.model.digest == k.spec.model.digest &&
                        other.spec.tenant_id == k.spec.tenant_id &&
                        (!builds_change_ || other.spec.placement == k.spec.placement);
      const bool waits = other.accepted && !other.dispatched && !other.retried && !other.restored &&
                         other.finishes == 0 && !wire::is_terminal(other.written);
      if (same && waits && accepts(other.spec) && other.order < k.order)
        violate(fmt::format("{} overtook {}", c.job_id.value, id));
    }
  }
  k.dispatched = true;
  ++seen["execute"];
}

void World::check_start(const StartWorker& c) {
  const auto devices = wire::devices_of(c.request.gpu_id);
  const auto overlaps = [&](const Start& start) {
    return start.pool_id == c.pool_id.value && start.model_ref == c.request.model_ref &&
           std::ranges::any_of(devices, [&](const auto& gpu) { return std::ranges::count(start.devices, gpu) > 0; });
  };
  for (const auto& [id, start] : starts_) {
    if (!start.settled && overlaps(start)) {
      violate(fmt::format("two starts in flight: {} on {}/{}", c.request.model_ref, c.pool_id.value, c.request.gpu_id));
    }
  }
  const Start start{c.pool_id.value, c.request.model_ref, devices};
  if (!starts_.emplace(c.request.worker_id, start).second) violate("worker id used twice");
  hold(c, devices);
}

// No device is given more than it has, by what the core knows.
void World::hold(const StartWorker& c, const std::vector<std::string>& devices) {
  held_[c.request.worker_id] = {c.pool_id.value, devices,
                                model_on_shelf("sha256:" + c.request.model_ref.substr(6)).bytes};
  const SimPool* pool = pool_at(c.endpoint);
  if (!pool) return;
  for (const wire::GpuInfo& gpu : pool->base.gpus) {
    std::int64_t sum = 0;
    for (const auto& [id, held] : held_) {
      if (held.pool_id == c.pool_id.value) sum += held.bytes * std::ranges::count(held.devices, gpu.gpu_id);
    }
    if (sum > gpu.vram_total_bytes) {
      violate(fmt::format("{}/{} is given {} of {} bytes", c.pool_id.value, gpu.gpu_id, sum, gpu.vram_total_bytes));
    }
  }
}

void World::let_go(const Event& event) {
  if (const auto* answered = std::get_if<StartWorkerAnswered>(&event)) {
    if (answered->error) held_.erase(answered->worker_id.value);
  } else if (const auto* failed = std::get_if<WorkerFailed>(&event)) {
    held_.erase(failed->failed.worker_id);
  } else if (const auto* pool = std::get_if<PoolSeen>(&event)) {
    std::set<std::string> listed;
    for (const auto& w : pool->state.workers) listed.insert(w.worker_id);
    std::erase_if(held_, [&](const auto& item) {
      return item.second.pool_id == pool->state.pool_id && !listed.contains(item.first);
    });
  }
}

void World::check_end() {
  for (const auto& [id, k] : known_) {
    const auto row = rows_.find(id);
    if (k.accepted && row == rows_.end()) violate("an accepted job has no row: " + id);
    if (row == rows_.end()) continue;
    if (!wire::is_terminal(row->second.status)) violate("never ended: " + id);
    if (row->second.terminal_writes != 1)
      violate(fmt::format("{} terminal rows of {}", row->second.terminal_writes, id));
    // A crash between the terminal row and Finish leaves the telling to the store.
    if (k.finishes == 0 && lives_ == 1) violate("nobody was written: " + id);
  }
  if (violation_.empty()) return;
  feed(QueryPools{{++requests_}});  // for the transcript
  feed(QueryJobs{{++requests_}});
}

}  // namespace llorch::orchestratord::core
