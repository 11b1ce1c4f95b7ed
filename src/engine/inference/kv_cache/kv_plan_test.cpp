#include "engine/inference/kv_cache/kv_plan.h"

#include <gtest/gtest.h>

#include <array>

namespace llorch::engine::inference::kv_cache {
namespace {

using plan::StateDescriptor;
using plan::StateKind;

constexpr StateDescriptor kAll{.id = 0, .kind = StateKind::kKv, .bytes_per_token = 8, .size_bytes = 512};
constexpr StateDescriptor kWindowed{
    .id = 5, .kind = StateKind::kKv, .bytes_per_token = 4, .size_bytes = 256, .window_tokens = 100};
constexpr StateDescriptor kFixed{.id = 2, .kind = StateKind::kSsm, .size_bytes = 64};
constexpr std::array kStates{kAll, kFixed, kWindowed};

TEST(KvPlan, EverySlotHasItsContextUnlessTold) {
  const KvPlan plan = plan_kv(kStates, {.slots = 3, .context_tokens = 1000, .rows_max = 64});
  ASSERT_EQ(plan.groups.size(), 2U);
  EXPECT_EQ(plan.groups[0].state_id, 0);
  EXPECT_EQ(plan.groups[0].pages, 3U * 16);
  EXPECT_EQ(plan.groups[0].pages_max, 3U * 16);
  // 100 positions touch at most 3 pages: 3 (3 + 1) for windows, 1 for the rows, 3 x 3 for prefixes.
  EXPECT_EQ(plan.groups[1].pages, 12U + 1 + 9);
  EXPECT_EQ(plan.groups[1].window_tokens, 100U);
  EXPECT_EQ(plan.bytes(), 48U * 512 + 22 * 256);
  EXPECT_EQ(plan.table_bytes(), 2U * 3 * 16 * 8);
  EXPECT_EQ(plan.growth_bytes(), 0U);
}

TEST(KvPlan, TakesWhatItIsTold) {
  const KvPlan plan =
      plan_kv(kStates, {.slots = 3, .context_tokens = 1000, .rows_max = 64, .kv_tokens = 1100, .kv_tokens_max = 5000});
  EXPECT_EQ(plan.groups[0].pages, 18U);
  EXPECT_EQ(plan.groups[0].pages_max, 79U);
  EXPECT_EQ(plan.groups[1].pages, 18U);  // no more than pages of positions
  EXPECT_EQ(plan.groups[1].pages_max, 22U);
  EXPECT_EQ(plan.growth_bytes(), 61U * 512 + 4 * 256);
}

TEST(KvPlan, OneContextAlwaysFits) {
  const KvPlan plan = plan_kv(kStates, {.slots = 8, .context_tokens = 1000, .rows_max = 64, .kv_tokens = 1});
  EXPECT_EQ(plan.groups[0].pages, 16U);
}

TEST(KvPlan, AWindowOverTheWholeContextIsNone) {
  const KvPlan plan = plan_kv(kStates, {.slots = 2, .context_tokens = 100, .rows_max = 64});
  EXPECT_EQ(plan.groups[1].window_tokens, 0U);
  EXPECT_EQ(plan.groups[1].pages, plan.groups[0].pages);
}

TEST(KvPlan, ModelsWithoutACacheHaveNoGroups) {
  const KvPlan plan = plan_kv({&kFixed, 1}, {.slots = 2, .context_tokens = 100});
  EXPECT_TRUE(plan.groups.empty());
  EXPECT_EQ(plan.bytes() + plan.table_bytes() + plan.growth_bytes(), 0U);
}

TEST(KvPlan, ImpossibleSizesStayImpossible) {
  const StateDescriptor huge{
      .id = 0, .kind = StateKind::kKv, .bytes_per_token = 0xFFFFFFFF, .size_bytes = std::uint64_t{1} << 38};
  const KvPlan plan = plan_kv({&huge, 1}, {.slots = 1024, .context_tokens = 1U << 30});
  EXPECT_GE(plan.bytes(), std::uint64_t{1} << 50);
}

}  // namespace
}  // namespace llorch::engine::inference::kv_cache
