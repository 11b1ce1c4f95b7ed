#include "orchestratord/core/placement/eviction.h"

#include <gtest/gtest.h>

#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core::placement {
namespace {

using config::EvictionPolicy;

struct Full {
  Full() {
    device.residents = {{.worker = 1,
                         .bytes = 3 * kGb,
                         .last_used_ms = 10,
                         .ready = true,
                         .idle = true,
                         .frequency = 9,
                         .model = {{1}}},
                        {.worker = 2,
                         .bytes = 3 * kGb,
                         .last_used_ms = 30,
                         .ready = true,
                         .idle = true,
                         .frequency = 2,
                         .model = {{2}}},
                        {.worker = 3,
                         .bytes = 3 * kGb,
                         .last_used_ms = 20,
                         .ready = true,
                         .idle = true,
                         .frequency = 2,
                         .model = {{3}}}};
  }
  Decision decide_now() {
    input.workers_per_device = 4;
    DecisionLog log;
    return decide(
        input,
        [this] {
          return Devices{std::span<const DeviceChoice>(&device, 1), {}};
        },
        log);
  }
  std::vector<std::uint32_t> evicted() {
    const Decision d = decide_now();
    return std::holds_alternative<Evict>(d) ? std::get<Evict>(d).workers : std::vector<std::uint32_t>{};
  }
  WaitCode waits() {
    const Decision d = decide_now();
    EXPECT_TRUE(std::holds_alternative<Wait>(d)) << d.index();
    return std::holds_alternative<Wait>(d) ? std::get<Wait>(d).code : WaitCode::kTurn;
  }

  PlacementInput input{.rank = {.arrival = {10}}, .model = {9}, .memory_bytes = 3 * kGb};
  DeviceChoice device{.device = 0, .free_bytes = 0, .potential_bytes = 9 * kGb, .total_bytes = 9 * kGb};
};

// ORCH-1050, SCHED-11080: lru by last use; lfu by frequency, ties by last use; manual stops nothing and says so.
TEST(Eviction, FollowsThePolicy) {
  Full f;
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{1});
  f.input.eviction = EvictionPolicy::kLfu;
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{3});
  f.input.eviction = EvictionPolicy::kManual;
  EXPECT_EQ(f.waits(), WaitCode::kEviction);
  EXPECT_EQ(code(WaitCode::kEviction), "WAITING_FOR_EVICTION");
  // What an operator has sent away already is waited for as usual.
  f.device.residents[0].leaving = true;
  EXPECT_EQ(f.waits(), WaitCode::kMemory);
}

// SYS-3.3.1: every device of a choice must come to hold its part; a worker that is on two of them goes once.
TEST(Eviction, MakesRoomOnEveryDevice) {
  Full f;
  DeviceChoice first = f.device, second = f.device;
  first.residents.resize(2);                         // 1 and 2
  second.residents.erase(second.residents.begin());  // 2 and 3
  second.free_bytes = 3 * kGb;
  f.device.residents.clear();
  f.device.parts = {first, second};
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{1}) << "the second has room";
  f.device.parts[1].free_bytes = 0;
  EXPECT_EQ(f.evicted(), (std::vector<std::uint32_t>{1, 3}));
  // The longest unused is on both.
  for (DeviceChoice& part : f.device.parts) {
    for (Resident& t : part.residents) t.last_used_ms = t.worker == 2 ? 1 : 30;
  }
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{2});
  // Twice a share of one device.
  f.device.parts.resize(1);
  f.device.parts[0].ranks = 2;
  EXPECT_EQ(f.evicted(), (std::vector<std::uint32_t>{2, 1}));
  f.device.parts[0].potential_bytes = 5 * kGb;
  EXPECT_TRUE(f.evicted().empty());
  // One device that nobody may leave keeps the others as they are.
  f.device.parts = {first, second};
  f.device.parts[1].free_bytes = 0;
  for (Resident& t : f.device.parts[1].residents) t.idle = false;
  EXPECT_TRUE(f.evicted().empty());
  // What leaves one of them is waited for once the others hold theirs.
  f.device.parts[1].free_bytes = 3 * kGb;
  f.device.parts[0].residents[0].leaving = true;
  EXPECT_EQ(f.waits(), WaitCode::kMemory);
}

// One of the model itself that the job does not accept, as it spans other devices, goes like any other.
TEST(Eviction, AWorkerOfTheSameModelElsewhereMakesRoom) {
  Full f;
  f.device.residents.resize(1);
  f.device.residents[0].model = f.input.model;
  EXPECT_EQ(f.waits(), WaitCode::kMemory);
  f.device.residents[0].elsewhere = true;
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{1});
  f.device.residents[0].idle = false;
  f.input.impatient = true;
  f.device.free_bytes = kGb;
  const Decision reserve = f.decide_now();
  ASSERT_TRUE(std::holds_alternative<Reserve>(reserve));
  EXPECT_EQ(std::get<Reserve>(reserve).free_bytes_max, kGb) << "who waits is told of it";
}

// Under manual an idle worker and one with later jobs are the same to the operator; a worker with earlier jobs is not his.
TEST(Eviction, ManualWaitsForTheOperatorOnlyWhereOneCouldHelp) {
  Full f;
  f.input.eviction = EvictionPolicy::kManual;
  for (Resident& t : f.device.residents) t.idle = false;
  EXPECT_EQ(f.waits(), WaitCode::kEviction);
  for (Resident& t : f.device.residents) t.queued = Rank{.arrival = {1}};
  EXPECT_EQ(f.waits(), WaitCode::kMemory);
}

// ORCH-1052, SCHED-11081: what is busy, loads or leaves is not evicted, under no policy.
TEST(Eviction, LeavesBusyAndLoadingWorkersAlone) {
  for (const auto policy : {EvictionPolicy::kLru, EvictionPolicy::kLfu}) {
    Full f;
    f.input.eviction = policy;
    f.device.residents[0].idle = false;
    f.device.residents[1].ready = false;
    f.device.residents[2].queued = Rank{.arrival = {99}};
    EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{});
    f.input.impatient = true;  // a reservation is not a stop: it waits until they are idle
    const Decision d = f.decide_now();
    ASSERT_TRUE(std::holds_alternative<Reserve>(d));
    EXPECT_EQ(std::get<Reserve>(d).workers.size(), 1u);
    EXPECT_NE(std::get<Reserve>(d).workers[0], 2u) << "it loads";
  }
}

// No thrashing: until its load has paid off a worker is neither evicted nor reserved.
TEST(Eviction, AWorkerStaysAsLongAsItsStartTook) {
  EXPECT_EQ(kept_until_ms(1'000, 4'000), 5'000);
  Full f;
  for (Resident& t : f.device.residents) t.kept = true;
  EXPECT_EQ(f.waits(), WaitCode::kMemory);
  f.input.impatient = true;
  const Decision d = f.decide_now();
  ASSERT_TRUE(std::holds_alternative<Wait>(d));
  EXPECT_TRUE(std::get<Wait>(d).kept);
  f.device.residents[1].kept = false;
  EXPECT_EQ(f.evicted(), std::vector<std::uint32_t>{2});
}

// Two models take turns as fast as they can: by the rule above the device loads for at most half of the time.
TEST(Eviction, TwoModelsInTurnsLoadAtMostHalfOfTheTime) {
  for (const std::int64_t start_ms : {1, 10, 5'000}) {
    std::int64_t now = 0, loading = 0;
    for (int turn = 0; turn < 100; ++turn) {
      now += start_ms;
      loading += start_ms;
      now = kept_until_ms(now, start_ms);
    }
    EXPECT_LE(loading * 2, now);
  }
}

// SCHED-11080: what was popular once does not stay for ever.
TEST(UseFrequency, HalvesEveryTenMinutes) {
  UseFrequency f;
  EXPECT_EQ(f.at(0), 0);
  for (int i = 0; i < 8; ++i) f.used(1'000);
  EXPECT_EQ(f.at(1'000), 8 * UseFrequency::kUse);
  EXPECT_EQ(f.at(UseFrequency::kHalfLifeMs), 4 * UseFrequency::kUse);
  f.used(UseFrequency::kHalfLifeMs);
  EXPECT_EQ(f.at(UseFrequency::kHalfLifeMs), 5 * UseFrequency::kUse);
  EXPECT_EQ(f.at(3 * UseFrequency::kHalfLifeMs), 5 * UseFrequency::kUse / 4);
  EXPECT_EQ(f.at(UseFrequency::kHalfLifeMs * 1'000'000), 0);
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
