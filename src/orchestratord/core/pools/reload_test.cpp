// Reload of a pool: step by step, back again, and over a restart.
#include <gtest/gtest.h>

#include "orchestratord/core/testing/operated.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::PoolOperationState;

// OC-CTRL-2003, ORCH-3038: the old model finishes and leaves, its memory is confirmed free, the new one comes.
TEST(Reload, SwitchesTheModel) {
  Operated d;
  d.add_worker();
  const auto x = d.run("a1");
  d.reload("b");
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "reloading");
  EXPECT_TRUE(d.none<StopWorker>());
  d.submit("a2");
  EXPECT_TRUE(d.none<Execute>()) << "no new lease";
  d.drain(0);
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.reload("c");
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(CancelRequested{{}, base::JobId("a2"), jobs::CancelReason::kClientRequest});
  d.end(x);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  EXPECT_TRUE(d.none<StartWorker>());
  d.gone("w1");
  const auto start = d.only<StartWorker>();
  EXPECT_EQ(start.request.model_ref, "file:/b.gguf");
  EXPECT_FALSE(d.health().ready);
  EXPECT_EQ(d.health().operation->model_ref, "file:/b.gguf");
  d.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id, "b")}});
  EXPECT_TRUE(d.health().ready);
  EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
}

// ORCH-3038, OC-CTRL-2003: if the new model does not start, the old one comes back.
TEST(Reload, RollsBack) {
  CoreConfig config;
  config.retry.jitter = false;
  Operated d(config);
  d.add_worker();
  d.reload("b");
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  d.gone("w1");
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto start = d.only<StartWorker>();
    EXPECT_EQ(start.request.model_ref, "file:/b.gguf");
    d.send(WorkerFailed{{.worker_id = start.request.worker_id,
                         .pool_id = "pool-1",
                         .category = wire::FailureCategory::kCrash,
                         .error_code = "CORRUPT_FILE",
                         .error_message = "the file contradicts itself"}});
    if (d.none<StartWorker>()) d.see(d.pool_state());
  }
  const auto start = d.only<StartWorker>();
  EXPECT_EQ(start.request.model_ref, "file:/a.gguf");
  EXPECT_FALSE(d.health().ready);
  d.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id)}});
  const auto health = d.health();
  EXPECT_TRUE(health.ready);
  EXPECT_EQ(health.operation->state, PoolOperationState::kRolledBack);
  EXPECT_NE(health.last_error->find("CORRUPT_FILE"), std::string::npos) << *health.last_error;
  EXPECT_FALSE(d.run("a1").value == 0);
}

// Another start reads the file, or its disk stalls: neither says that the new model does not start.
TEST(Reload, AFileThatIsStillBeingReadCountsNoTry) {
  Operated d;
  d.add_worker();
  d.reload("b");
  d.gone("w1");
  for (int i = 0; i < 3; ++i) {
    const auto start = d.only<StartWorker>();
    EXPECT_EQ(start.request.model_ref, "file:/b.gguf");
    d.send(StartWorkerAnswered{
        base::WorkerId(start.request.worker_id),
        base::Error{ErrorCode::kPoolUnready, "it is read", {}}.with("reason", std::string("MODEL_BEING_READ"))});
    EXPECT_TRUE(d.none<StartWorker>()) << "not at once again";
    d.after_ms(1000);
  }
  d.send(WorkerReady{{"pool-1", Driver::worker(d.only<StartWorker>().request.worker_id, "b")}});
  EXPECT_EQ(d.health().operation->state, PoolOperationState::kDone);
}

TEST(Reload, RefusesWhatCannotFitAndTouchesNothing) {
  Operated d;
  d.add_worker();
  d.reload("b", 9 * kGb);
  EXPECT_EQ(d.refused(), ErrorCode::kInsufficientVram);
  EXPECT_TRUE(d.none<StopWorker>());
  EXPECT_TRUE(d.health().ready);
}

// A pool may report more on a device than there is: nothing more is put there, not even what needs no memory.
TEST(Reload, FillsNoDeviceThatIsOverfullByItsPoolsReport) {
  CoreConfig config;
  config.workers_per_gpu = 2;
  Operated d(config);
  d.add_worker();
  d.reload("b", 0);
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w1");
  d.send(WorkerFailed{
      {.worker_id = "w1", .pool_id = "pool-1", .gpu_id = "0", .category = wire::FailureCategory::kExplicitStop}});
  const auto start = d.only<StartWorker>();
  auto s = d.pool_state();
  s.workers = {Driver::worker("w2", "c", "0", 9 * kGb)};
  d.see(s);
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id),
                             base::Error{ErrorCode::kWorkerStartFailed, "no", {}}});
  EXPECT_TRUE(d.none<StartWorker>());
}

TEST(Reload, EndsWithItsPool) {
  Operated d;
  d.add_worker();
  d.reload("b");
  d.send(PoolDeregistered{{}, kPool});
  d.add_worker("w9");
  EXPECT_TRUE(d.health().ready);
  d.reload("b");
  for (int i = 0; i < 12; ++i) d.after_ms(60'000);  // silent until it is forgotten
  EXPECT_EQ(d.health().operation->state, PoolOperationState::kFailed);
}

// ORCH-3038: an order still on its way to the disk goes with its pool, whatever is asked of the one that comes back.
TEST(Reload, LeavesWithItsPoolBeforeItBegan) {
  Operated d;
  d.add_worker();
  d.auto_commit = false;
  d.reload("b");
  const auto late = d.only<CommitDesiredState>();
  d.send(PoolDeregistered{{}, kPool});
  EXPECT_EQ(d.refused(), ErrorCode::kPoolNotFound);
  d.add_worker("w9");
  d.purge();
  const auto purge = d.only<CommitDesiredState>();
  d.send(Committed{{late.commit}});
  EXPECT_TRUE(d.none<AnswerPoolControl>()) << "its row is gone from the disk";
  EXPECT_TRUE(d.none<StopWorker>());
  d.reload("c");
  EXPECT_EQ(d.refused(), ErrorCode::kConflict) << "the purge is still being written";
  d.send(Committed{{purge.commit}});
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "purging");
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w9");
  EXPECT_TRUE(d.health().ready);
}

// ORCH-3038: what was not made durable has not happened, and what was told is over does not begin again.
TEST(Reload, IsDurableBeforeItBeginsAndBeforeItIsOver) {
  Operated d;
  d.add_worker();
  d.auto_commit = false;
  d.reload("b");
  auto commit = d.only<CommitDesiredState>();
  EXPECT_EQ(commit.desired.reload->state, PoolOperationState::kRunning);
  EXPECT_EQ(commit.desired.reload->model.model_ref, "file:/b.gguf");
  EXPECT_EQ(commit.desired.reload->before.at(0).model.model_ref, "file:/a.gguf");
  EXPECT_TRUE(d.none<AnswerPoolControl>() && d.none<StopWorker>());
  d.reload("c");
  EXPECT_EQ(d.refused(), ErrorCode::kConflict);
  d.send(CommitFailed{{commit.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  EXPECT_EQ(d.refused(), ErrorCode::kStoreUnavailable);
  EXPECT_TRUE(d.health().ready);
  // A restart might find it on the disk: what holds is written until it is there.
  d.after_ms(1'000);
  commit = d.only<CommitDesiredState>();
  EXPECT_FALSE(commit.desired.any());
  d.send(Committed{{commit.commit}});
  d.after_ms(5'000);
  EXPECT_TRUE(d.none<CommitDesiredState>());

  d.reload("b");
  d.send(Committed{{d.only<CommitDesiredState>().commit}});
  EXPECT_EQ(d.only<AnswerPoolControl>().result->status, "reloading");
  d.gone("w1");
  const auto start = d.only<StartWorker>();
  d.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id, "b")}});
  commit = d.only<CommitDesiredState>();
  EXPECT_EQ(commit.desired.reload->state, PoolOperationState::kDone);
  EXPECT_FALSE(d.health().ready);
  d.send(CommitFailed{{commit.commit}, base::Error{ErrorCode::kStoreUnavailable, "", {}}});
  auto health = d.health();
  EXPECT_EQ(health.operation->state, PoolOperationState::kRunning);
  EXPECT_EQ(health.operation->step, "its end is being written");
  d.after_ms(1'000);
  d.send(Committed{{d.only<CommitDesiredState>().commit}});
  health = d.health();
  EXPECT_EQ(health.operation->state, PoolOperationState::kDone);
  EXPECT_TRUE(health.ready);
}

// OC-CTRL-2003: an accepted reload outlives orchestratord, however far it was, and so does how it ended.
TEST(Reload, BeginsAgainAfterARestart) {
  Operated d;
  d.add_worker();
  d.reload("b");
  d.gone("w1");
  const auto lost = d.only<StartWorker>();

  Operated next({}, d.restored());
  auto health = next.health();
  EXPECT_FALSE(health.live || health.ready);
  EXPECT_EQ(health.operation->model_ref, "file:/b.gguf");
  EXPECT_EQ(health.operation->step, "the pool has not been heard of since a restart");
  // What the last process had started goes like all the others: nobody here knows how it was started.
  auto s = next.pool_state();
  s.workers = {Driver::worker(lost.request.worker_id, "b")};
  s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
  next.see(s);
  EXPECT_EQ(next.only<StopWorker>().worker_id.value, lost.request.worker_id);
  next.submit("b1", {.model = "b", .memory_bytes = 6 * kGb});
  EXPECT_TRUE(next.none<Execute>());
  EXPECT_EQ(next.query("b1").reason->code, "WAITING_FOR_POOL");
  next.gone(lost.request.worker_id);
  const auto start = next.only<StartWorker>();
  EXPECT_EQ(start.request.model_ref, "file:/b.gguf");
  next.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id, "b")}});
  EXPECT_EQ(next.all<Execute>().size(), 1u);
  EXPECT_EQ(next.health().operation->state, PoolOperationState::kDone);

  Operated after({}, next.restored());
  EXPECT_EQ(after.health().operation->state, PoolOperationState::kDone);
  after.add_worker("w9");
  EXPECT_TRUE(after.none<StopWorker>()) << "it does not begin again";
  EXPECT_TRUE(after.health().ready);
}

// What it was to come back to outlives the restart, too.
TEST(Reload, RollsBackAfterARestart) {
  CoreConfig config;
  config.retry.jitter = false;
  Operated d(config);
  d.add_worker();
  d.reload("b");
  Operated next(config, d.restored());
  next.see(next.pool_state());
  for (int attempt = 0; attempt < 2; ++attempt) {
    next.send(WorkerFailed{{.worker_id = next.only<StartWorker>().request.worker_id,
                            .pool_id = "pool-1",
                            .category = wire::FailureCategory::kCrash,
                            .error_code = "CORRUPT_FILE",
                            .error_message = "the file contradicts itself"}});
    if (next.none<StartWorker>()) next.see(next.pool_state());
  }
  const auto start = next.only<StartWorker>();
  EXPECT_EQ(start.request.model_ref, "file:/a.gguf");
  next.send(WorkerReady{{"pool-1", Driver::worker(start.request.worker_id)}});
  Operated after(config, next.restored());
  const auto health = after.health();
  EXPECT_EQ(health.operation->state, PoolOperationState::kRolledBack);
  EXPECT_NE(health.last_error->find("CORRUPT_FILE"), std::string::npos) << *health.last_error;
}

// A pool that does not come back does not keep it open for ever.
TEST(Reload, EndsWhenItsPoolStaysAwayAfterARestart) {
  Operated d;
  d.add_worker();
  d.reload("b");
  Operated next({}, d.restored());
  next.after_ms(299'999);
  EXPECT_EQ(next.health().operation->state, PoolOperationState::kRunning);
  next.after_ms(1);
  const auto health = next.health();
  EXPECT_EQ(health.operation->state, PoolOperationState::kFailed);
  EXPECT_NE(health.last_error->find("POOL_UNREADY"), std::string::npos) << *health.last_error;
  next.add_worker("w9");
  EXPECT_TRUE(next.none<StopWorker>());
  EXPECT_TRUE(next.health().ready);
}

}  // namespace
}  // namespace llorch::orchestratord::core
