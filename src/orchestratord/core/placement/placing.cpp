// The scheduling pass: the first waiting job of every group, in dispatch order, until nothing more can be done now.

#include <algorithm>
#include <utility>

#include "orchestratord/core/placement/pass_scratch.h"

namespace llorch::orchestratord::core {

using config::PlacementAlgorithm;
using placement::Decision;
using placement::DeviceChoice;
using placement::Evict;
using placement::Infeasible;
using placement::Reserve;
using placement::StartOn;
using placement::Tier;
using placement::UseWorker;
using placement::Wait;
using placement::WaitCode;
using pools::Pool;

namespace {
// A place may name the CPU reference device several times.
std::vector<const pools::Device*> distinct(const std::vector<const pools::Device*>& by_rank) {
  std::vector<const pools::Device*> devices;
  for (const auto* device : by_rank) {
    if (std::ranges::find(devices, device) == devices.end()) devices.push_back(device);
  }
  return devices;
}
}  // namespace

void Scheduler::schedule() {
  // A decision may free what another one waits for: failing a model's jobs makes its idle worker evictable.
  while (recheck_.is_due()) {
    const bool every_group = recheck_.is_for_all() || config_.decide_every_group || !only_slots_matter();
    std::vector<GroupIndex> named = recheck_.take();
    if (env_.draining()) return;
    const std::vector<GroupIndex> before = groups_.forget_waits(every_group, std::move(named));
    s_.attempts.regroup_refused();
    PassScratch scratch;
    schedule_class(Priority::kInteractive, scratch);
    schedule_class(Priority::kBatch, scratch);
    for (const GroupIndex index : before) {
      JobGroup& l = group(index);
      if (!l.wait || l.wait->code != WaitCode::kMemory) l.memory_wait_since_ms.reset();
    }
    s_.workers.give_up_reservations();
    s_.workers.stop_reserved();
    s_.workers.stop_retiring();
    s_.desired.empty_pools();
    s_.workers.unload_idle();
    s_.desired.advance_controls();
    groups_.pass_over();
  }
}

// Then a group's wait hangs on workers and jobs of its own model and on what has all groups rechecked, and on nothing that
// the groups of other models do: they evict nobody and reserve nothing for themselves.
bool Scheduler::only_slots_matter() const {
  return !s_.workers.holds_any() && s_.desired.all_open() && groups_.all_wait_for_slots();
}

void Scheduler::schedule_class(Priority priority, PassScratch& scratch) {
  std::optional<Arrival> after;
  while (const auto head = queue_.next_head(priority, after)) {
    after = head->arrival;
    if (!group(head->group).wait) place(head->group, head->arrival, priority, scratch);
  }
}

void Scheduler::place(GroupIndex group_index, Arrival arrival, Priority priority, PassScratch& scratch) {
  Job& job = jobs_.at(arrival);
  const JobGroup& l = group(group_index);
  if (config_.record) record(l, job, priority, scratch);
  const placement::PlacementInput input = input_for(l, job, priority, scratch);
  placement::DecisionLog how;
  const Decision decision = placement::decide(
      input, [&] { return devices_for(l, scratch); }, how);
  log_decision(job, decision, how, scratch);
  if (!std::holds_alternative<Wait>(decision)) scratch.devices_valid = false;
  stage(job, decision, scratch);
  apply(decision, job, scratch);
}

placement::PlacementInput Scheduler::input_for(const JobGroup& l, const Job& job, Priority priority,
                                               PassScratch& scratch) {
  const Model& m = model(l.model);
  placement::PlacementInput input{
      .rank = {priority, job.arrival},
      .model = l.model,
      .memory_bytes = l.facts.memory_bytes,
      .algorithm = config_.scheduling.algorithm,
      .tokens_expected = std::min(m.tokens_out.get().value_or(job.spec.max_tokens), job.spec.max_tokens),
      .eviction = config_.eviction.worker_policy,
      .quota_reached = !groups_.may_run(l),
      .start_backing_off = m.starts.backing_off(now_.mono_ms),
      .impatient = l.memory_wait_since_ms && now_.mono_ms - *l.memory_wait_since_ms >= config_.memory_patience_ms,
      .may_add_worker = l.may_add_worker,
      .pools_expected = s_.pools.pools_expected(),
      .workers_per_device = config_.workers_per_gpu};
  const sessions::Session* session = ledger_.session_of(job);
  const auto affine = session ? session->last_worker : std::nullopt;
  collect_workers(l, affine, scratch, input);
  return input;
}

// REQUIRES: `scratch` is that of input_for() of this group.
placement::Devices Scheduler::devices_for(const JobGroup& l, PassScratch& scratch) {
  const std::int64_t devices_count = l.facts.devices;
  const auto all = devices_count > 1 ? collect_masks(l, scratch) : collect_devices(scratch);
  scratch.tiers.clear();
  scratch.failed.clear();
  const placement::StartControl& starts = model(l.model).starts;
  const auto has_other_pool = [&](Workers::When when) {
    return s_.workers.has_other_pool(l, scratch.replicas, std::nullopt, when);
  };
  const bool rules_out = l.start_round.rules_out_any() && has_other_pool(Workers::When::kEver);
  const bool puts_off = starts.puts_off_any(now_.mono_ms) && has_other_pool(Workers::When::kNow);
  const bool any_place = l.anywhere && devices_count == 1 && !scratch.may_exclude() && !rules_out && !puts_off;
  for (std::uint32_t i = 0; i < scratch.places.size(); ++i) {
    const auto& [pool, gpu_id, device] = scratch.places[i];
    if (!any_place) {
      const bool fits = (device ? scratch.replicas.allows(*device) : scratch.replicas.allows(*pool, *gpu_id)) &&
                        !(rules_out && l.start_round.is_ruled_out(pool->id)) &&
                        !(puts_off && starts.is_put_off(pool->id, now_.mono_ms));
      scratch.tiers.push_back(fits ? tier(l, pool->id, *gpu_id) : Tier::kExcluded);
    }
    if (l.start_round.comes_last(pool->id, *gpu_id)) scratch.failed.push_back(i);
  }
  return {.all = all,
          .tiers = scratch.tiers,
          .failed = scratch.failed,
          .too_few = all.empty() && !l.placement.require_device_mask && accepts_a_pool(l)};
}

void Scheduler::collect_workers(const JobGroup& l, const Home& affine, PassScratch& scratch,
                                placement::PlacementInput& input) {
  const Model& m = model(l.model);
  scratch.workers.clear();
  scratch.worker_choices.clear();
  // With one version there is nothing to compare but for devices.
  const bool one_version = l.version.empty() && registry_.versions_count(l.facts.digest) <= 1;
  scratch.replicas = one_version ? ReplicaRule{} : s_.replicas.replica_rule(m, &l);
  const auto loads = [&](const Worker& w) {
    if (w.info.status != wire::WorkerStatus::kStarting || !s_.desired.pool_open(w.pool_id)) return false;
    const Pool& pool = *registry_.find_pool(w.pool_id);
    if (w.is_foreign() && pool.starts_hang) return false;
    // It may only tell once more that the disk stalls: who has another pool does not wait for that.
    const bool is_doubtful = !w.answered && m.starts.is_put_off(w.pool_id, now_.mono_ms);
    if (is_doubtful && s_.workers.has_other_pool(l, scratch.replicas, std::nullopt, Workers::When::kNow)) return false;
    const bool for_it =
        accepts(l, w) && (!pool.devices.contains(w.devices.front()) || scratch.replicas.allows(pool, w.info.gpu_id));
    return for_it || is_in_the_way(l, w);
  };
  for (Worker* w : registry_.workers_of(l.facts.digest)) {
    if (!s_.replicas.serves(*w, l.facts)) continue;
    const Tier t = tier(l, w->pool_id, w->info.gpu_id);
    if (t == Tier::kExcluded) {
      ++input.workers_excluded;
      continue;
    }
    if (one_version && scratch.replicas.in_use.empty()) scratch.replicas.in_use.push_back(w);
    if (!scratch.replicas.allows(*w)) {
      ++input.workers_excluded;
      input.other_version |= w->slots_free() > 0;
      continue;
    }
    input.has_worker = true;
    const auto number = static_cast<std::uint32_t>(scratch.workers.size());
    scratch.workers.push_back(w);
    if (affine && affine->second == w->id) input.affine_worker = number;
    if (m.last_worker && std::tie(w->pool_id, w->id) <= std::tie(m.last_worker->first, m.last_worker->second)) {
      input.last_worker = number;
    }
    placement::WorkerChoice choice{
        .worker = number, .tier = t, .slots_free = w->slots_free(), .active = w->slots_in_use, .doubted = w->doubted()};
    if (choice.slots_free > 0) {
      choice.device_free_bytes = least_free(*w);
      if (input.algorithm == PlacementAlgorithm::kPredictedEnd) choice.speed = m.speed_on(*w);
    }
    scratch.worker_choices.push_back(choice);
  }
  for (const auto* list : {&registry_.loading_of(l.facts.model_ref), &registry_.workers_of(l.facts.digest)}) {
    input.starting |= std::any_of(list->begin(), list->end(), [&](const Worker* w) { return loads(*w); });
  }
  input.workers = scratch.worker_choices;
}

// While a worker loads, its devices load the model into no other one: a place that shares one of them has to wait.
bool Scheduler::is_in_the_way(const JobGroup& l, const Worker& w) const {
  const std::int64_t devices_count = l.facts.devices;
  if (devices_count == 1) return false;
  const auto places =
      pools::places_for(*registry_.find_pool(w.pool_id), devices_count, l.placement.require_device_mask);
  return std::ranges::any_of(places, [&](const pools::Place& place) {
    const auto shared = [&](const auto* device) { return w.is_on(device->info.gpu_id); };
    return tier(l, w.pool_id, place.mask) != Tier::kExcluded && std::ranges::any_of(place.devices, shared);
  });
}

// On the fullest of its devices.
std::int64_t Scheduler::least_free(const Worker& w) const {
  const auto& devices = registry_.find_pool(w.pool_id)->devices;
  std::optional<std::int64_t> least;
  for (const std::string& gpu_id : w.devices) {
    const auto device = devices.find(gpu_id);
    if (device == devices.end()) continue;
    least = std::min(least.value_or(std::numeric_limits<std::int64_t>::max()), device->second.free_bytes());
  }
  return least.value_or(0);
}

std::span<const DeviceChoice> Scheduler::collect_devices(PassScratch& scratch) {
  if (scratch.devices_valid) return scratch.device_choices;
  scratch.devices_valid = true;
  scratch.places.clear();
  scratch.residents.clear();
  scratch.device_choices.clear();
  scratch.version = nullptr;
  scratch.versions_differ = false;
  for (auto& [pool_id, pool] : registry_.pools()) {
    const bool open = s_.desired.pool_open(pool_id);
    for (auto& [gpu_id, device] : pool.devices) {
      DeviceChoice choice{.device = static_cast<std::uint32_t>(scratch.places.size()),
                          .usable = open && device.info.healthy && !device.doubted,
                          .free_bytes = device.free_bytes(),
                          .potential_bytes = device.potential_bytes(),
                          .total_bytes = device.info.vram_total_bytes,
                          .overfull = device.is_overfull(),
                          .reserved = s_.workers.reservation(pool_id, gpu_id)};
      scratch.places.push_back({&pool, &gpu_id, &device});
      if (device.version && scratch.version && *device.version != *scratch.version) scratch.versions_differ = true;
      if (device.version) scratch.version = &*device.version;
      choice.residents.reserve(device.workers.size());
      for (Worker* w : device.workers) {
        choice.residents.push_back(resident(*w, gpu_id, static_cast<std::uint32_t>(scratch.residents.size())));
        scratch.residents.push_back(w);
      }
      scratch.device_choices.push_back(std::move(choice));
    }
  }
  return scratch.device_choices;
}

// The same for a model that several devices share: what it may share is of this group alone.
std::span<const DeviceChoice> Scheduler::collect_masks(const JobGroup& l, PassScratch& scratch) {
  scratch.devices_valid = false;
  scratch.places.clear();
  scratch.residents.clear();
  scratch.device_choices.clear();
  scratch.masks.clear();
  const std::int64_t devices_count = l.facts.devices;
  for (const auto& [pool_id, pool] : registry_.pools()) {
    auto places = pools::places_for(pool, devices_count, l.placement.require_device_mask);
    std::ranges::move(places, std::back_inserter(scratch.masks));
  }
  for (const pools::Place& place : scratch.masks) {
    const Pool& pool = *place.pool;
    DeviceChoice choice{.device = static_cast<std::uint32_t>(scratch.places.size()),
                        .usable = s_.desired.pool_open(pool.id) && place.is_healthy(),
                        .free_bytes = place.free_bytes(),
                        .potential_bytes = place.potential_bytes(),
                        .total_bytes = place.total_bytes()};
    for (const pools::Device* device : distinct(place.devices)) {
      choice.usable = choice.usable && !device->doubted;
      choice.parts.push_back(part_of(l, place, *device, scratch));
      const auto held = s_.workers.reservation(pool.id, device->info.gpu_id);
      if (held && held->model != l.model && (!choice.reserved || held->rank < choice.reserved->rank))
        choice.reserved = held;
    }
    scratch.places.push_back({&pool, &place.mask, nullptr});
    scratch.device_choices.push_back(std::move(choice));
  }
  return scratch.device_choices;
}

bool Scheduler::accepts_a_pool(const JobGroup& l) const {
  return std::ranges::any_of(registry_.pools(), [&](const auto& item) {
    return !item.second.devices.empty() && tier(l, item.first, {}) != Tier::kExcluded;
  });
}

DeviceChoice Scheduler::part_of(const JobGroup& l, const pools::Place& place, const pools::Device& device,
                                PassScratch& scratch) {
  DeviceChoice part{.free_bytes = device.free_bytes(),
                    .potential_bytes = device.potential_bytes(),
                    .total_bytes = device.info.vram_total_bytes,
                    .overfull = device.is_overfull(),
                    .reserved = {},
                    .ranks = std::ranges::count(place.devices, &device)};
  for (Worker* w : device.workers) {
    auto it = std::ranges::find(scratch.residents, w);
    if (it == scratch.residents.end()) it = scratch.residents.insert(it, w);
    part.residents.push_back(
        resident(*w, device.info.gpu_id, static_cast<std::uint32_t>(it - scratch.residents.begin())));
    part.residents.back().elsewhere = !accepts(l, *w);
  }
  return part;
}

placement::Resident Scheduler::resident(const Worker& w, const std::string& gpu_id, std::uint32_t number) {
  const bool ready = w.info.status == wire::WorkerStatus::kReady;
  const bool starting = w.info.status == wire::WorkerStatus::kStarting;
  placement::Resident t{.worker = number,
                        .bytes = w.bytes_on(gpu_id),
                        .last_used_ms = w.last_used_ms,
                        .ready = ready,
                        .leaving = w.reserved_by.has_value() || w.retiring || (!ready && !starting),
                        .idle = w.slots_in_use == 0,
                        .kept = now_.mono_ms < placement::kept_until_ms(w.ready_ms, w.start_took_ms)};
  Model* known = models_.find(w.info.model_digest);
  if (!known) return t;
  t.model = known->index;
  t.frequency = known->frequency.at(now_.mono_ms);
  t.useful = s_.replicas.useful(w, known->facts);
  t.queued = s_.replicas.first_waiting_for(w, *known);
  return t;
}

// For a job that waits until memory is free: where it will probably be.
void Scheduler::stage(const Job& job, const Decision& decision, const PassScratch& scratch) {
  if (!config_.stage_models) return;
  std::optional<std::uint32_t> device;
  if (const auto* evict = std::get_if<Evict>(&decision)) device = evict->device;
  if (const auto* reserve = std::get_if<Reserve>(&decision)) device = reserve->device;
  const auto* wait = std::get_if<Wait>(&decision);
  const wire::ModelFacts& facts = group(job.group).facts;
  if (wait && wait->code == WaitCode::kMemory) {
    for (const DeviceChoice& choice : scratch.device_choices) {
      const bool excluded = !scratch.tiers.empty() && scratch.tiers[choice.device] == Tier::kExcluded;
      if (excluded || !choice.usable || choice.potential_bytes < facts.memory_bytes) continue;
      device = choice.device;
      break;
    }
  }
  if (device) s_.staging.wait_for_memory(facts, *scratch.places[*device].pool);
}

void Scheduler::apply(const Decision& decision, Job& job, PassScratch& scratch) {
  if (const auto* use = std::get_if<UseWorker>(&decision)) {
    Worker& worker = *scratch.workers[use->worker];
    model(job.model).last_worker = {worker.pool_id, worker.id};
    return s_.attempts.dispatch(job, worker);
  }
  if (const auto* start = std::get_if<StartOn>(&decision)) {
    const auto& place = scratch.places[start->device];
    s_.workers.start_worker({job.model, job.group, job.spec.correlation_id}, place.pool->id, *place.gpu_id);
    return groups_.set_wait(job.group, {.code = WaitCode::kWorkerStart});
  }
  if (const auto* evict = std::get_if<Evict>(&decision)) {
    if (std::exchange(group(job.group).may_add_worker, false)) {
      count(Metric::kOptimizerImprovements, queue::name(queue::Kind::kAddWorker));
    }
    for (const std::uint32_t w : evict->workers) s_.workers.stop_worker(*scratch.residents[w], "evict");
    return groups_.set_wait(job.group, {.code = WaitCode::kMemory, .free_bytes_max = evict->free_bytes_max});
  }
  if (const auto* reserve = std::get_if<Reserve>(&decision)) {
    for (const std::uint32_t w : reserve->workers) s_.workers.reserve(*scratch.residents[w], job.group);
    const auto& place = scratch.places[reserve->device];
    s_.workers.reserve(place.pool->id, *place.gpu_id, job.group);
    return groups_.set_wait(job.group, {.code = WaitCode::kMemory, .free_bytes_max = reserve->free_bytes_max});
  }
  if (const auto* infeasible = std::get_if<Infeasible>(&decision)) {
    const bool too_few = scratch.places.empty();
    const base::Error error =
        too_few ? too_few_devices(job.spec.model) : too_large(job.spec, infeasible->potential_bytes_max);
    for (const Arrival arrival : queue_.waiting_in(job.group)) s_.attempts.fail_unplaced(jobs_.at(arrival), error);
    return;
  }
  groups_.set_wait(job.group, std::get<Wait>(decision));
}

void Scheduler::log_decision(const Job& job, const Decision& decision, const placement::DecisionLog& how,
                             const PassScratch& scratch) {
  std::optional<std::pair<Arrival, WaitCode>> wait;
  if (const auto* w = std::get_if<Wait>(&decision)) wait = {job.arrival, w->code};
  JobGroup& l = group(job.group);
  if (wait && wait == l.logged_wait) return;
  l.logged_wait = wait;
  const bool pinned = l.placement.mode == wire::PlacementMode::kPin;
  const auto* use = std::get_if<UseWorker>(&decision);
  emit(CountPlacement{.assigned = use != nullptr,
                      .pinned = pinned,
                      .fallback = how.fallback_used,
                      .candidates_considered = how.candidates_considered});
  std::string_view selected;
  if (use) selected = scratch.workers[use->worker]->pool_id.value;
  if (const auto* start = std::get_if<StartOn>(&decision)) selected = scratch.places[start->device].pool->id.value;
  const auto joined = [](const auto&... lists) {
    std::string text;
    const auto add = [&](const std::vector<std::string_view>& words) {
      for (const auto word : words) text += (text.empty() ? "" : ",") + std::string(word);
    };
    (add(lists), ...);
    return text;
  };
  log(base::LogLevel::kDebug, "schedule.decided", &job, "Decides where a job goes.",
      {{"outcome", placement::outcome(decision)},
       {"reason", wait ? placement::code(wait->second) : std::string_view("")},
       {"selected_pool_id", selected},
       {"candidates_considered", how.candidates_considered},
       {"candidates_feasible", how.candidates_feasible},
       {"filters_applied", joined(how.filters_applied, placement::filters_of(l.placement))},
       {"tie_breakers_applied", joined(how.tie_breakers_applied)},
       {"pinned", pinned},
       {"fallback_used", how.fallback_used}});
}

}  // namespace llorch::orchestratord::core
