// Where jobs may run: the whole way from submission to dispatch.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::Placement;
using wire::PlacementMode;

Placement pin(const std::string& pool) { return {.mode = PlacementMode::kPin, .pin_pool_id = pool}; }
Placement prefer(const std::string& pool, bool allow_fallback = true) {
  return {.mode = PlacementMode::kPrefer, .prefer_pools = {pool}, .allow_fallback = allow_fallback};
}

// Two pools with one device and one ready worker of model a each.
struct TwoPools : testing::Test {
  TwoPools() {
    see("pool-1", "w1");
    see("pool-2", "w2");
  }
  void see(const std::string& pool, const std::string& worker) {
    auto s = d.pool_state(pool);
    s.workers = {Driver::worker(worker)};
    s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
    d.see(s);
  }
  const Execute* submit(const std::string& id, Placement placement) {
    d.submit(id, {.placement = std::move(placement)});
    const auto found = d.all<Execute>();
    execute = found.empty() ? Execute{} : found.front();
    return found.empty() ? nullptr : &execute;
  }
  base::Error refusal(const std::string& id, Placement placement) {
    d.submit(id, {.placement = std::move(placement)});
    const auto answer = d.only<AnswerSubmit>();
    EXPECT_FALSE(answer.result.has_value()) << d.dump();
    return answer.result ? base::Error{} : answer.result.error();
  }
  std::string field(const std::string& name) const {
    std::string value;
    for (const Log& l : d.all<Log>()) {
      if (l.event != "schedule.decided") continue;
      for (const auto& f : l.fields) {
        if (f.name != name) continue;
        value = std::visit([](const auto& v) { return fmt::format("{}", v); }, f.value);
      }
    }
    return value;
  }
  Driver d;
  Execute execute;
};

// ORCH-3903, OC-CTRL-2013, OC-CTRL-2014: a pinned job waits for its pool while another one is idle, and holds up nobody.
TEST_F(TwoPools, APinnedJobRunsInItsPoolOrWaitsForIt) {
  ASSERT_TRUE(submit("j1", pin("pool-2")));
  EXPECT_EQ(execute.pool_id.value, "pool-2");
  const auto first = execute.execution;
  EXPECT_EQ(submit("j2", pin("pool-2")), nullptr);
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_SLOT");
  EXPECT_NE(d.query("j2").reason->human.find("that its placement accepts"), std::string::npos);
  ASSERT_TRUE(submit("j3", {}));
  EXPECT_EQ(execute.pool_id.value, "pool-1");
  EXPECT_EQ(submit("j4", {}), nullptr);
  d.end(first);
  // In order of arrival among those that accept the worker: j2 came before j4.
  EXPECT_EQ(d.only<Execute>().job_id.value, "j2");
}

// ORCH-3900, ORCH-3906: what the decision log holds.
TEST_F(TwoPools, TheDecisionLogSaysHowItCameAbout) {
  ASSERT_TRUE(submit("j1", prefer("pool-2")));
  EXPECT_EQ(field("selected_pool_id"), "pool-2");
  EXPECT_EQ(field("filters_applied"), "ready,model,context,free_slot,prefer");
  EXPECT_EQ(field("pinned"), "false");
  EXPECT_EQ(field("fallback_used"), "false");
  EXPECT_EQ(field("candidates_considered"), "2");
  ASSERT_TRUE(submit("j2", prefer("pool-2")));
  EXPECT_EQ(execute.pool_id.value, "pool-1");
  EXPECT_EQ(field("selected_pool_id"), "pool-1");
  EXPECT_EQ(field("fallback_used"), "true");
  const auto counted = d.only<CountPlacement>();
  EXPECT_TRUE(counted.assigned && counted.fallback && !counted.pinned);
}

TEST_F(TwoPools, WithoutFallbackAPreferredPoolIsWaitedFor) {
  ASSERT_TRUE(submit("j1", prefer("pool-2", false)));
  EXPECT_EQ(execute.pool_id.value, "pool-2");
  EXPECT_EQ(submit("j2", prefer("pool-2", false)), nullptr);
}

TEST_F(TwoPools, AvoidedPoolsAndOtherDevicesAreLeftOut) {
  ASSERT_TRUE(submit("j1", {.avoid_pools = {"pool-1"}}));
  EXPECT_EQ(execute.pool_id.value, "pool-2");
  auto s = d.pool_state("pool-3", 2);
  d.see(s);
  EXPECT_EQ(submit("j2", {.require_device_mask = "1"}), nullptr);  // the worker of pool-1 is on device 0
  EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-3");
  EXPECT_EQ(d.only<StartWorker>().request.gpu_id, "1");
}

// ORCH-3903, OC-CTRL-2014: no silent fallback. What can never be met is INVALID_PARAMS, what may come back
// POOL_UNREADY, before the job is accepted.
TEST_F(TwoPools, WishesThatCannotBeMetAreRefused) {
  EXPECT_EQ(refusal("j1", pin("pool-9")).code, ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal("j2", {.require_device_mask = "7"}).code, ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal("j3", {.avoid_pools = {"pool-1", "pool-2"}}).code, ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal("j4", prefer("pool-9", false)).code, ErrorCode::kInvalidParams);
  EXPECT_TRUE(submit("j5", prefer("pool-9")));
  d.cannot_reach("http://pool-2");
  EXPECT_EQ(refusal("j6", pin("pool-2")).code, ErrorCode::kPoolUnready);
  EXPECT_EQ(refusal("j7", pin("pool-9")).code, ErrorCode::kInvalidParams);
}

TEST_F(TwoPools, TooLargeForThePinnedPoolIsRefusedWithItsNumbers) {
  d.see(d.pool_state("pool-3", 1, 64 * kGb));
  d.submit("j1", {.model = "big", .memory_bytes = 20 * kGb, .placement = pin("pool-2")});
  const auto answer = d.only<AnswerSubmit>();
  ASSERT_FALSE(answer.result.has_value());
  EXPECT_EQ(answer.result.error().code, ErrorCode::kPoolUnavailable);
  EXPECT_NE(answer.result.error().message.find("can give 8000000000"), std::string::npos);
  d.submit("j2", {.model = "big", .memory_bytes = 20 * kGb});
  EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-3");
}

// An accepted job is not lost with its pool: it waits until the pool is back.
TEST_F(TwoPools, AcceptedJobsOutliveTheirPool) {
  ASSERT_TRUE(submit("j1", pin("pool-2")));
  EXPECT_EQ(submit("j2", pin("pool-2")), nullptr);
  d.send(PoolDeregistered{.request = {}, .pool_id = base::PoolId("pool-2")});
  EXPECT_TRUE(d.none<Finish>());
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_POOL");
  d.after_ms(1000);
  see("pool-2", "w5");
  EXPECT_EQ(d.all<Execute>().size(), 1u);
  EXPECT_EQ(d.only<Execute>().job_id.value, "j2");
}

// A start in flight serves everybody who accepts its place, and nobody else. ORCH-3010: a worker gets its first job when it
// is ready, not before.
TEST(PlacementStarts, OneStartPerPlaceThatIsWaitedFor) {
  Driver d;
  d.see(d.pool_state("pool-1"));
  d.see(d.pool_state("pool-2"));
  d.submit("j1", {.placement = pin("pool-2")});
  EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-2");
  d.submit("j2");
  EXPECT_TRUE(d.none<StartWorker>());
  d.submit("j3", {.placement = pin("pool-1")});
  const auto start = d.only<StartWorker>();
  EXPECT_EQ(start.pool_id.value, "pool-1");
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  EXPECT_TRUE(d.none<Execute>());
  d.send(WorkerReady{{.pool_id = "pool-1", .worker = Driver::worker(start.request.worker_id)}});
  EXPECT_EQ(d.only<Execute>().job_id.value, "j2");  // j2 came first and accepts it too
}

// A pool that reports more than its device has gets no worker there, not even one that needs nothing.
TEST(PlacementStarts, NothingGoesOnADeviceThatIsOverfullByItsOwnReport) {
  CoreConfig config;
  config.workers_per_gpu = 2;
  Driver d(config);
  auto s = d.pool_state("pool-1", 1, 1);
  s.workers = {Driver::worker("w1", "b", "0", 1LL << 40)};
  d.see(s);
  d.submit("j1", {.memory_bytes = 0});
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.query("j1").status, wire::JobStatus::kQueued);
}

// A worker that nobody here asked for, and that never becomes ready, is waited for once, and no job fails for it. After that no
// job waits for what its pool says is starting.
TEST(PlacementStarts, AForeignStartThatHangsHoldsNobodyUpForEver) {
  Driver d;
  auto theirs = d.pool_state("pool-1");
  theirs.workers = {Driver::worker("x1")};
  theirs.workers[0].status = wire::WorkerStatus::kStarting;
  d.see(theirs);
  d.see(d.pool_state("pool-2"));
  d.submit("j1");
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_WORKER_START");
  std::vector<StartWorker> starts;
  const auto report = [&](const char* worker_id) {
    for (const char* pool : {"pool-1", "pool-2"}) {
      auto s = d.pool_state(pool);
      if (s.pool_id == "pool-1") {
        s.workers = {Driver::worker(worker_id)};
        s.workers[0].status = wire::WorkerStatus::kStarting;
      }
      d.see(s);
      for (const StartWorker& start : d.all<StartWorker>()) starts.push_back(start);
    }
    EXPECT_TRUE(d.none<Finish>());
  };
  for (int i = 0; i < 60; ++i) {
    EXPECT_TRUE(starts.empty()) << i;
    d.now.mono_ms += 1'000;
    d.now.unix_ms += 1'000;
    report("x1");
  }
  d.after_ms(0);
  for (const StartWorker& start : d.all<StartWorker>()) starts.push_back(start);
  ASSERT_EQ(starts.size(), 1U);
  EXPECT_EQ(starts[0].pool_id.value, "pool-2");
  report("x2");
  d.submit("j2", {.model = "b"});
  EXPECT_TRUE(d.none<Finish>());
  auto other = Driver::worker("x3", "b");
  other.status = wire::WorkerStatus::kStarting;
  auto s = d.pool_state("pool-1", 2);
  s.workers = {other};
  d.see(s);
  d.submit("j3", {.model = "b"});
  EXPECT_NE(d.query("j3").reason->code, "WAITING_FOR_WORKER_START");
}

// A pool that cannot start the model fails the jobs pinned to it and no others.
TEST(PlacementStarts, GivingUpEndsOnlyTheGroupThatAsked) {
  CoreConfig config;
  config.retry.jitter = false;
  Driver d(config);
  auto full = d.pool_state("pool-1");
  full.gpus[0].vram_available_bytes = 0;  // others hold it
  d.see(full);
  d.see(d.pool_state("pool-2"));
  d.submit("j1", {.placement = pin("pool-2")});
  const auto first = d.only<StartWorker>();
  d.submit("j2", {.placement = pin("pool-1")});
  const auto fail = [&](const StartWorker& start) {
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                               base::Error{ErrorCode::kWorkerStartFailed, "no", {}}});
  };
  fail(first);
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(1000);
  fail(d.only<StartWorker>());
  EXPECT_EQ(d.only<Finish>().job_id.value, "j1");
  EXPECT_EQ(d.query("j2").status, wire::JobStatus::kQueued);
}

// ORCH-3902: what finished jobs measured decides where the next one goes.
TEST(PlacementPredictedEnd, LearnsFromFinishedJobs) {
  CoreConfig config;
  config.scheduling.algorithm = config::PlacementAlgorithm::kPredictedEnd;
  Driver d(config);
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1", "a", "0"), Driver::worker("w2", "a", "1")};
  for (auto& g : s.gpus) g.vram_allocated_bytes = g.vram_available_bytes = 4 * kGb;
  d.see(s);
  const auto run = [&](const std::string& id, std::int64_t decode_ms) {
    d.submit(id);
    const auto x = d.only<Execute>();
    d.now.mono_ms += 10;
    d.send(ExecuteEnded{
        x.execution, 20, wire::EndEvent{.tokens_out = 20, .decode_time_ms = decode_ms, .first_token_ms = 5}, {}});
    return x.worker_id.value;
  };
  EXPECT_EQ(run("j1", 900), "w1");
  EXPECT_EQ(run("j2", 900), "w1");  // w2 was never measured: least loaded, most memory, first by name
  d.submit("j3");
  const auto slow = d.only<Execute>();
  EXPECT_EQ(slow.worker_id.value, "w1");
  EXPECT_EQ(run("j4", 100), "w2");
  d.end(slow.execution);
  EXPECT_EQ(run("j5", 100), "w2");
  EXPECT_EQ(run("j6", 100), "w2");
}

// A worker may say of a run what cannot be: its place counts as slow, whatever that is multiplied with.
TEST(PlacementPredictedEnd, ASpeedThatCannotBeIsNoAdvantage) {
  CoreConfig config;
  config.scheduling.algorithm = config::PlacementAlgorithm::kPredictedEnd;
  Driver d(config);
  constexpr std::int64_t kTokens = 1'000'000;
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1", "a", "0"), Driver::worker("w2", "a", "1")};
  for (auto& g : s.gpus) g.vram_allocated_bytes = g.vram_available_bytes = 4 * kGb;
  for (auto& w : s.workers) w.context_length = 2 * kTokens;
  d.see(s);
  const auto run = [&](const std::string& id) {
    auto spec = Driver::spec(id, {.max_tokens = kTokens});
    spec.model.context_length = 2 * kTokens;
    d.send(Submit{{++d.requests}, spec});
    return d.only<Execute>();
  };
  const auto end = [&](const Execute& x, std::int64_t tokens, std::int64_t decode_ms, std::int64_t first_ms) {
    d.send(ExecuteEnded{x.execution,
                        tokens,
                        wire::EndEvent{.tokens_out = tokens, .decode_time_ms = decode_ms, .first_token_ms = first_ms},
                        {}});
  };
  const auto first = run("j1");
  ASSERT_EQ(first.worker_id.value, "w1");
  const auto second = run("j2");
  end(first, 2, 1'000'000'000'000, 1'000'000'000'000);
  end(second, kTokens, kTokens, 5);
  EXPECT_EQ(run("j3").worker_id.value, "w2");
}

// Placements come and go; the numbers of their groups are used again.
TEST_F(TwoPools, GroupsOfEndedJobsAreReused) {
  for (int i = 0; i < 200; ++i) {
    const std::string id = "j" + std::to_string(i);
    ASSERT_TRUE(submit(id, {.avoid_pools = {"nobody-" + std::to_string(i)}}));
    d.end(execute.execution);
    ASSERT_EQ(d.all<Finish>().size(), 1u);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
