#include "orchestratord/core/placement/preference.h"

#include <algorithm>

namespace llorch::orchestratord::core::placement {

using wire::Placement;
using wire::PlacementMode;

bool is_anywhere(const Placement& p) {
  return p.mode == PlacementMode::kAuto && p.avoid_pools.empty() && !p.require_device_mask;
}

Tier tier_of(const Placement& p, const base::PoolId& pool, std::string_view gpu_id) {
  const auto names = [&](const std::vector<std::string>& ids) {
    return std::find(ids.begin(), ids.end(), pool.value) != ids.end();
  };
  if (p.require_device_mask && *p.require_device_mask != gpu_id) return Tier::kExcluded;
  if (names(p.avoid_pools)) return Tier::kExcluded;
  switch (p.mode) {
    case PlacementMode::kAuto: return Tier::kPreferred;
    case PlacementMode::kPin: return p.pin_pool_id == pool.value ? Tier::kPreferred : Tier::kExcluded;
    case PlacementMode::kPrefer:
      if (names(p.prefer_pools)) return Tier::kPreferred;
      return p.allow_fallback ? Tier::kFallback : Tier::kExcluded;
  }
  return Tier::kExcluded;
}

std::vector<std::string_view> filters_of(const Placement& p) {
  std::vector<std::string_view> names;
  if (p.mode == PlacementMode::kPin) names.push_back("pin");
  if (p.mode == PlacementMode::kPrefer) names.push_back("prefer");
  if (!p.avoid_pools.empty()) names.push_back("avoid");
  if (p.require_device_mask) names.push_back("device_mask");
  return names;
}

}  // namespace llorch::orchestratord::core::placement
