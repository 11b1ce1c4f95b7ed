#include "orchestratord/core/placement/eviction.h"

#include <algorithm>
#include <tuple>

namespace llorch::orchestratord::core::placement {
namespace {

// Adds to `chosen` the fewest of `candidates` (in their order) whose departure makes room on this device, beside those that
// are chosen already; false if all of them do not.
bool make_room(const DeviceChoice& part, const PlacementInput& input, const std::vector<const Resident*>& candidates,
               std::vector<std::uint32_t>& chosen) {
  const auto is_chosen = [&](const Resident* t) { return std::ranges::find(chosen, t->worker) != chosen.end(); };
  Going going = leaving(part);
  const auto goes = [&](const Resident* t) { ++going.count, going.bytes += t->bytes; };
  for (const Resident* t : candidates) {
    if (is_chosen(t)) goes(t);
  }
  for (const Resident* t : candidates) {
    if (would_hold(part, input, going)) return true;
    if (is_chosen(t)) continue;
    chosen.push_back(t->worker);
    goes(t);
  }
  return would_hold(part, input, going);
}

template <class MayGo>
std::optional<Departure> departure(const Devices& devices, const PlacementInput& input, MayGo may_go) {
  std::optional<Departure> best;
  Tier best_tier = Tier::kExcluded;
  for (const DeviceChoice& device : devices.all) {
    const Tier tier = tier_of(device, devices);
    if (tier == Tier::kExcluded || tier > best_tier || !is_open(device, input)) continue;
    std::vector<std::uint32_t> chosen;
    const bool makes_room = std::ranges::all_of(parts_of(device), [&](const DeviceChoice& part) {
      std::vector<const Resident*> candidates;
      for (const Resident& t : part.residents) {
        if (t.ready && !t.leaving && !t.kept && may_go(t)) candidates.push_back(&t);
      }
      std::sort(candidates.begin(), candidates.end(),
                [&](const Resident* a, const Resident* b) { return goes_before(*a, *b, input.eviction); });
      return make_room(part, input, candidates, chosen);
    });
    if (!makes_room || chosen.empty() || (tier == best_tier && best->workers.size() <= chosen.size())) continue;
    best = Departure{device.device, std::move(chosen)};
    best_tier = tier;
  }
  return best;
}

// A worker that would take the job is worth no place of another one's.
bool is_own(const Resident& t, const PlacementInput& input) { return t.model == input.model && !t.elsewhere; }

}  // namespace

void UseFrequency::used(std::int64_t now_ms) {
  value_ = at(now_ms) + kUse;
  since_ms_ += (now_ms - since_ms_) / kHalfLifeMs * kHalfLifeMs;
}

std::int64_t UseFrequency::at(std::int64_t now_ms) const {
  const std::int64_t halvings = (now_ms - since_ms_) / kHalfLifeMs;
  return halvings < 63 ? value_ >> halvings : 0;
}

Tier tier_of(const DeviceChoice& device, const Devices& devices) {
  return devices.tiers.empty() ? Tier::kPreferred : devices.tiers[device.device];
}

bool is_open(const DeviceChoice& device, const PlacementInput& input) {
  const bool kept = device.reserved && device.reserved->model != input.model && device.reserved->rank < input.rank;
  return device.usable && !kept;
}

bool would_hold(const DeviceChoice& part, const PlacementInput& input, Going going) {
  return std::min(part.free_bytes + going.bytes, part.potential_bytes) >= input.memory_bytes * part.ranks &&
         static_cast<std::int64_t>(part.residents.size()) - going.count < input.workers_per_device;
}

Going leaving(const DeviceChoice& part) {
  Going going;
  for (const Resident& t : part.residents) {
    if (t.leaving) ++going.count, going.bytes += t.bytes;
  }
  return going;
}

bool goes_before(const Resident& a, const Resident& b, config::EvictionPolicy policy) {
  const bool by_use = policy == config::EvictionPolicy::kLfu;
  return std::tuple(by_use ? a.frequency : 0, a.last_used_ms, a.worker) <
         std::tuple(by_use ? b.frequency : 0, b.last_used_ms, b.worker);
}

std::optional<Departure> idle_departure(const Devices& devices, const PlacementInput& input) {
  return departure(devices, input,
                   [&](const Resident& t) { return t.idle && (!t.useful || (!t.queued && !is_own(t, input))); });
}

std::optional<Departure> later_departure(const Devices& devices, const PlacementInput& input) {
  return departure(devices, input,
                   [&](const Resident& t) { return !is_own(t, input) && (!t.queued || *t.queued > input.rank); });
}

}  // namespace llorch::orchestratord::core::placement
