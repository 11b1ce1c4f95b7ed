#include "orchestratord/core/placement/preference.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::core::placement {
namespace {

using wire::Placement;
using wire::PlacementMode;

Tier tier(const Placement& p, const char* pool, const char* gpu = "0") { return tier_of(p, base::PoolId(pool), gpu); }

// ORCH-3903, ORCH-3908, OC-CTRL-2013: pin is that pool and no other whatever allow_fallback says.
TEST(Preference, PinIsOnePool) {
  const Placement p{.mode = PlacementMode::kPin, .pin_pool_id = "b", .allow_fallback = true};
  EXPECT_EQ(tier(p, "a"), Tier::kExcluded);
  EXPECT_EQ(tier(p, "b"), Tier::kPreferred);
  EXPECT_EQ(tier({}, "a"), Tier::kPreferred);
  EXPECT_TRUE(is_anywhere({}));
  EXPECT_FALSE(is_anywhere(p));
}

TEST(Preference, PreferFallsBackOnlyIfAllowed) {
  Placement p{.mode = PlacementMode::kPrefer, .prefer_pools = {"b", "c"}, .avoid_pools = {"d"}};
  EXPECT_EQ(tier(p, "c"), Tier::kPreferred);
  EXPECT_EQ(tier(p, "a"), Tier::kFallback);
  EXPECT_EQ(tier(p, "d"), Tier::kExcluded);
  p.allow_fallback = false;
  EXPECT_EQ(tier(p, "a"), Tier::kExcluded);
  EXPECT_EQ(tier(p, "b"), Tier::kPreferred);
}

// ORCH-3011, OC-POOL-3020: a required device mask is met exactly or not at all, in every mode.
TEST(Preference, TheDeviceMaskIsExact) {
  for (const auto mode : {PlacementMode::kAuto, PlacementMode::kPin, PlacementMode::kPrefer}) {
    const Placement p{
        .mode = mode, .pin_pool_id = "a", .prefer_pools = {"a"}, .require_device_mask = "1", .allow_fallback = true};
    EXPECT_EQ(tier(p, "a", "1"), Tier::kPreferred);
    EXPECT_EQ(tier(p, "a", "0"), Tier::kExcluded);
    EXPECT_EQ(tier(p, "a", "10"), Tier::kExcluded);
    EXPECT_EQ(tier(p, "b", "0"), Tier::kExcluded);
  }
  EXPECT_FALSE(is_anywhere({.require_device_mask = "1"}));
  EXPECT_EQ(filters_of({.mode = PlacementMode::kPin, .pin_pool_id = "a", .require_device_mask = "1"}),
            (std::vector<std::string_view>{"pin", "device_mask"}));
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
