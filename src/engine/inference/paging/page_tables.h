#pragma once
// Which cache pages belong to which slot, and which full pages a later request may find again. Bookkeeping only: no bytes,
// no device, no clock. Pages hold contract::kPageTokens positions; page i of a slot holds positions [64 i, 64 i + 64).
//
// Thread rule: one thread at a time. Nothing allocates after construction except publish() and adopt() of new keys.
#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/sha256.h"
#include "engine/contract/state.h"

namespace llorch::engine::inference::paging {

// A page within its group, 0 .. pages_total - 1.
enum class PageId : std::uint32_t {};
inline constexpr PageId kNoPage{0xFFFFFFFF};

// Pages of one kind of cache layers: those that see every position, or those that see the last `window_tokens` of them.
struct PageGroup {
  std::uint32_t pages_total = 0;
  std::uint32_t window_tokens = 0;  // 0 = sees every position
};

struct PageTablesOptions {
  std::vector<PageGroup> groups;  // may be empty: a model without a paged cache
  std::uint32_t slots = 1;
  std::uint32_t context_tokens = 0;  // most positions a slot can hold
};

// Names a full page by everything its content depends on: the tokens of all pages up to and with it, the numbers that
// shaped them, and a salt. See PrefixKeys.
using PageKey = base::Sha256Digest;

// Bytes to copy from one page to another, whole, before the next step.
struct PageCopy {
  std::uint32_t group = 0;
  PageId from = kNoPage;
  PageId to = kNoPage;
};

struct PageCounts {
  std::uint32_t total = 0;
  std::uint32_t used = 0;    // some slot's
  std::uint32_t cached = 0;  // nobody's, but findable by key; taken back when pages run out
  std::uint32_t free() const { return total - used - cached; }
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
  // The slot holds nothing any more. Pages with a key stay findable while nobody needs their room. Twice is fine.
  void release(std::uint32_t slot);

  // Gives an empty slot the longest run of cached pages whose keys begin with keys[0], keys[1], ...; returns the positions
  // it holds then, a multiple of 64, possibly 0. A run counts only when every group still has what the next position sees.
  // REQUIRES: the slot is empty.
  std::uint32_t adopt(std::uint32_t slot, std::span<const PageKey> keys, std::int64_t now_ms);
  // Page `index` of the slot is full and may be found under `key`. The first page published under a key stays.
  void publish(std::uint32_t slot, std::uint32_t index, const PageKey& key, std::int64_t now_ms);

  // `to` holds what `from` holds, the first `tokens` positions: full pages are shared (nobody writes them again), a page
  // begun is copied. Appends what must be copied to `copies`. All or nothing; false: not enough pages.
  // REQUIRES: `to` is empty.
  [[nodiscard]] bool fork(std::uint32_t from, std::uint32_t to, std::uint32_t tokens, std::vector<PageCopy>& copies);

  // Forgets keys not used since `before_ms`, or all of them.
  void expire(std::int64_t before_ms);
  void clear_cache();

  // More pages; ids go on from the old total.
  void grow(std::uint32_t group, std::uint32_t pages_count);

  std::size_t groups_count() const;
  PageCounts counts(std::uint32_t group) const;
  std::uint32_t references(std::uint32_t group, PageId page) const;  // slots that hold it
  // Entries of one slot, [pages_of(context_tokens)]; kNoPage where the slot holds none.
  std::span<const PageId> row(std::uint32_t group, std::uint32_t slot) const;

  // Calls `changed(group, slot, begin, end)` for the entries of each row that changed since the last call.
  template <class Changed>
  void take_changes(Changed&& changed);
};

}  // namespace llorch::engine::inference::paging
