#pragma once
// What one scheduling pass collects for placement::decide(), kept from decision to decision where it stays true. Pointers are good
// until the core's next step.
#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "orchestratord/core/placement/placement.h"
#include "orchestratord/core/state.h"

namespace llorch::orchestratord::core {

struct Scheduler::PassScratch {
  std::vector<Worker*> workers;  // of the group at hand; index = WorkerChoice::worker
  std::vector<placement::WorkerChoice> worker_choices;
  ReplicaRule replicas;  // of the group at hand
  struct Place {
    const pools::Pool* pool = nullptr;
    const std::string* gpu_id = nullptr;    // device mask
    const pools::Device* device = nullptr;  // null: several
  };
  // All devices, good for every model of one device until a decision changes something.
  bool devices_valid = false;
  std::vector<pools::Place> masks;  // places of several devices, of the group at hand
  std::vector<Place> places;        // index = DeviceChoice::device
  std::vector<Worker*> residents;   // index = Resident::worker
  std::vector<placement::DeviceChoice> device_choices;
  const std::string* version = nullptr;  // that every device with a version has
  bool versions_differ = false;
  std::vector<placement::Tier> tiers;  // of the group at hand; index = DeviceChoice::device; empty: every place will do
  std::vector<std::uint32_t> failed;   // of the group at hand, in rising order

  // Whether the replica set of the group at hand keeps it from some device.
  bool may_exclude() const {
    if (replicas.only || versions_differ) return replicas.only || !replicas.in_use.empty();
    return version != nullptr && std::any_of(replicas.in_use.begin(), replicas.in_use.end(),
                                             [&](const Worker* w) { return w->version != *version; });
  }
};

}  // namespace llorch::orchestratord::core
