// Lanes: jobs of one model that may run at the same places (ORCH-3903), and count against the same quota.
#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "orchestratord/brain/core/state.h"

namespace llorch::orchestratord::brain {

using base::Error;
using base::ErrorCode;
using contract::PlacementMode;
using scheduling::Rank;
using scheduling::Tier;

namespace {
constexpr std::int64_t kAskQueueAgainMs = 1000;
}

LaneIndex Brain::State::intern_lane(ModelIndex model_index, const jobs::JobSpec& spec, const std::string& version) {
  const bool counted = quotas.concurrent_max(spec.tenant_id) > 0;
  const auto [it, is_new] =
      lane_of.try_emplace(LaneKey{model_index, spec.placement, counted ? spec.tenant_id : std::string(), version});
  if (!is_new) return it->second;
  if (free_lanes.empty()) {
    it->second = LaneIndex{lanes.size()};
    lanes.emplace_back();
  } else {
    it->second = free_lanes.back();
    free_lanes.pop_back();
  }
  Lane& l = lane(it->second) = Lane{it->first};
  l.anywhere = scheduling::is_anywhere(l.placement);
  model(model_index).lanes.push_back(it->second);
  return it->second;
}

// Their numbers are used again: clients may think of any number of placements. REQUIRES: a pass just ended, so that
// nothing refers to a lane without jobs but the starts made for it.
void Brain::State::release_lanes() {
  for (const LaneIndex index : emptied_lanes) {
    const Lane& l = lane(index);
    if (l.jobs > 0 || !lane_of.contains(l)) continue;
    ASSERT(!l.wait && queue.count_of(index) == 0, "lane {}", index.value);
    Model& m = model(l.model);
    for (const auto* workers : {&registry.workers_of(m.facts.digest), &registry.loading_of(m.facts.model_ref)}) {
      for (Worker* w : *workers) {
        if (w->started_for == index.value) w->started_for.reset();
      }
    }
    std::erase(m.lanes, index);
    lane_of.erase(LaneKey(l));
    free_lanes.push_back(index);
  }
  emptied_lanes.clear();
}

void Brain::State::leave_lane(Job& job) {
  if (--lane(job.lane).jobs == 0) emptied_lanes.push_back(job.lane);
}

Tier Brain::State::tier(const Lane& l, const base::PoolId& pool, const std::string& gpu_id) {
  return l.anywhere ? Tier::kPreferred : scheduling::tier_of(l.placement, pool, gpu_id);
}

bool Brain::State::accepts(const Lane& l, const Worker& worker) {
  return tier(l, worker.pool_id, worker.info.gpu_id) != Tier::kExcluded;
}

// The first job that waits for a worker of the model and would take this one.
std::optional<Rank> Brain::State::first_waiting_for(const Worker& worker, const Model& m) const {
  std::optional<Rank> first;
  for (const LaneIndex index : m.lanes) {
    const Lane& l = lane(index);
    if (queue.count_of(index) == 0 || !may_run(l) || !accepts(l, worker) || !keeps_replica_set(l, worker)) continue;
    const auto head = queue.head_of(index);
    // Not dispatchable this moment, but about to be: before everybody.
    const Rank rank = head ? Rank{head->first, head->second} : Rank{};
    if (!first || rank < *first) first = rank;
  }
  return first;
}

bool Brain::State::has_serving_worker(const Lane& l) const {
  const Model& m = model(l.model);
  const auto& workers = registry.workers_of(m.facts.digest);
  return std::any_of(workers.begin(), workers.end(), [&](const Worker* w) {
    return accepts(l, *w) && serves(*w, m.facts) && keeps_replica_set(l, *w);
  });
}

// Jobs of its model that go first, wherever they may run: an estimate, so lanes that never meet are not told apart.
std::int64_t Brain::State::ahead_of(const Job& job) const {
  const queue::Entry* entry = queue.find(job.arrival);
  std::int64_t ahead = 0;
  for (const LaneIndex index : model(job.model).lanes) {
    // A job not queued yet goes behind all others of its model.
    ahead += entry ? queue.ahead_in(index, entry->priority, entry->arrival)
                   : static_cast<std::int64_t>(queue.count_of(index));
  }
  return ahead;
}

std::int64_t Brain::State::ahead_in_lane(const Job& job) const {
  const queue::Entry* entry = queue.find(job.arrival);
  return entry ? queue.ahead_in(job.lane, entry->priority, entry->arrival) : 0;
}

// A wish that no pool can meet is refused at once: nothing falls back silently. An accepted job whose pool goes away later
// waits for it.
std::optional<Error> Brain::State::placement_error(const jobs::JobSpec& spec) const {
  if (scheduling::is_anywhere(spec.placement)) return std::nullopt;
  bool known = false, healthy = false;
  for (const auto& [id, pool] : registry.pools()) {
    for (const auto& place : pool_registry::places_for(pool, spec.model.devices, spec.placement.require_device_mask)) {
      if (scheduling::tier_of(spec.placement, id, place.mask) == Tier::kExcluded) continue;
      known = true;
      healthy |= pool.status == contract::PoolStatus::kHealthy && place.is_healthy();
    }
  }
  if (healthy) return std::nullopt;
  const bool pinned = spec.placement.mode == PlacementMode::kPin;
  const std::string_view reason = pinned                                          ? "pinned_pool_infeasible"
                                  : spec.placement.mode == PlacementMode::kPrefer ? "no_preferred_feasible"
                                                                                  : "no_pool_feasible";
  if (known || pools_expected() || registry.pools().empty()) {
    return Error{ErrorCode::kPoolUnready,
                 "No pool that the placement accepts answers now. Try again, or accept other pools.",
                 {}}
        .with("reason", std::string(reason))
        .with("retry_after_ms", kAskQueueAgainMs);
  }
  return Error{ErrorCode::kInvalidParams,
               pinned ? "No pool has the id of placement.pin_pool_id and the device asked for; `llorch ls` and GET "
                        "/v2/pools list what there is."
                      : "No registered pool and device meet the placement; `llorch ls` and GET /v2/pools list what "
                        "there is.",
               {}}
      .with("field", pinned ? "placement.pin_pool_id" : "placement")
      .with("reason", std::string(reason));
}

}  // namespace llorch::orchestratord::brain
