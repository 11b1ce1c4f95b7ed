// The scheduling pass: the first waiting job of every model, in dispatch order, until nothing more can be done now.
#include <fmt/core.h>

#include <algorithm>

#include "orchestratord/brain/core/state.h"

namespace llorch::orchestratord::brain {

using pool_registry::Pool;
using scheduling::Claim;
using scheduling::Decision;
using scheduling::DeviceChoice;
using scheduling::Evict;
using scheduling::Infeasible;
using scheduling::StartOn;
using scheduling::UseWorker;
using scheduling::Wait;
using scheduling::WaitCode;

struct Brain::State::PassScratch {
  std::vector<Worker*> workers;  // of the model at hand; index = WorkerChoice::worker
  std::vector<scheduling::WorkerChoice> worker_choices;
  struct Place {
    const Pool* pool = nullptr;
    const std::string* gpu_id = nullptr;
  };
  // All devices, good for every model until a decision changes something.
  bool devices_valid = false;
  std::vector<Place> places;     // index = DeviceChoice::device
  std::vector<Worker*> tenants;  // index = Tenant::worker
  std::vector<DeviceChoice> device_choices;
};

void Brain::State::schedule() {
  // A decision may free what another one waits for: failing a model's jobs makes its idle worker evictable.
  while (dirty) {
    dirty = false;
    if (draining) return;
    for (const ModelIndex index : waiting) model(index).wait.reset();
    std::vector<ModelIndex> before;
    before.swap(waiting);
    PassScratch scratch;
    schedule_class(Priority::kInteractive, scratch);
    schedule_class(Priority::kBatch, scratch);
    for (const ModelIndex index : before) {
      Model& m = model(index);
      if (!m.wait || m.wait->code != WaitCode::kMemory) m.memory_wait_since_ms.reset();
    }
    give_up_claims();
    stop_claimed();
  }
}

void Brain::State::schedule_class(Priority priority, PassScratch& scratch) {
  std::optional<Arrival> after;
  while (const auto head = queue.next_head(priority, after)) {
    after = head->arrival;
    if (!model(head->model).wait) place(head->model, head->arrival, priority, scratch);
  }
}

void Brain::State::place(ModelIndex model_index, Arrival arrival, Priority priority, PassScratch& scratch) {
  Model& m = model(model_index);
  scheduling::PlacementInput input{
      .rank = {priority, arrival},
      .model = model_index,
      .memory_bytes = m.facts.memory_bytes,
      .algorithm = config.scheduling.algorithm,
      .start_backing_off = m.starts.backing_off(now.mono_ms),
      .impatient = m.memory_wait_since_ms && now.mono_ms - *m.memory_wait_since_ms >= config.memory_patience_ms,
      .pools_expected = pools_expected(),
      .workers_per_device = config.workers_per_gpu};
  collect_workers(m, scratch, input);
  const auto devices = [&] {
    const auto all = collect_devices(scratch);
    for (std::uint32_t i = 0; m.starts.last_error() && i < scratch.places.size(); ++i) {
      if (m.starts.failed_on(scratch.places[i].pool->id, *scratch.places[i].gpu_id)) input.failed_devices.push_back(i);
    }
    return all;
  };
  scheduling::DecisionLog how;
  const Decision decision = scheduling::decide(input, devices, how);
  Job& job = jobs.at(arrival);
  log_decision(job, decision, how);
  if (!std::holds_alternative<Wait>(decision)) scratch.devices_valid = false;
  apply(decision, model_index, job, scratch);
}

void Brain::State::collect_workers(Model& m, PassScratch& scratch, scheduling::PlacementInput& input) {
  scratch.workers.clear();
  scratch.worker_choices.clear();
  const auto loads = [&](const Worker& w) {
    return w.info.status == contract::WorkerStatus::kStarting && pool_healthy(w.pool_id);
  };
  for (const Worker* w : registry.loading_of(m.facts.model_ref)) input.starting |= loads(*w);
  for (Worker* w : registry.workers_of(m.facts.digest)) {
    if (loads(*w)) input.starting = true;
    if (!serves(*w, m.facts)) continue;
    input.has_worker = true;
    const auto number = static_cast<std::uint32_t>(scratch.workers.size());
    scratch.workers.push_back(w);
    if (m.last_worker && std::tie(w->pool_id, w->id) <= std::tie(m.last_worker->first, m.last_worker->second)) {
      input.last_worker = number;
    }
    scheduling::WorkerChoice choice{.worker = number, .slots_free = w->slots_free(), .active = w->slots_in_use};
    if (choice.slots_free > 0) {
      const auto& devices = registry.find_pool(w->pool_id)->devices;
      const auto device = devices.find(w->info.gpu_id);
      if (device != devices.end()) choice.device_free_bytes = device->second.room_bytes();
    }
    scratch.worker_choices.push_back(choice);
  }
  input.workers = scratch.worker_choices;
}

std::span<const DeviceChoice> Brain::State::collect_devices(PassScratch& scratch) {
  if (scratch.devices_valid) return scratch.device_choices;
  scratch.devices_valid = true;
  scratch.places.clear();
  scratch.tenants.clear();
  scratch.device_choices.clear();
  for (auto& [pool_id, pool] : registry.pools()) {
    for (auto& [gpu_id, device] : pool.devices) {
      DeviceChoice choice{
          .device = static_cast<std::uint32_t>(scratch.places.size()),
          .usable = pool.status == contract::PoolStatus::kHealthy && device.info.healthy && !device.doubted,
          .room_bytes = device.room_bytes(),
          .potential_bytes = device.potential_bytes(),
          .total_bytes = device.info.vram_total_bytes,
          .reserved = reservation(pool_id, gpu_id)};
      scratch.places.push_back({&pool, &gpu_id});
      choice.tenants.reserve(device.workers.size());
      for (Worker* w : device.workers) {
        choice.tenants.push_back(tenant(*w, static_cast<std::uint32_t>(scratch.tenants.size())));
        scratch.tenants.push_back(w);
      }
      scratch.device_choices.push_back(std::move(choice));
    }
  }
  return scratch.device_choices;
}

std::optional<scheduling::Reservation> Brain::State::reservation(const base::PoolId& pool, const std::string& gpu_id) {
  const auto it = reservations.find({pool, gpu_id});
  if (it == reservations.end()) return std::nullopt;
  const auto head = queue.head_of(it->second);
  if (!head) return std::nullopt;
  return scheduling::Reservation{it->second, {head->first, head->second}};
}

scheduling::Tenant Brain::State::tenant(const Worker& w, std::uint32_t number) {
  const bool ready = w.info.status == contract::WorkerStatus::kReady;
  const bool starting = w.info.status == contract::WorkerStatus::kStarting;
  scheduling::Tenant t{.worker = number,
                       .bytes = w.bytes(),
                       .last_used_ms = w.last_used_ms,
                       .ready = ready,
                       .leaving = w.claimed_by.has_value() || (!ready && !starting),
                       .idle = w.slots_in_use == 0};
  const auto known = model_of.find(w.info.model_digest);
  if (known == model_of.end()) return t;
  t.model = known->second;
  t.useful = useful(w, model(known->second).facts);
  if (const auto head = queue.head_of(known->second)) {
    t.queued = scheduling::Rank{head->first, head->second};
  } else if (queue.count_of(known->second) > 0) {
    t.queued = scheduling::Rank{};  // not dispatchable this moment, but about to be: before everybody
  }
  return t;
}

void Brain::State::set_wait(ModelIndex model_index, Wait wait) {
  Model& m = model(model_index);
  if (!m.wait) waiting.push_back(model_index);
  m.wait = wait;
  if (wait.code == WaitCode::kMemory && !m.memory_wait_since_ms) {
    m.memory_wait_since_ms = now.mono_ms;
    timers.arm(now.mono_ms + config.memory_patience_ms, {.kind = TimerKind::kSchedule});
  }
}

void Brain::State::apply(const Decision& decision, ModelIndex model_index, Job& job, PassScratch& scratch) {
  if (const auto* use = std::get_if<UseWorker>(&decision)) {
    Worker& worker = *scratch.workers[use->worker];
    model(model_index).last_worker = {worker.pool_id, worker.id};
    return dispatch(job, worker);
  }
  if (const auto* start = std::get_if<StartOn>(&decision)) {
    const auto& place = scratch.places[start->device];
    start_worker(model_index, place.pool->id, *place.gpu_id);
    return set_wait(model_index, {.code = WaitCode::kWorkerStart});
  }
  if (const auto* evict = std::get_if<Evict>(&decision)) {
    for (const std::uint32_t w : evict->workers) stop_worker(*scratch.tenants[w], "evict");
    return set_wait(model_index, {.code = WaitCode::kMemory});
  }
  if (const auto* claim = std::get_if<Claim>(&decision)) {
    for (const std::uint32_t w : claim->workers) {
      scratch.tenants[w]->claimed_by = model_index.value;
      claims.insert(scratch.tenants[w]->id);
    }
    const auto& place = scratch.places[claim->device];
    reservations[{place.pool->id, *place.gpu_id}] = model_index;
    return set_wait(model_index, {.code = WaitCode::kMemory});
  }
  if (const auto* infeasible = std::get_if<Infeasible>(&decision)) {
    const base::Error error = too_large(model(model_index).facts, infeasible->potential_bytes_max);
    for (const Arrival arrival : queue.waiting_for(model_index)) fail(jobs.at(arrival), error);
    return;
  }
  set_wait(model_index, std::get<Wait>(decision));
}

// A claim lives only while its model waits for memory, and so does its hold on the device.
void Brain::State::give_up_claims() {
  const auto waits_for_memory = [&](const Model& m) { return m.wait && m.wait->code == WaitCode::kMemory; };
  if (std::erase_if(reservations, [&](const auto& item) { return !waits_for_memory(model(item.second)); }) > 0) {
    dirty = true;
  }
  for (auto it = claims.begin(); it != claims.end();) {
    Worker& w = *registry.find_worker(*it);
    if (waits_for_memory(models[*w.claimed_by])) {
      ++it;
      continue;
    }
    w.claimed_by.reset();
    it = claims.erase(it);
    dirty = true;
  }
}

void Brain::State::stop_claimed() {
  std::vector<Worker*> idle;
  for (const base::WorkerId& id : claims) {
    Worker& w = *registry.find_worker(id);
    if (w.slots_in_use == 0) idle.push_back(&w);
  }
  for (Worker* w : idle) stop_worker(*w, "evict");
}

void Brain::State::log_decision(const Job& job, const Decision& decision, const scheduling::DecisionLog& how) {
  std::optional<std::pair<Arrival, WaitCode>> wait;
  if (const auto* w = std::get_if<Wait>(&decision)) wait = {job.arrival, w->code};
  auto& logged = model(job.model).logged_wait;
  if (wait && wait == logged) return;
  logged = wait;
  const bool assigned = std::holds_alternative<UseWorker>(decision);
  count(Metric::kPlacementDecisions, assigned ? "assigned" : "no_capacity");
  const auto joined = [](const std::vector<std::string_view>& words) {
    std::string text;
    for (const auto word : words) text += (text.empty() ? "" : ",") + std::string(word);
    return text;
  };
  constexpr std::string_view kOutcome[] = {"use_worker", "start_worker", "evict", "claim", "wait", "infeasible"};
  log(base::LogLevel::kDebug, "schedule.decided", &job, "Decides where a job goes.",
      {{"outcome", kOutcome[decision.index()]},
       {"candidates_considered", how.candidates_considered},
       {"candidates_feasible", how.candidates_feasible},
       {"filters", joined(how.filters_applied)},
       {"tie_breakers", joined(how.tie_breakers_applied)}});
}

}  // namespace llorch::orchestratord::brain
