#include "orchestratord/core/placement/placement.h"

#include <algorithm>
#include <tuple>

#include "orchestratord/core/placement/eviction.h"

namespace llorch::orchestratord::core::placement {
namespace {

using config::PlacementAlgorithm;

PlacementAlgorithm effective(const PlacementInput& input, Tier tier) {
  if (input.algorithm != PlacementAlgorithm::kPredictedEnd) return input.algorithm;
  const bool measured = std::all_of(input.workers.begin(), input.workers.end(), [&](const WorkerChoice& w) {
    return w.slots_free <= 0 || w.tier != tier || w.speed;
  });
  return measured ? PlacementAlgorithm::kPredictedEnd : PlacementAlgorithm::kLeastLoaded;
}

bool better(const WorkerChoice& a, const WorkerChoice& b, const PlacementInput& input, PlacementAlgorithm algorithm) {
  const auto key = [&](const WorkerChoice& w) {
    const std::int64_t elsewhere = w.worker != input.affine_worker;
    if (algorithm == PlacementAlgorithm::kMostVramFree) {
      return std::tuple(-w.device_free_bytes, w.active, elsewhere, std::int64_t{0}, w.worker);
    }
    if (algorithm == PlacementAlgorithm::kPredictedEnd) {
      const std::int64_t end_ms = predicted_end_ms(*w.speed, input.tokens_expected);
      return std::tuple(end_ms, elsewhere, w.active, -w.device_free_bytes, w.worker);
    }
    return std::tuple(w.active, elsewhere, -w.device_free_bytes, std::int64_t{0}, w.worker);
  };
  return key(a) < key(b);
}

std::vector<std::string_view> tie_breakers(PlacementAlgorithm algorithm) {
  switch (algorithm) {
    case PlacementAlgorithm::kLeastLoaded: return {"active_slots", "affinity", "free_vram", "pool_id", "worker_id"};
    case PlacementAlgorithm::kMostVramFree: return {"free_vram", "active_slots", "affinity", "pool_id", "worker_id"};
    case PlacementAlgorithm::kRoundRobin: return {"round_robin", "pool_id", "worker_id"};
    case PlacementAlgorithm::kPredictedEnd:
      return {"predicted_end", "affinity", "active_slots", "free_vram", "pool_id", "worker_id"};
  }
  return {};
}

std::optional<std::uint32_t> choose_worker(const PlacementInput& input, DecisionLog& log) {
  log.candidates_considered += input.workers_excluded;
  Tier tier = Tier::kExcluded;
  for (const WorkerChoice& w : input.workers) {
    ++log.candidates_considered;
    if (w.slots_free > 0) tier = std::min(tier, w.tier);
  }
  if (tier == Tier::kExcluded) return std::nullopt;
  const PlacementAlgorithm algorithm = effective(input, tier);
  const WorkerChoice* best = nullptr;
  const WorkerChoice* next = nullptr;  // round-robin: the first after the last one used
  for (const WorkerChoice& w : input.workers) {
    if (w.slots_free <= 0 || w.tier != tier) continue;
    ++log.candidates_feasible;
    if (!next && input.last_worker && w.worker > *input.last_worker) next = &w;
    const bool first_wins = algorithm == PlacementAlgorithm::kRoundRobin;
    if (!best || (!first_wins && better(w, *best, input, algorithm))) best = &w;
  }
  log.fallback_used = tier == Tier::kFallback;
  if (log.candidates_feasible > 1) log.tie_breakers_applied = tie_breakers(algorithm);
  if (algorithm == PlacementAlgorithm::kRoundRobin && next) return next->worker;
  return best->worker;
}

bool holds(const DeviceChoice& device, const PlacementInput& input) {
  return std::ranges::all_of(parts_of(device), [&](const DeviceChoice& part) {
    return !part.overfull && part.free_bytes >= input.memory_bytes * part.ranks &&
           static_cast<std::int64_t>(part.residents.size()) < input.workers_per_device;
  });
}

const DeviceChoice* start_device(const Devices& devices, const PlacementInput& input, DecisionLog& log) {
  const DeviceChoice* best = nullptr;
  const auto key = [&](const DeviceChoice& d) {
    const bool failed_before = std::ranges::find(devices.failed, d.device) != devices.failed.end();
    return std::tuple(tier_of(d, devices), failed_before, -d.free_bytes, d.device);
  };
  for (const DeviceChoice& device : devices.all) {
    ++log.candidates_considered;
    if (tier_of(device, devices) == Tier::kExcluded) continue;
    if (!is_open(device, input) || !holds(device, input)) continue;
    ++log.candidates_feasible;
    if (!best || key(device) < key(*best)) best = &device;
  }
  log.fallback_used = best && tier_of(*best, devices) == Tier::kFallback;
  return best;
}

// What the devices that the job accepts amount to.
struct Prospects {
  std::int64_t devices = 0, potential_bytes_max = 0, free_bytes_max = 0;
  bool could_hold = false;         // with none of our workers there
  bool usable_could_hold = false;  // and its pool answers
  bool large_enough = false;       // with nothing at all there
  bool on_its_way = false;         // once what leaves has left
  bool kept = false;               // once an idle worker's load has paid off, perhaps
};
Prospects prospects(const Devices& devices, const PlacementInput& input) {
  Prospects p;
  for (const DeviceChoice& device : devices.all) {
    if (tier_of(device, devices) == Tier::kExcluded) continue;
    ++p.devices;
    p.potential_bytes_max = std::max(p.potential_bytes_max, device.potential_bytes);
    const bool can = device.potential_bytes >= input.memory_bytes;
    p.could_hold |= can;
    p.large_enough |= device.total_bytes >= input.memory_bytes;
    if (!device.usable) continue;
    p.usable_could_hold |= can;
    if (!is_open(device, input)) continue;
    p.free_bytes_max = std::max(p.free_bytes_max, device.free_bytes);
    const auto leaves = [](const DeviceChoice& part) { return leaving(part).count > 0; };
    const auto will_hold = [&](const DeviceChoice& part) { return would_hold(part, input, leaving(part)); };
    const auto parts = parts_of(device);
    p.on_its_way |= std::ranges::any_of(parts, leaves) && std::ranges::all_of(parts, will_hold);
    for (const DeviceChoice& part : parts) {
      for (const Resident& t : part.residents) p.kept |= t.kept && t.idle;
    }
  }
  return p;
}

// Workers of the model exist, and none has a free slot.
Wait slot_wait(const PlacementInput& input, std::int64_t free_bytes_max = 0) {
  const bool check = std::all_of(input.workers.begin(), input.workers.end(), [](const auto& w) { return w.doubted; });
  return {.code = check && !input.workers.empty() ? WaitCode::kWorkerCheck : WaitCode::kSlot,
          .free_bytes_max = free_bytes_max,
          .other_version = input.other_version};
}

// No device has room: what is on its way out, what may be sent out, what to wait for.
Decision find_room(const Devices& devices, const PlacementInput& input) {
  const Prospects p = prospects(devices, input);
  if (input.has_worker) {
    const bool add = input.may_add_worker && !p.on_its_way && input.eviction != config::EvictionPolicy::kManual;
    if (auto idle = add ? idle_departure(devices, input) : std::nullopt) {
      return Evict{idle->device, std::move(idle->workers), p.free_bytes_max};
    }
    return slot_wait(input, p.free_bytes_max);
  }
  if (!p.could_hold && (p.devices > 0 || devices.too_few) && !input.pools_expected) {
    // What a worker just left may be missing from the report; what a stranger holds may come back.
    if (p.large_enough && !input.impatient) return Wait{WaitCode::kMemory, p.free_bytes_max};
    return Infeasible{p.potential_bytes_max};
  }
  if (!p.usable_could_hold) return Wait{WaitCode::kPool, p.free_bytes_max};
  if (p.on_its_way) return Wait{WaitCode::kMemory, p.free_bytes_max};
  auto idle = idle_departure(devices, input);
  const bool manual = input.eviction == config::EvictionPolicy::kManual;
  auto later = !idle && (manual || input.impatient) ? later_departure(devices, input) : std::nullopt;
  if (manual && (idle || later)) return Wait{WaitCode::kEviction, p.free_bytes_max};
  if (idle) return Evict{idle->device, std::move(idle->workers), p.free_bytes_max};
  if (later) return Reserve{later->device, std::move(later->workers), p.free_bytes_max};
  return Wait{WaitCode::kMemory, p.free_bytes_max, p.kept};
}

}  // namespace

std::string_view code(WaitCode wait) {
  switch (wait) {
    case WaitCode::kTurn: return "WAITING_FOR_TURN";
    case WaitCode::kSlot: return "WAITING_FOR_SLOT";
    case WaitCode::kWorkerCheck: return "WAITING_FOR_WORKER_CHECK";
    case WaitCode::kQuota: return "WAITING_FOR_QUOTA";
    case WaitCode::kWorkerStart: return "WAITING_FOR_WORKER_START";
    case WaitCode::kStartRetry: return "WAITING_FOR_START_RETRY";
    case WaitCode::kMemory: return "WAITING_FOR_MEMORY";
    case WaitCode::kEviction: return "WAITING_FOR_EVICTION";
    case WaitCode::kPool: return "WAITING_FOR_POOL";
    case WaitCode::kRetry: return "WAITING_FOR_RETRY";
    case WaitCode::kRestart: return "WAITING_FOR_RESTART";
  }
  return "WAITING_FOR_TURN";
}

std::string_view outcome(const Decision& decision) {
  constexpr std::string_view kNames[] = {"use_worker", "start_worker", "evict", "reserve", "wait", "infeasible"};
  static_assert(std::size(kNames) == std::variant_size_v<Decision>);
  return kNames[decision.index()];
}

std::int64_t predicted_end_ms(const Speed& speed, std::int64_t tokens) {
  return speed.first_token_ms + tokens * speed.us_per_token / 1000;
}

Decision decide(const PlacementInput& input, const DeviceSource& devices, DecisionLog& log) {
  log = {};
  if (input.quota_reached) return Wait{.code = WaitCode::kQuota};
  log.filters_applied = {"ready", "model", "context", "free_slot"};
  if (const auto worker = choose_worker(input, log)) return UseWorker{*worker};
  if (input.starting) return input.has_worker ? slot_wait(input) : Wait{WaitCode::kWorkerStart};
  if (input.start_backing_off) return input.has_worker ? slot_wait(input) : Wait{WaitCode::kStartRetry};
  log.filters_applied = {"healthy", "memory", "workers_per_gpu"};
  const Devices all = devices();
  if (const DeviceChoice* device = start_device(all, input, log)) {
    if (log.candidates_feasible > 1) log.tie_breakers_applied = {"failed_before", "free_vram", "pool_id", "gpu_id"};
    return StartOn{device->device};
  }
  return find_room(all, input);
}

}  // namespace llorch::orchestratord::core::placement
