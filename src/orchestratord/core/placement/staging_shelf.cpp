#include "orchestratord/core/placement/staging_shelf.h"

#include <algorithm>

namespace llorch::orchestratord::core::placement {

namespace {
// A pool reports more often than this.
constexpr std::int64_t kConfirmedWithinMs = 60'000;
}  // namespace

void StagingShelf::take(const std::vector<wire::StagedModel>& told, std::int64_t now_ms) {
  const auto is_told = [&](const std::string& ref) {
    return std::ranges::any_of(told, [&](const wire::StagedModel& model) { return model.model_ref == ref; });
  };
  std::erase_if(entries_, [&](const auto& entry) {
    return now_ms - entry.second.ordered_ms > kConfirmedWithinMs && !is_told(entry.first);
  });
  for (const wire::StagedModel& model : told) entries_.try_emplace(model.model_ref, Entry{.bytes = model.bytes_total});
}

StagingShelf::DesiredStates StagingShelf::want(const Wish& wish, const std::vector<wire::StagedModel>& told) {
  if (wish.bytes <= 0 || wish.bytes > wish.bytes_max) return {};
  take(told, wish.now_ms);
  if (const auto there = entries_.find(wish.model_ref); there != entries_.end()) {
    there->second.wanted_ms = wish.now_ms;
    return {};
  }
  DesiredStates desired{.unstage = {}, .stage = true};
  std::int64_t held = 0;
  for (const auto& [ref, entry] : entries_) held += entry.bytes;
  while (held + wish.bytes > wish.bytes_max) {
    const auto oldest = std::ranges::min_element(
        entries_, [](const auto& a, const auto& b) { return a.second.wanted_ms < b.second.wanted_ms; });
    held -= oldest->second.bytes;
    desired.unstage.push_back(oldest->first);
    entries_.erase(oldest);
  }
  entries_[wish.model_ref] = {.bytes = wish.bytes, .wanted_ms = wish.now_ms, .ordered_ms = wish.now_ms};
  return desired;
}

}  // namespace llorch::orchestratord::core::placement
