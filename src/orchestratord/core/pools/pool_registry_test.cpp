#include "orchestratord/core/pools/pool_registry.h"

#include <gtest/gtest.h>

#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core::pools {
namespace {

struct RegistryTest : testing::Test {
  PoolRegistry registry;
  base::Time now{1000, 1'700'000'000'000};
  wire::PoolState state;

  void SetUp() override {
    state = {.pool_id = "pool-1", .endpoint = "http://127.0.0.1:9200", .boot_id = "boot-1"};
    state.gpus = {{.gpu_id = "0", .vram_total_bytes = 24 * kGb, .vram_available_bytes = 24 * kGb}};
  }
  Changes report() {
    state.timestamp_ms += 1000;
    now.mono_ms += 1000;
    return registry.apply(state, std::nullopt, now);
  }
  wire::WorkerInfo worker(const std::string& id, WorkerStatus status = WorkerStatus::kReady) {
    return {.worker_id = id,
            .model_ref = "file:/m.gguf",
            .model_digest = "sha256:a",
            .gpu_id = "0",
            .status = status,
            .uri = "http://127.0.0.1:1",
            .vram_bytes = status == WorkerStatus::kReady ? 6 * kGb : 0};
  }
  Worker& start(const std::string& id) {
    return registry.add_starting(base::PoolId("pool-1"), worker(id, WorkerStatus::kStarting), 8 * kGb, now);
  }
  const Device& gpu() { return registry.find_pool(base::PoolId("pool-1"))->devices.at("0"); }
};

// SYS-3.3.1, SYS-6.3.3: what lies on which device.
TEST_F(RegistryTest, AWorkerOverSeveralDevicesIsCountedOnEach) {
  for (const char* id : {"1", "2"}) {
    state.gpus.push_back({.gpu_id = id, .vram_total_bytes = 24 * kGb, .vram_available_bytes = 24 * kGb});
  }
  report();
  const auto& devices = registry.find_pool(base::PoolId("pool-1"))->devices;
  auto info = worker("w1", WorkerStatus::kStarting);
  info.gpu_id = "0,2";
  registry.add_starting(base::PoolId("pool-1"), info, 8 * kGb, now);
  EXPECT_EQ(registry.find_worker(base::WorkerId("w1"))->bytes(), 16 * kGb);
  const auto room = [&] {
    return std::vector{devices.at("0").free_bytes(), devices.at("1").free_bytes(), devices.at("2").free_bytes()};
  };
  using Bytes = std::vector<std::int64_t>;
  EXPECT_EQ(room(), (Bytes{16 * kGb, 24 * kGb, 16 * kGb}));
  // Ready, and counted by its pool.
  info.status = WorkerStatus::kReady;
  info.vram_bytes = 15 * kGb;
  info.vram_bytes_by_device = {9 * kGb, 6 * kGb};
  state.workers = {info};
  state.gpus[0].vram_allocated_bytes = 9 * kGb;
  state.gpus[0].vram_available_bytes = 15 * kGb;
  state.gpus[2].vram_allocated_bytes = 6 * kGb;
  state.gpus[2].vram_available_bytes = 18 * kGb;
  report();
  EXPECT_EQ(devices.at("0").accounted_bytes(), 9 * kGb);
  EXPECT_EQ(devices.at("2").accounted_bytes(), 8 * kGb) << "never less than was asked for";
  EXPECT_EQ(room(), (Bytes{15 * kGb, 24 * kGb, 16 * kGb}));
  // A single worker there has another version: sums over two devices have other bits.
  EXPECT_FALSE(devices.at("0").version);
  EXPECT_TRUE(registry.find_pool(base::PoolId("pool-1"))->mask_versions.contains("0,2"));
  EXPECT_TRUE(registry.worker_failed(base::WorkerId("w1"), GoneWhy::kFailed));
  EXPECT_EQ(devices.at("0").accounted_bytes(), 0);
  EXPECT_EQ(devices.at("2").accounted_bytes(), 0);
}

// ORCH-3010, ORCH-3052: neighbours, by number; the shares of the CPU device; or what a job names.
TEST_F(RegistryTest, PlacesForSeveralDevices) {
  for (const char* id : {"1", "2", "10", "cpu"}) {
    state.gpus.push_back({.gpu_id = id, .vram_total_bytes = 24 * kGb, .vram_available_bytes = 24 * kGb});
  }
  state.gpus[1].vram_available_bytes = 7 * kGb;
  state.gpus[2].healthy = false;
  report();
  const Pool& pool = *registry.find_pool(base::PoolId("pool-1"));
  const auto masks = [&](std::int64_t count, const std::optional<std::string>& mask = {}) {
    std::string text;
    for (const Place& place : places_for(pool, count, mask)) text += (text.empty() ? "" : " ") + place.mask;
    return text;
  };
  EXPECT_EQ(masks(1), "0 1 10 2 cpu");
  EXPECT_EQ(masks(2), "cpu,cpu 0,1 1,2 2,10");
  EXPECT_EQ(masks(4), "cpu,cpu,cpu,cpu 0,1,2,10");
  EXPECT_EQ(masks(5), "cpu,cpu,cpu,cpu,cpu");
  EXPECT_EQ(masks(2, "0,10"), "0,10");
  EXPECT_EQ(masks(2, "0,3"), "");
  EXPECT_EQ(masks(2, "0"), "");
  const auto places = places_for(pool, 2, {});
  EXPECT_EQ(places[0].free_bytes(), 12 * kGb) << "half of the device for each rank";
  EXPECT_EQ(places[1].free_bytes(), 7 * kGb);
  EXPECT_EQ(places[1].total_bytes(), 24 * kGb);
  EXPECT_TRUE(places[1].is_healthy());
  EXPECT_FALSE(places[2].is_healthy());
}

// ORCH-1004: the worker statuses and their transitions.
TEST(WorkerStatusTable, IsTheSpecs) {
  using enum WorkerStatus;
  const std::set<std::pair<WorkerStatus, WorkerStatus>> legal{
      {kStarting, kReady}, {kStarting, kFailed}, {kReady, kBusy},  {kReady, kDraining}, {kReady, kFailed},
      {kBusy, kReady},     {kBusy, kDraining},   {kBusy, kFailed}, {kDraining, kFailed}};
  for (const auto from : {kStarting, kReady, kBusy, kDraining, kFailed}) {
    for (const auto to : {kStarting, kReady, kBusy, kDraining, kFailed}) {
      EXPECT_EQ(is_legal(from, to), legal.contains({from, to}));
    }
  }
}

// POOLREG-19010: registration by full state; a second one is an update.
TEST_F(RegistryTest, RegistersAndUpdates) {
  state.workers = {worker("w1")};
  const Changes first = report();
  EXPECT_TRUE(first.is_new);
  EXPECT_EQ(first.became_ready, (std::vector{base::WorkerId("w1")}));
  const Changes second = report();
  EXPECT_FALSE(second.is_new);
  EXPECT_TRUE(second.became_ready.empty());
  EXPECT_EQ(registry.workers_of("sha256:a").size(), 1u);
}

// SYS-5.2.1#unique: another live process may not take a pool's name; it may once the first is unhealthy.
TEST_F(RegistryTest, RefusesAConflictingRegistration) {
  report();
  state.endpoint = "http://127.0.0.1:9300";
  state.boot_id = "boot-2";
  EXPECT_EQ(report().taken, Changes::Taken::kConflict);
  EXPECT_TRUE(registry.mark_unhealthy(base::PoolId("pool-1")));
  const Changes taken = report();
  EXPECT_EQ(taken.taken, Changes::Taken::kYes);
  EXPECT_TRUE(taken.rebooted);
  EXPECT_TRUE(taken.moved);
  EXPECT_TRUE(taken.recovered);
}

// A pool that was renamed takes the place of the old once nobody answers to the old name.
TEST_F(RegistryTest, AnotherPoolAtTheSameAddressReplacesTheOldThatIsGone) {
  state.workers = {worker("w1")};
  report();
  state.pool_id = "pool-2";
  state.workers.clear();
  const Changes refused = report();
  EXPECT_EQ(refused.taken, Changes::Taken::kConflict);
  EXPECT_EQ(refused.conflicting_endpoint, state.endpoint);
  EXPECT_EQ(registry.find_pool(base::PoolId("pool-2")), nullptr);
  EXPECT_NE(registry.find_worker(base::WorkerId("w1")), nullptr);
  EXPECT_TRUE(registry.mark_unhealthy(base::PoolId("pool-1")));
  const Changes changes = report();
  EXPECT_EQ(changes.replaced, (std::vector{base::PoolId("pool-1")}));
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_EQ(changes.gone[0].why, GoneWhy::kPoolLost);
  EXPECT_EQ(registry.find_pool(base::PoolId("pool-1")), nullptr);
}

TEST_F(RegistryTest, OldReportsOfTheSameBootAreDropped) {
  state.uptime_seconds = 10;
  report();
  const auto old = state;
  state.workers = {worker("w1")};
  report();
  EXPECT_EQ(registry.apply(old, std::nullopt, now).taken, Changes::Taken::kStale);
  EXPECT_NE(registry.find_worker(base::WorkerId("w1")), nullptr);
  state.uptime_seconds = 20;  // the pool's clock was set back an hour
  state.timestamp_ms -= 3'600'000;
  EXPECT_EQ(registry.apply(state, std::nullopt, now).taken, Changes::Taken::kYes);
}

// Reports of one millisecond are told apart by their number, also when the wall clock was set back between them.
TEST_F(RegistryTest, ReportsAreOrderedByTheirNumber) {
  state.timestamp_ms = now.unix_ms;
  state.sequence = 2;
  EXPECT_EQ(registry.apply(state, std::nullopt, now).taken, Changes::Taken::kYes);
  state.sequence = 1;
  EXPECT_EQ(registry.apply(state, std::nullopt, now).taken, Changes::Taken::kStale);
  state.sequence = 3;
  state.timestamp_ms -= 3'600'000;
  EXPECT_EQ(registry.apply(state, std::nullopt, now).taken, Changes::Taken::kYes);
}

// SYS-7.3.1: a worker that vanished from the report is gone, and a late report does not revive it.
TEST_F(RegistryTest, AVanishedWorkerStaysGone) {
  state.workers = {worker("w1")};
  report();
  const auto failed = registry.worker_failed(base::WorkerId("w1"), GoneWhy::kFailed);
  ASSERT_TRUE(failed);
  EXPECT_EQ(failed->was, WorkerStatus::kReady);
  EXPECT_FALSE(registry.worker_failed(base::WorkerId("w1"), GoneWhy::kFailed));  // said twice
  EXPECT_TRUE(report().became_ready.empty());                                    // written before the pool noticed
  EXPECT_TRUE(registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now).became_ready.empty());
  EXPECT_EQ(registry.find_worker(base::WorkerId("w1")), nullptr);
  state.workers.clear();
  report();
  EXPECT_TRUE(registry.find_pool(base::PoolId("pool-1"))->gone.empty());

  state.workers = {worker("w2")};
  report();
  state.workers.clear();
  const Changes changes = report();
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_EQ(changes.gone[0].why, GoneWhy::kFailed);
}

// ORCH-1004: a failed worker is told gone once, and holds its memory and its place until its process is gone.
TEST_F(RegistryTest, AFailedWorkerHoldsItsPlaceUntilItIsNotListedAnyMore) {
  state.workers = {worker("w1")};
  report();
  state.workers[0].status = WorkerStatus::kFailed;
  Changes changes = report();
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_FALSE(changes.gone[0].reported_before);
  EXPECT_EQ(changes.gone[0].was, WorkerStatus::kReady);
  EXPECT_TRUE(report().gone.empty());
  EXPECT_EQ(gpu().workers.size(), 1u);
  EXPECT_FALSE(registry.find_worker(base::WorkerId("w1"))->takes_work());
  const auto exited = registry.worker_failed(base::WorkerId("w1"), GoneWhy::kFailed);
  ASSERT_TRUE(exited);
  EXPECT_TRUE(exited->reported_before);
  EXPECT_TRUE(gpu().workers.empty());

  state.workers = {worker("w2", WorkerStatus::kFailed)};  // of a process before us
  changes = report();
  EXPECT_EQ(changes.adopted.size(), 1u) << "what runs there may hold its slots still";
  EXPECT_EQ(gpu().workers.size(), 1u);
  state.workers.clear();
  changes = report();
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_TRUE(changes.gone[0].reported_before);
}

TEST_F(RegistryTest, ALoadingWorkerOfAnotherProcessIsKnownByItsFile) {
  state.workers = {worker("w1", WorkerStatus::kStarting)};
  state.workers[0].model_digest = "";
  report();
  const std::string ref = state.workers[0].model_ref;
  ASSERT_EQ(registry.loading_of(ref).size(), 1u);
  state.workers = {worker("w1")};
  report();
  EXPECT_TRUE(registry.loading_of(ref).empty());
  EXPECT_EQ(registry.workers_of("sha256:a").size(), 1u);
}

// SYS-7.2.1: a start is not lost to reports written before it, but to two in a row afterwards.
TEST_F(RegistryTest, AStartSurvivesAnOlderReport) {
  report();
  start("w1");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(report().gone.empty());  // the pool has not answered the command yet
  registry.find_worker(base::WorkerId("w1"))->answered = true;
  EXPECT_TRUE(report().gone.empty());
  const Changes changes = report();
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_EQ(changes.gone[0].was, WorkerStatus::kStarting);
}

TEST_F(RegistryTest, ReadyArrivesByCallbackAndAnOlderReportDoesNotTakeItBack) {
  report();
  start("w1").answered = true;
  EXPECT_EQ(registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now).became_ready.size(), 1u);
  EXPECT_TRUE(registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now).became_ready.empty());
  state.workers = {worker("w1", WorkerStatus::kStarting)};
  state.workers[0].uri = "";
  EXPECT_TRUE(report().became_ready.empty());
  EXPECT_EQ(registry.find_worker(base::WorkerId("w1"))->info.status, WorkerStatus::kReady);
  EXPECT_EQ(registry.find_worker(base::WorkerId("w1"))->info.uri, "http://127.0.0.1:1");
}

// A restarted pool manager has none of its old workers.
// Between two reports a pool may tell of any number of workers that come and go.
TEST_F(RegistryTest, WorkersThatNoReportNamesAreBounded) {
  report();
  for (int i = 0; i < 3000; ++i) {
    const auto info = worker("w" + std::to_string(i));
    registry.worker_ready({.pool_id = "pool-1", .worker = info}, now);
    if (i % 2 == 0) registry.worker_failed(base::WorkerId(info.worker_id), GoneWhy::kFailed);
  }
  const Pool& pool = *registry.find_pool(base::PoolId("pool-1"));
  EXPECT_EQ(pool.workers.size() + pool.gone.size(), 1024u);
  registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now);
  EXPECT_NE(registry.find_worker(base::WorkerId("w1")), nullptr);
  report();
  registry.worker_ready({.pool_id = "pool-1", .worker = worker("w9999")}, now);
  EXPECT_NE(registry.find_worker(base::WorkerId("w9999")), nullptr);
}

// Versions are kept of masks that a worker can have there.
TEST_F(RegistryTest, VersionsOfMasksAreBounded) {
  state.gpus.clear();
  for (int i = 0; i < 64; ++i) {
    state.gpus.push_back({.gpu_id = std::to_string(i), .vram_total_bytes = kGb, .vram_available_bytes = kGb});
  }
  const auto told = [&](const std::string& mask) {
    auto info = worker("w" + mask);
    info.gpu_id = mask;
    state.workers = {info};
    report();
  };
  const Pool& pool = (report(), *registry.find_pool(base::PoolId("pool-1")));
  told("0,x");
  EXPECT_TRUE(pool.mask_versions.empty()) << "it has no such device";
  told("0,1");
  EXPECT_EQ(pool.mask_versions.size(), 1u);
  for (int i = 0; i < 64 * 64; ++i) {
    if (i / 64 != i % 64) told(std::to_string(i / 64) + "," + std::to_string(i % 64));
  }
  EXPECT_LE(pool.mask_versions.size(), 1024u);
  state.workers.clear();
  state.gpus.resize(1);
  report();
  EXPECT_TRUE(pool.mask_versions.empty());
}

TEST_F(RegistryTest, AnotherBootLosesAllWorkers) {
  state.workers = {worker("w1")};
  report();
  start("w2");  // not answered: may have reached the new process
  state.boot_id = "boot-2";
  state.workers.clear();
  const Changes changes = report();
  EXPECT_TRUE(changes.rebooted);
  ASSERT_EQ(changes.gone.size(), 1u);
  EXPECT_EQ(changes.gone[0].id, base::WorkerId("w1"));
  EXPECT_NE(registry.find_worker(base::WorkerId("w2")), nullptr);
  state.boot_id = "boot-1";
  state.workers = {worker("w1")};
  EXPECT_EQ(report().taken, Changes::Taken::kStale);  // a late word of the old process
  EXPECT_EQ(registry.find_worker(base::WorkerId("w1")), nullptr);
}

// The order reached the new process before its first report reached us.
TEST_F(RegistryTest, AnotherBootKeepsTheStartsItNames) {
  report();
  start("w1").answered = true;
  state.boot_id = "boot-2";
  state.workers = {worker("w1", WorkerStatus::kStarting)};
  state.gpus[0].vram_allocated_bytes = 7 * kGb;
  state.gpus[0].vram_available_bytes = 17 * kGb;
  EXPECT_TRUE(report().gone.empty());
  EXPECT_EQ(gpu().free_bytes(), 16 * kGb) << "what it will take is spoken for still";
}

// ORCH-1040..1042: memory is spoken for from the command on, and counted once when the pool reports it.
TEST_F(RegistryTest, RoomCountsStartedWorkersBeforeTheirFirstReport) {
  report();
  EXPECT_EQ(gpu().free_bytes(), 24 * kGb);
  start("w1").answered = true;
  EXPECT_EQ(gpu().free_bytes(), 16 * kGb);
  registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now);
  EXPECT_EQ(gpu().free_bytes(), 16 * kGb);  // the report in hand does not count it yet
  state.workers = {worker("w1")};
  state.gpus[0].vram_allocated_bytes = 6 * kGb;
  state.gpus[0].vram_available_bytes = 17 * kGb;
  report();
  EXPECT_EQ(gpu().accounted_bytes(), 8 * kGb);
  EXPECT_EQ(gpu().free_bytes(), 15 * kGb);
  EXPECT_EQ(gpu().potential_bytes(), 24 * kGb);
  registry.worker_failed(base::WorkerId("w1"), GoneWhy::kFailed);
  EXPECT_EQ(gpu().accounted_bytes(), 0);
  EXPECT_EQ(gpu().free_bytes(), 17 * kGb);  // until the pool reports the memory free
}

// ORCH-1040..1042: a pool counts a worker from its start on, and tells the worker's own bytes only when it is ready.
TEST_F(RegistryTest, AWorkerThatStartsIsCountedOnce) {
  report();
  start("w1").answered = true;
  state.workers = {worker("w1", WorkerStatus::kStarting)};
  state.gpus[0].vram_allocated_bytes = 8 * kGb;
  state.gpus[0].vram_available_bytes = 16 * kGb;
  report();
  EXPECT_EQ(gpu().free_bytes(), 16 * kGb);
  registry.worker_ready({.pool_id = "pool-1", .worker = worker("w1")}, now);
  EXPECT_EQ(gpu().free_bytes(), 16 * kGb) << "the report in hand counts what was asked for";
}

TEST_F(RegistryTest, WorkersAreOrderedByPoolAndId) {
  state.workers = {worker("w2"), worker("w1")};
  report();
  state.pool_id = "pool-0";
  state.endpoint = "http://127.0.0.1:9201";
  state.workers = {worker("w3")};
  report();
  std::vector<std::string> ids;
  for (const Worker* w : registry.workers_of("sha256:a")) ids.push_back(w->id.value);
  EXPECT_EQ(ids, (std::vector<std::string>{"w3", "w1", "w2"}));
}

}  // namespace
}  // namespace llorch::orchestratord::core::pools
