// Eviction, idle time-outs and crash limits as the core applies them.
#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using wire::WorkerStatus;

constexpr std::int64_t kTtlMs = 10'000;

// A pool whose only device holds one worker of 4 GB, started by a job for model `a` that took `load_ms`.
struct Loaded {
  explicit Loaded(CoreConfig config, std::int64_t load_ms = 0) : d(std::move(config)) {
    d.see(d.pool_state("pool-1", 1, 6 * kGb));
    d.submit("a1");
    id = d.only<StartWorker>().request.worker_id;
    d.after_ms(load_ms);
    d.send(StartWorkerAnswered{base::WorkerId(id), {}});
    d.send(WorkerReady{{"pool-1", Driver::worker(id)}});
    execution = d.only<Execute>().execution;
  }
  wire::PoolState state() {
    auto s = d.pool_state("pool-1", 1, 6 * kGb);
    s.workers = {Driver::worker(id)};
    s.gpus[0].vram_allocated_bytes = 4 * kGb;
    s.gpus[0].vram_available_bytes = 2 * kGb;
    return s;
  }
  // Time in which the pool goes on reporting.
  void quiet_ms(std::int64_t ms) {
    for (; ms > 0; ms -= 15'000) {
      d.after_ms(std::min<std::int64_t>(ms, 15'000));
      EXPECT_TRUE(d.none<StopWorker>());
      d.see(state());
      EXPECT_TRUE(d.none<StopWorker>());
    }
  }
  Driver d;
  std::string id;
  ExecutionId execution;
};

CoreConfig with_ttl(std::int64_t ttl_ms) {
  CoreConfig c;
  c.eviction.worker_idle_ttl_ms = ttl_ms;
  return c;
}

TEST(IdleTtl, StopsAWorkerThatWasIdleForSoLong) {
  Loaded l(with_ttl(kTtlMs));
  l.d.after_ms(kTtlMs * 2);
  EXPECT_TRUE(l.d.none<StopWorker>()) << "busy";
  l.d.end(l.execution);
  EXPECT_TRUE(l.d.none<StopWorker>());
  l.d.after_ms(kTtlMs - 1);
  EXPECT_TRUE(l.d.none<StopWorker>());
  l.d.after_ms(1);
  EXPECT_EQ(l.d.only<StopWorker>().worker_id.value, l.id);
}

TEST(IdleTtl, IsOffByDefault) {
  Loaded l({});
  l.d.end(l.execution);
  l.quiet_ms(3'600'000);
}

TEST(IdleTtl, AJobInBetweenBeginsTheTimeAnew) {
  Loaded l(with_ttl(kTtlMs));
  l.d.end(l.execution);
  l.d.after_ms(kTtlMs - 1);
  const auto x = l.d.run("a2");
  l.d.after_ms(10);
  l.d.end(x);
  l.d.after_ms(kTtlMs - 1);
  EXPECT_TRUE(l.d.none<StopWorker>());
  l.d.after_ms(1);
  EXPECT_EQ(l.d.all<StopWorker>().size(), 1u);
}

// ORCH-1051: a request that races with the unload: the worker is gone for it, and the next one starts as soon as the memory
// is free.
TEST(IdleTtl, ARequestThatRacesWithTheUnloadIsServedByTheNextWorker) {
  Loaded l(with_ttl(kTtlMs));
  l.d.end(l.execution);
  l.d.see(l.state());
  l.d.after_ms(kTtlMs);
  ASSERT_EQ(l.d.all<StopWorker>().size(), 1u);
  l.d.submit("a2");
  EXPECT_TRUE(l.d.none<Execute>());
  EXPECT_TRUE(l.d.none<StartWorker>()) << "its memory is not confirmed free";
  EXPECT_EQ(l.d.query("a2").reason->code, "WAITING_FOR_MEMORY");
  l.d.send(WorkerFailed{{.worker_id = l.id, .pool_id = "pool-1", .category = wire::FailureCategory::kExplicitStop}});
  l.d.see(l.d.pool_state("pool-1", 1, 6 * kGb));
  const auto start = l.d.only<StartWorker>();
  l.d.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id)}});
  EXPECT_EQ(l.d.only<Execute>().job_id.value, "a2");
}

// A waiting job keeps its worker, also while its retry is delayed.
TEST(IdleTtl, ARetryThatWaitsKeepsItsWorker) {
  auto config = with_ttl(100);
  config.retry.initial_delay_ms = 10'000;
  config.retry.jitter = false;
  Loaded l(config);
  l.d.lose(l.execution);
  l.d.see(l.state());  // the worker lives
  l.d.after_ms(5'000);
  EXPECT_TRUE(l.d.none<StopWorker>());
  l.d.after_ms(5'000);
  EXPECT_EQ(l.d.only<Execute>().worker_id.value, l.id);
}

// manual never evicts by itself; the waiting job says why and what to do; a purge is the way.
TEST(Manual, AWaitingJobSaysWhatToDo) {
  CoreConfig config;
  config.eviction.worker_policy = config::EvictionPolicy::kManual;
  Loaded l(config);
  l.d.end(l.execution);
  l.d.see(l.state());
  l.d.submit("b1", {.model = "b"});
  l.quiet_ms(120'000);
  const auto job = l.d.query("b1");
  EXPECT_EQ(job.reason->code, "WAITING_FOR_EVICTION");
  EXPECT_NE(job.reason->human.find("llorch pool purge"), std::string::npos) << job.reason->human;
  l.d.send(PurgePool{{900}, base::PoolId("pool-1"), {"sha256:a"}});
  EXPECT_EQ(l.d.only<StopWorker>().worker_id.value, l.id);
  EXPECT_EQ(l.d.only<AnswerPoolControl>().result->workers, std::vector<std::string>{l.id});
}

// A device may have room and hold as many workers as it may: then the numbers of its memory explain nothing.
TEST(Waits, ForAPlaceOnADeviceSayThatItIsNotTheMemory) {
  // One that was just loaded stays for a while; else the worker makes room, and until it has gone there is none.
  for (const std::int64_t load_ms : {0, 8'000}) {
    for (const std::int64_t gb : {1, 4}) {
      Loaded l({}, load_ms);
      l.d.end(l.execution);
      l.d.see(l.state());
      l.d.submit("b1", {.model = "b", .memory_bytes = gb * kGb});
      EXPECT_EQ(l.d.all<StopWorker>().size(), load_ms == 0 ? 1u : 0u);
      const auto reason = l.d.query("b1").reason.value();
      EXPECT_EQ(reason.code, "WAITING_FOR_MEMORY");
      EXPECT_EQ(reason.human.find("workers_per_gpu") != std::string::npos, gb == 1) << reason.human;
      const std::string numbers = "has room now: the model needs 4000000000 bytes, the freest one has 2000000000";
      EXPECT_EQ(reason.human.find(numbers) != std::string::npos, gb == 4) << reason.human;
    }
  }
}

// What runs and starts took says nothing of when a pool comes back.
TEST(Waits, ForAPoolHaveNoPredictedStart) {
  Loaded l({}, 8'000);
  l.d.after_ms(1'000);
  l.d.end(l.execution);
  l.d.cannot_reach("http://pool-1");
  l.d.submit("a2");
  const auto job = l.d.query("a2");
  ASSERT_TRUE(job.reason);
  EXPECT_EQ(job.reason->code, "WAITING_FOR_POOL");
  EXPECT_FALSE(job.predicted_start_ms) << job.predicted_start_ms.value_or(0);
}

// No thrashing: what was just loaded stays for as long as that took.
TEST(Eviction, WaitsUntilTheLoadHasPaidOff) {
  Loaded l({}, 8'000);
  l.d.end(l.execution);
  l.d.see(l.state());
  l.d.submit("b1", {.model = "b"});
  EXPECT_TRUE(l.d.none<StopWorker>());
  EXPECT_NE(l.d.query("b1").reason->human.find("just loaded"), std::string::npos);
  l.d.after_ms(7'999);
  EXPECT_TRUE(l.d.none<StopWorker>());
  l.d.after_ms(1);
  EXPECT_EQ(l.d.only<StopWorker>().worker_id.value, l.id);
}

// ORCH-1050, SYS-11.1: a device fuller than vram_threshold gives up an idle worker, the one the policy names, never its last.
TEST(VramThreshold, TrimsIdleWorkersButNotTheLast) {
  CoreConfig config;
  config.workers_per_gpu = 3;
  config.worker_start_timeout_ms = 1'000;  // stands for a start nobody saw
  Driver d(config);
  const auto full = [&](std::vector<std::string> models) {
    auto s = d.pool_state("pool-1", 1, 10 * kGb);
    for (const auto& m : models) s.workers.push_back(Driver::worker("w-" + m, m));
    s.gpus[0].vram_allocated_bytes = static_cast<std::int64_t>(models.size()) * 4 * kGb;
    s.gpus[0].vram_available_bytes = 10 * kGb - s.gpus[0].vram_allocated_bytes;
    return s;
  };
  d.see(full({"a", "b"}));  // 8 of 10 GB
  EXPECT_TRUE(d.none<StopWorker>());
  auto s = full({"a", "b"});
  s.gpus[0].vram_available_bytes = kGb / 2;  // another program took the rest
  d.after_ms(1'000);
  const auto x = d.run("a1");  // a is used later than b
  d.end(x);
  d.see(s);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w-b");
  d.send(WorkerFailed{{.worker_id = "w-b", .pool_id = "pool-1", .category = wire::FailureCategory::kExplicitStop}});
  s = full({"a"});
  s.gpus[0].vram_available_bytes = 0;
  for (int i = 0; i < 40; ++i) {
    d.see(s);
    EXPECT_TRUE(d.none<StopWorker>());
    d.after_ms(15'000);
    s.timestamp_ms = d.now.unix_ms;
    s.uptime_seconds = d.now.mono_ms / 1000;
  }
}

TEST(VramThreshold, LeavesBusyWorkersAloneAndIsOffUnderManual) {
  CoreConfig config;
  config.workers_per_gpu = 2;
  config.worker_start_timeout_ms = 1'000;
  for (const bool manual : {false, true}) {
    if (manual) config.eviction.worker_policy = config::EvictionPolicy::kManual;
    Driver d(config);
    auto s = d.pool_state("pool-1", 1, 8 * kGb);
    s.workers = {Driver::worker("w-a", "a"), Driver::worker("w-b", "b")};
    s.gpus[0].vram_allocated_bytes = 8 * kGb;
    s.gpus[0].vram_available_bytes = 0;
    if (manual) {
      d.see(s);
      d.after_ms(1'000);
      EXPECT_TRUE(d.none<StopWorker>());
      continue;
    }
    s.gpus[0].vram_available_bytes = 4 * kGb;
    s.gpus[0].vram_allocated_bytes = 4 * kGb;
    s.workers.pop_back();
    d.see(s);
    d.run("a1");
    s.workers.push_back(Driver::worker("w-b", "b"));
    s.gpus[0].vram_available_bytes = 0;
    s.gpus[0].vram_allocated_bytes = 8 * kGb;
    d.see(s);
    EXPECT_TRUE(d.none<StopWorker>()) << "it has just come";
    d.after_ms(1'000);
    EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w-b");
  }
}

// OC-POOL-3011: the job of a worker that crashes again and again waits for the breaker and says so.
TEST(Crashes, HoldUpTheNextStart) {
  CoreConfig config;
  config.restart.worker_crashes_max = 1;
  config.retry.jitter = false;
  config.retry.max_attempts = 100;
  Loaded l(config);
  const auto crash = [&] {
    l.d.send(WorkerFailed{{.worker_id = l.id, .pool_id = "pool-1", .error_code = "WORKER_RESET"}});
    l.d.lose(l.execution);
    l.d.see(l.d.pool_state("pool-1", 1, 6 * kGb));
  };
  crash();
  l.d.after_ms(1'000);  // the job's own backoff
  l.id = l.d.only<StartWorker>().request.worker_id;
  l.d.send(WorkerReady{{"pool-1", Driver::worker(l.id)}});
  l.execution = l.d.only<Execute>().execution;
  crash();
  l.d.after_ms(2'000);
  EXPECT_TRUE(l.d.none<StartWorker>());
  const auto reason = l.d.query("a1").reason;
  EXPECT_EQ(reason->code, "WAITING_FOR_START_RETRY");
  EXPECT_NE(reason->human.find("crashed (WORKER_RESET)"), std::string::npos) << reason->human;
}

// A pool may tell of any workers that come and go: only those that were asked for hold up starts, in its own or another pool.
TEST(Crashes, OfWorkersThatNobodyAskedForHoldUpNoStart) {
  CoreConfig config;
  config.restart.worker_crashes_max = 1;
  config.retry.jitter = false;
  const auto job_starts_after = [&](auto told) {
    Driver d(config);
    auto full = d.pool_state("pool-2");
    full.gpus[0].vram_available_bytes = 0;  // others hold it
    d.see(full);
    d.submit("a1", {.placement = {.avoid_pools = {"pool-1"}}});
    for (int i = 0; i < 4; ++i) {
      auto s = d.pool_state("pool-1");
      told(s, i, d);
      s.workers.clear();
      d.see(s);
    }
    d.see(d.pool_state("pool-2"));
    EXPECT_FALSE(d.none<StartWorker>()) << d.dump();
  };
  job_starts_after([](wire::PoolState& s, int i, Driver& d) {
    s.workers = {Driver::worker("x" + std::to_string(i))};
    d.see(s);
  });
  job_starts_after([](wire::PoolState& s, int i, Driver& d) {
    s.workers = {Driver::worker("x" + std::to_string(i), "b")};
    d.see(s);
    s.workers = {Driver::worker("x" + std::to_string(i), "a")};  // another model than a moment ago
    d.see(s);
  });
  job_starts_after([](wire::PoolState& s, int i, Driver& d) {
    s.workers = {Driver::worker("x" + std::to_string(i))};
    s.workers[0].status = wire::WorkerStatus::kStarting;
    d.see(s);
    d.send(WorkerFailed{{.worker_id = s.workers[0].worker_id, .pool_id = "pool-1", .error_code = "CORRUPT_FILE"}});
  });
}

}  // namespace
}  // namespace llorch::orchestratord::core
