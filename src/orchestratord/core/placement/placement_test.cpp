#include "orchestratord/core/placement/placement.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core::placement {
namespace {

using config::PlacementAlgorithm;

struct Case {
  PlacementInput input{.rank = {.arrival = {10}}, .memory_bytes = 4 * kGb};
  std::vector<WorkerChoice> workers;
  std::vector<DeviceChoice> devices;
  std::vector<Tier> tiers;  // by DeviceChoice::device
  std::vector<std::uint32_t> failed;
  DecisionLog log;
  bool asked_devices = false;

  Decision run() {
    input.workers = workers;
    return decide(
        input,
        [this] {
          asked_devices = true;
          return Devices{devices, tiers, failed};
        },
        log);
  }
  template <class T>
  T expect() {
    const Decision d = run();
    EXPECT_TRUE(std::holds_alternative<T>(d)) << "alternative " << d.index();
    return std::holds_alternative<T>(d) ? std::get<T>(d) : T{};
  }
};

DeviceChoice device(std::uint32_t number, std::int64_t room, std::int64_t potential) {
  return {.device = number, .free_bytes = room, .potential_bytes = potential};
}

// OC-CORE-1010, ORCH-1020, ORCH-1031: a free slot on a Ready worker of the model wins; starts are not even considered.
TEST(Placement, UsesAFreeSlotFirst) {
  Case c;
  c.workers = {{.worker = 0, .slots_free = 0, .active = 1}, {.worker = 1, .slots_free = 1, .active = 0}};
  c.devices = {device(0, 8 * kGb, 8 * kGb)};
  EXPECT_EQ(c.expect<UseWorker>().worker, 1u);
  EXPECT_FALSE(c.asked_devices);
  EXPECT_EQ(c.log.candidates_considered, 2);
  EXPECT_EQ(c.log.candidates_feasible, 1);
}

// ORCH-1032, ORCH-3012, OC-CORE-1012, OC-CORE-1017, SCHED-11051: the orders, each tie to its end.
TEST(Placement, AlgorithmsOrderAsDocumented) {
  Case c;
  c.workers = {{.worker = 0, .slots_free = 1, .active = 3, .device_free_bytes = 9},
               {.worker = 1, .slots_free = 1, .active = 1, .device_free_bytes = 5},
               {.worker = 2, .slots_free = 1, .active = 1, .device_free_bytes = 7},
               {.worker = 3, .slots_free = 1, .active = 1, .device_free_bytes = 7}};
  c.input.algorithm = PlacementAlgorithm::kLeastLoaded;
  EXPECT_EQ(c.expect<UseWorker>().worker, 2u);
  c.input.algorithm = PlacementAlgorithm::kMostVramFree;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.input.algorithm = PlacementAlgorithm::kRoundRobin;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.input.last_worker = 1;
  EXPECT_EQ(c.expect<UseWorker>().worker, 2u);
  c.input.last_worker = 3;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
}

// ORCH-3902: the measured worker that ends the job first; ties as in least-loaded; nothing is guessed of an unmeasured one.
TEST(Placement, PredictedEndUsesWhatWasMeasured) {
  Case c;
  c.input.algorithm = PlacementAlgorithm::kPredictedEnd;
  c.input.tokens_expected = 100;
  c.workers = {{.worker = 0, .slots_free = 1, .active = 0, .speed = Speed{10, 20'000}},  // 2010 ms
               {.worker = 1, .slots_free = 1, .active = 2, .speed = Speed{500, 5'000}},  // 1000 ms
               {.worker = 2, .slots_free = 1, .active = 1, .speed = Speed{100, 9'000}},  // 1000 ms, less loaded
               {.worker = 3, .slots_free = 0, .active = 1, .speed = Speed{1, 1'000}}};   // the fastest, but full
  EXPECT_EQ(c.expect<UseWorker>().worker, 2u);
  EXPECT_EQ(c.log.tie_breakers_applied.front(), "predicted_end");
  c.input.tokens_expected = 1;  // the first token decides
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.input.tokens_expected = 100;
  c.workers[3].speed.reset();  // not measured, but it could not take the job either
  EXPECT_EQ(c.expect<UseWorker>().worker, 2u);
  c.workers[1].speed.reset();
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);  // least loaded
  EXPECT_EQ(c.log.tie_breakers_applied.front(), "active_slots");
}

// ORCH-3903, OC-CTRL-2013: places of a smaller tier first, also for starts and evictions; excluded ones never.
TEST(Placement, TiersComeBeforeEverythingElse) {
  Case c;
  c.workers = {{.worker = 0, .tier = Tier::kFallback, .slots_free = 4, .device_free_bytes = 9},
               {.worker = 1, .tier = Tier::kPreferred, .slots_free = 1, .active = 3}};
  for (const auto algorithm : {PlacementAlgorithm::kLeastLoaded, PlacementAlgorithm::kMostVramFree,
                               PlacementAlgorithm::kRoundRobin, PlacementAlgorithm::kPredictedEnd}) {
    c.input.algorithm = algorithm;
    EXPECT_EQ(c.expect<UseWorker>().worker, 1u);
    EXPECT_FALSE(c.log.fallback_used);
  }
  c.workers[1].slots_free = 0;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  EXPECT_TRUE(c.log.fallback_used);
  c.workers.clear();

  c.devices = {device(0, 8 * kGb, 8 * kGb), device(1, 5 * kGb, 8 * kGb), device(2, 6 * kGb, 8 * kGb)};
  c.tiers = {Tier::kExcluded, Tier::kPreferred, Tier::kFallback};
  EXPECT_EQ(c.expect<StartOn>().device, 1u);
  EXPECT_FALSE(c.log.fallback_used);
  c.devices[1].free_bytes = 0;
  EXPECT_EQ(c.expect<StartOn>().device, 2u);
  EXPECT_TRUE(c.log.fallback_used);
  c.devices[2].free_bytes = 0;
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);  // not on device 0, whatever room it has
  for (std::uint32_t d : {0u, 1u, 2u}) {
    c.devices[d].residents = {{.worker = d, .bytes = 8 * kGb, .ready = true, .idle = true}};
  }
  EXPECT_EQ(c.expect<Evict>().workers, (std::vector<std::uint32_t>{1}));
  c.tiers[1] = Tier::kExcluded;
  EXPECT_EQ(c.expect<Evict>().workers, (std::vector<std::uint32_t>{2}));
  c.tiers[2] = Tier::kExcluded;
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kPool);  // until a pool turns up that it accepts
  c.tiers[0] = Tier::kPreferred;
  c.input.memory_bytes = 9 * kGb;
  EXPECT_EQ(c.expect<Infeasible>().potential_bytes_max, 8 * kGb);
}

// ORCH-3009, OC-CORE-1013: among equals a job goes where its session's last one ended; it never waits for that worker, and
// never makes a busier one busier for it.
TEST(Placement, AffinityBreaksTies) {
  Case c;
  c.workers = {{.worker = 0, .slots_free = 1, .active = 0, .device_free_bytes = 9},
               {.worker = 1, .slots_free = 1, .active = 0, .device_free_bytes = 5},
               {.worker = 2, .slots_free = 1, .active = 1, .device_free_bytes = 9},
               {.worker = 3, .slots_free = 0, .active = 2, .device_free_bytes = 9}};
  c.input.affine_worker = 1;
  EXPECT_EQ(c.expect<UseWorker>().worker, 1u);
  EXPECT_EQ(c.log.tie_breakers_applied[1], "affinity");
  c.input.affine_worker = 2;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.input.affine_worker = 3;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.input.algorithm = PlacementAlgorithm::kMostVramFree;
  c.input.affine_worker = 1;
  EXPECT_EQ(c.expect<UseWorker>().worker, 0u);
  c.workers[1].device_free_bytes = 9;
  EXPECT_EQ(c.expect<UseWorker>().worker, 1u);
}

// ORCH-1033, SCHED-11060: no worker: start one where there is room, never elsewhere.
TEST(Placement, StartsWhereThereIsMostRoom) {
  Case c;
  c.devices = {device(0, 3 * kGb, 8 * kGb), device(1, 5 * kGb, 8 * kGb), device(2, 6 * kGb, 8 * kGb)};
  EXPECT_EQ(c.expect<StartOn>().device, 2u);
  c.failed = {2};
  EXPECT_EQ(c.expect<StartOn>().device, 1u);
  c.devices[1].usable = false;
  EXPECT_EQ(c.expect<StartOn>().device, 2u);
  c.devices[2].residents = {{.worker = 7, .bytes = kGb, .ready = false}};  // workers_per_gpu is 1
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
}

TEST(Placement, OneStartAtATimePerModel) {
  Case c;
  c.devices = {device(0, 8 * kGb, 8 * kGb)};
  c.input.starting = true;
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kWorkerStart);
  c.input.starting = false;
  c.input.start_backing_off = true;
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kStartRetry);
}

TEST(Placement, BusyWorkersAndNoRoomMeanWaitingForASlot) {
  Case c;
  c.workers = {{.worker = 0, .slots_free = 0, .active = 1}};
  c.input.has_worker = true;
  c.devices = {device(0, kGb, 8 * kGb)};
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kSlot);
  c.devices.push_back(device(1, 8 * kGb, 8 * kGb));
  EXPECT_EQ(c.expect<StartOn>().device, 1u);  // another device has room: scale out
}

// Only idle workers nobody waits for make room, least recently used first, as few as possible.
TEST(Placement, EvictsTheFewestIdleWorkers) {
  Case c;
  c.input.workers_per_device = 4;
  DeviceChoice d = device(0, kGb, 8 * kGb);
  d.residents = {{.worker = 1, .bytes = 2 * kGb, .last_used_ms = 50, .ready = true, .idle = true},
                 {.worker = 2, .bytes = 3 * kGb, .last_used_ms = 40, .ready = true, .idle = true},
                 {.worker = 3, .bytes = 2 * kGb, .last_used_ms = 10, .ready = true, .idle = false}};
  c.devices = {d};
  EXPECT_EQ(c.expect<Evict>().workers, (std::vector<std::uint32_t>{2}));
  c.devices[0].residents[1].queued = Rank{.arrival = {99}};  // its model has work waiting
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
  c.devices[0].residents[0].bytes = 3 * kGb;
  EXPECT_EQ(c.expect<Evict>().workers, (std::vector<std::uint32_t>{1}));
  c.devices[0].residents[0].leaving = true;  // on its way out already: wait for it
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
}

TEST(Placement, ImpatientJobsReserveWorkersWithLaterJobs) {
  Case c;
  DeviceChoice d = device(0, 0, 8 * kGb);
  d.residents = {{.worker = 1, .bytes = 8 * kGb, .ready = true, .idle = false, .queued = Rank{.arrival = {11}}}};
  c.devices = {d};
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
  c.input.impatient = true;
  EXPECT_EQ(c.expect<Reserve>().workers, (std::vector<std::uint32_t>{1}));
  c.devices[0].residents[0].queued = Rank{.arrival = {9}};  // waits longer than we do
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
}

// A device being cleared for an earlier job is not filled again by a later one.
TEST(Placement, LaterJobsStartNothingOnADeviceThatIsBeingCleared) {
  Case c;
  c.input.model = {1};
  c.devices = {device(0, 5 * kGb, 8 * kGb)};
  c.devices[0].residents = {{.worker = 1, .bytes = 3 * kGb, .ready = true, .idle = true}};
  c.input.workers_per_device = 2;
  EXPECT_EQ(c.expect<StartOn>().device, 0u);
  c.devices[0].reserved = Reservation{.model = {2}, .rank = {.arrival = {9}}};
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
  c.devices[0].reserved = Reservation{.model = {2}, .rank = {.arrival = {11}}};  // for a later job than ours
  EXPECT_EQ(c.expect<StartOn>().device, 0u);
  c.devices[0].reserved = Reservation{.model = {1}, .rank = {.arrival = {9}}};  // for us
  EXPECT_EQ(c.expect<StartOn>().device, 0u);
}

// ORCH-1103: devices of different sizes work together: the model goes where it fits, with most room first.
// OC-POOL-3021#explicit: nothing is ever split over devices unasked: their sum does not count.
TEST(Placement, MixedDevicesAreEachTheirOwn) {
  Case c;
  c.devices = {device(0, 12 * kGb, 12 * kGb), device(1, 24 * kGb, 24 * kGb)};
  c.input.memory_bytes = 15 * kGb;
  EXPECT_EQ(c.expect<StartOn>().device, 1u);
  c.devices[1].free_bytes = 9 * kGb;  // 21 together
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
  c.input.memory_bytes = 10 * kGb;
  EXPECT_EQ(c.expect<StartOn>().device, 0u);
  c.input.memory_bytes = 30 * kGb;
  EXPECT_EQ(c.expect<Infeasible>().potential_bytes_max, 24 * kGb);
}

// Promise 4: a model that fits no device is refused with the numbers, unless a pool may still turn up.
TEST(Placement, RefusesWhatCanNeverFit) {
  Case c;
  c.devices = {device(0, kGb, 3 * kGb), device(1, 0, 2 * kGb)};
  EXPECT_EQ(c.expect<Infeasible>().potential_bytes_max, 3 * kGb);
  c.devices[0].total_bytes = 8 * kGb;  // large enough, but others hold it: it may come back
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kMemory);
  c.input.impatient = true;
  EXPECT_EQ(c.expect<Infeasible>().potential_bytes_max, 3 * kGb);
  c.input.impatient = false;
  c.devices[0].total_bytes = 3 * kGb;
  c.input.pools_expected = true;
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kPool);
  c.input.pools_expected = false;
  c.devices.push_back(device(2, 0, 9 * kGb));
  c.devices[2].usable = false;  // an unhealthy pool may come back
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kPool);
  c.devices.clear();
  EXPECT_EQ(c.expect<Wait>().code, WaitCode::kPool);
}

// OC-CORE-1018, OC-CORE-1011, ORCH-1041, ORCH-3950, ORCH-3960: the same input gives the same decision
// whatever order candidates are listed in, and a start never goes to a device without room.
TEST(Placement, IsAFunctionOfItsInput) {
  EXPECT_TRUE(rc::check([] {
    Case c;
    const auto small = [](int max) { return static_cast<std::int64_t>(*rc::gen::inRange(0, max)); };
    const auto count = static_cast<std::uint32_t>(small(6));
    for (std::uint32_t i = 0; i < count; ++i) {
      c.workers.push_back({.worker = i, .slots_free = small(2), .active = small(3), .device_free_bytes = small(3)});
    }
    for (std::uint32_t i = 0; i < 4; ++i) {
      DeviceChoice d = device(i, small(8) * kGb, 8 * kGb);
      if (small(2) == 1) c.failed.push_back(i);
      for (std::uint32_t t = 0; t < small(3); ++t) {
        d.residents.push_back({.worker = i * 4 + t,
                               .bytes = small(5) * kGb,
                               .last_used_ms = small(3),
                               .ready = true,
                               .idle = small(2) == 1});
      }
      c.devices.push_back(d);
    }
    c.input.workers_per_device = 1 + small(3);
    c.input.algorithm = static_cast<PlacementAlgorithm>(small(4));
    for (auto& w : c.workers) {
      if (small(3) > 0) w.speed = Speed{small(3), small(3) * 1000};
      w.tier = static_cast<Tier>(small(2));
    }
    for (std::uint32_t i = 0; i < 4; ++i) c.tiers.push_back(static_cast<Tier>(small(3)));
    const Decision first = c.run();
    std::reverse(c.devices.begin(), c.devices.end());
    for (auto& d : c.devices) std::reverse(d.residents.begin(), d.residents.end());
    const Decision second = c.run();
    RC_ASSERT(first.index() == second.index());
    if (const auto* start = std::get_if<StartOn>(&first)) {
      RC_ASSERT(start->device == std::get<StartOn>(second).device);
      const auto& d = c.devices[3 - start->device];
      RC_ASSERT(d.free_bytes >= c.input.memory_bytes);
      RC_ASSERT(c.tiers[start->device] != Tier::kExcluded);
      RC_ASSERT(static_cast<std::int64_t>(d.residents.size()) < c.input.workers_per_device);
    }
    if (const auto* use = std::get_if<UseWorker>(&first)) {
      RC_ASSERT(c.workers[use->worker].slots_free > 0);
    }
  }));
}

}  // namespace
}  // namespace llorch::orchestratord::core::placement
