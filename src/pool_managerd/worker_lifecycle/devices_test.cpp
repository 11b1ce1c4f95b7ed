#include "pool_managerd/worker_lifecycle/lifecycle.h"

#include <gtest/gtest.h>

#include "pool_managerd/worker_lifecycle/testing/harness.h"

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

using base::ErrorCode;
using base::WorkerId;
using wire::FailureCategory;

// The same model is never loaded twice at once on one device, whoever asks.
TEST(Devices, OneLoadPerModelAndDevice) {
  Harness h({.pool_id = "p", .workers_per_gpu = 2});
  h.start("w1", 100, "cpu", "m");
  h.start("w2", 100, "cpu", "m");
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
  EXPECT_EQ(h.find<Spawn>(), nullptr);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 100);
  h.start("w3", 100, "0", "m");  // another device
  EXPECT_NE(h.find<Spawn>(), nullptr);
  h.send_ready("w1", 100);
  h.answer_probe(h.health("w1"));
  h.start("w4", 100, "cpu", "m");
  EXPECT_NE(h.find<Spawn>(), nullptr);
}

// SYS-3.3.1, SYS-6.3.3: a worker over several devices is accounted on each of them, from its start to its end.
TEST(Devices, AMaskIsAccountedByDevice) {
  Harness h({.pool_id = "p", .workers_per_gpu = 2});
  h.run(DevicesRead{{Harness::device("0"), Harness::device("1"), Harness::device("2")}});
  const auto allocated = [&] {
    return std::vector{h.core.allocated_bytes("0"), h.core.allocated_bytes("1"), h.core.allocated_bytes("2")};
  };
  using Bytes = std::vector<std::int64_t>;
  h.start("w", 400, "2,0", "m");
  ASSERT_NE(h.find<Spawn>(), nullptr);
  EXPECT_EQ(h.find<Spawn>()->gpu_id, "2,0");
  EXPECT_EQ(h.find<Spawn>()->memory_budget_bytes, (Bytes{400, 400}));
  EXPECT_EQ(allocated(), (Bytes{400, 0, 400}));
  // The same model is not loaded beside it where it loads, and nothing is promised twice.
  h.start("x", 400, "0,1", "m");
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
  h.start("x", 700, "0,1");
  EXPECT_EQ(h.refusal(), ErrorCode::kInsufficientVram);
  EXPECT_EQ(allocated(), (Bytes{400, 0, 400})) << "of a refused mask nothing stays";
  h.start("x", 1, "1,3");
  EXPECT_EQ(h.refusal(), ErrorCode::kGpuUnavailable);

  auto callback = h.callback("w", 500);
  const auto send = [&](Bytes bytes) {
    callback.vram_bytes_by_device = std::move(bytes);
    h.run(ReadyReceived{RequestId{++h.requests}, callback});
    return h.refusal();
  };
  EXPECT_EQ(send({}), ErrorCode::kInvalidParams);
  EXPECT_EQ(send({500}), ErrorCode::kInvalidParams);
  EXPECT_EQ(send({300, 100}), ErrorCode::kInvalidParams) << "not the sum";
  callback.vram_bytes = 200;
  EXPECT_EQ(send({-200, 400}), ErrorCode::kInvalidParams) << "less than nothing on a device";
  EXPECT_EQ(send({std::numeric_limits<std::int64_t>::min(), 400}), ErrorCode::kInvalidParams);
  callback.vram_bytes = 500;
  EXPECT_EQ(send({99, 401}), ErrorCode::kInsufficientVram);
  EXPECT_EQ(std::get<std::string>(h.find<Refuse>()->error.details.back().second), "0");
  using Parts = std::vector<wire::DeviceMemory>;
  const Parts wrong[] = {{{300, 0, 0}},
                         {{299, 0, 0}, {200, 0, 0}},
                         {{301, 0, -1}, {200, 0, 0}},
                         {{-1, 301, 0}, {200, 0, 0}},
                         {{300, 0, 0}, {0, std::numeric_limits<std::int64_t>::max(), 0}}};
  for (const Parts& parts : wrong) {
    callback.memory_by_device = parts;
    EXPECT_EQ(send({300, 200}), ErrorCode::kInvalidParams);
    EXPECT_EQ(std::get<std::string>(h.find<Refuse>()->error.details.back().second), "memory_by_device");
  }
  callback.memory_by_device = {{200, 60, 40}, {150, 50, 0}};
  EXPECT_EQ(send({300, 200}), ErrorCode{});
  h.answer_probe(h.health("w"));
  EXPECT_EQ(h.find<ReportReady>()->report.worker.memory_by_device.at(0).cache_bytes, 60);
  EXPECT_EQ(h.status("w"), WorkerStatus::kReady);
  EXPECT_EQ(allocated(), (Bytes{200, 0, 300}));
  EXPECT_EQ(h.find<ReportReady>()->report.worker.vram_bytes_by_device, (Bytes{300, 200}));
  EXPECT_EQ(h.core.gpus()[2].workers, std::vector<std::string>{"w"});
  EXPECT_TRUE(h.core.gpus()[1].workers.empty());
  h.run(Exited{WorkerId("w"), {.exit_code = 1}});
  EXPECT_EQ(h.find<ReportFailed>()->report.vram_released_bytes, 500);
  EXPECT_EQ(h.find<ReportFailed>()->report.gpu_id, "2,0");
  EXPECT_EQ(allocated(), (Bytes{0, 0, 0}));
}

// SYS-3.3.1: devices give what their rank needs, which may differ, and what is free for staging until the worker is ready.
TEST(Devices, EveryRankHasABudgetOfItsOwn) {
  Harness h;
  auto small = Harness::device("1");
  small.total_bytes = 350;
  h.run(DevicesRead{{Harness::device("0"), small}});
  wire::StartWorkerRequest wanted{.worker_id = "w", .model_ref = "file:/m.gguf", .gpu_id = "0,1"};
  model_catalog::ModelPlan plan;
  plan.memory = {{.weights_bytes = 500, .staging_bytes = 10, .staging_wanted_bytes = 80},
                 {.weights_bytes = 300, .staging_bytes = 10, .staging_wanted_bytes = 80}};
  h.run(StartAsked{RequestId{++h.requests}, wanted, plan, {}});
  using Bytes = std::vector<std::int64_t>;
  ASSERT_NE(h.find<Spawn>(), nullptr);
  EXPECT_EQ(h.find<Spawn>()->memory_budget_bytes, (Bytes{580, 350}));
  EXPECT_EQ(h.core.allocated_bytes("0"), 580);
  EXPECT_EQ(h.core.allocated_bytes("1"), 350);
  auto callback = h.callback("w", 800);
  callback.vram_bytes_by_device = {500, 300};
  h.run(ReadyReceived{RequestId{++h.requests}, callback});
  h.answer_probe(h.health("w"));
  EXPECT_EQ(h.core.allocated_bytes("0"), 500) << "staging is given back";
  EXPECT_EQ(h.core.allocated_bytes("1"), 300);
}

// POOL-2051, SYS-6.3.3: one lost device takes the worker, and with it what it holds of the others.
TEST(Devices, OneLostDeviceOfAMaskFailsTheWorker) {
  Harness h;
  auto lost = Harness::device("1");
  h.run(DevicesRead{{Harness::device("0"), lost}});
  h.start("w", 100, "0,1");
  lost.healthy = false;
  h.run(DevicesRead{{Harness::device("0"), lost}});
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.core.allocated_bytes("0"), 0);
  EXPECT_EQ(h.core.allocated_bytes("1"), 0);
}

// POOL-2051: a device in error takes its workers with it.
TEST(Devices, LostDeviceFailsItsWorkers) {
  Harness h;
  h.start("w", 100, "0");
  auto lost = Harness::device("0");
  lost.healthy = false;
  lost.fault = "GPU is lost";
  h.run(DevicesRead{{Harness::device("cpu"), lost}});
  for (const wire::GpuInfo& gpu : h.core.gpus()) {
    EXPECT_EQ(gpu.fault, gpu.gpu_id == "0" ? std::optional<std::string>("GPU is lost") : std::nullopt) << gpu.gpu_id;
  }
  EXPECT_EQ(h.status("w"), WorkerStatus::kFailed);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  h.run(DevicesRead{{Harness::device("cpu"), lost}});
  EXPECT_EQ(h.find<SendSignal>(), nullptr);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.error_code, "GPU_UNAVAILABLE");
}

// OC-POOL-3010#unready, OC-POOL-3010#drain, ORCH-3053#visible: a device with memory errors takes no worker, and those it
// has finish their jobs; each kind of fault has a code of its own and is counted.
TEST(Devices, ADeviceWithMemoryErrorsIsDrained) {
  using gpu_inventory::FaultKind;
  Harness h;
  h.make_ready("w", 100, "0");
  auto bad = Harness::device("0");
  bad.healthy = false;
  bad.fault_kind = FaultKind::kEcc;
  bad.fault = "its memory had 1 errors that could not be corrected";
  bad.xids = {48};
  h.run(DevicesRead{{Harness::device("cpu"), bad, Harness::device("1")}});
  EXPECT_EQ(h.status("w"), WorkerStatus::kDraining);
  EXPECT_NE(h.find<PostShutdown>(), nullptr);
  EXPECT_EQ(h.find<SendSignal>(), nullptr) << "its jobs may end";
  std::vector<std::string_view> events;
  for (const auto& c : h.commands) {
    if (const auto* note = std::get_if<Note>(&c)) events.push_back(note->event);
  }
  EXPECT_EQ(events, (std::vector<std::string_view>{"gpu_driver_error", "gpu_memory_errors"}));
  EXPECT_EQ(h.core.gpus()[1].fault_kind, "ecc");
  EXPECT_EQ(h.core.counters().device_faults.at({"0", "ecc"}), 1);
  h.start("next", 100, "0");
  EXPECT_EQ(h.refusal(), ErrorCode::kGpuUnavailable);
  h.run(DevicesRead{{Harness::device("cpu"), bad, Harness::device("1")}});
  EXPECT_EQ(h.find<PostShutdown>(), nullptr) << "once";
  h.run(Exited{WorkerId("w"), {.exit_code = 0}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kExplicitStop);
  auto broken = bad;
  broken.fault_kind = FaultKind::kReset;
  h.run(DevicesRead{{Harness::device("cpu"), Harness::device("0"), Harness::device("1")}});
  h.start("again", 100, "0");
  h.run(DevicesRead{{Harness::device("cpu"), broken, Harness::device("1")}});
  EXPECT_EQ(h.status("again"), WorkerStatus::kFailed);
  EXPECT_EQ(h.core.counters().device_faults.at({"0", "reset"}), 1);
}

// GPUINV-12040: heat is told on the way up, at both marks.
TEST(Devices, HeatIsToldOnTheWayUp) {
  Harness h;
  const auto events_at = [&](int celsius) {
    auto gpu = Harness::device("0");
    gpu.temperature_celsius = celsius;
    h.run(DevicesRead{{gpu}});
    const auto* note = h.find<Note>();
    return note ? note->event : std::string_view();
  };
  EXPECT_EQ(events_at(85), "");
  EXPECT_EQ(events_at(86), "gpu_hot");
  EXPECT_EQ(events_at(90), "");
  EXPECT_EQ(events_at(96), "gpu_critical_temperature");
  EXPECT_EQ(events_at(96), "");
  EXPECT_EQ(events_at(90), "");
}

// WORKER-5001: who else uses a device is told; our own workers are not strangers.
TEST(Devices, StrangersOnADeviceAreCounted) {
  Harness h;
  h.make_ready("w", 100, "0");
  auto gpu = Harness::device("0");
  gpu.processes = {
      {.pid = h.core.worker(WorkerId("w"))->pid, .bytes = 100}, {.pid = 77, .bytes = 40}, {.pid = 78, .bytes = 2}};
  h.run(DevicesRead{{gpu}});
  EXPECT_EQ(h.core.gpus()[0].foreign_processes, 2);
  EXPECT_EQ(h.core.gpus()[0].foreign_bytes, 42);
}

}  // namespace
}  // namespace llorch::pool_managerd::worker_lifecycle
