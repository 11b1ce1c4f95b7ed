#pragma once
// Who makes room on a device: which workers may be stopped for a waiting model, and in which order. Pure, like placement.h,
// which asks it.
//
// What keeps eviction from going round in circles:
//  - only an idle Ready worker nobody waits for is evicted; what is busy, loads or is leaving is left alone;
//  - one that serves only later jobs is reserved after a patience, not stopped under its jobs;
//  - a worker stays at least as long after its start as the start took (kept_until_ms), so that a device spends no more
//    than half of its time loading however two models take turns;
//  - nothing more is taken while memory on its way out will do.
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "orchestratord/core/placement/placement.h"

namespace llorch::orchestratord::core::placement {

// How often a model is asked for, with a half-life, so that what was popular once does not stay for ever (lfu).
class UseFrequency {
 public:
  void used(std::int64_t now_ms);
  // In units of kUse per use.
  std::int64_t at(std::int64_t now_ms) const;
  static constexpr std::int64_t kUse = 1024;
  static constexpr std::int64_t kHalfLifeMs = 600'000;  // of the order of a session (ORCH-3021)

 private:
  std::int64_t value_ = 0;
  std::int64_t since_ms_ = 0;
};

// Until when a worker that became ready at `ready_ms`, after a start of `start_took_ms`, is not evicted.
constexpr std::int64_t kept_until_ms(std::int64_t ready_ms, std::int64_t start_took_ms) {
  return ready_ms + start_took_ms;
}

Tier tier_of(const DeviceChoice& device, const Devices& devices);
// Whether the device takes part in what this job needs: usable, and not being cleared for an earlier job.
bool is_open(const DeviceChoice& device, const PlacementInput& input);
// Would one device hold its ranks of the model once `going` is gone?
struct Going {
  std::int64_t count = 0;
  std::int64_t bytes = 0;
};
bool would_hold(const DeviceChoice& part, const PlacementInput& input, Going going);
// What is on its way out of it.
Going leaving(const DeviceChoice& part);

// The fewest workers of one choice of the best tier whose departure makes room on all its devices, in the order of the policy.
struct Departure {
  std::uint32_t device = 0;
  std::vector<std::uint32_t> workers;
};
// Idle workers nobody waits for, to be stopped now.
std::optional<Departure> idle_departure(const Devices& devices, const PlacementInput& input);
// Workers all of whose waiting jobs come later, to be stopped when they are idle.
std::optional<Departure> later_departure(const Devices& devices, const PlacementInput& input);

// Whether `a` goes before `b`: lru by last use, lfu by frequency, then by last use; at the end by number.
bool goes_before(const Resident& a, const Resident& b, config::EvictionPolicy policy);

}  // namespace llorch::orchestratord::core::placement
