// Workers that pools start, stop and lose, and files that not every pool has.
#include "orchestratord/core/testing/pools.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::PoolStatus;

// SYS-7.2.1, ORCH-1033, ORCH-1040..1042: a job without a worker starts one; it is used once the pool says ready.
TEST(Workers, StartOnDemand) {
  Driver d;
  d.submit("j1");
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_POOL");
  d.see(d.pool_state());
  const auto start = d.only<StartWorker>();
  EXPECT_EQ(start.request.model_ref, "file:/a.gguf");
  EXPECT_EQ(start.request.worker_id.substr(0, 7), "worker-");
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_WORKER_START");
  d.submit("j2");
  EXPECT_TRUE(d.none<StartWorker>());  // one start per model at a time
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  EXPECT_TRUE(d.none<Execute>());
  d.send(WorkerReady{{.pool_id = "pool-1", .worker = started(start)}});
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j1"));
  d.send(WorkerReady{{.pool_id = "pool-1", .worker = started(start)}});
  EXPECT_TRUE(d.none<Execute>());
}

// ORCH-1042: a start that times out is stopped and retried once; then the jobs of the model fail with the code.
TEST(Workers, StartTimesOutTwice) {
  Driver d(no_jitter());
  d.see(d.pool_state());
  d.submit("j1");
  const auto first = d.only<StartWorker>();
  d.send(StartWorkerAnswered{base::WorkerId(first.request.worker_id), {}});
  d.after_ms(60'000);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, first.request.worker_id);
  EXPECT_TRUE(d.none<Finish>());
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_START_RETRY");
  d.send(WorkerFailed{{.worker_id = first.request.worker_id, .pool_id = "pool-1"}});
  d.after_ms(1000);
  d.see(d.pool_state());
  const auto second = d.only<StartWorker>();
  d.send(StartWorkerAnswered{base::WorkerId(second.request.worker_id),
                             base::Error{ErrorCode::kWorkerStartFailed, "no process", {}}});
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kWorkerStartFailed);
}

// What a pool says of a worker that loads changes nothing of what was asked for.
TEST(Workers, AStartTimesOutWhateverItsPoolSaysOfTheWorker) {
  Driver d(no_jitter());
  d.see(d.pool_state("pool-1", 2));
  d.submit("j1");
  const auto start = d.only<StartWorker>();
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker(start.request.worker_id, "other", "1")};
  s.workers[0].status = wire::WorkerStatus::kStarting;
  d.see(s);
  EXPECT_TRUE(d.none<StartWorker>()) << "one start per model at a time";
  EXPECT_EQ(pool_of(d).workers[0].gpu_id, "0");
  EXPECT_EQ(pool_of(d).workers[0].model_digest, "sha256:a");
  d.after_ms(60'000);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, start.request.worker_id);
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_START_RETRY");
}

// A pool that goes on refusing what it reports room for is believed in the end.
TEST(Workers, RefusalsAgainstFreshReportsFailTheJobs) {
  Driver d(no_jitter());
  d.see(d.pool_state());
  d.submit("j1");
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(d.none<Finish>());
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                               base::Error{ErrorCode::kInsufficientVram, "too small", {}}});
    if (i == 2) break;
    d.after_ms(1000);
    d.see(d.pool_state());
  }
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kInsufficientVram);
}

TEST(Workers, ABrokenFileFailsItsJobsAtOnceAndOnlyThose) {
  Driver d;
  d.see(d.pool_state("pool-1", 2));
  d.submit("j1");
  const auto start = d.only<StartWorker>();
  d.submit("other", {.model = "b"});
  d.send(WorkerFailed{{.worker_id = start.request.worker_id,
                       .pool_id = "pool-1",
                       .gpu_id = "0",
                       .error_code = "CORRUPT_FILE",
                       .error_message = "bad magic"}});
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("j1"));
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kCorruptFile);
}

// The larger pool lacks the file, or has a damaged copy; the smaller one has it.
struct OnePoolHasTheFile : testing::Test {
  explicit OnePoolHasTheFile() : d(no_jitter()) {
    d.see(d.pool_state("pool-1", 1, 16 * kGb));
    d.see(d.pool_state("pool-2"));
  }
  // The pool that is asked, and the worker.
  std::pair<std::string, std::string> asked() const {
    const auto start = d.only<StartWorker>();
    return {start.pool_id.value, start.request.worker_id};
  }
  void refuse(const std::string& worker, ErrorCode code = ErrorCode::kModelNotFound) {
    d.send(StartWorkerAnswered{base::WorkerId(worker), base::Error{code, "no", {}}});
  }
  Driver d;
};

// What is wrong with a file is wrong with one pool's copy: every pool that could run the job is asked once, and at once.
TEST_F(OnePoolHasTheFile, TheOtherPoolIsAsked) {
  d.submit("j1");
  const auto [pool, worker] = asked();
  ASSERT_EQ(pool, "pool-1");
  refuse(worker);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  const auto [other_pool, other_worker] = asked();
  EXPECT_EQ(other_pool, "pool-2");
  d.send(WorkerReady{{.pool_id = "pool-2", .worker = Driver::worker(other_worker)}});
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j1"));
}

TEST_F(OnePoolHasTheFile, ADamagedCopyIsOnePools) {
  d.submit("j1");
  d.send(WorkerFailed{{.worker_id = asked().second, .pool_id = "pool-1", .gpu_id = "0", .error_code = "CORRUPT_FILE"}});
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  EXPECT_EQ(asked().first, "pool-2");
}

// A reload tries a damaged copy twice. Jobs for the same model wait for the pool that loads it.
TEST_F(OnePoolHasTheFile, AReloadOfADamagedCopyIsNotTheirFailure) {
  d.submit("j1");
  refuse(asked().second);
  const auto [pool, worker] = asked();
  ASSERT_EQ(pool, "pool-2");
  d.send(ReloadPool{RequestId{1}, base::PoolId("pool-1"), Driver::spec("x", {}).model, 30'000});
  int tries = 0;
  for (int i = 0; i < 10 && tries < 2; ++i) {
    if (!d.none<StartWorker>()) {
      ASSERT_EQ(asked().first, "pool-1");
      ++tries;
      refuse(asked().second, ErrorCode::kCorruptFile);
      EXPECT_TRUE(d.none<Finish>()) << d.dump();
    } else {
      d.after_ms(1'000);
    }
    if (d.none<StartWorker>()) d.see(d.pool_state("pool-1", 1, 16 * kGb));
  }
  EXPECT_EQ(tries, 2);
  d.send(WorkerReady{{.pool_id = "pool-2", .worker = Driver::worker(worker)}});
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j1"));
}

TEST_F(OnePoolHasTheFile, AModelThatNoPoolHasIsRefusedAtOnce) {
  d.submit("j1");
  refuse(asked().second);
  refuse(asked().second);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kModelNotFound);
  EXPECT_TRUE(d.none<StartWorker>());
}

// The pool that has it makes room, and is waited for; the other one is not asked again meanwhile.
TEST_F(OnePoolHasTheFile, RoomIsMadeWhereTheFileMayBe) {
  auto s = d.pool_state("pool-2");
  s.workers = {Driver::worker("w1", "b")};
  s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
  d.see(s);
  d.submit("j1", {.memory_bytes = 6 * kGb});
  refuse(asked().second);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  EXPECT_TRUE(d.none<StartWorker>()) << d.dump();
  EXPECT_EQ(d.only<StopWorker>().worker_id, base::WorkerId("w1"));
}

TEST_F(OnePoolHasTheFile, APoolOutOfReachIsWaitedForUntilItIsForgotten) {
  d.submit("j1");
  const std::string worker = asked().second;
  d.cannot_reach("http://pool-2");
  refuse(worker);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_POOL");
  for (int i = 0; i < 100 && d.none<StartWorker>(); ++i) {
    d.after_ms(10'000);
    if (d.none<StartWorker>()) d.see(d.pool_state("pool-1", 1, 16 * kGb));
  }
  const auto [pool, again] = asked();
  EXPECT_EQ(pool, "pool-1");
  refuse(again);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kModelNotFound);
}

// Nobody is waited for who may not or cannot run the job.
TEST_F(OnePoolHasTheFile, OnlyAPoolThatCouldRunTheJobIsAnotherOne) {
  d.submit("pinned", {.placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "pool-1"}});
  refuse(asked().second);
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("pinned"));
  d.after_ms(1'000);
  d.submit("large", {.model = "b", .memory_bytes = 12 * kGb});
  refuse(asked().second);
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("large"));
  d.send(DrainPool{RequestId{1}, base::PoolId("pool-2"), 1'000});
  d.submit("drained", {.model = "c"});
  refuse(asked().second);
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("drained"));
}

// A pool speaks of its own workers only.
TEST(Workers, AnotherPoolsWordOfAWorkerIsNotHeard) {
  Driver d;
  d.add_worker();
  d.see(d.pool_state("pool-2"));
  d.send(WorkerFailed{{.worker_id = "w1", .pool_id = "pool-2", .error_code = "WORKER_RESET"}});
  EXPECT_TRUE(d.none<AskPoolState>()) << d.dump();
  EXPECT_EQ(pool_of(d).workers.size(), 1u);
  d.send(WorkerFailed{{.worker_id = "w1", .pool_id = "pool-1", .error_code = "WORKER_RESET"}});
  EXPECT_EQ(pool_of(d).workers.size(), 0u);
}

// An unreachable pool is no fault of the model: nothing fails, the start is repeated when the pool is back.
TEST(Workers, AnUnreachablePoolCountsNoFailure) {
  Driver d;
  d.see(d.pool_state());
  d.submit("j1");
  for (int i = 0; i < 4; ++i) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), base::Error{ErrorCode::kUnreachable, "", {}}});
    EXPECT_TRUE(d.none<Finish>());
    EXPECT_EQ(pool_of(d).status, PoolStatus::kUnhealthy);
    d.after_ms(1000);
    EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");
    d.see(d.pool_state());
  }
}

// Two models, one device: the idle worker makes room; the start waits until the pool reports the memory free.
TEST(Workers, EvictsAnIdleWorkerAndWaitsForTheMemory) {
  Driver d;
  d.add_worker();
  d.submit("j1", {.model = "b", .memory_bytes = 6 * kGb});
  EXPECT_EQ(d.only<StopWorker>().worker_id, base::WorkerId("w1"));
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_MEMORY");
  d.send(WorkerFailed{
      {.worker_id = "w1", .pool_id = "pool-1", .gpu_id = "0", .category = wire::FailureCategory::kExplicitStop}});
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.all<AskPoolState>().size(), 1u);
  d.after_ms(10);
  d.see(d.pool_state());
  EXPECT_EQ(d.only<StartWorker>().request.model_ref, "file:/b.gguf");
}

// What was asked for is no error; what was not has its code.
TEST(Workers, TheLogSaysHowAWorkerWent) {
  const auto logged = [](wire::FailureCategory category, const std::string& code) {
    Driver d;
    d.add_worker();
    d.send(WorkerFailed{
        {.worker_id = "w1", .pool_id = "pool-1", .gpu_id = "0", .category = category, .error_code = code}});
    for (const Log& log : d.all<Log>()) {
      if (log.event != "worker.gone") continue;
      std::string out = log.human;
      for (const base::LogField& field : log.fields) {
        if (field.name == "code") out += " " + std::get<std::string>(field.value);
      }
      return out;
    }
    return std::string();
  };
  EXPECT_EQ(logged(wire::FailureCategory::kExplicitStop, ""), "A worker has stopped, as it was asked to.");
  EXPECT_EQ(logged(wire::FailureCategory::kCrash, "WORKER_RESET"), "A worker is gone. WORKER_RESET");
}

TEST(Workers, AWorkerInUseIsNotEvictedUntilPatienceEnds) {
  Driver d;
  d.add_worker();
  ExecutionId x = d.run("a1");
  d.submit("b1", {.model = "b", .memory_bytes = 6 * kGb});
  d.submit("a2");
  d.submit("a3");
  d.send(ExecuteStarted{x});
  d.end(x);
  x = d.only<Execute>().execution;  // a2: b1 holds nobody up
  EXPECT_TRUE(d.none<StopWorker>());
  d.after_ms(30'000);
  EXPECT_TRUE(d.none<StopWorker>());  // reserved, still at work
  d.end(x);
  EXPECT_TRUE(d.none<Execute>());
  EXPECT_EQ(d.only<StopWorker>().worker_id, base::WorkerId("w1"));
}

TEST(Workers, AReservationEndsWithItsReason) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("a1");
  d.submit("b1", {.model = "b", .memory_bytes = 6 * kGb});
  d.submit("a2");
  d.after_ms(30'000);
  d.send(CancelRequested{{}, base::JobId("b1"), jobs::CancelReason::kDisconnect});
  d.end(x);
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("a2"));
}

// A worker that the process before us started: the same model is not loaded a second time.
TEST(Workers, ALoadOfTheProcessBeforeUsIsWaitedFor) {
  Driver d;
  auto s = d.pool_state();
  s.workers = {Driver::worker("w1")};
  s.workers[0].status = wire::WorkerStatus::kStarting;
  s.workers[0].model_digest = "";  // not known until it is ready
  s.workers[0].uri = "";
  d.see(s);
  d.submit("j1");
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_WORKER_START");
  d.after_ms(10);
  d.add_worker();
  EXPECT_EQ(d.only<Execute>().worker_id, base::WorkerId("w1"));
}

CoreConfig two_workers_on_a_device() {
  CoreConfig config = no_jitter();
  config.workers_per_gpu = 2;
  return config;
}

// ORCH-1042: a refusal for want of room says nothing about the model. While workers come and go on the device it is not
// counted, and nothing is started there before the pool has said how it stands.
TEST(Workers, ARefusalWhileTheDeviceIsInMotionCountsNoFailure) {
  Driver d(two_workers_on_a_device());
  auto s = d.pool_state();
  s.workers = {Driver::worker("w1", "b", "0", 1 * kGb)};
  s.workers[0].status = wire::WorkerStatus::kFailed;  // exits slowly
  d.see(s);
  d.submit("j1");
  for (int i = 0; i < 5; ++i) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                               base::Error{ErrorCode::kInsufficientVram, "no room", {}}});
    EXPECT_EQ(d.all<AskPoolState>().size(), 1u);
    d.after_ms(1000);
    EXPECT_TRUE(d.none<StartWorker>());  // not before the pool has answered
    s.timestamp_ms = d.now.unix_ms;
    d.see(s);
  }
  EXPECT_TRUE(d.none<Finish>());
  EXPECT_EQ(d.query("j1").status, wire::JobStatus::kQueued);
}

// A pool counts a worker that loads as reserved and as used; its refusal may arrive when that worker is ready (simulator,
// seed 5002476). It is no failure of the model, so the first real one is not the last either.
TEST(Workers, ARefusalAfterALoadThatWasInItsWayIsReadyCountsNoFailure) {
  Driver d(two_workers_on_a_device());
  d.see(d.pool_state("pool-1", 1, 12 * kGb));
  d.submit("a1");
  const std::string loading = d.only<StartWorker>().request.worker_id;
  d.submit("b1", {.model = "b"});
  const auto refuse = [&](const StartWorker& start) {
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                               base::Error{ErrorCode::kInsufficientVram, "no room", {}}});
    EXPECT_TRUE(d.none<Finish>());
  };
  refuse(d.only<StartWorker>());
  d.after_ms(1'000);
  auto s = d.pool_state("pool-1", 1, 12 * kGb);
  s.workers = {Driver::worker(loading)};
  s.workers[0].status = wire::WorkerStatus::kStarting;
  d.see(s);
  const auto asked = d.only<StartWorker>();
  ASSERT_EQ(asked.request.model_ref, "file:/b.gguf");
  d.send(WorkerReady{{"pool-1", Driver::worker(loading)}});
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("a1"));
  refuse(asked);
  d.after_ms(1'000);
  s.timestamp_ms = d.now.unix_ms;
  s.workers[0].status = wire::WorkerStatus::kReady;
  d.see(s);
  const auto again = d.only<StartWorker>();
  d.send(WorkerFailed{{.worker_id = again.request.worker_id, .pool_id = "pool-1"}});
  EXPECT_TRUE(d.none<Finish>()) << "the model has failed once";
  EXPECT_EQ(d.query("b1").status, wire::JobStatus::kQueued);
}

// Jobs of two models wait, and the pool that comes has room for both on its one device.
std::vector<StartWorker> start_two(Driver& d, const wire::PoolState& pool) {
  d.submit("a1");
  d.submit("b1", {.model = "b"});
  d.see(pool);
  return d.all<StartWorker>();
}

// Two starts go out on one report, of a pool that came back and has not found its workers yet; it refuses both. The second
// refusal says no more than the first (simulator, seed 5000142520).
TEST(Workers, ASecondRefusalOfWhatOneReportHadRoomForCountsNoFailure) {
  Driver d(two_workers_on_a_device());
  auto s = d.pool_state("pool-1", 1, 12 * kGb);
  const auto starts = start_two(d, s);
  ASSERT_EQ(starts.size(), 2u);
  for (const StartWorker& start : starts) {
    d.after_ms(10);
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), base::Error{ErrorCode::kConflict, "full", {}}});
    EXPECT_TRUE(d.none<Finish>());
  }
  d.after_ms(1'000);
  s.timestamp_ms = d.now.unix_ms;
  d.see(s);
  for (const StartWorker& start : d.all<StartWorker>()) {
    d.send(WorkerFailed{{.worker_id = start.request.worker_id, .pool_id = "pool-1"}});
    EXPECT_TRUE(d.none<Finish>()) << "this is the first failure of its model";
  }
}

// It loads there, so its device looks fuller than it will be: what is refused beside it counts no failure.
TEST(Workers, AWorkerThatItsPoolReportedStaysWhenTheAnswerToItsStartIsLost) {
  Driver d(two_workers_on_a_device());
  auto s = d.pool_state("pool-1", 1, 12 * kGb);
  const auto starts = start_two(d, s);
  ASSERT_EQ(starts.size(), 2u);
  const auto answer = [&](const StartWorker& start, ErrorCode code) {
    d.after_ms(10);
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), base::Error{code, "", {}}});
    EXPECT_TRUE(d.none<Finish>());
  };
  answer(starts[1], ErrorCode::kConflict);
  d.after_ms(1'000);
  s.timestamp_ms = d.now.unix_ms;
  s.workers.push_back(
      {.worker_id = starts[0].request.worker_id, .model_ref = starts[0].request.model_ref, .gpu_id = "0"});
  d.see(s);
  const auto again = d.only<StartWorker>();
  answer(starts[0], ErrorCode::kUnreachable);
  answer(again, ErrorCode::kConflict);
  d.after_ms(1'000);
  s.timestamp_ms = d.now.unix_ms;
  d.see(s);
  d.send(WorkerFailed{{.worker_id = d.only<StartWorker>().request.worker_id, .pool_id = "pool-1"}});
  EXPECT_TRUE(d.none<Finish>()) << "this is the first failure of its model";
}

TEST(Workers, ALoadThePoolKnowsAndWeDoNotCountsNoFailure) {
  Driver d(no_jitter());
  d.see(d.pool_state());
  d.submit("j1");
  for (int i = 0; i < 5; ++i) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{
        base::WorkerId(start.request.worker_id),
        base::Error{ErrorCode::kConflict, "it loads", {}}.with("reason", std::string("MODEL_LOADING"))});
    d.after_ms(1000);
    d.see(d.pool_state());
  }
  EXPECT_TRUE(d.none<Finish>());
}

// It reports more room than the other pool, and refuses each start as a pool may that is not to blame.
TEST(Workers, APoolThatGoesOnPuttingStartsOffHoldsUpNoOther) {
  const std::vector<base::Error> refusals{
      base::Error{ErrorCode::kConflict, "it loads", {}}.with("reason", std::string("MODEL_LOADING")),
      base::Error{ErrorCode::kInsufficientVram, "no room", {}}};
  for (const base::Error& refusal : refusals) {
    Driver d(no_jitter());
    d.see(d.pool_state("pool-1", 1, 16 * kGb));
    d.see(d.pool_state("pool-2"));
    d.submit("j1");
    const auto start = d.only<StartWorker>();
    EXPECT_EQ(start.pool_id.value, "pool-1");
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), refusal});
    EXPECT_TRUE(d.none<StartWorker>()) << "its next report is waited for";
    d.after_ms(500);
    d.see(d.pool_state("pool-1", 1, 16 * kGb));
    d.after_ms(500);
    const auto elsewhere = d.only<StartWorker>();
    EXPECT_EQ(elsewhere.pool_id.value, "pool-2") << refusal.message;
    d.send(WorkerReady{{"pool-2", Driver::worker(elsewhere.request.worker_id)}});
    EXPECT_EQ(d.only<Execute>().job_id.value, "j1");
  }
}

// A disk that stalls, or a mount that does not answer: the job waits for the file as it would for its pool.
TEST(Workers, AFileThatIsStillBeingReadCountsNoFailure) {
  Driver d(no_jitter());
  d.see(d.pool_state());
  d.submit("j1");
  for (int i = 0; i < 5; ++i) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{
        base::WorkerId(start.request.worker_id),
        base::Error{ErrorCode::kPoolUnready, "it is read", {}}.with("reason", std::string("MODEL_BEING_READ"))});
    EXPECT_TRUE(d.none<Finish>());
    EXPECT_TRUE(d.none<StartWorker>()) << "not at once again";
    d.after_ms(1000);
  }
  d.send(WorkerReady{{"pool-1", Driver::worker(d.only<StartWorker>().request.worker_id)}});
  EXPECT_EQ(d.only<Execute>().job_id.value, "j1");
}

// One disk stalls, and another pool has the file as well: the job starts there, and the first one is let alone for a while.
TEST(Workers, AFileThatIsStillBeingReadIsReadInAnotherPool) {
  const auto is_read = [](Driver& d) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{
        base::WorkerId(start.request.worker_id),
        base::Error{ErrorCode::kPoolUnready, "it is read", {}}.with("reason", std::string("MODEL_BEING_READ"))});
    return start.pool_id.value;
  };
  Driver d(no_jitter());
  d.see(d.pool_state("pool-1", 1, 16 * kGb));  // with more room, so that it comes first
  d.see(d.pool_state("pool-2"));
  d.submit("j1");
  EXPECT_EQ(is_read(d), "pool-1");
  d.after_ms(1000);
  EXPECT_EQ(is_read(d), "pool-2");
  // Both disks stall: each second one of them is asked, as it would be alone.
  d.after_ms(1000);
  EXPECT_EQ(is_read(d), "pool-1");
  d.cannot_reach("http://pool-2");
  d.after_ms(1000);
  EXPECT_EQ(is_read(d), "pool-1") << "nobody else could";
  d.see(d.pool_state("pool-2"));
  d.after_ms(1000);
  EXPECT_EQ(is_read(d), "pool-1");
  d.after_ms(27'000);  // pool-2 was put off for 30 s
  const auto start = d.only<StartWorker>();
  EXPECT_EQ(start.pool_id.value, "pool-2");
  d.send(WorkerReady{{"pool-2", Driver::worker(start.request.worker_id)}});
  EXPECT_EQ(d.only<Execute>().job_id.value, "j1");
  // A worker there says nothing of the disk of pool-1, whose time is over by itself.
  d.submit("j2");
  EXPECT_TRUE(d.none<StartWorker>());
  d.after_ms(3000);
  EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-1");
  EXPECT_TRUE(d.none<Finish>());
}

// What a job may not do elsewhere it does not do elsewhere, and that both pools were put off ends no job.
TEST(Workers, APoolThatIsPutOffIsNoFailureAndNoChoice) {
  Driver d(no_jitter());
  d.see(d.pool_state("pool-1", 1, 16 * kGb));
  d.see(d.pool_state("pool-2"));
  d.submit("j1", {.placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "pool-1"}});
  const auto refuse = [&](base::Error error) {
    const auto start = d.only<StartWorker>();
    d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), std::move(error)});
    return start.pool_id.value;
  };
  const auto being_read = [] {
    return base::Error{ErrorCode::kPoolUnready, "it is read", {}}.with("reason", std::string("MODEL_BEING_READ"));
  };
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(refuse(being_read()), "pool-1");
    d.after_ms(1000);
  }
  EXPECT_EQ(refuse(being_read()), "pool-1");
  d.submit("j2");
  d.after_ms(1000);
  // j1 asks pool-1 again, and j2 does not wait for the answer.
  const auto starts = d.all<StartWorker>();
  ASSERT_EQ(starts.size(), 2u) << d.dump();
  EXPECT_EQ(starts[0].pool_id.value, "pool-1");
  EXPECT_EQ(starts[1].pool_id.value, "pool-2");
  d.send(StartWorkerAnswered{base::WorkerId(starts[0].request.worker_id), being_read()});
  d.send(CancelRequested{{}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  d.after_ms(1000);
  EXPECT_TRUE(d.none<StartWorker>()) << "pool-2 loads it";
  d.send(StartWorkerAnswered{base::WorkerId(starts[1].request.worker_id),
                             base::Error{ErrorCode::kCorruptFile, "broken", {}}});
  EXPECT_TRUE(std::ranges::none_of(d.all<Finish>(), [](const Finish& f) { return f.job_id.value == "j2"; }))
      << "pool-1 may have it when its disk answers";
  EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-1") << "nobody else could";
}

// It has read the file by then.
TEST(Workers, AStartThatAPoolHasTakenIsWaitedForThoughItWasPutOff) {
  Driver d(no_jitter());
  d.see(d.pool_state("pool-1", 1, 16 * kGb));
  d.see(d.pool_state("pool-2"));
  d.submit("j1", {.placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "pool-1"}});
  d.send(StartWorkerAnswered{
      base::WorkerId(d.only<StartWorker>().request.worker_id),
      base::Error{ErrorCode::kPoolUnready, "it is read", {}}.with("reason", std::string("MODEL_BEING_READ"))});
  d.after_ms(1000);
  d.send(StartWorkerAnswered{base::WorkerId(d.only<StartWorker>().request.worker_id), {}});
  d.submit("j2");
  EXPECT_TRUE(d.none<StartWorker>()) << d.dump();
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_WORKER_START");
}

// Two models that do not fit together, the earlier one the larger: its device is not filled again while it is cleared.
TEST(Workers, AClearedDeviceIsKeptForTheJobThatWaited) {
  Driver d(two_workers_on_a_device());
  d.add_worker();  // model a, 4 of 8 GB
  const ExecutionId x = d.run("a1", {.memory_bytes = 5 * kGb});
  d.submit("big", {.model = "big", .memory_bytes = 7 * kGb});
  d.submit("a2", {.memory_bytes = 5 * kGb});
  d.after_ms(30'000);  // reserves the worker
  d.submit("small", {.model = "small", .memory_bytes = 2 * kGb});
  EXPECT_TRUE(d.none<StartWorker>());
  d.end(x);
  EXPECT_EQ(d.only<StopWorker>().worker_id, base::WorkerId("w1"));
  d.send(WorkerFailed{
      {.worker_id = "w1", .pool_id = "pool-1", .gpu_id = "0", .category = wire::FailureCategory::kExplicitStop}});
  d.after_ms(10);
  d.see(d.pool_state());
  EXPECT_EQ(d.only<StartWorker>().request.model_ref, "file:/big.gguf");
}

TEST(Workers, AStopThePoolDidNotHearIsRepeated) {
  Driver d;
  d.add_worker();
  d.submit("j1", {.model = "b", .memory_bytes = 6 * kGb});
  EXPECT_EQ(d.all<StopWorker>().size(), 1u);
  d.after_ms(6000);
  d.add_worker();  // still listed as ready
  EXPECT_EQ(d.all<StopWorker>().size(), 1u);
  EXPECT_TRUE(d.none<StartWorker>());
}

// Promise 1 and the catalog: other bytes under the same name are another model.
TEST(Workers, AReplacedModelFileFailsTheJobsOfTheOldBytes) {
  Driver d;
  d.see(d.pool_state());
  d.submit("j1");
  const auto start = d.only<StartWorker>();
  auto info = started(start);
  info.model_digest = "sha256:other";
  d.send(WorkerReady{{.pool_id = "pool-1", .worker = info}});
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kModelNotFound);
}

}  // namespace
}  // namespace llorch::orchestratord::core
