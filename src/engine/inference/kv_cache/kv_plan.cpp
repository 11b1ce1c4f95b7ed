#include "engine/inference/kv_cache/kv_plan.h"

#include <algorithm>

#include "engine/inference/paging/page_tables.h"

namespace llorch::engine::inference::kv_cache {
namespace {

using plan::kPageTokens;
using plan::pages_of;
using plan::StateDescriptor;

// Sizes are the file's to claim: what no device has is capped, so that sums hold and the refusal is the usual one.
constexpr std::uint64_t kBytesMax = std::uint64_t{1} << 52;

std::uint64_t capped_product(std::uint64_t a, std::uint64_t b) {
  return a != 0 && b > kBytesMax / a ? kBytesMax : a * b;
}

std::uint64_t group_pages(const KvLimits& limits, std::uint32_t window, std::uint64_t positions_pages) {
  if (window == 0) return positions_pages;
  const std::uint64_t w =
      paging::PageGroup{.window_tokens = window}.pages_at_once({.tokens = limits.context_tokens, .rows_max = 1});
  return std::min(positions_pages, limits.slots * (2 * w + 1) + limits.rows_max / kPageTokens);
}

}  // namespace

std::uint64_t KvPlan::bytes() const {
  std::uint64_t sum = 0;
  for (const KvGroup& group : groups) sum = std::min(kBytesMax, sum + capped_product(group.pages, group.page_bytes));
  return sum;
}

std::uint64_t KvPlan::growth_bytes() const {
  std::uint64_t sum = 0;
  for (const KvGroup& group : groups) {
    sum = std::min(kBytesMax, sum + capped_product(group.pages_max - group.pages, group.page_bytes));
  }
  return sum;
}

std::uint64_t KvPlan::table_bytes() const {
  return groups.size() * limits.slots * pages_per_slot() * sizeof(std::byte*);
}

KvPlan plan_kv(std::span<const StateDescriptor> descs, const KvLimits& limits) {
  const std::uint64_t context = pages_of(limits.context_tokens);
  const std::uint64_t pages =
      limits.kv_tokens == 0 ? limits.slots * context : std::max(context, pages_of(limits.kv_tokens));
  const std::uint64_t pages_max = std::max(pages, pages_of(limits.kv_tokens_max));
  KvPlan plan{.limits = limits, .pages = pages, .pages_max = pages_max, .groups = {}};
  for (const StateDescriptor& desc : descs) {
    if (desc.bytes_per_token == 0) continue;
    const std::uint32_t window = desc.window_tokens < limits.context_tokens ? desc.window_tokens : 0;
    plan.groups.push_back({.state_id = desc.id,
                           .page_bytes = desc.size_bytes,
                           .window_tokens = window,
                           .pages = group_pages(limits, window, pages),
                           .pages_max = group_pages(limits, window, pages_max)});
  }
  return plan;
}

}  // namespace llorch::engine::inference::kv_cache
