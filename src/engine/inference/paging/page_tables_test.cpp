#include "engine/inference/paging/page_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <iostream>
#include <random>
#include <set>

#include "base/testing/allocation_counter.h"
#include "engine/inference/paging/prefix_keys.h"
#include "engine/inference/paging/testing/page_contents.h"

namespace llorch::engine::inference::paging {
namespace {

using base::TokenId;
using plan::kPageTokens;
using ::testing::ElementsAre;
using testing::PageContents;

constexpr std::uint32_t kP = kPageTokens;

PageTables two_groups(std::uint32_t all, std::uint32_t windowed, std::uint32_t window_tokens, std::uint32_t slots = 3) {
  return PageTables({.groups = {{.pages_total = all}, {.pages_total = windowed, .window_tokens = window_tokens}},
                     .slots = slots,
                     .context_tokens = 16 * kP});
}
PageTables one_group(std::uint32_t pages, std::uint32_t slots = 3) {
  return PageTables({.groups = {{.pages_total = pages}}, .slots = slots, .context_tokens = 16 * kP});
}

std::vector<PageKey> chain(std::uint32_t pages, std::uint32_t first_token = 0) {
  std::vector<TokenId> tokens;
  for (std::uint32_t i = 0; i < pages * kP; ++i) tokens.push_back(TokenId{first_token + i});
  PrefixKeys keys(std::as_bytes(std::span("salt")));
  keys.extend(tokens);
  return {keys.keys().begin(), keys.keys().end()};
}

void publish_all(PageTables& tables, std::uint32_t slot, std::span<const PageKey> keys) {
  for (std::uint32_t i = 0; i < keys.size(); ++i) tables.publish(slot, i, keys[i], 0);
}

// A slot computes the pages of `keys` in steps of one page, publishes each and lets go of all.
void compute(PageTables& tables, std::uint32_t slot, std::span<const PageKey> keys) {
  for (std::uint32_t i = 0; i < keys.size(); ++i) {
    ASSERT_TRUE(tables.reserve(slot, i * kP, (i + 1) * kP));
    tables.publish(slot, i, keys[i], 0);
  }
  tables.release(slot);
}

TEST(PageGroup, PagesAtOnceIsTheMostThatAnyStepHolds) {
  for (const std::uint32_t window : {0u, 1u, 2u, 63u, 64u, 65u, 66u, 128u, 200u}) {
    for (const std::uint32_t rows : {1u, 2u, 7u, 64u, 65u, 100u}) {
      const PageGroup group{.pages_total = 0, .window_tokens = window};
      const std::uint32_t tokens = 10 * kP + 3;
      std::uint32_t most = 0;
      for (std::uint32_t held = 0; held < tokens; ++held) {
        const std::uint32_t end = (std::min(held + rows, tokens) + kP - 1) / kP;
        most = std::max(most, end - group.first_page_seen(held));
      }
      EXPECT_EQ(group.pages_at_once({.tokens = tokens, .rows_max = rows}), most) << window << ", " << rows;
    }
  }
}

TEST(PageTables, ReservesWhatIsMissingAndAllOrNothing) {
  PageTables tables = two_groups(4, 2, kP);
  EXPECT_TRUE(tables.reserve(0, 0, 1));
  EXPECT_EQ(tables.counts(0).used, 1u);
  EXPECT_TRUE(tables.reserve(0, 1, kP));
  EXPECT_EQ(tables.counts(0).used, 1u) << "the page begun has room";
  EXPECT_TRUE(tables.reserve(0, kP, kP + 1));
  EXPECT_EQ(tables.counts(0).used, 2u);
  EXPECT_FALSE(tables.can_reserve(1, 0, 1)) << "the second group has none left";
  EXPECT_FALSE(tables.reserve(1, 0, 1));
  EXPECT_EQ(tables.counts(0).used, 2u);
  EXPECT_EQ(tables.counts(1).used, 2u);
  EXPECT_EQ(tables.pages_held(0, 1), 0u);
  tables.release(0);
  tables.release(0);
  EXPECT_TRUE(tables.reserve(1, 0, 1));
  EXPECT_EQ(tables.counts(0).free(), 3u);
}

TEST(PageTables, AWindowedGroupLetsGoOfWhatNobodySees) {
  // A window of two pages: position 3 P sees P + 1 .. 3 P.
  PageTables tables = two_groups(16, 4, 2 * kP);
  for (std::uint32_t held = 0; held < 10 * kP; held += kP / 2) {
    ASSERT_TRUE(tables.reserve(0, held, held + kP / 2)) << held;
    EXPECT_LE(tables.pages_held(1, 0), 3u);
  }
  EXPECT_EQ(tables.pages_held(0, 0), 10u);
  ASSERT_TRUE(tables.reserve(0, 10 * kP, 10 * kP));
  EXPECT_EQ(tables.row(1, 0)[7], kNoPage);
  EXPECT_NE(tables.row(1, 0)[8], kNoPage);
  EXPECT_EQ(PageContents::check_counts(tables, 3), "");
}

TEST(PageTables, WhatAStepLetsGoOfItMayTake) {
  PageTables tables = two_groups(16, 2, 1);
  ASSERT_TRUE(tables.reserve(0, 0, 2 * kP));
  EXPECT_TRUE(tables.can_reserve(0, 2 * kP, 4 * kP));
  EXPECT_TRUE(tables.reserve(0, 2 * kP, 4 * kP));
  EXPECT_FALSE(tables.can_reserve(0, 4 * kP, 7 * kP));
}

TEST(PageTables, ALaterRequestFindsTheFullPages) {
  PageTables tables = one_group(8);
  const std::vector<PageKey> keys = chain(4);
  ASSERT_TRUE(tables.reserve(0, 0, 4 * kP));
  publish_all(tables, 0, std::span(keys).first(3));
  const std::vector<PageId> pages(tables.row(0, 0).begin(), tables.row(0, 0).begin() + 3);
  EXPECT_EQ(tables.adopt(1, keys, 0), 3 * kP) << "while the first still runs";
  EXPECT_TRUE(std::ranges::equal(tables.row(0, 1).first(3), pages));
  EXPECT_EQ(tables.references(0, pages[0]), 2u);
  tables.release(0);
  tables.release(1);
  EXPECT_EQ(tables.counts(0).used, 0u);
  EXPECT_EQ(tables.counts(0).cached, 3u);
  const PrefixMatch match = tables.match(keys);
  EXPECT_EQ(match.tokens, 3 * kP);
  EXPECT_EQ(match.pages[0], 3u);
  EXPECT_EQ(match.unheld[0], 3u);
  EXPECT_EQ(tables.adopt(2, std::span(keys).first(2), 0), 2 * kP);
  EXPECT_EQ(tables.match(keys).unheld[0], 1u);
  EXPECT_EQ(tables.match(chain(4, 1000)).tokens, 0u);
}

TEST(PageTables, TheTailOfAChainIsTakenBackBeforeItsRoot) {
  PageTables tables = one_group(6);
  const std::vector<PageKey> keys = chain(6);
  compute(tables, 0, keys);
  for (std::uint32_t left = 6; left > 0; --left) {
    EXPECT_EQ(tables.match(keys).tokens, left * kP);
    ASSERT_TRUE(tables.reserve(1, (6 - left) * kP, (7 - left) * kP));
  }
  EXPECT_EQ(tables.match(keys).tokens, 0u);
}

TEST(PageTables, TheLeastRecentlyUsedGoesFirst) {
  PageTables tables = one_group(4);
  const std::vector<PageKey> a = chain(2), b = chain(2, 5000);
  compute(tables, 0, a);
  compute(tables, 0, b);
  EXPECT_EQ(tables.adopt(0, a, 0), 2 * kP);
  tables.release(0);
  ASSERT_TRUE(tables.reserve(1, 0, 2 * kP));
  EXPECT_EQ(tables.match(a).tokens, 2 * kP);
  EXPECT_EQ(tables.match(b).tokens, 0u);
}

TEST(PageTables, ARunCountsOnlyWhereEveryWindowIsWhole) {
  // A window of P + 1: the next position after n pages sees the last of them.
  PageTables tables = two_groups(8, 4, kP + 1);
  const std::vector<PageKey> keys = chain(5);
  compute(tables, 0, keys);
  EXPECT_EQ(tables.match(keys).tokens, 5 * kP);
  EXPECT_EQ(tables.adopt(0, keys, 0), 5 * kP);
  EXPECT_EQ(tables.pages_held(1, 0), 1u);
  EXPECT_EQ(tables.row(1, 0)[3], kNoPage);
  EXPECT_EQ(tables.match(keys).pages[1], 1u);
  tables.release(0);
  // The second group had to let go of the first page already: there is no run of one page, but all longer ones.
  EXPECT_EQ(tables.match(std::span(keys).first(1)).tokens, 0u);
  EXPECT_EQ(tables.match(std::span(keys).first(2)).tokens, 2 * kP);
}

TEST(PageTables, AWindowOfOnePositionNeedsNoPages) {
  PageTables tables = two_groups(8, 4, 1);
  const std::vector<PageKey> keys = chain(5);
  compute(tables, 0, keys);
  EXPECT_EQ(tables.adopt(0, keys, 0), 5 * kP);
  EXPECT_EQ(tables.pages_held(1, 0), 0u);
  EXPECT_TRUE(tables.reserve(0, 5 * kP, 5 * kP + 1));
  EXPECT_EQ(tables.pages_held(1, 0), 1u);
}

TEST(PageTables, TheFirstPageUnderAKeyStays) {
  PageTables tables = one_group(4);
  const std::vector<PageKey> keys = chain(1);
  ASSERT_TRUE(tables.reserve(0, 0, kP) && tables.reserve(1, 0, kP));
  tables.publish(1, 0, keys[0], 0);
  tables.publish(0, 0, keys[0], 0);
  EXPECT_EQ(tables.adopt(2, keys, 0), kP);
  EXPECT_EQ(tables.row(0, 2)[0], tables.row(0, 1)[0]);
  for (const std::uint32_t slot : {0u, 1u, 2u}) tables.release(slot);
  EXPECT_EQ(tables.counts(0).cached, 1u);
}

TEST(PageTables, AForkSharesFullPagesAndCopiesTheOneBegun) {
  PageTables tables = two_groups(8, 8, kP + 1);
  ASSERT_TRUE(tables.reserve(0, 0, 3 * kP + 5));
  std::vector<PageCopy> copies;
  ASSERT_TRUE(tables.fork(0, 1, 3 * kP + 5, copies));
  ASSERT_EQ(copies.size(), 2u);
  for (const PageCopy& c : copies) {
    EXPECT_EQ(c.from, tables.row(c.group, 0)[3]);
    EXPECT_EQ(c.to, tables.row(c.group, 1)[3]);
    EXPECT_NE(c.from, c.to);
  }
  EXPECT_EQ(tables.references(0, tables.row(0, 0)[0]), 2u);
  EXPECT_EQ(tables.row(1, 1)[1], kNoPage) << "no later position of the child sees it";
  EXPECT_EQ(tables.pages_held(1, 1), 2u);
  EXPECT_TRUE(tables.reserve(0, 3 * kP + 5, 3 * kP + 6) && tables.reserve(1, 3 * kP + 5, 3 * kP + 6));
  tables.release(0);
  EXPECT_EQ(tables.references(0, tables.row(0, 1)[0]), 1u);
  tables.release(1);
  EXPECT_EQ(tables.counts(0).free(), 8u);
  EXPECT_EQ(tables.counts(1).free(), 8u);
}

TEST(PageTables, AForkAtAPageBoundaryCopiesNothingAndAFailedOneTakesNothing) {
  PageTables tables = one_group(3);
  ASSERT_TRUE(tables.reserve(0, 0, 2 * kP + 1));
  std::vector<PageCopy> copies;
  EXPECT_FALSE(tables.fork(0, 1, 2 * kP + 1, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(tables.pages_held(0, 1), 0u);
  EXPECT_TRUE(tables.fork(0, 1, 2 * kP, copies));
  EXPECT_TRUE(copies.empty());
  EXPECT_EQ(tables.pages_held(0, 1), 2u);
}

TEST(PageTables, KeysExpireOnceNobodyUsesThem) {
  PageTables tables = one_group(8);
  const std::vector<PageKey> old_keys = chain(2), held_keys = chain(2, 5000);
  ASSERT_TRUE(tables.reserve(0, 0, 2 * kP) && tables.reserve(1, 0, 2 * kP));
  for (std::uint32_t i = 0; i < 2; ++i) {
    tables.publish(0, i, old_keys[i], 100);
    tables.publish(1, i, held_keys[i], 100);
  }
  tables.release(0);
  tables.expire(100);
  EXPECT_EQ(tables.match(old_keys).tokens, 2 * kP);
  tables.expire(101);
  EXPECT_EQ(tables.match(old_keys).tokens, 0u);
  EXPECT_EQ(tables.match(held_keys).tokens, 2 * kP) << "in use";
  EXPECT_EQ(tables.adopt(0, chain(1, 9000), 500), 0u);
  tables.release(1);
  tables.expire(500);
  EXPECT_EQ(tables.match(held_keys).tokens, 2 * kP) << "last used at 500";
  tables.clear_cache();
  EXPECT_EQ(tables.match(held_keys).tokens, 0u);
  EXPECT_EQ(tables.counts(0).free(), 8u);
}

TEST(PageTables, MorePagesGoOnFromTheOldIds) {
  PageTables tables = one_group(1);
  ASSERT_TRUE(tables.reserve(0, 0, kP));
  EXPECT_FALSE(tables.reserve(0, kP, 2 * kP));
  tables.grow(0, 2);
  EXPECT_EQ(tables.group(0).pages_total, 3u);
  EXPECT_TRUE(tables.reserve(0, kP, 3 * kP));
  EXPECT_THAT(tables.row(0, 0).first(3), ElementsAre(PageId{0}, PageId{1}, PageId{2}));
}

TEST(PageTables, TellsEveryEntryThatChangedOnce) {
  PageTables tables = two_groups(8, 8, kP + 1);
  const auto changes = [&] {
    std::vector<std::array<std::uint32_t, 4>> all;
    tables.take_changes([&](std::uint32_t group, std::uint32_t slot, std::uint32_t begin, std::uint32_t end) {
      all.push_back({group, slot, begin, end});
    });
    return all;
  };
  using Change = std::array<std::uint32_t, 4>;
  EXPECT_TRUE(changes().empty());
  ASSERT_TRUE(tables.reserve(1, 0, 3 * kP));
  EXPECT_THAT(changes(), ElementsAre(Change{0, 1, 0, 3}, Change{1, 1, 0, 3}));
  ASSERT_TRUE(tables.reserve(1, 3 * kP - 1, 3 * kP));
  EXPECT_THAT(changes(), ElementsAre(Change{1, 1, 0, 1})) << "pages below the window";
  ASSERT_TRUE(tables.reserve(1, 3 * kP, 3 * kP));
  EXPECT_THAT(changes(), ElementsAre(Change{1, 1, 1, 2}));
  tables.release(1);
  EXPECT_THAT(changes(), ElementsAre(Change{0, 1, 0, 3}, Change{1, 1, 2, 3}));
  EXPECT_TRUE(changes().empty());
}

TEST(PageTables, AModelWithoutPagesHasNothingToRunOutOf) {
  PageTables tables({.groups = {}, .slots = 2, .context_tokens = 1000});
  EXPECT_TRUE(tables.reserve(0, 0, 1000));
  std::vector<PageCopy> copies;
  EXPECT_TRUE(tables.fork(0, 1, 1000, copies));
  tables.release(0);
  EXPECT_EQ(tables.adopt(0, chain(2), 0), 0u) << "its state is not in pages";
}

TEST(PageTables, ATokenAllocatesNothing) {
  PageTables tables = two_groups(16, 16, kP + 1);
  const std::vector<PageKey> keys = chain(4);
  compute(tables, 0, keys);
  const auto before = base::testing::allocations_count();
  bool fine = tables.adopt(0, keys, 5) == 4 * kP;
  for (std::uint32_t held = 4 * kP; held < 10 * kP; ++held) fine &= tables.reserve(0, held, held + 1);
  tables.take_changes([](auto...) {});
  tables.release(0);
  tables.expire(100);
  EXPECT_EQ(base::testing::allocations_count(), before);
  EXPECT_TRUE(fine);
}

// Slots that compute, share, fork and let go at random, over pages whose content is modelled.
class RandomSlots {
 public:
  explicit RandomSlots(std::uint64_t seed)
      : random_(seed),
        tables_({.groups = groups(), .slots = kSlots, .context_tokens = kContext}),
        contents_(tables_),
        slots_(kSlots) {}

  std::string run(int operations) {
    for (int i = 0; i < operations && wrong_.empty(); ++i) {
      operate();
      follow_changes();
      if (wrong_.empty()) wrong_ = PageContents::check_counts(tables_, kSlots);
    }
    if (!wrong_.empty()) return wrong_;
    for (std::uint32_t slot = 0; slot < kSlots; ++slot) tables_.release(slot);
    tables_.clear_cache();
    for (std::uint32_t g = 0; g < tables_.groups_count(); ++g) {
      if (tables_.counts(g).free() != tables_.counts(g).total) return "a page is lost";
    }
    return {};
  }
  std::uint64_t adopted = 0, forked = 0, refused = 0;

 private:
  static constexpr std::uint32_t kSlots = 4, kContext = 6 * kP;
  struct Slot {
    std::vector<TokenId> tokens;
    std::vector<std::uint64_t> numbers;
    PrefixKeys keys{std::as_bytes(std::span("salt"))};
    bool ended = true;
  };

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  std::vector<PageGroup> groups() {
    std::vector<PageGroup> all{{.pages_total = 4 + below(16)}};
    if (below(2) == 0) all.push_back({.pages_total = 3 + below(10), .window_tokens = 1 + below(3 * kP)});
    return all;
  }
  // Few different texts, so that chains meet; they part at some token.
  TokenId next_token(const Slot& slot) {
    return TokenId{below(100) == 0 ? 1 + below(3) : static_cast<std::uint32_t>(slot.tokens.size() / 50)};
  }

  void operate() {
    const std::uint32_t s = below(kSlots);
    switch (below(8)) {
      case 0: return end(s);
      case 1: return fork(s, below(kSlots));
      case 2: return below(20) == 0 ? tables_.clear_cache() : tables_.expire(now_ms_ - 20);
      case 3: {
        if (below(10) == 0) tables_.grow(0, 1);
        if (below(10) == 0 && tables_.counts(0).free() > 0) tables_.withdraw(0, 1);
        return;
      }
      default: return slots_[s].ended ? begin(s) : advance(s);
    }
  }
  void end(std::uint32_t s) {
    tables_.release(s);
    slots_[s] = {};
  }
  void begin(std::uint32_t s) {
    Slot& slot = slots_[s];
    const std::uint32_t prompt = 1 + below(kContext);
    Slot text;
    while (text.tokens.size() < prompt) text.tokens.push_back(next_token(text));
    text.keys.extend(text.tokens);
    const std::uint32_t held = tables_.adopt(s, text.keys.keys(), ++now_ms_);
    text.tokens.resize(held);
    slot = {.tokens = text.tokens, .numbers = {}, .keys = PrefixKeys(std::as_bytes(std::span("salt"))), .ended = false};
    slot.keys.extend(slot.tokens);
    testing::extend_numbers(slot.numbers, slot.tokens);
    adopted += held;
    wrong_ = contents_.check_seen(s, slot.numbers);
  }
  void advance(std::uint32_t s) {
    Slot& slot = slots_[s];
    const auto held = static_cast<std::uint32_t>(slot.tokens.size());
    const std::uint32_t tokens = std::min(kContext, held + 1 + below(2 * kP));
    const bool can = tables_.can_reserve(s, held, tokens);
    if (tables_.reserve(s, held, tokens) != can) wrong_ = "can_reserve() says something else";
    if (!can) return void(++refused);
    while (slot.tokens.size() < tokens) slot.tokens.push_back(next_token(slot));
    testing::extend_numbers(slot.numbers, slot.tokens);
    wrong_ = contents_.run(s, held, slot.numbers);
    slot.keys.extend(slot.tokens);
    for (std::uint32_t i = held / kP; i < slot.tokens.size() / kP; ++i) {
      tables_.publish(s, i, slot.keys.keys()[i], ++now_ms_);
    }
  }
  void fork(std::uint32_t from, std::uint32_t to) {
    if (from == to || slots_[from].ended || !slots_[to].ended) return;
    std::vector<PageCopy> copies;
    if (!tables_.fork(from, to, static_cast<std::uint32_t>(slots_[from].tokens.size()), copies)) return void(++refused);
    contents_.copy(copies);
    slots_[to] = slots_[from];
    wrong_ = contents_.check_seen(to, slots_[to].numbers);
    ++forked;
  }
  // A copy of the rows that is kept by changes only, as a device's is.
  void follow_changes() {
    mirror_.resize(tables_.groups_count(), std::vector<PageId>(kSlots * (kContext / kP), kNoPage));
    tables_.take_changes([&](std::uint32_t group, std::uint32_t slot, std::uint32_t begin, std::uint32_t end) {
      std::ranges::copy(tables_.row(group, slot).subspan(begin, end - begin),
                        mirror_[group].begin() + slot * (kContext / kP) + begin);
    });
    for (std::uint32_t g = 0; g < tables_.groups_count(); ++g) {
      for (std::uint32_t slot = 0; slot < kSlots; ++slot) {
        const auto row = std::span(mirror_[g]).subspan(slot * (kContext / kP), kContext / kP);
        if (!std::ranges::equal(row, tables_.row(g, slot))) wrong_ = "an entry changed without being told";
      }
    }
  }

  std::mt19937_64 random_;
  PageTables tables_;
  PageContents contents_;
  std::vector<Slot> slots_;
  std::vector<std::vector<PageId>> mirror_;
  std::int64_t now_ms_ = 0;
  std::string wrong_;
};

TEST(PageTables, PagesHoldWhatTheirSlotsThinkWhateverHappens) {
  std::uint64_t adopted = 0, forked = 0, refused = 0;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    RandomSlots slots(seed);
    ASSERT_EQ(slots.run(80), "") << "seed " << seed;
    adopted += slots.adopted;
    forked += slots.forked;
    refused += slots.refused;
  }
  std::cout << adopted << " positions adopted, " << forked << " forks, " << refused << " refused\n";
  EXPECT_GT(adopted, 100'000u);
  EXPECT_GT(forked, 1000u);
  EXPECT_GT(refused, 1000u);
}

}  // namespace
}  // namespace llorch::engine::inference::paging
