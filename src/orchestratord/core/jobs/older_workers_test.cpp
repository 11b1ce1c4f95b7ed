// Jobs that workers of older pools refuse, because they do not know all that the jobs ask for.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error_detail.h"
#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::JobStatus;

// While pools are updated one after the other, a worker may not know what this server asks for, and one of another pool may.
TEST(Attempts, AJobThatItsWorkerDoesNotKnowAllOfGoesToAnotherPool) {
  Driver d(without_jitter());
  const auto add = [&d](const std::string& pool, const std::string& worker, const std::string& build) {
    auto state = d.pool_state(pool);
    state.workers = {Driver::worker(worker)};
    state.workers[0].engine_build = build;
    state.gpus[0].vram_allocated_bytes = state.gpus[0].vram_available_bytes = 4 * kGb;
    d.see(state);
    d.after_ms(1000);
  };
  add("pool-1", "w1", "old");
  add("pool-2", "w2", "new");
  d.submit("j1");
  EXPECT_EQ(d.only<Execute>().worker_id, base::WorkerId("w1")) << "versions are not mixed";
  d.lose(d.only<Execute>().execution, ErrorCode::kVersionMismatch);
  const auto j1 = d.only<Execute>();
  EXPECT_EQ(j1.worker_id, base::WorkerId("w2"));
  EXPECT_EQ(j1.attempt, 1) << "nothing ran";
  d.lose(d.run("j2"), ErrorCode::kVersionMismatch);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  EXPECT_NE(d.query("j2").reason->human.find("Workers of pool pool-1 have a version that does not know all"),
            std::string::npos)
      << d.query("j2").reason->human;
  d.end(j1.execution);
  const auto j2 = d.only<Execute>();
  EXPECT_EQ(j2.worker_id, base::WorkerId("w2"));
  d.lose(j2.execution, ErrorCode::kVersionMismatch);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kVersionMismatch) << "no other pool is left";
  const ExecutionId begun = d.run("j3");
  d.send(ExecuteStarted{begun});
  d.lose(begun, ErrorCode::kVersionMismatch);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kVersionMismatch) << "it had taken the job";
}

TEST(Attempts, AJobThatItsWorkerDoesNotKnowAllOfWaitsForPoolsThatAreExpected) {
  Driver d(without_jitter(), Restored{.jobs = {}, .pool_endpoints = {"http://pool-2"}});
  d.add_worker();
  d.lose(d.run("j1"), ErrorCode::kVersionMismatch);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_RETRY");
}

// The worker of pool-1 refuses each job as too new for it. The one of pool-2 runs j1, and j2 waits for it.
struct AnOldWorkerRefused : testing::Test {
  static CoreConfig config() {
    CoreConfig c = without_jitter();
    c.queue.capacity = 1000;
    return c;
  }
  explicit AnOldWorkerRefused() : d(config()) {
    d.see(state("pool-1", "w1", "old"));
    d.after_ms(1000);
    d.see(state("pool-2", "w2", "new"));
    d.lose(d.run("j1"), ErrorCode::kVersionMismatch);
    j1 = d.only<Execute>();
    EXPECT_EQ(j1.pool_id, base::PoolId("pool-2"));
    d.lose(d.run("j2"), ErrorCode::kVersionMismatch);
    EXPECT_TRUE(d.none<Execute>()) << d.dump();
  }
  wire::PoolState state(const std::string& pool, const std::string& worker, const std::string& build) {
    auto s = d.pool_state(pool);
    s.workers = {Driver::worker(worker)};
    s.workers[0].engine_build = build;
    s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
    return s;
  }
  // It is asked again, and that is the end of the job.
  void expect_end(const std::string& job) {
    expect_refusal(job);
    EXPECT_TRUE(d.none<Execute>()) << d.dump();
  }
  void expect_refusal(const std::string& job) {
    const auto again = d.only<Execute>();
    EXPECT_EQ(again.job_id, base::JobId(job));
    EXPECT_EQ(again.worker_id, base::WorkerId("w1"));
    d.lose(again.execution, ErrorCode::kVersionMismatch);
    const auto end = d.only<Finish>();
    EXPECT_EQ(end.job_id, base::JobId(job));
    EXPECT_EQ(end.error->code, ErrorCode::kVersionMismatch);
    EXPECT_NE(end.error->message.find("pool-1"), std::string::npos) << end.error->message;
  }
  void expect_nothing() {
    EXPECT_TRUE(d.none<Execute>()) << d.dump();
    EXPECT_TRUE(d.none<Finish>()) << d.dump();
  }
  // A pool that nothing waits for.
  void reboot_another() {
    d.see(d.pool_state("pool-3", 0));
    auto other = d.pool_state("pool-3", 0);
    other.boot_id = "boot-2";
    d.see(other);
  }
  Driver d;
  Execute j1;
};

// Jobs that wait there, and one that runs there and comes back.
TEST_F(AnOldWorkerRefused, JobsThatWaitForAPoolThatLeavesEnd) {
  d.send(PoolDeregistered{RequestId{90}, base::PoolId("pool-2")});
  expect_nothing();
  d.lose(j1.execution);
  for (int i = 0; i < 29; ++i) {
    d.after_ms(10'000);
    expect_nothing();
    d.see(state("pool-1", "w1", "old"));
    expect_nothing();
  }
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_POOL");
  d.after_ms(10'000);
  expect_refusal("j1");
  expect_end("j2");
}

// A node is restarted: its pool leaves in good order and is back within the time that a silent one has.
TEST_F(AnOldWorkerRefused, JobsWaitForAPoolThatIsRestarted) {
  d.send(PoolDeregistered{RequestId{90}, base::PoolId("pool-2")});
  d.lose(j1.execution);
  d.after_ms(5000);
  reboot_another();
  expect_nothing();
  d.lose(d.run("j3"), ErrorCode::kVersionMismatch);
  expect_nothing();
  auto back = state("pool-2", "w4", "new");
  back.boot_id = "boot-2";
  d.see(back);
  for (const char* job : {"j1", "j2", "j3"}) {
    const auto again = d.only<Execute>();
    EXPECT_EQ(again.job_id, base::JobId(job));
    EXPECT_EQ(again.worker_id, base::WorkerId("w4"));
    d.end(again.execution);
    EXPECT_EQ(d.only<Finish>().status, JobStatus::kCompleted);
  }
}

TEST_F(AnOldWorkerRefused, JobsGoBackToAPoolThatWasRestarted) {
  d.send(PoolDeregistered{RequestId{90}, base::PoolId("pool-1")});
  expect_nothing();
  auto upgraded = state("pool-1", "w3", "new");
  upgraded.boot_id = "boot-2";
  d.see(upgraded);
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2"));
}

TEST_F(AnOldWorkerRefused, JobsThatWaitForAPoolThatIsUnpairedEnd) {
  d.send(PoolDeregistered{{}, base::PoolId("pool-2")});
  expect_end("j2");
  d.lose(j1.execution);
  EXPECT_TRUE(d.none<Finish>()) << d.dump();
  d.after_ms(1000);
  expect_end("j1");
}

TEST_F(AnOldWorkerRefused, JobsThatWaitForAPoolThatIsForgottenEnd) {
  d.send(CancelRequested{{}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  d.send(PoolUnreachable{"http://pool-2", d.now.mono_ms});
  d.send(ExecuteEnded{j1.execution, 0, {}, base::Error{ErrorCode::kUnreachable, "lost", {}}});
  for (int i = 0; i < 100 && d.none<Execute>(); ++i) {
    d.after_ms(10'000);
    if (d.none<Execute>()) d.see(state("pool-1", "w1", "old"));
  }
  expect_end("j2");
}

// It comes back with workers of another version, as after an upgrade. Of another pool that says nothing.
TEST_F(AnOldWorkerRefused, JobsGoBackToAPoolThatWasStartedAnew) {
  reboot_another();
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
  auto upgraded = state("pool-1", "w3", "new");
  upgraded.boot_id = "boot-2";
  d.see(upgraded);
  const auto j2 = d.only<Execute>();
  EXPECT_EQ(j2.job_id, base::JobId("j2"));
  EXPECT_EQ(j2.worker_id, base::WorkerId("w3"));
  EXPECT_EQ(j2.attempt, 1) << "nothing ran";
  d.end(j2.execution);
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCompleted);
}

// What an operator has closed is left to wait for: neither a pool that has nothing to do with it nor another refusal ends the wait.
TEST_F(AnOldWorkerRefused, JobsWaitForAPoolThatIsClosed) {
  d.send(DrainPool{RequestId{90}, base::PoolId("pool-2"), 600'000});
  reboot_another();
  expect_nothing();
  d.lose(d.run("j3"), ErrorCode::kVersionMismatch);
  expect_nothing();
  for (const char* job : {"j2", "j3"}) {
    const auto reason = d.query(job).reason.value_or(wire::WaitReason{});
    EXPECT_NE(reason.human.find("pool-1"), std::string::npos) << job << ": " << reason.human;
  }
  d.send(UndrainPool{RequestId{91}, base::PoolId("pool-2")});
  EXPECT_TRUE(d.none<Execute>()) << "j1 still runs there";
  d.end(j1.execution);
  const auto j2 = d.only<Execute>();
  EXPECT_EQ(j2.job_id, base::JobId("j2"));
  EXPECT_EQ(j2.worker_id, base::WorkerId("w2"));
}

TEST_F(AnOldWorkerRefused, AJobTellsAllPoolsThatRefusedIt) {
  d.see(state("pool-3", "w3", "new"));
  const auto j2 = d.only<Execute>();
  EXPECT_EQ(j2.pool_id, base::PoolId("pool-3"));
  d.lose(j2.execution, ErrorCode::kVersionMismatch);
  const auto reason = d.query("j2").reason.value_or(wire::WaitReason{});
  EXPECT_NE(reason.human.find("Workers of pools pool-1, pool-3 have a version"), std::string::npos) << reason.human;
}

// A model whose context has grown: the worker of pool-1 has too little of it for the newer job.
TEST_F(AnOldWorkerRefused, AJobThatComesBackLeavesTheFactsOfANewerOne) {
  auto newer = Driver::spec("j3", {});
  newer.model.context_length = 2000;
  d.send(Submit{{++d.requests}, newer});
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
  auto anew = state("pool-1", "w1", "old");
  anew.boot_id = "boot-2";
  d.see(anew);
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
}

// Clients decide how often a job asks for what workers do not know.
TEST_F(AnOldWorkerRefused, ManyRefusalsDoNotFillTheLog) {
  std::int64_t lines = 0;
  const auto refused = [&](const std::string& id) {
    d.lose(d.run(id), ErrorCode::kVersionMismatch);
    const auto log = d.all<Log>();
    lines += std::ranges::count(log, "job.worker_too_old", &Log::event);
  };
  for (int i = 0; i < 150; ++i) refused("more-" + std::to_string(i));
  EXPECT_EQ(lines, 98) << "of a hundred, two are spent";
  d.after_ms(10'000);
  refused("late");
  EXPECT_EQ(lines, 99);
}

// What another pool lacks is the smaller part of the story.
TEST(Attempts, AJobThatIsTooNewForOnePoolAndHasNoFileInTheOtherIsToldOfBoth) {
  const auto end_after = [](ErrorCode refusal) {
    Driver d(without_jitter());
    d.add_worker();
    d.see(d.pool_state("pool-2"));
    d.lose(d.run("j1"), ErrorCode::kVersionMismatch);
    for (int i = 0; i < 10 && d.none<Finish>(); ++i) {
      if (d.none<StartWorker>()) {
        d.after_ms(1000);
        continue;
      }
      const auto start = d.only<StartWorker>();
      EXPECT_EQ(start.pool_id, base::PoolId("pool-2"));
      d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), base::Error{refusal, "it says why", {}}});
    }
    base::Error error = d.only<Finish>().error.value_or(base::Error{});
    EXPECT_NE(error.message.find("pool-1"), std::string::npos) << error.message;
    EXPECT_NE(error.message.find("it says why"), std::string::npos) << error.message;
    return error;
  };
  const base::Error missing = end_after(ErrorCode::kModelNotFound);
  EXPECT_EQ(missing.code, ErrorCode::kVersionMismatch);
  EXPECT_TRUE(base::has_detail(missing, "cause", "MODEL_NOT_FOUND"));
  EXPECT_TRUE(base::has_detail(missing, "pool_id", "pool-1"));
  EXPECT_EQ(end_after(ErrorCode::kWorkerStartTimeout).code, ErrorCode::kWorkerStartTimeout) << "another try may do";
}

}  // namespace
}  // namespace llorch::orchestratord::core
