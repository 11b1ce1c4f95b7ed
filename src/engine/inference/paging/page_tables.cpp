#include "engine/inference/paging/page_tables.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::paging {

using plan::kPageTokens;
using plan::pages_of;

PageTables::PageTables(const PageTablesOptions& options)
    : slots_(options.slots),
      context_tokens_(options.context_tokens),
      pages_per_slot_(static_cast<std::uint32_t>(pages_of(options.context_tokens))) {
  ASSERT(options.groups.size() <= kPageGroupsMax, "{}", options.groups.size());
  groups_.reserve(options.groups.size());
  for (const PageGroup& shape : options.groups) {
    groups_.push_back({.shape = shape,
                       .pool = PagePool(shape.pages_total),
                       .rows = std::vector<PageId>(std::size_t{slots_} * pages_per_slot_, kNoPage),
                       .held = std::vector<Range>(slots_),
                       .changed = std::vector<Range>(slots_)});
  }
  changed_rows_.reserve(groups_.size() * slots_);
}

PageTables::Range PageTables::still_seen(const Group& group, const Range& range, std::uint32_t held) {
  return {.begin = std::max(range.begin, group.shape.first_page_seen(held)), .end = range.end};
}

std::uint32_t PageTables::pages_short(std::uint32_t group, std::uint32_t slot, std::uint32_t held,
                                      std::uint32_t tokens) const {
  ASSERT(slot < slots_ && held <= tokens && tokens <= context_tokens_, "slot {}, {} .. {}", slot, held, tokens);
  const Group& g = groups_[group];
  const Range& range = g.held[slot];
  ASSERT(std::uint64_t{range.end} * kPageTokens >= held, "slot {} holds pages up to {}, not {} positions", slot,
         range.end, held);
  const auto end = static_cast<std::uint32_t>(pages_of(tokens));
  const std::uint32_t needed = end > range.end ? end - range.end : 0;
  std::uint32_t takeable = g.pool.counts().takeable();
  for (std::uint32_t i = range.begin; i < still_seen(g, range, held).begin && takeable < needed; ++i) {
    takeable += g.pool.references(g.rows[std::size_t{slot} * pages_per_slot_ + i]) == 1;
  }
  return needed > takeable ? needed - takeable : 0;
}

bool PageTables::can_reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens) const {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    if (pages_short(g, slot, held, tokens) > 0) return false;
  }
  return true;
}

bool PageTables::reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens) {
  if (!can_reserve(slot, held, tokens)) return false;
  const auto end = static_cast<std::uint32_t>(pages_of(tokens));
  for (Group& group : groups_) {
    Range& range = group.held[slot];
    const std::uint32_t begin = still_seen(group, range, held).begin;
    for (; range.begin < begin; ++range.begin) let_go(group, slot, range.begin);
    // Pages reserved before and not written yet.
    for (std::uint32_t i = held / kPageTokens; i < std::min(end, range.end); ++i) {
      const PageId page = entry(group, slot, i);
      ASSERT(group.pool.references(page) == 1 && !group.pool.has_key(page), "slot {} would write a shared page", slot);
    }
    if (end <= range.end) continue;
    mark_changed(group, slot, {.begin = range.end, .end = end});
    for (; range.end < end; ++range.end) entry(group, slot, range.end) = group.pool.take();
  }
  return true;
}

void PageTables::trim(std::uint32_t slot, std::uint32_t tokens) {
  ASSERT(slot < slots_, "{}", slot);
  const auto end = static_cast<std::uint32_t>(pages_of(tokens));
  for (Group& group : groups_) {
    Range& range = group.held[slot];
    for (; range.end > std::max(end, range.begin); --range.end) {
      ASSERT(!group.pool.has_key(entry(group, slot, range.end - 1)), "slot {} page {}", slot, range.end - 1);
      let_go(group, slot, range.end - 1);
    }
  }
}

void PageTables::release(std::uint32_t slot) {
  ASSERT(slot < slots_, "{}", slot);
  for (Group& group : groups_) {
    Range& range = group.held[slot];
    // What goes first is forgotten first. A chain is of use from its root on, so its tail goes first; a window is of use
    // to whoever goes on from where it ended, so there its beginning does.
    if (group.shape.window_tokens == 0) {
      for (std::uint32_t i = range.end; i > range.begin; --i) let_go(group, slot, i - 1);
    } else {
      for (std::uint32_t i = range.begin; i < range.end; ++i) let_go(group, slot, i);
    }
    range = {};
  }
}

PrefixMatch PageTables::match(std::span<const PageKey> keys) const {
  // The pages a slot can hold at all: longer chains of keys are other slots' business.
  const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(keys.size(), context_tokens_ / kPageTokens));
  std::array<std::uint32_t, kPageGroupsMax> run_begin{};  // of the present pages that end at page i
  std::uint32_t longest = 0;
  for (std::uint32_t i = 0; i < count && !groups_.empty(); ++i) {
    bool whole = true, hopeless = false;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const bool present = groups_[g].pool.find(keys[i]) != kNoPage;
      if (!present) run_begin[g] = i + 1;
      hopeless |= !present && groups_[g].shape.window_tokens == 0;
      whole &= run_begin[g] <= groups_[g].shape.first_page_seen((i + 1) * kPageTokens);
    }
    if (hopeless) break;
    if (whole) longest = i + 1;
  }
  PrefixMatch match{.tokens = longest * kPageTokens};
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    for (std::uint32_t i = groups_[g].shape.first_page_seen(match.tokens); i < longest; ++i) {
      ++match.pages[g];
      match.unheld[g] += groups_[g].pool.references(groups_[g].pool.find(keys[i])) == 0;
    }
  }
  return match;
}

std::uint32_t PageTables::adopt(std::uint32_t slot, std::span<const PageKey> keys, std::int64_t now_ms) {
  ASSERT(slot < slots_ && is_empty(slot), "slot {}", slot);
  now_ms_ = std::max(now_ms_, now_ms);
  const std::uint32_t tokens = match(keys).tokens;
  for (Group& group : groups_) {
    const Range range{.begin = group.shape.first_page_seen(tokens), .end = tokens / kPageTokens};
    for (std::uint32_t i = range.begin; i < range.end; ++i) {
      const PageId page = group.pool.find(keys[i]);
      group.pool.share(page);
      entry(group, slot, i) = page;
    }
    group.held[slot] = range;
    mark_changed(group, slot, range);
  }
  return tokens;
}

void PageTables::publish(std::uint32_t slot, std::uint32_t index, const PageKey& key, std::int64_t now_ms) {
  now_ms_ = std::max(now_ms_, now_ms);
  for (Group& group : groups_) {
    const Range& range = group.held[slot];
    ASSERT(index < range.end, "slot {} page {}", slot, index);
    if (index >= range.begin) group.pool.publish(entry(group, slot, index), key);
  }
}

bool PageTables::fork(std::uint32_t from, std::uint32_t to, std::uint32_t tokens, std::vector<PageCopy>& copies) {
  ASSERT(from < slots_ && to < slots_ && is_empty(to), "{} to {}", from, to);
  const std::uint32_t full = tokens / kPageTokens;
  const bool begun = tokens % kPageTokens != 0;
  if (begun && !std::ranges::all_of(groups_, [](const Group& g) { return g.pool.counts().takeable() > 0; }))
    return false;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    const Range source = still_seen(group, group.held[from], tokens);
    ASSERT(source.end >= full + begun, "slot {} does not hold {} positions", from, tokens);
    for (std::uint32_t i = source.begin; i < full; ++i) {
      group.pool.share(entry(group, to, i) = entry(group, from, i));
    }
    if (begun) {
      const PageId copy = entry(group, to, full) = group.pool.take();
      copies.push_back({.group = g, .from = entry(group, from, full), .to = copy});
    }
    group.held[to] = {.begin = source.begin, .end = full + begun};
    mark_changed(group, to, group.held[to]);
  }
  return true;
}

void PageTables::expire(std::int64_t before_ms) {
  for (Group& group : groups_) group.pool.expire(before_ms);
}

void PageTables::clear_cache() {
  for (Group& group : groups_) group.pool.clear();
}

std::vector<PageId> PageTables::grow(std::uint32_t group, std::uint32_t pages_count) {
  groups_[group].shape.pages_total += pages_count;
  return groups_[group].pool.grow(pages_count);
}

std::vector<PageId> PageTables::withdraw(std::uint32_t group, std::uint32_t pages_count) {
  groups_[group].shape.pages_total -= pages_count;
  return groups_[group].pool.withdraw(pages_count);
}

std::span<const PageId> PageTables::row(std::uint32_t group, std::uint32_t slot) const {
  return std::span(groups_[group].rows).subspan(std::size_t{slot} * pages_per_slot_, pages_per_slot_);
}

bool PageTables::is_empty(std::uint32_t slot) const {
  return std::ranges::all_of(groups_, [&](const Group& group) { return group.held[slot].end == 0; });
}

void PageTables::let_go(Group& group, std::uint32_t slot, std::uint32_t index) {
  PageId& page = entry(group, slot, index);
  group.pool.drop(page, now_ms_);
  page = kNoPage;
  mark_changed(group, slot, {.begin = index, .end = index + 1});
}

void PageTables::mark_changed(Group& group, std::uint32_t slot, const Range& range) {
  if (range.count() == 0) return;
  Range& changed = group.changed[slot];
  if (changed.count() == 0) {
    changed_rows_.push_back({.group = static_cast<std::uint32_t>(&group - groups_.data()), .slot = slot});
    changed = range;
  } else {
    changed = {.begin = std::min(changed.begin, range.begin), .end = std::max(changed.end, range.end)};
  }
}

}  // namespace llorch::engine::inference::paging
