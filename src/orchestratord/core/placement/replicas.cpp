// Replica sets: the workers of a model on devices of one class have one version (OC-CORE-1031). The oldest that serves says
// which; a worker of another version gets no job of the model before the last of the others has gone. A job that was begun
// waits for a worker of the version whose bytes its client holds, as long as there is any chance of one; the stream compares
// whatever it is run on.
#include <algorithm>

#include "orchestratord/core/placement/requirements.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

bool ReplicaRule::allows(const std::string& device_class, const std::string& version) const {
  if (only) return version == *only;
  const auto it =
      std::find_if(in_use.begin(), in_use.end(), [&](const Worker* w) { return w->info.device_class == device_class; });
  return it == in_use.end() || (*it)->version == version;
}

bool ReplicaRule::allows(const pools::Pool& pool, const std::string& mask) const {
  if (const auto device = pool.devices.find(mask); device != pool.devices.end()) return allows(device->second);
  const auto known = pool.mask_versions.find(mask);
  return known == pool.mask_versions.end() ? only == nullptr
                                           : allows(known->second.device_class, known->second.version);
}

bool Replicas::useful(const Worker& worker, const wire::ModelFacts& facts) const {
  const placement::WorkerPolicy policy{.context_tokens = config_.worker_context_tokens,
                                       .image_tokens_max = config_.worker_image_tokens_max,
                                       .kv_dtype = config_.kv_dtype};
  return placement::unmet(placement::requirements_of(facts, policy), worker.info) == placement::Unmet::kNone;
}

bool Replicas::serves(const Worker& worker, const wire::ModelFacts& facts) const {
  return worker.takes_work() && !worker.info.uri.empty() && useful(worker, facts) &&
         s_.desired.pool_open(worker.pool_id);
}

// A worker has it, or a place that its jobs accept had it last and can hold the model.
bool Replicas::version_is_around(const JobGroup& l) const {
  if (l.version.empty()) return false;
  const wire::ModelFacts& facts = l.facts;
  const auto& workers = registry_.workers_of(facts.digest);
  const auto has_it = [&](const Worker* w) { return w->version == l.version && accepts(l, *w) && serves(*w, facts); };
  if (std::any_of(workers.begin(), workers.end(), has_it)) return true;
  for (const auto& [pool_id, pool] : registry_.pools()) {
    if (!s_.desired.pool_open(pool_id)) continue;
    for (const auto& place : pools::places_for(pool, facts.devices, l.placement.require_device_mask)) {
      const std::string* version = place.version();
      const bool may_come =
          version && *version == l.version && place.is_healthy() && place.potential_bytes() >= facts.memory_bytes &&
          tier(l, pool_id, place.mask) != placement::Tier::kExcluded && !l.start_round.failed_on(pool_id, place.mask);
      if (may_come) return true;
    }
  }
  return false;
}

ReplicaRule Replicas::replica_rule(const Model& m, const JobGroup* l) const {
  ReplicaRule rule;
  if (l && version_is_around(*l)) {
    rule.only = &l->version;
    return rule;
  }
  for (const Worker* w : registry_.workers_of(m.facts.digest)) {
    if ((l && !accepts(*l, *w)) || !serves(*w, m.facts)) continue;
    const auto same_class = [&](const Worker* other) { return other->info.device_class == w->info.device_class; };
    const auto it = std::find_if(rule.in_use.begin(), rule.in_use.end(), same_class);
    if (it == rule.in_use.end()) {
      rule.in_use.push_back(w);
    } else if (w->ready_ms < (*it)->ready_ms) {
      *it = w;
    }
  }
  return rule;
}

bool Replicas::keeps_replica_set(const JobGroup& l, const Worker& worker) const {
  const Model& m = model(l.model);
  if (l.version.empty() && registry_.versions_count(m.facts.digest) <= 1) return true;
  return replica_rule(m, &l).allows(worker);
}

void Replicas::tell_other_version(const Worker& worker, const Model& m) const {
  if (registry_.versions_count(m.facts.digest) <= 1) return;
  const ReplicaRule rule = replica_rule(m, nullptr);
  if (rule.allows(worker)) return;
  log_limited(base::LogLevel::kWarn, "worker.version_mismatch", nullptr,
              "A worker of another version than its model's others gets no job until they have gone.",
              {{"worker_id", worker.id},
               {"pool_id", worker.pool_id},
               {"code", base::info(base::ErrorCode::kVersionMismatch).name},
               {"model_digest", m.facts.digest},
               {"engine_version", worker.info.engine_build},
               {"worker_version", worker.version}});
}

std::optional<placement::Rank> Replicas::first_waiting_for(const Worker& worker, const Model& m) const {
  std::optional<placement::Rank> first;
  for (const GroupIndex index : m.groups.get()) {
    const JobGroup& l = group(index);
    if (queue_.count_of(index) == 0 || !groups_.may_run(l) || !accepts(l, worker) || !keeps_replica_set(l, worker))
      continue;
    const auto head = queue_.head_of(index);
    // Not dispatchable this moment, but about to be: before everybody.
    const placement::Rank rank = head ? placement::Rank{head->first, head->second} : placement::Rank{};
    if (!first || rank < *first) first = rank;
  }
  return first;
}

bool Replicas::has_serving_worker(const JobGroup& l) const {
  const auto& workers = registry_.workers_of(l.facts.digest);
  return std::any_of(workers.begin(), workers.end(), [&](const Worker* w) {
    return accepts(l, *w) && serves(*w, l.facts) && keeps_replica_set(l, *w);
  });
}

}  // namespace llorch::orchestratord::core
