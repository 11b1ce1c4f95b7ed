// Models that several devices share: where their workers are started, and what is counted on each device.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::WorkerStatus;

// A pool of four devices of 8 GB; models of two devices take 5 GB of each.
struct Masks : testing::Test {
  Driver d;
  Driver::SubmitOptions two{.model = "big", .memory_bytes = 5 * kGb, .devices = 2};
  wire::PoolState pool = d.pool_state("pool-1", 4);

  Masks() { d.see(pool); }
  std::string started_on() const {
    const auto starts = d.all<StartWorker>();
    return starts.size() == 1 ? starts[0].request.gpu_id : fmt::format("{} starts", starts.size());
  }
  std::string reason(const std::string& job) { return d.query(job).reason->code; }
  // Takes memory of a device and gives it to nobody we know.
  void fill(std::size_t gpu, std::int64_t bytes) { pool.gpus[gpu].vram_available_bytes -= bytes; }
  void see() {
    pool.timestamp_ms += 1;
    d.see(pool);
  }
  // The pool starts it, and it becomes ready with so much on each of its devices.
  void make_ready(const std::string& id, const std::string& model, const std::string& mask, std::int64_t bytes) {
    auto w = Driver::worker(id, model, mask, 2 * bytes);
    w.vram_bytes_by_device = {bytes, bytes};
    pool.workers.push_back(w);
    for (auto& gpu : pool.gpus) {
      if (mask.find(gpu.gpu_id) == std::string::npos) continue;
      gpu.vram_allocated_bytes += bytes;
      gpu.vram_available_bytes -= bytes;
    }
    see();
  }
  void accept_start(const StartWorker& start) {
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  }
};

// SYS-3.3.1, ORCH-3052: neighbours with room on both; the first of those with most.
TEST_F(Masks, StartsOnNeighboursWithRoomOnEach) {
  d.submit("j1", two);
  EXPECT_EQ(started_on(), "0,1");
  accept_start(d.only<StartWorker>());
  // What it will take is spoken for on both.
  d.submit("j2", {.model = "other", .memory_bytes = 5 * kGb, .devices = 2});
  EXPECT_EQ(started_on(), "2,3");
  accept_start(d.only<StartWorker>());
  d.submit("j3", {.model = "small", .memory_bytes = 4 * kGb});
  EXPECT_TRUE(d.none<StartWorker>()) << d.dump();
  EXPECT_EQ(reason("j3"), "WAITING_FOR_MEMORY");
}

TEST_F(Masks, OneFullDeviceIsPassedOver) {
  fill(1, 4 * kGb);
  see();
  d.submit("j1", two);
  EXPECT_EQ(started_on(), "2,3");
}

// ORCH-3011, OC-CORE-1011, OC-POOL-3020: exactly the devices that a job names, or none.
TEST_F(Masks, AMaskIsExact) {
  auto named = two;
  named.placement.require_device_mask = "1,2";
  d.submit("j1", named);
  EXPECT_EQ(started_on(), "1,2");
  const auto start = d.only<StartWorker>();
  accept_start(start);
  make_ready(start.request.worker_id, "big", "1,2", 5 * kGb);
  EXPECT_EQ(d.only<Execute>().job_id.value, "j1");
  // The worker on other devices is none for it, though it is idle.
  d.end(d.only<Execute>().execution);
  named.placement.require_device_mask = "0,1";
  d.submit("j2", named);
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
  for (const char* mask : {"0", "0,7", "0,1,2"}) {
    named.placement.require_device_mask = mask;
    d.submit(fmt::format("n{}", std::string_view(mask).size()), named);
    ASSERT_FALSE(d.only<AnswerSubmit>().result.has_value()) << mask;
    EXPECT_EQ(d.only<AnswerSubmit>().result.error().code, ErrorCode::kInvalidParams) << mask;
  }
}

TEST_F(Masks, WhatNoPoolCanShareIsRefusedWithItsNumbers) {
  const auto refusal = [&](const std::string& job, const Driver::SubmitOptions& options) {
    d.submit(job, options);
    const auto answer = d.only<AnswerSubmit>();
    return answer.result ? base::Error{} : answer.result.error();
  };
  const auto large = refusal("j1", {.model = "large", .memory_bytes = 9 * kGb, .devices = 2});
  EXPECT_EQ(large.code, ErrorCode::kPoolUnavailable);
  EXPECT_NE(large.message.find("9000000000 bytes of each of 2 devices; the best ones can give 8000000000 each"),
            std::string::npos)
      << large.message;
  const auto many = refusal("j2", {.model = "many", .memory_bytes = kGb, .devices = 5});
  EXPECT_EQ(many.code, ErrorCode::kPoolUnavailable);
  EXPECT_NE(many.message.find("among 5 devices, and no pool has so many"), std::string::npos) << many.message;
}

// OC-POOL-3021#capped: what devices of different sizes share is bounded by the smallest of them.
TEST(UnevenDevices, ASplitIsCappedByTheSmallest) {
  Driver d;
  auto state = d.pool_state("pool-1", 2, 8 * kGb);
  state.gpus[1].vram_total_bytes = state.gpus[1].vram_available_bytes = 4 * kGb;
  d.see(state);
  d.submit("j1", {.model = "large", .memory_bytes = 5 * kGb, .devices = 2});
  const auto refused = d.only<AnswerSubmit>().result;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kPoolUnavailable);
  EXPECT_NE(refused.error().message.find("can give 4000000000 each"), std::string::npos) << refused.error().message;
  d.submit("j2", {.model = "small", .memory_bytes = 4 * kGb, .devices = 2});
  EXPECT_EQ(d.only<StartWorker>().request.gpu_id, "0,1");
}

// Room is made on every device, with workers that are on several of them counted once.
TEST_F(Masks, IdleWorkersMakeRoomOnEveryDevice) {
  for (std::size_t gpu : {2, 3}) fill(gpu, 8 * kGb);
  pool.gpus[2].vram_total_bytes = pool.gpus[3].vram_total_bytes = 4 * kGb;
  make_ready("wide", "wide", "0,1", 2 * kGb);
  auto single = Driver::worker("single", "single", "0", 3 * kGb);
  pool.workers.push_back(single);
  pool.gpus[0].vram_allocated_bytes += 3 * kGb;
  pool.gpus[0].vram_available_bytes -= 3 * kGb;
  see();
  d.after_ms(1'000'000);
  see();
  d.submit("j1", {.model = "big", .memory_bytes = 7 * kGb, .devices = 2});
  std::vector<std::string> stopped;
  for (const auto& stop : d.all<StopWorker>()) stopped.push_back(stop.worker_id.value);
  std::sort(stopped.begin(), stopped.end());
  EXPECT_EQ(stopped, (std::vector<std::string>{"single", "wide"})) << d.dump();
  EXPECT_EQ(reason("j1"), "WAITING_FOR_MEMORY");
}

// A worker of the same model on other devices is in the way like any other (core simulation, seed 49).
TEST_F(Masks, AnIdleWorkerOfTheModelMakesRoomForAnotherMask) {
  make_ready("w1", "big", "0,1", 5 * kGb);
  d.after_ms(1'000'000);
  see();
  auto named = two;
  named.placement.require_device_mask = "1,2";
  d.submit("j1", named);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1") << d.dump();
}

// One load per model and device, whoever asked for it (core simulation, seed 447).
TEST_F(Masks, APlaceWaitsForALoadOnOneOfItsDevices) {
  Driver roomy([] {
    CoreConfig config;
    config.workers_per_gpu = 2;
    return config;
  }());
  roomy.see(roomy.pool_state("pool-1", 4));
  Driver::SubmitOptions small{.model = "small", .memory_bytes = kGb, .devices = 2};
  small.placement.require_device_mask = "0,1";
  roomy.submit("j1", small);
  const auto first = roomy.only<StartWorker>();
  small.placement.require_device_mask = "1,2";
  roomy.submit("j2", small);
  EXPECT_TRUE(roomy.none<StartWorker>()) << roomy.dump();
  EXPECT_EQ(roomy.query("j2").reason->code, "WAITING_FOR_WORKER_START");
  small.placement.require_device_mask = "2,3";
  roomy.submit("j3", small);
  EXPECT_EQ(roomy.only<StartWorker>().request.gpu_id, "2,3");
  roomy.send(StartWorkerAnswered{base::WorkerId(first.request.worker_id), {}});
  const auto ready = Driver::worker(first.request.worker_id, "small", "0,1", 2 * kGb);
  roomy.send(WorkerReady{{.pool_id = "pool-1", .worker = ready}});
  EXPECT_TRUE(roomy.none<StartWorker>()) << "2,3 loads still";
}

// Accepted while nobody knew what there is, it does not wait for ever (core simulation, seed 194).
TEST_F(Masks, WhatNoPoolCanShareEndsWithItsNumbers) {
  CoreConfig config;
  config.pool_endpoints = {"http://pool-1"};
  Driver late(config);
  late.submit("j1", {.model = "many", .memory_bytes = kGb, .devices = 5});
  ASSERT_TRUE(late.only<AnswerSubmit>().result) << late.dump();
  late.see(late.pool_state("pool-1", 4));
  const auto end = late.only<Finish>();
  ASSERT_TRUE(end.error) << late.dump();
  EXPECT_EQ(end.error->code, ErrorCode::kPoolUnavailable);
  EXPECT_NE(end.error->message.find("among 5 devices"), std::string::npos) << end.error->message;
}

// A pool that sees one device fuller than we do: its next report decides, and no other place is tried blindly.
TEST_F(Masks, ARefusalDoubtsEveryDeviceOfTheMask) {
  d.submit("j1", two);
  const auto start = d.only<StartWorker>();
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                             base::Error{ErrorCode::kInsufficientVram, "device 1 is full", {}}});
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(2000);
  EXPECT_EQ(started_on(), "2,3") << d.dump();
}

// M0-W-1621: a wait for a load says how far it has come.
TEST_F(Masks, AWaitSaysHowMuchIsLoaded) {
  d.submit("j1", two);
  const auto start = d.only<StartWorker>();
  accept_start(start);
  EXPECT_EQ(d.query("j1").reason->load_percent, std::nullopt);
  auto loading = Driver::worker(start.request.worker_id, "big", "0,1", 0);
  loading.status = WorkerStatus::kStarting;
  loading.uri.clear();
  loading.model_digest.clear();
  loading.load_percent = 50;
  pool.workers = {loading};
  see();
  const auto reason = *d.query("j1").reason;
  EXPECT_EQ(reason.code, "WAITING_FOR_WORKER_START");
  EXPECT_EQ(reason.load_percent, 50);
  EXPECT_EQ(reason.human, "A worker for this model is starting: 50 % of the model is loaded.");
}

// Another model for the pool takes the devices that the old ones had.
TEST_F(Masks, AReloadSharesTheDevicesOfTheOldWorkers) {
  pool.workers = {Driver::worker("w2", "a", "2"), Driver::worker("w3", "a", "3")};
  for (std::size_t gpu : {2, 3}) {
    pool.gpus[gpu].vram_allocated_bytes = 4 * kGb;
    pool.gpus[gpu].vram_available_bytes = 4 * kGb;
  }
  see();
  d.send(ReloadPool{
      .request = {9}, .pool_id = base::PoolId("pool-1"), .model = Driver::spec("x", two).model, .deadline_ms = 1000});
  EXPECT_EQ(d.all<StopWorker>().size(), 2u) << d.dump();
  pool.workers.clear();
  for (std::size_t gpu : {2, 3}) pool.gpus[gpu] = d.pool_state("pool-1", 4).gpus[gpu];
  see();
  EXPECT_EQ(started_on(), "2,3") << d.dump();
}

}  // namespace
}  // namespace llorch::orchestratord::core
