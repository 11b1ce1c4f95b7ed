#pragma once
// What a job says about where it wants to run (wire::Placement), applied to one place.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/id.h"
#include "wire/task.h"

namespace llorch::orchestratord::core::placement {

// A smaller tier is tried first; a larger one only if no place of the smaller ones can take the job now (ORCH-3903).
enum class Tier : std::uint8_t { kPreferred = 0, kFallback = 1, kExcluded = 2 };

// True if every place will do: nothing has to be looked at.
bool is_anywhere(const wire::Placement& placement);
// Without preferences every place that is not excluded is kPreferred.
Tier tier_of(const wire::Placement& placement, const base::PoolId& pool, std::string_view gpu_id);
// Names for the decision log: "pin", "prefer", "avoid", "device_mask".
std::vector<std::string_view> filters_of(const wire::Placement& placement);

}  // namespace llorch::orchestratord::core::placement
