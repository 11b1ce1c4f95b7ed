#include "pool_managerd/worker_lifecycle/lifecycle.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "wire/device_mask.h"
#include "wire/json.h"

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

using base::ErrorCode;
using base::WorkerId;
using wire::FailureCategory;

constexpr std::int64_t kDeviceBytes = 1000;

// Steps the core, keeps what it commanded, and acts as a shell whose spawns succeed.
struct Harness {
  base::SeededEntropy entropy{1};
  base::ManualClock clock;
  Lifecycle core;
  std::vector<Command> commands;
  std::uint64_t requests = 0;
  std::map<std::string, std::string> tokens;
  bool spawn_works = true;

  explicit Harness(LifecycleConfig config = {.pool_id = "pool-1"}) : core(std::move(config), entropy) {
    run(DevicesRead{{device("cpu"), device("0"), device("1")}});
    commands.clear();
  }
  static gpu_inventory::Device device(std::string id) {
    gpu_inventory::Device d;
    d.gpu_id = std::move(id);
    d.total_bytes = kDeviceBytes;
    return d;
  }
  void run(const Event& event) {
    commands.clear();
    core.step(event, clock.now(), commands);
    for (std::size_t i = 0; i < commands.size(); ++i) {
      const auto* spawn = std::get_if<Spawn>(&commands[i]);
      if (spawn == nullptr) continue;
      tokens[spawn->worker_id.value] = spawn->spawn_token;
      const WorkerId id = spawn->worker_id;
      if (spawn_works) {
        core.step(Spawned{id, 4711}, clock.now(), commands);
      } else {
        core.step(SpawnFailed{id, base::Error{ErrorCode::kWorkerStartFailed, "no", {}}}, clock.now(), commands);
      }
    }
  }
  // Every worker has a model of its own unless told otherwise.
  void start(const std::string& id, std::int64_t bytes = 400, const std::string& gpu = "cpu",
             const std::string& model = "") {
    const std::string path = "/" + (model.empty() ? id : model) + ".gguf";
    wire::StartWorkerRequest wanted{.worker_id = id, .model_ref = "file:" + path, .gpu_id = gpu};
    model_catalog::ModelPlan plan;
    plan.path = path;
    plan.memory.assign(wire::devices_of(gpu).size(), {.weights_bytes = bytes});
    run(StartAsked{RequestId{++requests}, wanted, plan, base::CorrelationId("c-1")});
  }
  wire::ReadyCallback callback(const std::string& id, std::int64_t bytes = 300) {
    return {.worker_id = id,
            .spawn_token = tokens[id],
            .model_ref = "file:/m.gguf",
            .model_digest = "sha256:ab",
            .uri = "http://127.0.0.1:5000",
            .vram_bytes = bytes,
            .memory_bytes = bytes,
            .slots_total = 2,
            .context_length = 64,
            .device_class = "cpu-x86"};
  }
  void send_ready(const std::string& id, std::int64_t bytes = 300) {
    run(ReadyReceived{RequestId{++requests}, callback(id, bytes)});
  }
  wire::WorkerHealth health(const std::string& id, std::int64_t slots_free = 1) {
    wire::WorkerHealth h;
    h.status = "healthy";
    h.worker_id = id;
    h.slots_free = slots_free;
    return h;
  }
  void answer_probe(std::optional<wire::WorkerHealth> answer) {
    const auto* p = find<Probe>();
    ASSERT_NE(p, nullptr);
    run(ProbeEnded{p->worker_id, p->probe, std::move(answer)});
  }
  void make_ready(const std::string& id, std::int64_t bytes = 400, const std::string& gpu = "cpu") {
    start(id, bytes, gpu);
    send_ready(id, std::min<std::int64_t>(bytes, 300));
    answer_probe(health(id));
  }
  void pass(std::int64_t ms) {
    clock.advance_ms(ms);
    run(Tick{});
  }
  template <class T>
  const T* find() const {
    for (const auto& c : commands) {
      if (const auto* found = std::get_if<T>(&c)) return found;
    }
    return nullptr;
  }
  ErrorCode refusal() const { return find<Refuse>() != nullptr ? find<Refuse>()->error.code : ErrorCode{}; }
  WorkerStatus status(const std::string& id) const { return core.worker(WorkerId(id))->status; }
};

// The same model is never loaded twice at once on one device, whoever asks.
TEST(Lifecycle, OneLoadPerModelAndDevice) {
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

// SYS-6.2.5: the memory of a worker that is gone is available before the driver is read again.
TEST(Lifecycle, AnExitGivesItsMemoryBackAtOnce) {
  Harness h;
  auto gpu = Harness::device("0");
  gpu.free_bytes = kDeviceBytes;
  h.run(DevicesRead{{gpu}});
  h.start("w", 600, "0");
  h.send_ready("w", 600);
  h.answer_probe(h.health("w"));
  gpu.free_bytes = kDeviceBytes - 600;
  h.run(DevicesRead{{gpu}});
  EXPECT_EQ(h.core.gpus()[0].vram_available_bytes, kDeviceBytes - 600);
  h.run(Exited{WorkerId("w"), {.exit_code = 139, .signal = 11}});
  EXPECT_EQ(h.core.gpus()[0].vram_available_bytes, kDeviceBytes);
}

// ORCH-1004: exactly the listed transitions.
TEST(Lifecycle, Transitions) {
  using S = WorkerStatus;
  const std::set<std::pair<S, S>> legal{
      {S::kStarting, S::kReady}, {S::kReady, S::kBusy},    {S::kBusy, S::kReady},
      {S::kReady, S::kDraining}, {S::kBusy, S::kDraining}, {S::kStarting, S::kFailed},
      {S::kReady, S::kFailed},   {S::kBusy, S::kFailed},   {S::kDraining, S::kFailed}};
  for (const S from : {S::kStarting, S::kReady, S::kBusy, S::kDraining, S::kFailed}) {
    for (const S to : {S::kStarting, S::kReady, S::kBusy, S::kDraining, S::kFailed}) {
      EXPECT_EQ(may_become(from, to), legal.contains({from, to})) << int(from) << "->" << int(to);
    }
  }
}

// POOL-2040, SYS-7.2.1, SYS-5.2.3, POOL-2060: start, callback, probe, ready with its memory in one step.
TEST(Lifecycle, StartToReady) {
  Harness h;
  h.start("w");
  ASSERT_NE(h.find<Spawn>(), nullptr);
  EXPECT_EQ(h.find<Spawn>()->memory_budget_bytes, std::vector<std::int64_t>{400});
  EXPECT_EQ(h.find<Spawn>()->spawn_token.size(), 64u);
  ASSERT_NE(h.find<Answer>(), nullptr);
  EXPECT_EQ(h.find<Answer>()->http_status, 202);
  EXPECT_EQ(h.find<Answer>()->body, R"({"worker_id":"w","status":"starting"})");
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 400);
  h.send_ready("w", 300);
  EXPECT_EQ(h.find<Answer>(), nullptr) << "not before its uri answers";
  EXPECT_EQ(h.status("w"), WorkerStatus::kStarting);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 400);
  h.answer_probe(h.health("w"));
  ASSERT_NE(h.find<ReportReady>(), nullptr);
  EXPECT_EQ(h.find<ReportReady>()->report.worker.vram_bytes, 300);
  EXPECT_EQ(h.find<ReportReady>()->report.worker.status, WorkerStatus::kReady);
  EXPECT_EQ(h.find<ReportReady>()->report.worker.uri, "http://127.0.0.1:5000");
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 300);
  const auto gpu = h.core.gpus()[0];
  EXPECT_EQ(gpu.vram_available_bytes, kDeviceBytes - 300);
  EXPECT_EQ(gpu.workers, std::vector<std::string>{"w"});
  // The worker did not hear the answer and calls again.
  h.send_ready("w");
  EXPECT_EQ(h.find<Answer>()->body, R"({"status":"ready"})");
}

// SYS-3.3.1, SYS-6.3.3: a worker over several devices is accounted on each of them, from its start to its end.
TEST(Lifecycle, AMaskIsAccountedByDevice) {
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
TEST(Lifecycle, EveryRankHasABudgetOfItsOwn) {
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
TEST(Lifecycle, OneLostDeviceOfAMaskFailsTheWorker) {
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

// M0-W-1621: progress goes up, is told at once, and ends when the worker is ready.
TEST(Lifecycle, LoadProgress) {
  Harness h;
  h.start("w");
  const auto send = [&](std::int64_t percent, std::string token) {
    h.run(ProgressReceived{RequestId{++h.requests},
                           {.worker_id = "w", .spawn_token = std::move(token), .percent = percent}});
    return h.find<PushState>() != nullptr;
  };
  const auto percent = [&] { return h.core.worker(WorkerId("w"))->load_percent; };
  EXPECT_EQ(percent(), std::nullopt);
  EXPECT_TRUE(send(0, h.tokens["w"]));
  EXPECT_EQ(h.find<Answer>()->body, R"({"status":"starting"})");
  EXPECT_TRUE(send(50, h.tokens["w"]));
  EXPECT_FALSE(send(25, h.tokens["w"])) << "overtaken";
  EXPECT_EQ(percent(), 50);
  EXPECT_FALSE(send(75, "another"));
  EXPECT_EQ(h.refusal(), ErrorCode::kForbidden);
  EXPECT_EQ(percent(), 50);
  h.send_ready("w");
  h.answer_probe(h.health("w"));
  EXPECT_EQ(percent(), std::nullopt);
  EXPECT_FALSE(send(100, h.tokens["w"]));
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
}

// A worker that says what it was told has computed nothing. One that found other files than those that were told of has, and one
// that names another digest of the same files is in error.
TEST(Lifecycle, ADigestThatNobodyToldIsChecked) {
  const auto checked = [](std::optional<engine::io::StampedDigest> told, std::string stamp) {
    Harness h;
    model_catalog::ModelPlan plan;
    plan.path = "/m.gguf";
    plan.memory.resize(1);
    plan.digest = std::move(told);
    h.run(StartAsked{
        RequestId{++h.requests}, {.worker_id = "w", .model_ref = "file:/m.gguf", .gpu_id = "cpu"}, plan, {}});
    auto callback = h.callback("w", 0);
    callback.model_stamp = std::move(stamp);
    h.run(ReadyReceived{RequestId{++h.requests}, callback});
    h.answer_probe(h.health("w"));
    const auto* command = h.find<CheckDigest>();
    return command == nullptr ? "" : command->path + " " + command->digest.digest + " " + command->digest.stamp;
  };
  using Told = engine::io::StampedDigest;
  EXPECT_EQ(checked({}, "s"), "/m.gguf ab s");
  EXPECT_EQ(checked({}, ""), "");
  EXPECT_EQ(checked(Told{.digest = "ab", .stamp = "s"}, "s"), "");
  EXPECT_EQ(checked(Told{.digest = "ab", .stamp = "s"}, "t"), "/m.gguf ab t");
  EXPECT_EQ(checked(Told{.digest = "cd", .stamp = "s"}, "s"), "/m.gguf ab s");
}

// A worker whose receipts would name another model is ended, once, and its jobs are run elsewhere.
TEST(Lifecycle, AWorkerWithAnotherDigestIsKilled) {
  Harness h;
  h.make_ready("w");
  h.run(DigestDisputed{WorkerId("w")});
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  EXPECT_EQ(h.status("w"), WorkerStatus::kFailed);
  h.run(DigestDisputed{WorkerId("w")});
  EXPECT_EQ(h.find<SendSignal>(), nullptr);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.error_code, "WORKER_RESET");
  h.run(DigestDisputed{WorkerId("w")});
  EXPECT_TRUE(h.commands.empty()) << "it is gone";
}

// SYS-6.2.3: what does not fit is refused before a process exists.
TEST(Lifecycle, RefusalsSpawnNothing) {
  Harness h({.pool_id = "p", .workers_per_gpu = 2});
  const auto refused = [&](ErrorCode code) {
    EXPECT_EQ(h.refusal(), code);
    EXPECT_EQ(h.find<Spawn>(), nullptr);
    EXPECT_TRUE(h.core.workers().empty());
  };
  h.start("w", kDeviceBytes + 1);
  refused(ErrorCode::kInsufficientVram);
  h.start("w", 1, "7");
  refused(ErrorCode::kGpuUnavailable);
  h.start("../w");
  refused(ErrorCode::kInvalidParams);
  h.run(StartAsked{RequestId{9},
                   {.worker_id = "w", .model_ref = "file:/x", .gpu_id = "cpu"},
                   base::fail(ErrorCode::kModelNotFound, "no"),
                   {}});
  refused(ErrorCode::kModelNotFound);
  EXPECT_EQ(h.core.counters().starts_by_outcome.at("refused"), 4);
  // A starting worker already holds its share.
  h.start("a", 600);
  h.start("b", 600);
  EXPECT_EQ(h.refusal(), ErrorCode::kInsufficientVram);
  h.start("c", 100);
  h.start("d", 100);
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
  h.spawn_works = false;
  h.start("e", 100, "0");
  EXPECT_EQ(h.refusal(), ErrorCode::kWorkerStartFailed);
  EXPECT_EQ(h.core.allocated_bytes("0"), 0);
}

// SYS-5.2.3: a repeated start starts nothing twice; an id never lives again.
TEST(Lifecycle, StartIsIdempotent) {
  Harness h;
  h.make_ready("w");
  h.start("w");
  EXPECT_EQ(h.find<Spawn>(), nullptr);
  EXPECT_EQ(h.find<Answer>()->body, R"({"worker_id":"w","status":"ready"})");
  h.start("w", 400, "0");
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
  h.run(Exited{WorkerId("w"), {.exit_code = 1}});
  h.start("w");
  EXPECT_EQ(h.refusal(), ErrorCode::kConflict);
  EXPECT_EQ(h.find<Spawn>(), nullptr);
}

// POOL-2060, POOL-2100: every check of the callback.
TEST(Lifecycle, CallbackIsChecked) {
  Harness h;
  h.start("w");
  const auto send = [&](auto change) {
    auto callback = h.callback("w");
    change(callback);
    h.run(ReadyReceived{RequestId{++h.requests}, callback});
    EXPECT_EQ(h.find<Probe>(), nullptr);
    return h.refusal();
  };
  EXPECT_EQ(send([](auto& c) { c.worker_id = "x"; }), ErrorCode::kWorkerNotFound);
  EXPECT_EQ(send([](auto& c) { c.spawn_token = ""; }), ErrorCode::kForbidden);
  EXPECT_EQ(send([](auto& c) { c.spawn_token.back() ^= 1; }), ErrorCode::kForbidden);
  EXPECT_EQ(send([](auto& c) { c.vram_bytes = 401; }), ErrorCode::kInsufficientVram);
  EXPECT_EQ(send([](auto& c) { c.uri = "ftp://x"; }), ErrorCode::kInvalidParams);
  EXPECT_EQ(h.status("w"), WorkerStatus::kStarting);
  // An answer of somebody else, or none.
  h.send_ready("w");
  h.answer_probe(h.health("other"));
  EXPECT_EQ(h.refusal(), ErrorCode::kWorkerUnavailable);
  h.send_ready("w");
  h.answer_probe(std::nullopt);
  EXPECT_EQ(h.refusal(), ErrorCode::kWorkerUnavailable);
  h.send_ready("w");
  h.answer_probe(h.health("w"));
  EXPECT_EQ(h.status("w"), WorkerStatus::kReady);
}

// POOL-2041: no callback in time is killed and reported; it never held accounted memory.
TEST(Lifecycle, StartTimeout) {
  Harness h;
  h.start("w");
  h.pass(59'999);
  EXPECT_EQ(h.find<SendSignal>(), nullptr);
  h.pass(1);
  ASSERT_NE(h.find<SendSignal>(), nullptr);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  EXPECT_EQ(h.status("w"), WorkerStatus::kFailed);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  const auto& report = h.find<ReportFailed>()->report;
  EXPECT_EQ(report.category, FailureCategory::kTimeout);
  EXPECT_EQ(report.error_code, "WORKER_START_TIMEOUT");
  EXPECT_EQ(report.exit_code, 137);
  EXPECT_EQ(report.vram_released_bytes, 0);
  EXPECT_EQ(report.uptime_seconds, 60);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 0);
}

// POOL-2043, SYS-6.2.5, SYS-7.3.1: an exit drops the worker, releases its memory and is reported.
TEST(Lifecycle, CrashReleasesEverything) {
  Harness h;
  h.make_ready("w");
  h.run(Exited{WorkerId("w"), {.exit_code = 139, .signal = 11}});
  const auto& report = h.find<ReportFailed>()->report;
  EXPECT_EQ(report.category, FailureCategory::kCrash);
  EXPECT_EQ(report.error_code, "WORKER_RESET");
  EXPECT_EQ(report.vram_released_bytes, 300);
  EXPECT_EQ(report.pool_id, "pool-1");
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 0);
  EXPECT_TRUE(h.core.empty());
  EXPECT_FALSE(h.core.next_wake_ms());
  EXPECT_EQ(h.core.counters().failures.at({"crash", "cpu"}), 1);
}

// POOL-2050: three missed probes in a row mean a hang; one answer in between starts the count anew.
TEST(Lifecycle, HealthProbes) {
  Harness h;
  h.make_ready("w");
  const auto probe = [&](std::optional<wire::WorkerHealth> answer) {
    h.pass(10'000);
    h.answer_probe(std::move(answer));
  };
  EXPECT_EQ(h.core.next_wake_ms(), h.clock.now().mono_ms + 10'000);
  probe(std::nullopt);
  probe(h.health("other"));
  probe(h.health("w"));
  probe(std::nullopt);
  auto sick = h.health("w");
  sick.status = "unhealthy";
  probe(sick);
  EXPECT_EQ(h.status("w"), WorkerStatus::kReady);
  probe(std::nullopt);
  EXPECT_EQ(h.status("w"), WorkerStatus::kFailed);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 300) << "until the process is really gone";
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kHang);
}

TEST(Lifecycle, BusyAndReadyFollowTheSlots) {
  Harness h;
  h.make_ready("w");
  h.pass(10'000);
  h.answer_probe(h.health("w", 0));
  EXPECT_EQ(h.status("w"), WorkerStatus::kBusy);
  h.pass(10'000);
  h.answer_probe(h.health("w", 1));
  EXPECT_EQ(h.status("w"), WorkerStatus::kReady);
}

// ORCH-3022: what a worker's cache holds goes on to orchestratord with the next report.
TEST(Lifecycle, ReportsTheCachePages) {
  Harness h;
  h.make_ready("w");
  h.pass(10'000);
  auto health = h.health("w");
  health.kv_pages_total = 40;
  health.kv_pages_used = 30;
  h.answer_probe(health);
  const auto worker = *h.core.worker(WorkerId("w"));
  EXPECT_EQ(worker.kv_pages_total, 40);
  EXPECT_EQ(worker.kv_pages_used, 30);
}

// POOL-2042, WLIFE-10040: shutdown, 30 s, SIGTERM, 5 s, SIGKILL.
TEST(Lifecycle, StopEscalates) {
  Harness h;
  h.make_ready("w");
  h.run(StopAsked{RequestId{50}, WorkerId("w")});
  EXPECT_EQ(h.find<Answer>()->body, R"({"worker_id":"w","status":"draining"})");
  ASSERT_NE(h.find<PostShutdown>(), nullptr);
  h.pass(20'000);
  if (h.find<Probe>() != nullptr) h.answer_probe(h.health("w"));
  h.run(StopAsked{RequestId{51}, WorkerId("w")});
  EXPECT_EQ(h.find<PostShutdown>(), nullptr) << "a repetition neither asks again nor prolongs the grace";
  h.pass(10'000);
  ASSERT_NE(h.find<SendSignal>(), nullptr);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kTerm);
  h.pass(5'000);
  ASSERT_NE(h.find<SendSignal>(), nullptr);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kExplicitStop);
  EXPECT_EQ(h.find<ReportFailed>()->report.error_code, "");
  EXPECT_EQ(h.core.counters().stops_by_reason.at("evict"), 1);
  h.run(StopAsked{RequestId{52}, WorkerId("w")});
  EXPECT_EQ(h.refusal(), ErrorCode::kWorkerNotFound);
}

// POOL-2062: a drain waits for its jobs as long as the worker answers; a stop after it sets the limit.
TEST(Lifecycle, DrainWaitsUntilStopped) {
  Harness h;
  h.make_ready("w");
  h.run(StopAsked{RequestId{50}, WorkerId("w"), true});
  EXPECT_EQ(h.find<Answer>()->http_status, 202);
  EXPECT_EQ(h.status("w"), WorkerStatus::kDraining);
  for (int i = 0; i < 20; ++i) {
    h.pass(10'000);
    EXPECT_EQ(h.find<SendSignal>(), nullptr);
    h.answer_probe(h.health("w"));
  }
  h.run(StopAsked{RequestId{51}, WorkerId("w")});
  EXPECT_EQ(h.find<PostShutdown>(), nullptr);
  h.pass(30'000);
  ASSERT_NE(h.find<SendSignal>(), nullptr);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kTerm);
}

TEST(Lifecycle, StopOfAStartingWorker) {
  Harness h;
  h.start("w");
  h.run(StopAsked{RequestId{50}, WorkerId("w")});
  EXPECT_EQ(h.find<Answer>()->body, R"({"worker_id":"w","status":"failed"})");
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kTerm);
  h.pass(5'000);
  EXPECT_EQ(h.find<SendSignal>()->kill, Kill::kKill);
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kExplicitStop);
}

TEST(Lifecycle, ShutdownStopsAllAndRefusesNew) {
  Harness h;
  h.make_ready("w");
  h.start("s", 100, "0");
  h.run(ShutdownAsked{});
  EXPECT_NE(h.find<PostShutdown>(), nullptr);
  EXPECT_NE(h.find<SendSignal>(), nullptr);
  h.start("n", 1, "0");
  EXPECT_EQ(h.refusal(), ErrorCode::kShuttingDown);
  h.run(ShutdownAsked{});
  int kills = 0;
  for (const auto& c : h.commands) {
    if (const auto* s = std::get_if<SendSignal>(&c)) kills += s->kill == Kill::kKill;
  }
  EXPECT_EQ(kills, 2);
}

// POOL-2051: a device in error takes its workers with it.
TEST(Lifecycle, LostDeviceFailsItsWorkers) {
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
TEST(Lifecycle, ADeviceWithMemoryErrorsIsDrained) {
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
TEST(Lifecycle, HeatIsToldOnTheWayUp) {
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
TEST(Lifecycle, StrangersOnADeviceAreCounted) {
  Harness h;
  h.make_ready("w", 100, "0");
  auto gpu = Harness::device("0");
  gpu.processes = {
      {.pid = h.core.worker(WorkerId("w"))->pid, .bytes = 100}, {.pid = 77, .bytes = 40}, {.pid = 78, .bytes = 2}};
  h.run(DevicesRead{{gpu}});
  EXPECT_EQ(h.core.gpus()[0].foreign_processes, 2);
  EXPECT_EQ(h.core.gpus()[0].foreign_bytes, 42);
}

// OC-POOL-3030: a start of what has failed there before counts as a restart, by how it failed.
TEST(Lifecycle, RestartsAreCounted) {
  Harness h;
  h.start("w", 400, "cpu", "m");
  h.run(Exited{WorkerId("w"), {.exit_code = 139, .signal = 11}});
  h.start("other", 400, "cpu", "n");
  EXPECT_TRUE(h.core.counters().restarts_by_reason.empty());
  h.run(Exited{WorkerId("other"), {.exit_code = 0}});
  h.start("w2", 400, "cpu", "m");
  EXPECT_EQ(h.core.counters().restarts_by_reason.at("crash"), 1);
  h.run(Exited{WorkerId("w2"), {.exit_code = 0}});
}

// SYS-6.2.5: whatever happens in whatever order, memory is never promised twice, requests are answered at most once,
// and once everything has been told to stop and has exited nothing is left. (Illegal transitions abort in the core.)
TEST(Lifecycle, RandomEventsKeepTheInvariants) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto pick = [&](int n) { return static_cast<int>(random() % static_cast<std::uint32_t>(n)); };
    Harness h({.pool_id = "p", .workers_per_gpu = 3});
    std::map<std::uint64_t, int> answers;
    std::vector<Probe> probes;
    const auto collect = [&] {
      for (const auto& c : h.commands) {
        if (const auto* a = std::get_if<Answer>(&c)) ++answers[static_cast<std::uint64_t>(a->request)];
        if (const auto* r = std::get_if<Refuse>(&c)) ++answers[static_cast<std::uint64_t>(r->request)];
        if (const auto* p = std::get_if<Probe>(&c)) probes.push_back(*p);
      }
      for (const auto& [id, count] : answers) ASSERT_EQ(count, 1) << id;
      for (const auto& gpu : h.core.gpus()) ASSERT_LE(gpu.vram_allocated_bytes, kDeviceBytes);
    };
    for (int step = 0; step < 300; ++step) {
      const std::string id = "w" + std::to_string(pick(20));
      switch (pick(8)) {
        case 0: {
          const char* masks[] = {"cpu", "0", "0,1", "1", "cpu,cpu"};
          h.start(id, 100 + pick(500), masks[pick(5)]);
          break;
        }
        case 1: {
          auto callback = h.callback(id, pick(500));
          const auto worker = h.core.worker(WorkerId(id));
          if (worker && worker->gpu_id.find(',') != std::string::npos) {
            callback.vram_bytes_by_device = {callback.vram_bytes / 3, callback.vram_bytes - callback.vram_bytes / 3};
          }
          h.run(ReadyReceived{RequestId{++h.requests}, callback});
          break;
        }
        case 2: h.run(StopAsked{RequestId{++h.requests}, WorkerId(id), pick(2) == 0}); break;
        case 3:
          if (h.core.worker(WorkerId(id)))
            h.run(Exited{WorkerId(id), {.exit_code = pick(2)}});
          else
            h.commands.clear();
          break;
        case 4: h.pass(pick(12'000)); break;
        default:
          h.commands.clear();
          if (!probes.empty()) {
            const Probe p = probes.back();
            probes.pop_back();
            h.run(ProbeEnded{p.worker_id, p.probe,
                             pick(4) ? std::optional(h.health(p.worker_id.value, pick(2))) : std::nullopt});
          }
      }
      collect();
    }
    h.run(ShutdownAsked{});
    collect();
    h.run(ShutdownAsked{});
    collect();
    for (const auto& worker : h.core.workers()) {
      h.run(Exited{WorkerId(worker.worker_id), {.exit_code = 137, .signal = 9}});
      collect();
    }
    EXPECT_TRUE(h.core.empty());
    EXPECT_EQ(answers.size(), h.requests);
    for (const auto& gpu : h.core.gpus()) EXPECT_EQ(gpu.vram_allocated_bytes, 0);
  }
}

}  // namespace
}  // namespace llorch::pool_managerd::worker_lifecycle
