// JobGroups: jobs of one model that may run at the same places (ORCH-3903), and count against the same quota.
#include <fmt/core.h>

#include <algorithm>

#include "base/assert.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

using base::Error;
using base::ErrorCode;
using placement::Rank;
using placement::Tier;
using wire::PlacementMode;

namespace {
constexpr std::int64_t kAskQueueAgainMs = 1000;
}

GroupIndex Core::State::intern_group(ModelIndex model_index, const jobs::JobSpec& spec, const std::string& version) {
  const bool counted = quotas.concurrent_max(spec.tenant_id) > 0;
  const auto [it, is_new] =
      group_of.try_emplace(GroupKey{model_index, spec.placement, counted ? spec.tenant_id : std::string(), version});
  if (!is_new) return it->second;
  if (free_groups.empty()) {
    it->second = GroupIndex{groups.size()};
    groups.emplace_back();
  } else {
    it->second = free_groups.back();
    free_groups.pop_back();
  }
  JobGroup& l = group(it->second) = JobGroup{it->first};
  l.anywhere = placement::is_anywhere(l.placement);
  model(model_index).groups.push_back(it->second);
  return it->second;
}

// Their numbers are used again: clients may think of any number of placements. REQUIRES: a pass just ended, so that
// nothing refers to a group without jobs but the starts made for it.
void Core::State::release_groups() {
  for (const GroupIndex index : emptied_groups) {
    const JobGroup& l = group(index);
    if (l.jobs > 0 || !group_of.contains(l)) continue;
    ASSERT(!l.wait && queue.count_of(index) == 0, "group {}", index.value);
    Model& m = model(l.model);
    for (const auto* workers : {&registry.workers_of(m.facts.digest), &registry.loading_of(m.facts.model_ref)}) {
      for (Worker* w : *workers) {
        if (w->started_for == index.value) w->started_for.reset();
      }
    }
    std::erase(m.groups, index);
    group_of.erase(GroupKey(l));
    free_groups.push_back(index);
  }
  emptied_groups.clear();
}

void Core::State::leave_group(Job& job) {
  if (--group(job.group).jobs == 0) emptied_groups.push_back(job.group);
}

Tier Core::State::tier(const JobGroup& l, const base::PoolId& pool, const std::string& gpu_id) {
  return l.anywhere ? Tier::kPreferred : placement::tier_of(l.placement, pool, gpu_id);
}

bool Core::State::accepts(const JobGroup& l, const Worker& worker) {
  return tier(l, worker.pool_id, worker.info.gpu_id) != Tier::kExcluded;
}

// The first job that waits for a worker of the model and would take this one.
std::optional<Rank> Core::State::first_waiting_for(const Worker& worker, const Model& m) const {
  std::optional<Rank> first;
  for (const GroupIndex index : m.groups) {
    const JobGroup& l = group(index);
    if (queue.count_of(index) == 0 || !may_run(l) || !accepts(l, worker) || !keeps_replica_set(l, worker)) continue;
    const auto head = queue.head_of(index);
    // Not dispatchable this moment, but about to be: before everybody.
    const Rank rank = head ? Rank{head->first, head->second} : Rank{};
    if (!first || rank < *first) first = rank;
  }
  return first;
}

bool Core::State::has_serving_worker(const JobGroup& l) const {
  const Model& m = model(l.model);
  const auto& workers = registry.workers_of(m.facts.digest);
  return std::any_of(workers.begin(), workers.end(), [&](const Worker* w) {
    return accepts(l, *w) && serves(*w, m.facts) && keeps_replica_set(l, *w);
  });
}

// Jobs of its model that go first, wherever they may run: an estimate, so groups that never meet are not told apart.
std::int64_t Core::State::ahead_of(const Job& job) const {
  const queue::Entry* entry = queue.find(job.arrival);
  std::int64_t ahead = 0;
  for (const GroupIndex index : model(job.model).groups) {
    // A job not queued yet goes behind all others of its model.
    ahead += entry ? queue.ahead_in(index, entry->priority, entry->arrival)
                   : static_cast<std::int64_t>(queue.count_of(index));
  }
  return ahead;
}

std::int64_t Core::State::ahead_in_group(const Job& job) const {
  const queue::Entry* entry = queue.find(job.arrival);
  return entry ? queue.ahead_in(job.group, entry->priority, entry->arrival) : 0;
}

// A wish that no pool can meet is refused at once: nothing falls back silently. An accepted job whose pool goes away later
// waits for it.
std::optional<Error> Core::State::placement_error(const jobs::JobSpec& spec) const {
  if (placement::is_anywhere(spec.placement)) return std::nullopt;
  bool known = false, healthy = false;
  for (const auto& [id, pool] : registry.pools()) {
    for (const auto& place : pools::places_for(pool, spec.model.devices, spec.placement.require_device_mask)) {
      if (placement::tier_of(spec.placement, id, place.mask) == Tier::kExcluded) continue;
      known = true;
      healthy |= pool.status == wire::PoolStatus::kHealthy && place.is_healthy();
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

}  // namespace llorch::orchestratord::core
