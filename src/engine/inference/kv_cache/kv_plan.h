#pragma once
// How many cache pages a model's layers take, by arithmetic alone.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/dtype.h"
#include "engine/plan/state.h"

namespace llorch::engine::inference::kv_cache {

struct KvLimits {
  std::uint32_t slots = 1;
  std::uint32_t context_tokens = 0;  // of a slot
  std::uint32_t rows_max = 1;        // of a step
  // Positions the cache holds over all slots when it is made, and may grow to. 0: every slot's context; what is there at
  // first. Less than one context counts as one.
  std::uint64_t kv_tokens = 0;
  std::uint64_t kv_tokens_max = 0;
  plan::DType dtype = plan::DType::kF16;
};

// The pages of one paged state: the layers that see every position, or those that see a window.
struct KvGroup {
  std::uint8_t state_id = 0;
  std::uint64_t page_bytes = 0;
  std::uint32_t window_tokens = 0;  // 0 = sees all that a slot can hold
  std::uint64_t pages = 0;          // when it is made
  std::uint64_t pages_max = 0;
};

struct KvPlan {
  KvLimits limits;
  std::uint64_t pages = 0;      // of positions, when it is made: what a group without a window has
  std::uint64_t pages_max = 0;  // after all growth
  std::vector<KvGroup> groups;  // in the order of the descriptors; empty for models without a paged state

  std::uint64_t pages_per_slot() const { return plan::pages_of(limits.context_tokens); }
  std::uint64_t bytes() const;
  std::uint64_t growth_bytes() const;  // what growing may add
  // Of the device's tables of page addresses, [groups][slots][pages_per_slot].
  std::uint64_t table_bytes() const;
};

// With P = pages of the limit on positions (kv_tokens or kv_tokens_max), S slots, R rows of a step:
//   layers that see every position: P pages;
//   layers with a window of W positions, w = the most pages that W consecutive positions touch, at most those of a context:
//     min(P, S * (w + 1)   every slot's window, and the page it goes on into
//            + R / 64      the rows of a step
//            + S * w)      the windows in which S cached prefixes end, so that they can be gone on from
//   and no window at all when W covers the context.
// A window page never lives without the page of the same positions in the other group, hence the min.
KvPlan plan_kv(std::span<const plan::StateDescriptor> descs, const KvLimits& limits);

}  // namespace llorch::engine::inference::kv_cache
