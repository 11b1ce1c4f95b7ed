#include "pool_managerd/worker_lifecycle/lifecycle.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "pool_managerd/worker_lifecycle/testing/harness.h"
#include "wire/json.h"

namespace llorch::pool_managerd::worker_lifecycle {
namespace {

using base::ErrorCode;
using base::WorkerId;
using wire::FailureCategory;

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

// SYS-6.2.5: a worker whose process has gone takes no jobs, and its memory is not given away before its container is gone too.
TEST(Lifecycle, AWorkerThatLeavesKeepsItsMemoryUntilItsExit) {
  Harness h;
  h.start("w");
  h.send_ready("w", 300);
  h.answer_probe(h.health("w"));
  h.run(Leaving{WorkerId("w")});
  EXPECT_NE(h.find<PushState>(), nullptr);
  EXPECT_EQ(h.core.worker(WorkerId("w"))->status, WorkerStatus::kFailed);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 300);
  EXPECT_FALSE(h.core.empty());
  h.run(StopAsked{RequestId{9}, WorkerId("w")});
  EXPECT_EQ(h.find<SendSignal>(), nullptr) << "there is no process";
  h.run(Exited{WorkerId("w"), {.exit_code = 137, .signal = 9}});
  EXPECT_EQ(h.find<ReportFailed>()->report.vram_released_bytes, 300);
  EXPECT_EQ(h.core.allocated_bytes("cpu"), 0);
}

// A stop that was asked for stays one while its container goes.
TEST(Lifecycle, AStoppedWorkerThatLeavesHasNotFailed) {
  Harness h;
  h.start("w");
  h.send_ready("w", 300);
  h.answer_probe(h.health("w"));
  h.run(StopAsked{RequestId{9}, WorkerId("w")});
  h.run(Leaving{WorkerId("w")});
  EXPECT_EQ(h.core.worker(WorkerId("w"))->status, WorkerStatus::kDraining);
  h.run(Exited{WorkerId("w"), {.exit_code = 0}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kExplicitStop);
}

// Its port may be somebody else's by now, and what is heard late is not why it ends.
TEST(Lifecycle, AWorkerThatLeavesIsNotProbed) {
  Harness h;
  h.make_ready("w");
  h.pass(10'000);
  ASSERT_NE(h.find<Probe>(), nullptr);
  Probe probe = *h.find<Probe>();
  h.run(StopAsked{RequestId{9}, WorkerId("w")});
  h.run(Leaving{WorkerId("w")});
  for (int i = 0; i < 3; ++i) {
    h.run(ProbeEnded{probe.worker_id, probe.probe, std::nullopt});
    h.pass(10'000);
    EXPECT_EQ(h.find<Probe>(), nullptr);
    if (h.find<Probe>() != nullptr) probe = *h.find<Probe>();
  }
  h.run(DigestDisputed{WorkerId("w")});
  EXPECT_TRUE(h.commands.empty());
  h.run(Exited{WorkerId("w"), {.exit_code = 0}});
  EXPECT_EQ(h.find<ReportFailed>()->report.category, FailureCategory::kExplicitStop);
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

// An engine of another system is planned for one device: whoever asks for more ends no pool.
TEST(Lifecycle, MoreDevicesThanTheModelIsPlannedForAreRefused) {
  Harness h;
  for (const char* mask : {"0,1", "cpu,cpu"}) {
    model_catalog::ModelPlan plan;
    plan.memory.push_back({.weights_bytes = 1});
    h.run(StartAsked{
        RequestId{++h.requests}, {.worker_id = "w", .model_ref = "engine:x", .gpu_id = mask}, std::move(plan), {}});
    EXPECT_EQ(h.refusal(), ErrorCode::kInvalidParams) << mask;
    EXPECT_EQ(h.find<Spawn>(), nullptr) << mask;
  }
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

// A worker, which may be another system's, calls as often as it likes; each call is refused, and some are told.
TEST(Lifecycle, RefusalsDoNotFillTheLog) {
  Harness h;
  h.start("w");
  std::int64_t notes = 0, left_out = 0;
  const auto count = [&] {
    const auto* note = h.find<Note>();
    notes += note != nullptr;
    left_out += note != nullptr ? note->left_out : 0;
  };
  const auto refused = [&] {
    auto callback = h.callback("w");
    callback.spawn_token.clear();
    h.run(ReadyReceived{RequestId{++h.requests}, callback});
    EXPECT_EQ(h.refusal(), ErrorCode::kForbidden);
    count();
  };
  for (int i = 0; i < 500; ++i) refused();
  EXPECT_EQ(notes, 10);
  h.pass(10'000);
  refused();
  EXPECT_EQ(notes, 11);
  EXPECT_EQ(left_out, 490);
  notes = 0;
  for (int i = 0; i < 500; ++i) {
    h.start("more-" + std::to_string(i), 2 * kDeviceBytes, "0");
    EXPECT_EQ(h.refusal(), ErrorCode::kInsufficientVram);
    count();
  }
  EXPECT_EQ(notes, 10);
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
