// JobGroups: jobs of one model that may run at the same places (ORCH-3903), and count against the same quota.
#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "orchestratord/core/queue/job_groups.h"

namespace llorch::orchestratord::core {

using placement::Tier;
using placement::Wait;
using placement::WaitCode;

std::optional<placement::Speed> Model::speed_on(const pools::Worker& worker) const {
  const auto it = performance.find({worker.pool_id, worker.info.gpu_id});
  if (it == performance.end()) return std::nullopt;
  const auto first = it->second.first_token_ms.get(), token = it->second.us_per_token.get();
  if (!first || !token) return std::nullopt;
  return placement::Speed{.first_token_ms = *first, .us_per_token = *token};
}

Model* Models::find(const std::string& digest) {
  const auto it = index_of_.find(digest);
  return it == index_of_.end() ? nullptr : &at(it->second);
}

ModelIndex Models::intern(const wire::ModelFacts& facts) {
  const auto [it, is_new] = index_of_.try_emplace(facts.digest, ModelIndex{models_.size()});
  if (!is_new) return it->second;
  Model& m = models_.emplace_back();
  m.index = it->second;
  m.facts = facts;
  return it->second;
}

ModelIndex Models::renew(const wire::ModelFacts& facts) {
  const ModelIndex index = intern(facts);
  at(index).facts = facts;
  return index;
}

GroupIndex JobGroups::intern(ModelIndex model, const jobs::JobSpec& spec, const std::string& version) {
  const bool counted = ledger_.concurrent_max(spec.tenant_id) > 0;
  const auto [it, is_new] = index_of_.try_emplace(GroupKey{.model = model,
                                                           .placement = spec.placement,
                                                           .tenant_id = counted ? spec.tenant_id : std::string(),
                                                           .version = version,
                                                           .model_ref = spec.model.model_ref,
                                                           .devices = spec.model.devices,
                                                           .memory_bytes = spec.model.memory_bytes});
  if (!is_new) return it->second;
  if (free_.empty()) {
    it->second = GroupIndex{groups_.size()};
    groups_.emplace_back();
  } else {
    it->second = free_.back();
    free_.pop_back();
  }
  JobGroup& l = at(it->second) = JobGroup{it->first};
  l.facts = spec.model;
  l.anywhere = placement::is_anywhere(l.placement);
  models_.at(model).groups.value_.push_back(it->second);
  return it->second;
}

void JobGroups::enter(Job& job, GroupIndex index) {
  job.group = index;
  job.model = at(index).model;
  ++at(index).jobs.value_;
  at(index).facts = job.spec.model;
  Model& m = models_.at(job.model);
  const wire::ModelFacts before = std::exchange(m.facts, job.spec.model);  // but for what is a reference's own
  m.facts.model_ref = before.model_ref;
  m.facts.devices = before.devices;
  m.facts.memory_bytes = before.memory_bytes;
}

void JobGroups::leave(const Job& job) {
  if (--at(job.group).jobs.value_ == 0) emptied_.push_back(job.group);
}

void JobGroups::regroup(Job& job, GroupIndex index) {
  leave(job);
  JobGroup& l = at(index);
  if (l.jobs == 0) l.facts = job.spec.model;  // else a newer job's may stand there, as they do in the model
  ++l.jobs.value_;
  job.group = index;
  if (queue_.find(job.arrival)) queue_.regroup(job.arrival, index);
}

void JobGroups::regroup_by_quota(Job& job) {
  const JobGroup& before = at(job.group);
  const bool counted = ledger_.concurrent_max(job.spec.tenant_id) > 0;
  if (before.tenant_id == (counted ? job.spec.tenant_id : std::string())) return;
  jobs::JobSpec spec = job.spec;
  spec.placement = before.placement;  // with the pools that have refused it
  regroup(job, intern(job.model, spec, before.version));
}

void JobGroups::not_entered(GroupIndex index) {
  if (at(index).jobs == 0) emptied_.push_back(index);
}

void JobGroups::put_back(const Job& job, std::int64_t ready_at_ms, bool displaceable) {
  queue_.put_back({job.arrival, job.group, job.spec.priority, job.submitted_ms, displaceable,
                   queue_.tenant_number(job.spec.tenant_id)},
                  ready_at_ms, now_.mono_ms);
}

void JobGroups::set_wait(GroupIndex index, Wait wait) {
  JobGroup& l = at(index);
  if (!l.wait) waiting_.push_back(index);
  l.wait = wait;
  if (wait.code == WaitCode::kMemory && !l.memory_wait_since_ms) {
    l.memory_wait_since_ms = now_.mono_ms;
    recheck_all_at(now_.mono_ms + config_.memory_patience_ms);
  }
}

std::vector<GroupIndex> JobGroups::forget_waits(bool every_group, std::vector<GroupIndex> named) {
  if (every_group) {
    named = std::exchange(waiting_, {});
  } else {
    std::erase_if(waiting_,
                  [&](GroupIndex index) { return std::find(named.begin(), named.end(), index) != named.end(); });
  }
  for (const GroupIndex index : named) at(index).wait = std::nullopt;
  return named;
}

// And for no quota: a job of the same tenant that goes first may leave it no place.
bool JobGroups::all_wait_for_slots() const {
  return allowed_.empty() && std::all_of(waiting_.begin(), waiting_.end(), [&](GroupIndex index) {
           const JobGroup& l = at(index);
           return l.wait->code == WaitCode::kSlot && l.tenant_id.empty();
         });
}

void JobGroups::allow_worker(GroupIndex index) {
  at(index).may_add_worker = true;
  allowed_.push_back(index);
  recheck_.all();
}

void JobGroups::drop_advice() {
  for (JobGroup& l : groups_) l.advice.reset();
}

// The numbers of groups without jobs are used again: clients may think of any number of placements.
void JobGroups::pass_over() {
  for (const GroupIndex index : std::exchange(allowed_, {})) at(index).may_add_worker = false;
  for (const GroupIndex index : emptied_) drop_if_empty(index);
  emptied_.clear();
}

void JobGroups::drop_if_empty(GroupIndex index) {
  const JobGroup& l = at(index);
  if (l.jobs > 0 || !index_of_.contains(l)) return;
  ASSERT(!l.wait && queue_.count_of(index) == 0, "group {}", index.value);
  Model& m = models_.at(l.model);
  for (const auto* workers : {&registry_.workers_of(l.facts.digest), &registry_.loading_of(l.facts.model_ref)}) {
    for (Worker* w : *workers) {
      if (w->started_for == index.value) w->started_for.reset();
    }
  }
  std::erase(m.groups.value_, index);
  index_of_.erase(GroupKey(l));
  free_.push_back(index);
}

std::int64_t JobGroups::ahead_of(const Job& job) const {
  const queue::Entry* entry = queue_.find(job.arrival);
  std::int64_t ahead = 0;
  for (const GroupIndex index : models_.at(job.model).groups.get()) {
    // A job not queued yet goes behind all others of its model.
    ahead += entry ? queue_.ahead_in(index, entry->priority, entry->arrival)
                   : static_cast<std::int64_t>(queue_.count_of(index));
  }
  return ahead;
}

std::int64_t JobGroups::ahead_in_group(const Job& job) const {
  const queue::Entry* entry = queue_.find(job.arrival);
  return entry ? queue_.ahead_in(job.group, entry->priority, entry->arrival) : 0;
}

void JobGroups::verify(const Jobs& jobs) const {
  std::int64_t in_queue = 0;
  std::map<GroupIndex, std::int64_t> jobs_of;
  std::vector<std::int64_t> of_tenant(queue_.tenants_count());
  for (const auto& [arrival, job] : jobs.all()) {
    const bool waits = job.status == JobStatus::kQueued;
    ASSERT((queue_.find(arrival) != nullptr) == waits, "job {}", job.spec.job_id.value);
    in_queue += waits;
    of_tenant[queue_.tenant_number(job.spec.tenant_id)] += waits;
    ++jobs_of[job.group];
    ASSERT(job.model == at(job.group).model, "job {}", job.spec.job_id.value);
  }
  ASSERT(queue_.depth() == in_queue, "{} queued, {} say so", queue_.depth(), in_queue);
  for (std::size_t t = 0; t < queue_.tenants_count(); ++t) {
    ASSERT(queue_.count_of_tenant(t) == of_tenant[t], "tenant {}: {} queued, {} say so", queue_.tenant_id(t),
           queue_.count_of_tenant(t), of_tenant[t]);
  }
  std::size_t waiting = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    ASSERT(groups_[i].jobs.get() == jobs_of[GroupIndex{i}], "group {}: {} jobs, {} say so", i, groups_[i].jobs.get(),
           jobs_of[GroupIndex{i}]);
    waiting += bool{groups_[i].wait};
  }
  ASSERT(waiting == waiting_.size(), "{} groups wait, {} are listed", waiting, waiting_.size());
}

placement::Tier tier(const JobGroup& l, const base::PoolId& pool, const std::string& gpu_id) {
  return l.anywhere ? Tier::kPreferred : placement::tier_of(l.placement, pool, gpu_id);
}

bool accepts(const JobGroup& l, const Worker& worker) {
  return tier(l, worker.pool_id, worker.info.gpu_id) != Tier::kExcluded;
}

std::span<const std::string> refused_by(const JobGroup& l, const jobs::JobSpec& spec) {
  return std::span(l.placement.avoid_pools).subspan(spec.placement.avoid_pools.size());
}

}  // namespace llorch::orchestratord::core
