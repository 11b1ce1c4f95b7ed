#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/plan/backend.h"
#include "engine/plan/collective.h"

namespace llorch::engine::inference::parallel {

// The devices of an engine. Several share one model: each holds its part of the weights and of the cache, a device's place
// in the list is its rank. They and the collective outlive the engine.
struct Devices {
  std::vector<plan::Backend*> backends;    // one to models::kRanksMax
  plan::Collective* collective = nullptr;  // with several: of these, in this order; for predictions it may be missing
  std::uint32_t count() const { return static_cast<std::uint32_t>(backends.size()); }
};

// Devices that cannot share a model. Errors: INVALID_PARAMS (none, too many, numerics that differ).
base::Result<> check_devices(const Devices& devices);
// "cpu-2"; over two devices "cpu-2/tp2": sums over another number of devices have other bits.
std::string numerics_of(const Devices& devices);
// "cpu-x86"; of devices of several kinds all of them, by rank: "A + B".
std::string device_class_of(const Devices& devices);
// The error of one device, which it names when there are several.
base::Error error_at(base::Error error, std::uint32_t rank, std::uint32_t devices_count);

}  // namespace llorch::engine::inference::parallel
