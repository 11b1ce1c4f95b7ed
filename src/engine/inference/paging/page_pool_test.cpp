#include "engine/inference/paging/page_pool.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

namespace llorch::engine::inference::paging {
namespace {

PageKey key_of(int n) {
  PageKey key{};
  key[0] = static_cast<std::uint8_t>(n);
  return key;
}

// What PagePool says it is, with lists that are searched.
struct NaivePool {
  struct Kept {
    PageId page;
    std::int64_t since_ms;
  };
  std::map<PageId, int> references;  // held pages
  std::map<int, PageId> by_key;
  std::vector<Kept> kept;  // oldest first
  std::set<PageId> withdrawn;

  std::optional<int> key(PageId page) const {
    for (const auto& [k, p] : by_key) {
      if (p == page) return k;
    }
    return std::nullopt;
  }
  void took(PageId page, bool had_free) {
    RC_ASSERT(!references.contains(page) && !withdrawn.contains(page));
    const auto is_page = [&](const Kept& k) { return k.page == page; };
    if (had_free) {
      RC_ASSERT(std::ranges::none_of(kept, is_page));
    } else {
      RC_ASSERT(kept.front().page == page);
      by_key.erase(*key(page));
      kept.erase(kept.begin());
    }
    references[page] = 1;
  }
  void share(PageId page) {
    std::erase_if(kept, [&](const Kept& k) { return k.page == page; });
    ++references[page];
  }
  void drop(PageId page, std::int64_t now_ms) {
    if (--references[page] > 0) return;
    references.erase(page);
    if (key(page)) kept.push_back({page, now_ms});
  }
  void publish(PageId page, int k) {
    if (!key(page)) by_key.try_emplace(k, page);
  }
  void expire(std::int64_t before_ms) {
    std::erase_if(kept, [&](const Kept& k) {
      if (k.since_ms >= before_ms) return false;
      by_key.erase(*key(k.page));
      return true;
    });
  }
  void clear() {
    kept.clear();
    by_key.clear();
  }
};

void check_same(const PagePool& pool, const NaivePool& naive, std::uint32_t total) {
  RC_ASSERT(pool.counts().total == total - naive.withdrawn.size());
  RC_ASSERT(pool.counts().used == naive.references.size());
  RC_ASSERT(pool.counts().cached == naive.kept.size());
  for (std::uint32_t i = 0; i < total; ++i) {
    const auto held = naive.references.find(PageId{i});
    RC_ASSERT(pool.references(PageId{i}) ==
              (held == naive.references.end() ? 0u : static_cast<unsigned>(held->second)));
    RC_ASSERT(pool.has_key(PageId{i}) == naive.key(PageId{i}).has_value());
  }
  for (int k = 0; k < 8; ++k) {
    const auto found = naive.by_key.find(k);
    RC_ASSERT(pool.find(key_of(k)) == (found == naive.by_key.end() ? kNoPage : found->second));
  }
}

void random_operation(PagePool& pool, NaivePool& naive, std::uint32_t& total, std::int64_t now_ms) {
  const auto held = [&] { return *rc::gen::elementOf(naive.references); };
  switch (*rc::gen::inRange(0, 12)) {
    case 0:
    case 1:
    case 2: {
      if (pool.counts().takeable() == 0) return;
      const bool had_free = pool.counts().free() > 0;
      return naive.took(pool.take(), had_free);
    }
    case 3: {
      if (naive.by_key.empty()) return;
      const PageId page = (*rc::gen::elementOf(naive.by_key)).second;
      pool.share(page);
      return naive.share(page);
    }
    case 4:
    case 5:
    case 6: {
      if (naive.references.empty()) return;
      const PageId page = held().first;
      pool.drop(page, now_ms);
      return naive.drop(page, now_ms);
    }
    case 7:
    case 8:
    case 9: {
      if (naive.references.empty()) return;
      const PageId page = held().first;
      const int k = *rc::gen::inRange(0, 8);
      pool.publish(page, key_of(k));
      return naive.publish(page, k);
    }
    case 10: {
      const std::int64_t before_ms = now_ms - *rc::gen::inRange(0, 20);
      pool.expire(before_ms);
      return naive.expire(before_ms);
    }
    default: {
      if (*rc::gen::inRange(0, 4) == 0) {
        pool.clear();
        return naive.clear();
      }
      const auto count = *rc::gen::inRange(0u, 4u);
      if (*rc::gen::inRange(0, 2) == 0) {
        const auto gone = pool.withdraw(std::min(count, pool.counts().free()));
        naive.withdrawn.insert(gone.begin(), gone.end());
        return;
      }
      if (total > 20) return;
      const auto more = pool.grow(count);
      RC_ASSERT(more.size() == count);
      for (PageId page : more) {
        if (naive.withdrawn.erase(page) > 0) continue;
        RC_ASSERT(naive.withdrawn.empty() && page == PageId{total});  // first those that were there before
        ++total;
      }
    }
  }
}

TEST(PagePool, IsTheNaiveModel) {
  EXPECT_TRUE(rc::check("every operation does what searched lists do", [] {
    std::uint32_t total = *rc::gen::inRange(0u, 7u);
    PagePool pool(total);
    NaivePool naive;
    std::int64_t now_ms = 0;
    const int operations = *rc::gen::inRange(1, 120);
    for (int i = 0; i < operations; ++i) {
      random_operation(pool, naive, total, now_ms += *rc::gen::inRange(0, 3));
      check_same(pool, naive, total);
    }
    // Everything that is called takeable can be taken.
    for (std::uint32_t left = pool.counts().takeable(); left > 0; --left) {
      const bool had_free = pool.counts().free() > 0;
      naive.took(pool.take(), had_free);
    }
    check_same(pool, naive, total);
  }));
}

}  // namespace
}  // namespace llorch::engine::inference::paging
