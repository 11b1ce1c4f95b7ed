#include "engine/inference/paging/page_pool.h"

#include <cstring>

#include "base/assert.h"

namespace llorch::engine::inference::paging {

std::size_t PagePool::KeyHash::operator()(const PageKey& key) const {
  std::size_t hash;
  static_assert(sizeof hash <= sizeof key);
  std::memcpy(&hash, key.data(), sizeof hash);
  return hash;
}

std::vector<PageId> PagePool::grow(std::uint32_t pages_count) {
  std::vector<PageId> more;
  while (more.size() < pages_count && !withdrawn_.empty()) {
    more.push_back(withdrawn_.back());
    withdrawn_.pop_back();
  }
  const auto first = static_cast<std::uint32_t>(pages_.size());
  const auto fresh = pages_count - static_cast<std::uint32_t>(more.size());
  ASSERT(fresh < static_cast<std::uint32_t>(kNoPage) - first, "{} + {}", first, fresh);
  pages_.resize(std::size_t{first} + fresh);
  for (std::uint32_t i = 0; i < fresh; ++i) more.push_back(PageId{first + i});
  counts_.total += pages_count;
  free_.reserve(pages_.size());
  by_key_.reserve(pages_.size());
  // The first of them are taken first, but after all that were free before.
  free_.insert(free_.begin(), more.rbegin(), more.rend());
  return more;
}

std::vector<PageId> PagePool::withdraw(std::uint32_t pages_count) {
  ASSERT(pages_count <= counts_.free(), "{} of {} free pages", pages_count, counts_.free());
  const std::vector<PageId> gone(free_.begin(), free_.begin() + pages_count);  // those that would be taken last
  free_.erase(free_.begin(), free_.begin() + pages_count);
  withdrawn_.insert(withdrawn_.end(), gone.begin(), gone.end());
  counts_.total -= pages_count;
  return gone;
}

PageId PagePool::take() {
  ASSERT(counts_.takeable() > 0);
  if (free_.empty()) {
    const PageId page = oldest_;
    unkeep(page);
    forget(page);
    free_.push_back(page);
  }
  const PageId page = free_.back();
  free_.pop_back();
  pages_[index(page)].references = 1;
  ++counts_.used;
  return page;
}

void PagePool::share(PageId page) {
  Page& p = pages_[index(page)];
  ASSERT(p.references > 0 || p.has_key);
  if (p.references == 0) {
    unkeep(page);
    ++counts_.used;
  }
  ++p.references;
}

void PagePool::drop(PageId page, std::int64_t now_ms) {
  Page& p = pages_[index(page)];
  ASSERT(p.references > 0);
  if (--p.references > 0) return;
  --counts_.used;
  if (p.has_key) {
    keep(page, now_ms);
  } else {
    free_.push_back(page);
  }
}

PageId PagePool::find(const PageKey& key) const {
  const auto found = by_key_.find(key);
  return found == by_key_.end() ? kNoPage : found->second;
}

void PagePool::publish(PageId page, const PageKey& key) {
  Page& p = pages_[index(page)];
  ASSERT(p.references > 0);
  if (p.has_key || !by_key_.try_emplace(key, page).second) return;
  p.has_key = true;
  p.key = key;
}

void PagePool::expire(std::int64_t before_ms) {
  while (oldest_ != kNoPage && pages_[index(oldest_)].kept_since_ms < before_ms) {
    const PageId page = oldest_;
    unkeep(page);
    forget(page);
    free_.push_back(page);
  }
}

void PagePool::clear() {
  while (oldest_ != kNoPage) {
    const PageId page = oldest_;
    unkeep(page);
    free_.push_back(page);
  }
  by_key_.clear();
  for (Page& p : pages_) p.has_key = false;
}

void PagePool::keep(PageId page, std::int64_t now_ms) {
  Page& p = pages_[index(page)];
  p.kept_since_ms = now_ms;
  p.older = newest_;
  p.newer = kNoPage;
  (newest_ == kNoPage ? oldest_ : pages_[index(newest_)].newer) = page;
  newest_ = page;
  ++counts_.cached;
}

void PagePool::unkeep(PageId page) {
  const Page& p = pages_[index(page)];
  (p.older == kNoPage ? oldest_ : pages_[index(p.older)].newer) = p.newer;
  (p.newer == kNoPage ? newest_ : pages_[index(p.newer)].older) = p.older;
  --counts_.cached;
}

void PagePool::forget(PageId page) {
  Page& p = pages_[index(page)];
  by_key_.erase(p.key);
  p.has_key = false;
}

}  // namespace llorch::engine::inference::paging
