#pragma once
#include <cstdint>

namespace llorch::engine::inference::kv_cache {

// A group of pages of which too few can be taken.
struct Miss {
  std::uint32_t pages_total = 0;
  std::uint32_t pages_free = 0;      // neither a slot's nor kept for its key
  std::uint32_t pages_growable = 0;  // that may still be added
  bool compacted = false;            // already, for this miss
};

enum class MissAction : std::uint8_t {
  kCompact,  // let go of what only the prefix cache keeps, then try again
  kNewSlab,
  kRefuse,
};

// With less than a tenth free, compact first and add a slab only if that was not enough; else add a slab.
// Pages have one size, so they never need sliding together for a miss: compacting frees pages, not room between them.
constexpr MissAction miss_action(const Miss& miss) {
  const bool short_of_pages = std::uint64_t{miss.pages_free} * 10 < miss.pages_total;
  if (short_of_pages && !miss.compacted) return MissAction::kCompact;
  return miss.pages_growable > 0 ? MissAction::kNewSlab : MissAction::kRefuse;
}

}  // namespace llorch::engine::inference::kv_cache
