// Drain, purge and health of pools.
#include <gtest/gtest.h>

#include "orchestratord/core/testing/operated.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::PoolOperationState;

// OC-CTRL-2002: no new leases from the first moment; what runs may finish; then the workers go.
TEST(Drain, RefusesNewLeasesAtOnceAndWaitsForWhatRuns) {
  Operated d;
  d.add_worker("w1", 2);
  const auto x = d.run("a1");
  d.drain(60'000);
  EXPECT_TRUE(d.only<CommitDesiredState>().desired.draining);
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "draining");
  EXPECT_TRUE(d.none<StopWorker>());
  d.submit("a2");
  EXPECT_TRUE(d.none<Execute>());
  const auto reason = d.query("a2").reason;
  EXPECT_EQ(reason->code, "WAITING_FOR_POOL");
  EXPECT_NE(reason->human.find("llorch pool undrain pool-1"), std::string::npos) << reason->human;
  auto health = d.health();
  EXPECT_TRUE(health.live && health.draining && !health.ready);
  EXPECT_EQ(health.metrics.active_leases, 1);
  EXPECT_EQ(health.operation->state, PoolOperationState::kRunning);
  EXPECT_EQ(health.operation->deadline_ms, 60'000);
  d.end(x);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  EXPECT_TRUE(d.none<Execute>());
  d.gone("w1");
  EXPECT_TRUE(d.none<StartWorker>());
  EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
  for (int i = 0; i < 8; ++i) {
    d.after_ms(15'000);
    d.see(d.pool_state());
    EXPECT_TRUE(d.none<StartWorker>());
  }
}

// OC-CTRL-2002: at the deadline what runs goes back to the queue; its attempt does not count, nothing is lost.
TEST(Drain, AtTheDeadlineJobsGoBackToTheQueue) {
  CoreConfig config;
  config.retry.max_attempts = 1;  // an ordinary retry would be the end of it
  Operated d(config);
  d.add_worker();
  const auto x = d.run("a1");
  d.send(ExecuteStarted{x});
  d.drain(5'000);
  d.after_ms(4'999);
  EXPECT_TRUE(d.none<AbortExecute>());
  d.after_ms(1);
  EXPECT_EQ(d.only<AbortExecute>().job_id.value, "a1");
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  const auto job = d.query("a1");
  EXPECT_EQ(job.status, wire::JobStatus::kQueued);
  EXPECT_EQ(job.attempts, 0);
  // Another pool takes it, as the same attempt.
  auto s = d.pool_state("pool-2");
  s.workers = {Driver::worker("w2")};
  s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
  d.see(s);
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
  EXPECT_EQ(d.only<Execute>().attempt, 1);
}

// A worker can be gone while the connection of its attempt is silent: the pool is empty, the job must still come back at the
// deadline (simulator, seed 7063009).
TEST(Drain, TheDeadlineHoldsAlsoWhenThePoolIsEmptyBefore) {
  Operated d;
  d.add_worker();
  const auto x = d.run("a1");
  d.send(ExecuteStarted{x});
  d.drain(1'000);
  d.gone("w1");
  EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
  EXPECT_TRUE(d.none<AbortExecute>());
  d.after_ms(1'000);  // long before the attempt is given up for want of its worker
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.query("a1").status, wire::JobStatus::kQueued);
}

TEST(Drain, ADeadlineOfZeroForcesAtOnceAndStopsWhatLoads) {
  Operated d;
  d.see(d.pool_state());
  d.submit("a1");
  const auto start = d.only<StartWorker>();
  d.drain(60'000);
  EXPECT_TRUE(d.none<StopWorker>()) << "a start is left alone while there is time";
  d.drain(0);
  EXPECT_TRUE(d.none<CommitDesiredState>()) << "only the deadline is new";
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, start.request.worker_id);
}

// ORCH-3038: a drain is taken back, and the pool serves as before.
TEST(Drain, IsTakenBack) {
  Operated d;
  d.add_worker();
  const auto x = d.run("a1");
  d.drain(20'000);
  d.submit("a2");
  d.undrain();
  EXPECT_FALSE(d.only<CommitDesiredState>().desired.draining);
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "serving");
  d.after_ms(20'000);
  EXPECT_TRUE(d.none<AbortExecute>()) << "the deadline went with the drain";
  d.end(x);
  EXPECT_EQ(d.only<Execute>().job_id.value, "a2");
  EXPECT_TRUE(d.health().ready);
  d.undrain();
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "serving");
  EXPECT_TRUE(d.none<CommitDesiredState>());
}

// What was not made durable has not happened.
TEST(Drain, OfAFailingStoreChangesNothing) {
  Operated d;
  d.add_worker();
  d.auto_commit = false;
  d.drain(0);
  const auto commit = d.only<CommitDesiredState>();
  EXPECT_TRUE(d.none<AnswerPoolControl>());
  d.drain(0);
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(CommitFailed{{commit.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_EQ(d.refused(), ErrorCode::kStoreUnavailable);
  EXPECT_TRUE(d.none<StopWorker>());
  EXPECT_TRUE(d.health().ready);
}

// A commit that failed may still be found by a restart: what is asked next is written again, also if it is so already
// (simulator, seed 2001975).
TEST(Drain, IsWrittenAgainAfterAFailedCommit) {
  Operated d;
  d.add_worker();
  d.drain(0);
  d.auto_commit = false;
  d.undrain();
  const auto failed = d.only<CommitDesiredState>();
  EXPECT_FALSE(failed.desired.draining);
  d.send(CommitFailed{{failed.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_EQ(d.refused(), ErrorCode::kStoreUnavailable);
  d.drain(0);
  const auto again = d.only<CommitDesiredState>();
  EXPECT_TRUE(again.desired.draining);
  EXPECT_TRUE(d.none<AnswerPoolControl>()) << "told before it was durable";
  d.send(Committed{{again.commit}});
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "draining");
  d.drain(0);
  EXPECT_TRUE(d.none<CommitDesiredState>());
}

TEST(Drain, OutlivesOrchestratordAndThePoolButNotItsDeregistration) {
  Operated d({}, Restored{.jobs = {},
                          .pool_endpoints = {"http://pool-1"},
                          .desired_states = {{kPool, {.draining = true, .reload = {}, .purged = {}}}}});
  EXPECT_TRUE(d.health().draining) << "before the pool was heard of";
  d.add_worker();
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1") << "nothing of this process runs there";
  d.submit("a1");
  auto rebooted = d.pool_state();
  rebooted.boot_id = "boot-2";
  d.see(rebooted);
  EXPECT_TRUE(d.none<StartWorker>());
  d.send(PoolDeregistered{{}, kPool});
  rebooted.boot_id = "boot-3";
  d.see(rebooted);
  EXPECT_EQ(d.all<StartWorker>().size(), 1u);
}

// Another pool may name the address of one that is out of reach: the address is its own then, what was asked of the other stays.
TEST(Drain, OutlivesThatAnotherPoolNamesItsAddress) {
  for (const bool drained : {true, false}) {
    Operated d;
    d.see(d.pool_state());
    if (drained) d.drain(0);
    d.cannot_reach("http://pool-1");
    auto other = d.pool_state("pool-2");
    other.endpoint = "http://pool-1";
    d.see(other);
    EXPECT_EQ(d.all<ForgetPool>().size(), drained ? 0u : 1u);
    if (!drained) continue;
    EXPECT_TRUE(d.desired_states_on_disk[kPool].draining);
    ASSERT_EQ(d.all<RememberPool>().size(), 2u);
    EXPECT_EQ(d.all<RememberPool>()[0].pool_id, kPool);
    EXPECT_EQ(d.all<RememberPool>()[0].endpoint, "") << "it is nowhere";
    EXPECT_TRUE(d.health().draining);
    auto back = d.pool_state("pool-1", 1, 80 * kGb);
    back.endpoint = "http://elsewhere";
    d.see(back);
    EXPECT_TRUE(d.health().draining);
    d.submit("a1");
    EXPECT_EQ(d.only<StartWorker>().pool_id.value, "pool-2");
    d.send(PoolDeregistered{{}, kPool});
    EXPECT_EQ(d.all<ForgetPool>().size(), 1u);
  }
}

// A reload that is over, and a purge, ask nothing of it any more.
TEST(Reload, ThatIsOverKeepsNoPoolWhoseAddressIsTaken) {
  for (const bool over : {true, false}) {
    Operated d;
    d.add_worker();
    if (over) d.purge();
    if (over) d.gone("w1");
    d.reload("b");
    if (!over) d.gone("w1");
    const auto start = d.only<StartWorker>();
    if (over) d.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id, "b")}});
    ASSERT_EQ(d.health().operation->state, over ? PoolOperationState::kDone : PoolOperationState::kRunning);
    d.cannot_reach("http://pool-1");
    auto other = d.pool_state("pool-2");
    other.endpoint = "http://pool-1";
    d.see(other);
    EXPECT_EQ(d.all<ForgetPool>().size(), over ? 1u : 0u) << d.dump();
  }
}

// A start whose answer was lost may have reached the pool: it is not empty before it was heard of again, and one that comes
// even later leaves as well.
TEST(Drain, IsNotOverWhileAStartIsOnItsWay) {
  for (const bool late : {false, true}) {
    Operated d;
    d.see(d.pool_state());
    d.submit("a1");
    const std::string worker = d.only<StartWorker>().request.worker_id;
    d.drain(0);
    EXPECT_EQ(d.health().operation->state, PoolOperationState::kRunning);
    d.send(StartWorkerAnswered{base::WorkerId(worker), base::Error{ErrorCode::kUnreachable, "", {}}});
    auto health = d.health();
    EXPECT_EQ(health.metrics.workers_total, 0);
    EXPECT_EQ(health.operation->state, PoolOperationState::kRunning);
    EXPECT_EQ(health.operation->step, "the pool is out of reach");
    if (late) {
      d.see(d.pool_state());
      EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
    }
    auto s = d.pool_state();
    s.workers = {Driver::worker(worker)};
    d.see(s);
    EXPECT_EQ(d.only<StopWorker>().worker_id.value, worker);
    EXPECT_EQ(d.health().operation->state, PoolOperationState::kRunning);
    d.gone(worker);
    EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
  }
}

// A stopped process has told every operator what became of the order, and left none on disk that it had refused.
TEST(Drain, IsWaitedForByAShutdown) {
  Operated d;
  d.add_worker();
  d.auto_commit = false;
  d.drain(0);
  const CommitId order = d.only<CommitDesiredState>().commit;
  d.send(Shutdown{60'000});
  EXPECT_TRUE(d.none<Drained>());
  d.send(CommitFailed{{order}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_EQ(d.refused(), ErrorCode::kStoreUnavailable);
  EXPECT_TRUE(d.none<Drained>()) << "a restart may find the drain that was refused";
  d.after_ms(1'000);
  const auto settle = d.only<CommitDesiredState>();
  EXPECT_FALSE(settle.desired.draining);
  EXPECT_TRUE(d.none<Drained>());
  d.send(Committed{{settle.commit}});
  d.only<Drained>();
  // A disk that never answers holds it up no longer than running jobs do.
  Operated stuck;
  stuck.add_worker();
  stuck.auto_commit = false;
  stuck.drain(0);
  stuck.send(Shutdown{5'000});
  stuck.after_ms(5'000);
  EXPECT_TRUE(stuck.none<Drained>());
  stuck.after_ms(CoreConfig{}.timeout.cancellation_deadline_ms);
  stuck.only<Drained>();
}

// What cannot be read closes one pool, which says why; the others go on. It stays on disk until an operator's next word.
TEST(DesiredStates, ThatCannotBeReadAreOnePoolsProblem) {
  for (const bool draining : {false, true}) {
    const wire::PoolDesiredState found{
        .draining = draining, .reload = {}, .purged = {}, .unreadable = "{\"reload\":7}"};
    Operated d({}, Restored{.jobs = {}, .pool_endpoints = {"http://pool-1"}, .desired_states = {{kPool, found}}});
    d.see(d.pool_state());
    d.submit("a1");
    EXPECT_TRUE(d.none<StartWorker>());
    const std::string why = d.query("a1").reason->human;
    EXPECT_NE(why.find("cannot be read"), std::string::npos) << why;
    EXPECT_NE(why.find("llorch pool undrain pool-1"), std::string::npos) << why;
    auto health = d.health();
    EXPECT_TRUE(health.live && health.draining && !health.ready);
    EXPECT_EQ(health.last_error, why);
    d.send(PurgePool{{900}, kPool, {}});
    EXPECT_EQ(d.refused(), ErrorCode::kConflict);
    d.reload("b");
    EXPECT_EQ(d.refused(), ErrorCode::kConflict);
    // The disk refuses the word that would drop it: it is there as it was.
    d.auto_commit = false;
    d.undrain();
    EXPECT_FALSE(d.only<CommitDesiredState>().desired.any());
    d.send(CommitFailed{{d.only<CommitDesiredState>().commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
    d.after_ms(1'000);
    EXPECT_EQ(d.only<CommitDesiredState>().desired.unreadable, found.unreadable);
    d.send(Committed{{d.only<CommitDesiredState>().commit}});
    EXPECT_TRUE(d.health().draining);
    d.auto_commit = true;
    d.undrain();
    EXPECT_EQ(d.all<StartWorker>().size(), 1u);
    EXPECT_FALSE(d.health().last_error);
  }
}

// A deregistration is answered when the disk has forgotten the pool, and what was asked of it.
TEST(Deregistration, IsToldWhenTheDiskHasForgotten) {
  Operated d;
  d.add_worker();
  d.drain(0);
  d.auto_commit = false;
  d.send(PoolDeregistered{RequestId{70}, kPool});
  const auto forget = d.only<ForgetPool>();
  EXPECT_TRUE(d.none<AnswerPool>());
  d.send(QueryPoolHealth{{71}, kPool});
  EXPECT_FALSE(d.only<AnswerPoolHealth>().health);
  d.send(CommitFailed{{forget.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_TRUE(d.none<AnswerPool>()) << "a restart may find it";
  d.send(PoolDeregistered{RequestId{72}, kPool});
  EXPECT_TRUE(d.none<ForgetPool>());
  d.send(Shutdown{60'000});
  EXPECT_TRUE(d.none<Drained>());
  d.after_ms(1'000);
  d.send(Committed{{d.only<ForgetPool>().commit}});
  EXPECT_EQ(d.all<AnswerPool>().size(), 2u);
  EXPECT_TRUE(d.all<AnswerPool>()[1].heartbeat_interval_ms);
  d.only<Drained>();
  d.send(PoolDeregistered{RequestId{73}, kPool});
  EXPECT_EQ(d.only<AnswerPool>().heartbeat_interval_ms.error().code, ErrorCode::kPoolNotFound);
}

// One that comes back before the disk has forgotten it: its row stays, and nothing of what was asked before.
TEST(Deregistration, OfAPoolThatComesBack) {
  Operated d;
  d.add_worker();
  d.drain(0);
  d.auto_commit = false;
  d.send(PoolDeregistered{RequestId{70}, kPool});
  d.send(CommitFailed{{d.only<ForgetPool>().commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  auto s = d.pool_state();
  s.boot_id = "boot-2";
  d.see(s);
  d.after_ms(1'000);
  EXPECT_TRUE(d.none<ForgetPool>());
  const auto settle = d.only<CommitDesiredState>();
  EXPECT_EQ(settle.endpoint, "http://pool-1");
  EXPECT_FALSE(settle.desired.any());
  d.send(Committed{{settle.commit}});
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  EXPECT_TRUE(d.health().ready);
}

// A start on its way would load a worker that nobody knows of.
TEST(Deregistration, WaitsForTheAnswersToStarts) {
  Operated d;
  d.see(d.pool_state("pool-1", 2));
  d.submit("a1");
  d.submit("b1", {.model = "b"});
  d.send(QueryPools{{1}});
  std::vector<std::string> workers;
  const auto answer = d.only<AnswerQueryPools>();
  for (const auto& w : answer.pools.at(0).workers) workers.push_back(w.worker_id);
  ASSERT_EQ(workers.size(), 2u);
  d.send(PoolDeregistered{RequestId{70}, kPool});
  EXPECT_TRUE(d.none<ForgetPool>());
  d.see(d.pool_state("pool-1", 2));  // written before it heard of the starts
  EXPECT_TRUE(d.none<StartWorker>());
  d.submit("c1", {.model = "c", .memory_bytes = kGb});
  EXPECT_TRUE(d.none<StartWorker>()) << "it takes nothing new";
  d.purge();
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(StartWorkerAnswered{base::WorkerId(workers[0]), {}});
  EXPECT_TRUE(d.none<ForgetPool>());
  d.send(StartWorkerAnswered{base::WorkerId(workers[1]), base::Error{ErrorCode::kShuttingDown, "", {}}});
  EXPECT_EQ(d.only<ForgetPool>().pool_id, kPool);
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
}

// A shutdown waits for those answers as well, and then for the disk: the next process would find what was asked of the pool.
TEST(Deregistration, IsWaitedForByAShutdown) {
  Operated d;
  d.see(d.pool_state());
  d.submit("a1");
  const base::WorkerId worker(d.only<StartWorker>().request.worker_id);
  d.drain(0);
  d.auto_commit = false;
  d.send(PoolDeregistered{RequestId{70}, kPool});
  d.send(Shutdown{60'000});
  EXPECT_TRUE(d.none<Drained>());
  d.send(StartWorkerAnswered{worker, base::Error{ErrorCode::kShuttingDown, "", {}}});
  const auto forget = d.only<ForgetPool>();
  EXPECT_TRUE(d.none<Drained>());
  d.send(Committed{{forget.commit}});
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  d.only<Drained>();
}

// It does not send away the next process of the pool, which comes before the answer that was waited for.
TEST(Deregistration, OfAProcessThatIsOver) {
  Operated d;
  d.see(d.pool_state());
  d.submit("a1");
  const std::string worker = d.only<StartWorker>().request.worker_id;
  d.drain(0);
  d.send(PoolDeregistered{RequestId{70}, kPool});
  EXPECT_TRUE(d.none<ForgetPool>());
  auto s = d.pool_state();
  s.boot_id = "boot-2";
  d.see(s);
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  EXPECT_EQ(d.only<RememberPool>().pool_id, kPool) << "its row went with the deregistration";
  EXPECT_FALSE(d.desired_states_on_disk.contains(kPool));
  d.send(StartWorkerAnswered{base::WorkerId(worker), base::Error{ErrorCode::kShuttingDown, "", {}}});
  EXPECT_TRUE(d.none<ForgetPool>());
  d.see(s);
  EXPECT_NE(d.only<StartWorker>().request.worker_id, worker) << "the drain was of the pool that left";
}

// What runs on its workers holds their slots when it comes back, also of one that has failed meanwhile (simulator, seed
// 31002241).
TEST(Deregistration, LeavesAttemptsInTheirSlots) {
  for (const auto status : {wire::WorkerStatus::kReady, wire::WorkerStatus::kFailed}) {
    Operated d;
    d.add_worker();
    const auto x = d.run("a1");
    d.send(PoolDeregistered{{}, kPool});
    auto s = d.pool_state();
    s.boot_id = "boot-2";
    s.workers = {Driver::worker("w1")};
    s.workers[0].status = status;
    d.see(s);
    EXPECT_EQ(d.health().metrics.active_leases, 1);
    d.lose(x);
    EXPECT_EQ(d.health().metrics.active_leases, 0);
  }
}

// A pool that was asked something and not heard of since a restart can be removed like any other.
TEST(Deregistration, OfAPoolThatOnlyTheDiskKnows) {
  Operated d({}, Restored{.jobs = {},
                          .pool_endpoints = {"http://pool-1"},
                          .desired_states = {{kPool, {.draining = true, .reload = {}, .purged = {}}}}});
  d.send(PoolDeregistered{RequestId{70}, kPool});
  d.only<ForgetPool>();
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  d.see(d.pool_state());
  EXPECT_TRUE(d.health().ready);
}

TEST(Drain, OfAnUnknownPoolIsNotFound) {
  Operated d;
  d.drain(0);
  EXPECT_EQ(d.refused(), ErrorCode::kPoolNotFound);
  d.undrain();
  EXPECT_EQ(d.refused(), ErrorCode::kPoolNotFound);
  d.reload("b");
  EXPECT_EQ(d.refused(), ErrorCode::kPoolNotFound);
  d.send(PurgePool{{1}, kPool, {}});
  EXPECT_EQ(d.refused(), ErrorCode::kPoolNotFound);
  d.send(QueryPoolHealth{{2}, kPool});
  EXPECT_FALSE(d.only<AnswerPoolHealth>().health);
}

// Workers of the named models leave, the others stay, and the pool goes on.
TEST(Purge, StopsTheNamedModels) {
  CoreConfig config;
  config.workers_per_gpu = 2;
  config.eviction.vram_threshold = 1;
  Operated d(config);
  auto s = d.pool_state();
  s.workers = {Driver::worker("w1"), Driver::worker("w2", "b")};
  s.gpus[0].vram_allocated_bytes = 8 * kGb;
  s.gpus[0].vram_available_bytes = 0;
  d.see(s);
  const auto x = d.run("a1");
  d.send(PurgePool{{900}, kPool, {"sha256:a"}, false, false});
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(PurgePool{{901}, kPool, {"file:/a.gguf"}});
  EXPECT_EQ(d.only<AnswerPoolControl>().result->workers, std::vector<std::string>{"w1"});
  EXPECT_TRUE(d.none<StopWorker>());
  d.submit("a2");
  EXPECT_TRUE(d.none<Execute>()) << "it takes no new job";
  d.run("b1", {.model = "b"});
  d.end(x);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
}

TEST(Purge, ByForceSendsJobsBack) {
  Operated d;
  d.add_worker();
  const auto x = d.run("a1");
  d.send(PurgePool{{900}, kPool, {}, false, true});
  EXPECT_EQ(d.only<AbortExecute>().execution.value, x.value);
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  EXPECT_EQ(d.query("a1").status, wire::JobStatus::kQueued);
  d.send(WorkerFailed{{.worker_id = "w1", .pool_id = "pool-1", .category = wire::FailureCategory::kExplicitStop}});
  EXPECT_EQ(d.all<StartWorker>().size(), 1u) << "the pool goes on taking jobs";
}

// ORCH-3038: a purge is durable before it is told, and outlives both sides.
TEST(Purge, OutlivesARestart) {
  Operated d;
  d.add_worker();
  d.run("a1");
  d.auto_commit = false;
  d.purge();
  const auto commit = d.only<CommitDesiredState>();
  EXPECT_EQ(commit.desired.purged, std::vector<std::string>{"w1"});
  EXPECT_TRUE(d.none<AnswerPoolControl>());
  d.purge();
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(CommitFailed{{commit.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_EQ(d.refused(), ErrorCode::kStoreUnavailable);
  d.auto_commit = true;
  d.purge();
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "purging");
  EXPECT_TRUE(d.none<StopWorker>()) << "its job may finish";

  Operated next({}, d.restored());
  auto s = next.pool_state();
  s.workers = {Driver::worker("w1"), Driver::worker("w2")};
  next.see(s);
  EXPECT_EQ(next.only<StopWorker>().worker_id.value, "w1");
  EXPECT_EQ(next.run("a2").value, 1u) << "the pool goes on with what was not named";
  // Named once, it is not forgotten, even when it is gone: an order to start it may still be on its way.
  next.purge();
  EXPECT_EQ(next.only<CommitDesiredState>().desired.purged, (std::vector<std::string>{"w1", "w2"}));
  s.workers.pop_back();
  s.workers[0].worker_id = "w3";
  next.see(s);
  next.see(s);
  next.purge();
  EXPECT_EQ(next.only<CommitDesiredState>().desired.purged, (std::vector<std::string>{"w1", "w2", "w3"}));
}

// OC-CTRL-2001, OC-POOL-3003: live, ready, metrics and the last error.
TEST(Health, SaysWhatIsWrong) {
  Operated d;
  d.add_worker("w1", 2);
  d.run("a1");
  auto health = d.health();
  EXPECT_TRUE(health.live && health.ready && !health.draining);
  EXPECT_EQ(health.metrics.workers_ready, 1);
  EXPECT_EQ(health.metrics.slots_total, 2);
  EXPECT_EQ(health.metrics.slots_free, 1);
  EXPECT_EQ(health.metrics.vram_total_bytes, 8 * kGb);
  EXPECT_FALSE(health.last_error);
  d.send(WorkerFailed{{.worker_id = "w1", .pool_id = "pool-1", .error_code = "CUDA_ERROR", .error_message = "xid 79"}});
  health = d.health();
  EXPECT_EQ(health.last_error, "CUDA_ERROR: xid 79");
  EXPECT_EQ(health.metrics.worker_failures, 1);
  auto s = d.pool_state();
  s.gpus[0].healthy = false;
  d.see(s);
  EXPECT_FALSE(d.health().ready);
  d.cannot_reach("http://pool-1");
  EXPECT_FALSE(d.health().live);
}

}  // namespace
}  // namespace llorch::orchestratord::core
