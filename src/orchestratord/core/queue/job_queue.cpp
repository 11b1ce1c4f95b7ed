#include "orchestratord/core/queue/job_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "base/assert.h"

namespace llorch::orchestratord::core::queue {

using config::QueuePolicy;

std::string_view policy_label(QueuePolicy policy) {
  switch (policy) {
    case QueuePolicy::kReject: return "reject";
    case QueuePolicy::kDropLru: return "drop-lru";
    case QueuePolicy::kShedLowPriority: return "shed-low-priority";
    case QueuePolicy::kQueue: return "queue";
  }
  return "reject";
}

JobQueue::JobQueue(config::QueueConfig config, const std::vector<config::TenantConfig>& tenants) : config_(config) {
  set_tenants(tenants, {});
}

void JobQueue::set_tenants(const std::vector<config::TenantConfig>& tenants,
                           const std::function<std::string_view(Arrival)>& tenant_of) {
  tenants_ = std::vector<Tenant>(1);
  number_of_.clear();
  for (const config::TenantConfig& tenant : tenants) {
    number_of_.emplace(tenant.id, tenants_.size());
    tenants_.push_back({.id = tenant.id});
  }
  share_ = std::min(config_.capacity,
                    std::max<std::int64_t>(1, config_.capacity / static_cast<std::int64_t>(tenants_.size())));
  for (Slots& slots : slots_) {
    for (auto& [arrival, slot] : slots) {
      slot.entry.tenant = tenant_number(tenant_of(arrival));
      ++tenants_[slot.entry.tenant].count;
      count_displaceable(slot);
    }
  }
}

std::size_t JobQueue::tenant_number(std::string_view tenant_id) const {
  const auto it = number_of_.find(tenant_id);
  return it == number_of_.end() ? 0 : it->second;
}

JobQueue::Slot* JobQueue::slot(Arrival arrival) {
  for (Slots& slots : slots_) {
    if (const auto it = slots.find(arrival); it != slots.end()) return &it->second;
  }
  return nullptr;
}
const JobQueue::Slot* JobQueue::slot(Arrival arrival) const { return const_cast<JobQueue*>(this)->slot(arrival); }

const Entry* JobQueue::find(Arrival arrival) const {
  const Slot* s = slot(arrival);
  return s ? &s->entry : nullptr;
}

void JobQueue::refresh_head(Priority priority, GroupIndex group_index) {
  JobGroup& group = groups_[group_index.value][index(priority)];
  const bool dispatchable = !group.entries.empty() && group.entries.begin()->second;
  const std::optional<Arrival> want = dispatchable ? std::optional(group.entries.begin()->first) : std::nullopt;
  if (want == group.offered) return;
  auto& heads = heads_[index(priority)];
  if (group.offered) heads.erase(*group.offered);
  if (want) heads.emplace(*want, group_index);
  group.offered = want;
}

void JobQueue::count_displaceable(const Slot& s) {
  if (s.phase != Phase::kReady || !s.entry.displaceable) return;
  auto& displaceable = tenants_[s.entry.tenant].displaceable[index(s.entry.priority)];
  displaceable.emplace_hint(displaceable.end(), s.entry.arrival);
}

void JobQueue::enter_group(const Slot& s) {
  auto& entries = groups_[s.entry.group.value][index(s.entry.priority)].entries;
  const auto it = entries.emplace_hint(entries.end(), s.entry.arrival, false);
  it->second = s.phase == Phase::kReady;
  count_displaceable(s);
  refresh_head(s.entry.priority, s.entry.group);
}

void JobQueue::leave_group(const Entry& entry) {
  groups_[entry.group.value][index(entry.priority)].entries.erase(entry.arrival);
  tenants_[entry.tenant].displaceable[index(entry.priority)].erase(entry.arrival);
  refresh_head(entry.priority, entry.group);
}

void JobQueue::insert(const Slot& s) {
  const std::size_t group = s.entry.group.value;
  if (group >= groups_.size()) {
    groups_.resize(group + 1);
    counts_.resize(group + 1);
  }
  Slots& slots = at(s.entry.priority);
  slots.emplace_hint(slots.end(), s.entry.arrival, s);
  ++counts_[group];
  ++tenants_[s.entry.tenant].count;
  if (s.phase == Phase::kDelayed) {
    delayed_.emplace(s.until_ms, s.entry.arrival);
  } else {
    enter_group(s);
  }
}

std::optional<Arrival> JobQueue::victim_for(Priority newcomer, std::size_t tenant) const {
  const Tenant* from = &tenants_[tenant];
  if (!has_share(tenant)) {
    from = &*std::ranges::max_element(tenants_, {}, &Tenant::count);
    if (from->count <= share_) return std::nullopt;
  }
  const auto& batch = from->displaceable[index(Priority::kBatch)];
  const auto& interactive = from->displaceable[index(Priority::kInteractive)];
  if (config_.policy == QueuePolicy::kDropLru) {
    if (!batch.empty()) return *batch.begin();
    if (newcomer == Priority::kInteractive && !interactive.empty()) return *interactive.begin();
  }
  if (config_.policy == QueuePolicy::kShedLowPriority && newcomer == Priority::kInteractive && !batch.empty()) {
    return *batch.rbegin();
  }
  return std::nullopt;
}

bool JobQueue::refuses(Priority newcomer, std::size_t tenant) const {
  return is_full() && has_share(tenant) && !victim_for(newcomer, tenant);
}

Verdict JobQueue::reserve(const Entry& entry) {
  Verdict verdict;
  if (is_full()) {
    verdict.displaced = victim_for(entry.priority, entry.tenant);
    if (verdict.displaced) {
      remove(*verdict.displaced);
    } else if (has_share(entry.tenant)) {
      return verdict;
    }
  }
  verdict.accepted = true;
  insert(Slot{.entry = entry, .phase = Phase::kReserved});
  return verdict;
}

void JobQueue::make_ready(Arrival arrival) {
  Slot* s = slot(arrival);
  ASSERT(s && s->phase == Phase::kReserved, "arrival {}", arrival.value);
  s->phase = Phase::kReady;
  enter_group(*s);
}

void JobQueue::put_back(const Entry& entry, std::int64_t ready_at_ms, std::int64_t now_ms) {
  ASSERT(!slot(entry.arrival), "arrival {} is queued already", entry.arrival.value);
  const bool now = ready_at_ms <= now_ms;
  insert(Slot{.entry = entry, .phase = now ? Phase::kReady : Phase::kDelayed, .until_ms = ready_at_ms});
}

bool JobQueue::remove(Arrival arrival) {
  const Slot* s = slot(arrival);
  if (!s) return false;
  const Entry entry = s->entry;
  if (s->phase == Phase::kDelayed) {
    delayed_.erase({s->until_ms, arrival});
  } else {
    leave_group(entry);
  }
  at(entry.priority).erase(arrival);
  --counts_[entry.group.value];
  --tenants_[entry.tenant].count;
  return true;
}

void JobQueue::regroup(Arrival arrival, GroupIndex group) {
  const Slot* s = slot(arrival);
  ASSERT(s, "arrival {}", arrival.value);
  Slot moved = *s;
  remove(arrival);
  moved.entry.group = group;
  insert(moved);
}

bool JobQueue::advance(std::int64_t now_ms) {
  bool changed = false;
  while (!delayed_.empty() && delayed_.begin()->first <= now_ms) {
    Slot* s = slot(delayed_.begin()->second);
    delayed_.erase(delayed_.begin());
    s->phase = Phase::kReady;
    enter_group(*s);
    changed = true;
  }
  if (config_.batch_promotion_ms <= 0) return changed;
  Slots& batch = at(Priority::kBatch);
  while (!batch.empty() && batch.begin()->second.entry.queued_ms + config_.batch_promotion_ms <= now_ms) {
    Slot promoted = batch.begin()->second;
    remove(promoted.entry.arrival);
    promoted.entry.priority = Priority::kInteractive;
    insert(promoted);
    changed = true;
  }
  return changed;
}

std::int64_t JobQueue::next_due_ms() const {
  std::int64_t due = std::numeric_limits<std::int64_t>::max();
  if (!delayed_.empty()) due = delayed_.begin()->first;
  const Slots& batch = at(Priority::kBatch);
  if (config_.batch_promotion_ms > 0 && !batch.empty()) {
    due = std::min(due, batch.begin()->second.entry.queued_ms + config_.batch_promotion_ms);
  }
  return due;
}

std::optional<JobQueue::Head> JobQueue::next_head(Priority priority, std::optional<Arrival> after) const {
  const auto& heads = heads_[index(priority)];
  const auto it = after ? heads.upper_bound(*after) : heads.begin();
  if (it == heads.end()) return std::nullopt;
  return Head{it->first, it->second};
}

std::optional<std::pair<Priority, Arrival>> JobQueue::head_of(GroupIndex group) const {
  if (group.value >= groups_.size()) return std::nullopt;
  for (const Priority p : {Priority::kInteractive, Priority::kBatch}) {
    if (const auto& offered = groups_[group.value][index(p)].offered) return std::pair(p, *offered);
  }
  return std::nullopt;
}

std::array<std::optional<Arrival>, 2> JobQueue::oldest_of(GroupIndex group) const {
  std::array<std::optional<Arrival>, 2> out;
  if (group.value >= groups_.size()) return out;
  for (std::size_t p = 0; p < out.size(); ++p) {
    const auto& entries = groups_[group.value][p].entries;
    if (!entries.empty()) out[p] = entries.begin()->first;
  }
  return out;
}

bool JobQueue::is_delayed(Arrival arrival) const {
  const Slot* s = slot(arrival);
  return s && s->phase == Phase::kDelayed;
}

std::optional<std::int64_t> JobQueue::delayed_until_ms(Arrival arrival) const {
  const Slot* s = slot(arrival);
  return s && s->phase == Phase::kDelayed ? std::optional(s->until_ms) : std::nullopt;
}

std::int64_t JobQueue::position(Arrival arrival) const {
  const Slot* s = slot(arrival);
  ASSERT(s, "arrival {}", arrival.value);
  const Slots& slots = at(s->entry.priority);
  // The end is near for a job just admitted, the begin for one about to run; neither walks far.
  const auto it = slots.find(arrival);
  const bool late = arrival.value - slots.begin()->first.value > slots.rbegin()->first.value - arrival.value;
  const std::int64_t before = late ? static_cast<std::int64_t>(slots.size()) - std::distance(it, slots.end())
                                   : std::distance(slots.begin(), it);
  return before + (s->entry.priority == Priority::kBatch ? depth(Priority::kInteractive) : 0);
}

std::int64_t JobQueue::ahead_in(GroupIndex group, Priority priority, Arrival arrival) const {
  if (group.value >= groups_.size()) return 0;
  const auto& groups = groups_[group.value];
  const auto& own = groups[index(priority)].entries;
  const bool last = own.empty() || own.rbegin()->first <= arrival;  // a job just admitted
  std::int64_t ahead = last ? static_cast<std::int64_t>(own.size() - own.count(arrival))
                            : std::distance(own.begin(), own.lower_bound(arrival));
  if (priority == Priority::kBatch) {
    ahead += static_cast<std::int64_t>(groups[index(Priority::kInteractive)].entries.size());
  }
  return ahead;
}

std::vector<Arrival> JobQueue::waiting_in(GroupIndex group) const {
  std::vector<Arrival> out;
  for (const Slots& slots : slots_) {
    for (const auto& [arrival, s] : slots) {
      if (s.entry.group == group && s.phase != Phase::kReserved) out.push_back(arrival);
    }
  }
  return out;
}

std::size_t JobQueue::count_of(GroupIndex group) const {
  return group.value < counts_.size() ? counts_[group.value] : 0;
}

std::vector<Arrival> JobQueue::snapshot(Priority priority) const {
  std::vector<Arrival> out;
  out.reserve(at(priority).size());
  for (const auto& [arrival, s] : at(priority)) out.push_back(arrival);
  return out;
}

}  // namespace llorch::orchestratord::core::queue
