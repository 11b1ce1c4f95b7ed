#pragma once
// Which cache pages belong to which slot, and which full pages a later request may find again. Bookkeeping only: no bytes,
// no device, no clock. Pages hold plan::kPageTokens positions; page i of a slot holds positions [64 i, 64 i + 64).
//
// Thread rule: one thread at a time. Every operation is O(pages touched) but expire(), clear_cache() and grow(). Nothing
// allocates after construction except publish() of a new key, fork()'s copies and grow().
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/inference/paging/page_pool.h"
#include "engine/plan/state.h"

namespace llorch::engine::inference::paging {

inline constexpr std::size_t kPageGroupsMax = 4;

// How a sequence grows: up to `tokens` positions, by at most `rows_max` in a step.
struct Growth {
  std::uint32_t tokens = 0;
  std::uint32_t rows_max = 1;
};

// Pages of one kind of cache layers: those that see every position, or those that see the last `window_tokens` of them.
struct PageGroup {
  std::uint32_t pages_total = 0;
  std::uint32_t window_tokens = 0;  // 0 = sees every position

  // The first page that `position` or a later one sees: a position sees itself and the window_tokens - 1 before it.
  constexpr std::uint32_t first_page_seen(std::uint32_t position) const {
    if (window_tokens == 0 || position < window_tokens) return 0;
    return (position - window_tokens + 1) / plan::kPageTokens;
  }
  // The most pages a sequence holds at once, wherever its steps begin.
  constexpr std::uint32_t pages_at_once(const Growth& growth) const {
    const std::uint64_t all = plan::pages_of(growth.tokens);
    if (window_tokens == 0) return static_cast<std::uint32_t>(all);
    // A step needs its rows and the window before them: that many positions in a row touch at most this many pages.
    const std::uint64_t positions = std::uint64_t{window_tokens} - 1 + growth.rows_max;
    const std::uint64_t spanned = (positions + plan::kPageTokens - 2) / plan::kPageTokens + 1;
    return static_cast<std::uint32_t>(all < spanned ? all : spanned);
  }
};

struct PageTablesOptions {
  std::vector<PageGroup> groups;  // may be empty: a model without a paged cache; at most kPageGroupsMax
  std::uint32_t slots = 1;
  std::uint32_t context_tokens = 0;  // most positions a slot can hold
};

// Bytes to copy from one page to another, whole, before the next step.
struct PageCopy {
  std::uint32_t group = 0;
  PageId from = kNoPage;
  PageId to = kNoPage;
};

// What adopt() would find.
struct PrefixMatch {
  std::uint32_t tokens = 0;                            // positions, a multiple of 64
  std::array<std::uint32_t, kPageGroupsMax> pages{};   // of each group
  std::array<std::uint32_t, kPageGroupsMax> unheld{};  // those of them that nobody holds now
};

class PageTables {
 public:
  explicit PageTables(const PageTablesOptions& options);

  // Makes positions [held, tokens) of a slot writable, where `held` is what it holds now, and lets go of pages that lie
  // wholly below every window still to be seen from position `held`. Takes free pages first, then those only the cache
  // keeps, least recently used first. All or nothing; false: a group has not enough.
  // REQUIRES: held <= tokens <= context_tokens; the pages of [0, held) were reserved or adopted.
  [[nodiscard]] bool reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens);
  // Whether reserve() would succeed if nothing else were taken before.
  [[nodiscard]] bool can_reserve(std::uint32_t slot, std::uint32_t held, std::uint32_t tokens) const;
  // How many pages more the group would need for that.
  std::uint32_t pages_short(std::uint32_t group, std::uint32_t slot, std::uint32_t held, std::uint32_t tokens) const;
  // Gives back what was reserved behind position `tokens`, in whole pages. REQUIRES: nothing behind it was published.
  void trim(std::uint32_t slot, std::uint32_t tokens);
  // The slot holds nothing any more. Pages with a key stay findable while nobody needs their room. Twice is fine.
  void release(std::uint32_t slot);

  // The longest run of pages whose keys begin with keys[0], keys[1], ... A run counts only when every group still has what
  // the next position sees. Without groups there is nothing to find.
  PrefixMatch match(std::span<const PageKey> keys) const;
  // Gives an empty slot the run that match() finds; returns the positions it holds then, possibly 0.
  // REQUIRES: the slot is empty.
  std::uint32_t adopt(std::uint32_t slot, std::span<const PageKey> keys, std::int64_t now_ms);
  // Page `index` of the slot is full and may be found under `key`. The first page published under a key stays. A group that
  // has let go of the page already is passed over. REQUIRES: the slot has reserved the page.
  void publish(std::uint32_t slot, std::uint32_t index, const PageKey& key, std::int64_t now_ms);

  // `to` holds what `from` holds, the first `tokens` positions: full pages are shared (nobody writes them again), a page
  // begun is copied. Appends what must be copied to `copies`. All or nothing; false: not enough pages.
  // REQUIRES: `to` is empty, `from` holds `tokens` positions and no more.
  [[nodiscard]] bool fork(std::uint32_t from, std::uint32_t to, std::uint32_t tokens, std::vector<PageCopy>& copies);

  // Forgets keys not used since `before_ms`, or all of them. A key is in use while a slot holds its page; what is let go of
  // later counts from the latest time that adopt() or publish() was told.
  void expire(std::int64_t before_ms);
  void clear_cache();

  // More pages, and fewer: see PagePool.
  std::vector<PageId> grow(std::uint32_t group, std::uint32_t pages_count);
  std::vector<PageId> withdraw(std::uint32_t group, std::uint32_t pages_count);

  std::size_t groups_count() const { return groups_.size(); }
  const PageGroup& group(std::uint32_t group) const { return groups_[group].shape; }
  PageCounts counts(std::uint32_t group) const { return groups_[group].pool.counts(); }
  // Slots that hold the page.
  std::uint32_t references(std::uint32_t group, PageId page) const { return groups_[group].pool.references(page); }
  // Whether some slot holds the page, or it can be found by its key.
  bool is_live(std::uint32_t group, PageId page) const { return groups_[group].pool.is_live(page); }
  // Entries of one slot, [pages_of(context_tokens)]; kNoPage where the slot holds none.
  std::span<const PageId> row(std::uint32_t group, std::uint32_t slot) const;
  std::uint32_t pages_held(std::uint32_t group, std::uint32_t slot) const { return groups_[group].held[slot].count(); }

  // Calls `changed(group, slot, begin, end)` for the entries of each row that changed since the last call.
  template <class Changed>
  void take_changes(Changed&& changed) {
    for (const RowName& name : changed_rows_) {
      Range& range = groups_[name.group].changed[name.slot];
      changed(name.group, name.slot, range.begin, range.end);
      range = {};
    }
    changed_rows_.clear();
  }

 private:
  struct Range {
    std::uint32_t begin = 0, end = 0;
    std::uint32_t count() const { return end - begin; }
  };
  struct Group {
    PageGroup shape;
    PagePool pool;
    std::vector<PageId> rows;    // [slots][pages_per_slot_]
    std::vector<Range> held;     // [slots] entries that are pages; for a group without a window they begin at 0
    std::vector<Range> changed;  // [slots] since take_changes()
  };
  struct RowName {
    std::uint32_t group = 0, slot = 0;
  };

  bool is_empty(std::uint32_t slot) const;
  // What is left of the slot's entries when the next position is `held`.
  static Range still_seen(const Group& group, const Range& range, std::uint32_t held);
  PageId& entry(Group& group, std::uint32_t slot, std::uint32_t index) {
    return group.rows[std::size_t{slot} * pages_per_slot_ + index];
  }
  void let_go(Group& group, std::uint32_t slot, std::uint32_t index);
  void mark_changed(Group& group, std::uint32_t slot, const Range& range);

  std::vector<Group> groups_;
  std::vector<RowName> changed_rows_;  // those with a non-empty Group::changed
  std::uint32_t slots_;
  std::uint32_t context_tokens_;
  std::uint32_t pages_per_slot_;
  std::int64_t now_ms_ = 0;  // the latest told
};

}  // namespace llorch::engine::inference::paging
