#include "engine/inference/kv_cache/kv_memory.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <set>

#include "engine/inference/kv_cache/miss_rule.h"
#include "engine/inference/testing/faulty_backend.h"

namespace llorch::engine::inference::kv_cache {
namespace {

using paging::PageId;
using plan::kPageTokens;
using plan::StateDescriptor;
using plan::StateKind;
using testing::FaultyBackend;

constexpr std::array kMemoryStates{
    StateDescriptor{.id = 0, .kind = StateKind::kKv, .bytes_per_token = 8, .size_bytes = 512},
    StateDescriptor{.id = 5, .kind = StateKind::kKv, .bytes_per_token = 4, .size_bytes = 256, .window_tokens = 100}};

struct Watcher : KvObserver {
  std::int64_t now_us() override { return now += 1500; }
  void on_slabs(const SlabEvent& event) override { events.push_back(event); }
  void on_oom(const memory::OomRecord& record) override { ooms.push_back(record); }
  std::int64_t now = 0;
  std::vector<SlabEvent> events;
  std::vector<memory::OomRecord> ooms;
};

struct Cache {
  explicit Cache(const KvLimits& limits, std::span<const StateDescriptor> states = kMemoryStates) {
    plan::Backend* const device = &backend;
    auto made = KvMemory::make(plan_kv(states, limits), {&device, 1});
    EXPECT_TRUE(made) << made.error().message;
    memory = *std::move(made);
    memory->observe(&watcher);
  }
  // Fills the slot to `tokens` positions, in steps.
  bool fill(std::uint32_t slot, std::uint32_t tokens) {
    for (std::uint32_t held = 0; held < tokens; held += kPageTokens) {
      if (!memory->reserve(slot, held, std::min(tokens, held + kPageTokens))) return false;
    }
    memory->upload();
    return true;
  }
  std::byte* entry(std::size_t group, std::uint32_t slot, std::uint32_t page) const {
    const plan::StateBlockHandle handle = memory->handles(0)[group];
    return handle.pages[slot * handle.pages_stride + page];
  }
  FaultyBackend backend;
  Watcher watcher;
  std::unique_ptr<KvMemory> memory;
};

// With less than a tenth free: compact, then try again, then a new slab; else a new slab at once.
TEST(MissRule, CompactsBelowATenthAndGrowsOtherwise) {
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 9, .pages_growable = 5}), MissAction::kCompact);
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 10, .pages_growable = 5}), MissAction::kNewSlab);
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 9, .pages_growable = 5, .compacted = true}),
            MissAction::kNewSlab);
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 9, .compacted = true}), MissAction::kRefuse);
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 10}), MissAction::kRefuse);
  EXPECT_EQ(miss_action({.pages_total = 100, .pages_free = 0}), MissAction::kCompact);
}

TEST(KvMemory, TheDeviceSeesDistinctAlignedPages) {
  Cache cache({.slots = 2, .context_tokens = 256, .rows_max = 64});
  ASSERT_TRUE(cache.fill(0, 256) && cache.fill(1, 200));
  std::set<std::byte*> seen;
  for (std::uint32_t page = 0; page < 4; ++page) {
    for (std::uint32_t slot : {0U, 1U}) {
      std::byte* const address = cache.entry(0, slot, page);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(address) % 64, 0U);
      ASSERT_NE(address, nullptr);
      std::memset(address, 1, 512);  // a page is all ours
      EXPECT_TRUE(seen.insert(address).second);
    }
  }
  EXPECT_EQ(cache.entry(1, 0, 0), nullptr);  // below the window of position 192 on
  EXPECT_NE(cache.entry(1, 0, 3), nullptr);
  cache.memory->tables().release(0);
  cache.memory->upload();
  for (std::uint32_t page = 0; page < 4; ++page) EXPECT_EQ(cache.entry(0, 0, page), nullptr);
}

TEST(KvMemory, GrowsByTheRuleAndSaysSo) {
  Cache cache({.slots = 3, .context_tokens = 1024, .rows_max = 64, .kv_tokens = 1024, .kv_tokens_max = 3 * 1024});
  EXPECT_TRUE(cache.fill(0, 1024));
  EXPECT_TRUE(cache.watcher.events.empty());
  EXPECT_TRUE(cache.fill(1, 64));
  ASSERT_EQ(cache.watcher.events.size(), 2U);
  EXPECT_EQ(event_name(cache.watcher.events[0].kind), "KV_COMPACT");
  const SlabEvent& grown = cache.watcher.events[1];
  EXPECT_EQ(event_name(grown.kind), "KV_NEW_SLAB");
  EXPECT_EQ(grown.state_id, 0);
  EXPECT_EQ(grown.free_frac, 0.0);
  EXPECT_EQ(grown.bytes_taken, 16U * 512);
  EXPECT_EQ(grown.ms, 1.5);
  EXPECT_EQ(cache.memory->tables().counts(0).total, 32U);
  EXPECT_TRUE(cache.fill(1, 1024) && cache.fill(2, 1024));
  EXPECT_EQ(cache.memory->tables().counts(0).total, 48U);
  EXPECT_FALSE(cache.memory->make_room({.tokens = 1}));  // kv_tokens_max is reached
}

TEST(KvMemory, RoomIsMadeForAWholeSequence) {
  Cache cache({.slots = 2, .context_tokens = 1024, .rows_max = 64, .kv_tokens = 1024, .kv_tokens_max = 2048});
  ASSERT_TRUE(cache.fill(0, 512));
  EXPECT_TRUE(cache.memory->make_room({.tokens = 512, .rows_max = 64}));
  EXPECT_TRUE(cache.watcher.events.empty());
  EXPECT_TRUE(cache.memory->make_room({.tokens = 1024, .rows_max = 64}));
  ASSERT_EQ(cache.watcher.events.size(), 1U);  // half is free: no compaction first
  EXPECT_EQ(cache.watcher.events[0].kind, SlabEvent::Kind::kNewSlab);
  EXPECT_EQ(cache.watcher.events[0].free_frac, 0.5);
  EXPECT_EQ(cache.watcher.events[0].largest_free_bytes, 8U * 512);
}

TEST(KvMemory, CompactingLetsGoOfTheCache) {
  Cache cache({.slots = 2, .context_tokens = 640, .rows_max = 64, .kv_tokens = 640, .kv_tokens_max = 1280});
  ASSERT_TRUE(cache.fill(0, 640));
  auto& tables = cache.memory->tables();
  for (std::uint32_t page = 0; page < 10; ++page) {
    paging::PageKey key{};
    key[0] = static_cast<std::uint8_t>(page);
    tables.publish(0, page, key, 0);
  }
  tables.release(0);
  EXPECT_EQ(tables.counts(0).cached, 10U);
  ASSERT_TRUE(cache.fill(1, 64));
  ASSERT_TRUE(cache.memory->make_room({.tokens = 640}));
  ASSERT_EQ(cache.watcher.events.size(), 2U);
  EXPECT_EQ(cache.watcher.events[0].kind, SlabEvent::Kind::kCompact);
  EXPECT_EQ(tables.counts(0).cached, 0U);
}

// Ids stay while pages move; every live page keeps its bytes; the device's tables follow; no memory stays behind.
TEST(KvMemory, GivesGrownSlabsBackWithWhatLivesInThem) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    Cache cache({.slots = 4, .context_tokens = 1280, .rows_max = 64, .kv_tokens = 1280, .kv_tokens_max = 5120});
    const std::uint64_t bytes_at_load = cache.memory->bytes();
    std::array<std::uint32_t, 4> length{};
    std::array<std::vector<PageId>, 4> ids;
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      length[slot] = 64 * (1 + random() % 20);
      ASSERT_TRUE(cache.fill(slot, length[slot]));
      for (std::uint32_t page = 0; page < length[slot] / 64; ++page)
        std::memset(cache.entry(0, slot, page), static_cast<int>(slot * 32 + page), 512);
    }
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      if (random() % 2 == 0) {
        cache.memory->tables().release(slot);
        length[slot] = 0;
      }
      const auto row = cache.memory->tables().row(0, slot);
      ids[slot].assign(row.begin(), row.end());
    }
    cache.memory->upload();
    cache.watcher.events.clear();
    const std::uint64_t before = cache.memory->bytes();
    const std::uint64_t back = cache.memory->release_idle();
    EXPECT_EQ(cache.memory->bytes(), before - back);
    EXPECT_EQ(cache.memory->tables().counts(0).total * 512 + cache.memory->tables().counts(1).total * 256,
              cache.memory->bytes());
    std::uint64_t said = 0;
    for (const SlabEvent& event : cache.watcher.events) said += event.bytes_given_back;
    EXPECT_EQ(said, back);
    std::uint32_t live = 0;
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      EXPECT_TRUE(std::ranges::equal(ids[slot], cache.memory->tables().row(0, slot)));
      live += length[slot] / 64;
      for (std::uint32_t page = 0; page < length[slot] / 64; ++page) {
        const std::span bytes(cache.entry(0, slot, page), 512);
        for (std::byte b : bytes) ASSERT_EQ(b, std::byte(slot * 32 + page));
      }
    }
    if (live <= 20 - 16) {
      EXPECT_EQ(cache.memory->bytes(), bytes_at_load);
    }
    for (std::uint32_t slot = 0; slot < 4; ++slot) {
      cache.memory->tables().release(slot);
      ASSERT_TRUE(cache.fill(slot, 1280));  // and it grows again
    }
  }
}

TEST(KvMemory, GrowthThatTheDeviceRefusesIsReported) {
  Cache cache({.slots = 2, .context_tokens = 1280, .rows_max = 64, .kv_tokens = 1280, .kv_tokens_max = 2560});
  ASSERT_TRUE(cache.fill(0, 1280));
  const std::uint64_t bytes = cache.memory->bytes();
  cache.backend.fail_from = cache.backend.allocations_count + 1;
  EXPECT_FALSE(cache.fill(1, 64));
  EXPECT_EQ(cache.memory->bytes(), bytes);
  ASSERT_EQ(cache.watcher.ooms.size(), 2U);  // a usual slab, then as little as would do
  EXPECT_EQ(cache.watcher.ooms[0].requested_bytes, 16U * 512);
  EXPECT_EQ(cache.watcher.ooms[1].requested_bytes, 512U);
  EXPECT_EQ(cache.watcher.ooms[0].stage, "run");
  cache.backend.fail_from = cache.backend.allocations_count + 1;
  cache.backend.fail_to = cache.backend.fail_from + 1;
  EXPECT_TRUE(cache.fill(1, 64));  // the small one is granted
  EXPECT_EQ(cache.memory->bytes(), bytes + 512);
}

// The first rung of the ladder: memory that one group of pages does not need is another's.
TEST(KvMemory, WithoutMemoryIdleSlabsOfOtherGroupsGoBackFirst) {
  constexpr std::array kWindowed{
      StateDescriptor{.id = 0, .kind = StateKind::kKv, .bytes_per_token = 8, .size_bytes = 512},
      StateDescriptor{.id = 5, .kind = StateKind::kKv, .bytes_per_token = 4, .size_bytes = 256, .window_tokens = 600}};
  Cache cache({.slots = 8, .context_tokens = 2048, .rows_max = 64, .kv_tokens = 2048, .kv_tokens_max = 16384},
              kWindowed);
  for (std::uint32_t slot = 0; slot < 8; ++slot) ASSERT_TRUE(cache.fill(slot, 512));
  for (std::uint32_t slot = 1; slot < 8; ++slot) cache.memory->tables().release(slot);
  ASSERT_TRUE(cache.fill(0, 2048) && cache.fill(1, 2048));
  ASSERT_EQ(cache.memory->tables().counts(0).takeable(), 0U);
  const std::uint32_t windowed = cache.memory->tables().counts(1).total;
  std::byte* const kept = cache.entry(1, 0, 31);
  std::memset(kept, 42, 256);
  cache.watcher.events.clear();

  cache.backend.fail_from = cache.backend.allocations_count + 1;
  cache.backend.fail_to = cache.backend.fail_from + 2;  // a usual slab, and as little as would do
  EXPECT_TRUE(cache.fill(2, 64));
  EXPECT_EQ(cache.watcher.ooms.size(), 2U);
  EXPECT_LT(cache.memory->tables().counts(1).total, windowed);
  EXPECT_EQ(*cache.entry(1, 0, 31), std::byte{42});
  std::uint64_t back = 0;
  for (const SlabEvent& event : cache.watcher.events) back += event.state_id == 5 ? event.bytes_given_back : 0;
  EXPECT_EQ(back, (windowed - cache.memory->tables().counts(1).total) * std::uint64_t{256});

  // Nothing idle is left there: what remains is a refusal.
  cache.backend.fail_from = cache.backend.allocations_count + 1;
  cache.backend.fail_to = ~std::uint64_t{0};
  EXPECT_FALSE(cache.fill(3, 2048));
}

}  // namespace
}  // namespace llorch::engine::inference::kv_cache
