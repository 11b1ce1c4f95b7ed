#pragma once
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine/inference/paging/prefix_keys.h"

namespace llorch::engine::inference::paging {

// A page within its group, 0 .. pages_total - 1.
enum class PageId : std::uint32_t {};
inline constexpr PageId kNoPage{0xFFFFFFFF};

struct PageCounts {
  std::uint32_t total = 0;
  std::uint32_t used = 0;    // some slot's
  std::uint32_t cached = 0;  // nobody's, but findable by key; taken back when pages run out
  std::uint32_t free() const { return total - used - cached; }
  std::uint32_t takeable() const { return total - used; }
};

// The pages of one group: each is free, held (by as many as its references say), or kept for its key only. Every operation
// is O(1) but expire(), clear(), grow() and withdraw(). Only publish() of a new key and the last two allocate.
class PagePool {
 public:
  explicit PagePool(std::uint32_t pages_total) { grow(pages_total); }

  // More pages: those withdrawn first, then new ones, whose ids go on from the highest. Returns which.
  std::vector<PageId> grow(std::uint32_t pages_count);
  // Takes free pages out of use until grow() brings them back. REQUIRES: as many are free.
  std::vector<PageId> withdraw(std::uint32_t pages_count);

  // A page with one reference and no key: a free one, else the least recently used of those kept. REQUIRES: one is takeable.
  PageId take();
  // One more reference, to a held page or one kept for its key.
  void share(PageId page);
  // One less. After the last a page with a key is kept as the most recently used; `now_ms` never goes back.
  void drop(PageId page, std::int64_t now_ms);

  PageId find(const PageKey& key) const;  // kNoPage: none
  // REQUIRES: a held page. Without effect when the key has a page, or the page a key.
  void publish(PageId page, const PageKey& key);
  // Frees the pages kept since before `before_ms`.
  void expire(std::int64_t before_ms);
  // Forgets every key, those of held pages too.
  void clear();

  const PageCounts& counts() const { return counts_; }
  std::uint32_t references(PageId page) const { return pages_[index(page)].references; }
  bool has_key(PageId page) const { return pages_[index(page)].has_key; }
  // What it holds is of use.
  bool is_live(PageId page) const { return references(page) > 0 || has_key(page); }

 private:
  struct Page {
    std::uint32_t references = 0;
    bool has_key = false;
    PageId older = kNoPage, newer = kNoPage;  // of those kept for their key
    std::int64_t kept_since_ms = 0;
    PageKey key{};
  };
  struct KeyHash {
    std::size_t operator()(const PageKey& key) const;
  };

  static std::size_t index(PageId page) { return static_cast<std::size_t>(page); }
  void keep(PageId page, std::int64_t now_ms);
  void unkeep(PageId page);
  void forget(PageId page);

  std::vector<Page> pages_;
  std::vector<PageId> free_;  // the next to take last
  std::vector<PageId> withdrawn_;
  PageId oldest_ = kNoPage, newest_ = kNoPage;
  std::unordered_map<PageKey, PageId, KeyHash> by_key_;
  PageCounts counts_;
};

}  // namespace llorch::engine::inference::paging
