// Replica sets: which version of a worker gets a model's jobs, and which one a job that runs again.
#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

struct Replicas : Driver {
  using Driver::Driver;
  // A pool with one device, and a worker of this build on it unless `id` is empty.
  const std::vector<Command>& pool(const std::string& pool_id, const std::string& build, const std::string& id,
                                   const std::string& device_class = "cpu-x86", const std::string& boot = "boot-1") {
    auto s = pool_state(pool_id);
    s.boot_id = boot;
    s.sequence = ++sequence_;
    s.gpus[0].device_class = device_class;
    if (!id.empty()) {
      s.workers = {worker(id)};
      s.workers[0].engine_build = build;
      s.workers[0].numerics = "cpu-1";
      s.workers[0].sampler = "sampler-1";
      s.workers[0].device_class = device_class;
      s.gpus[0].vram_allocated_bytes = s.gpus[0].vram_available_bytes = 4 * kGb;
    }
    return see(s);
  }
  std::string runs_on(const std::string& job) {
    submit(job);
    const auto executes = all<Execute>();
    return executes.empty() ? "" : executes[0].worker_id.value;
  }
  bool told_mismatch() const {
    for (const Log& log : all<Log>()) {
      if (log.event == "worker.version_mismatch") return true;
    }
    return false;
  }
  // j1 is begun on w1 of build A, whose pool then restarts with build B.
  ExecutionId begin_on_a() {
    pool("pool-1", "A", "w1");
    const ExecutionId x = run("j1");
    send(ExecuteStarted{x});
    return x;
  }
  static CoreConfig quick() {
    CoreConfig c;
    c.retry.initial_delay_ms = 1;
    c.retry.max_delay_ms = 1;
    c.retry.jitter = false;
    return c;
  }

 private:
  std::int64_t sequence_ = 0;
};

// OC-CORE-1031, ORCH-3046: a worker of another version gets no job of the model while one of the first serves, is named in
// the log, and takes over when the last of those has gone.
TEST(CoreReplicas, ASetHasOneVersion) {
  Replicas d;
  d.pool("pool-1", "A", "w1");
  d.end(d.run("j0"));
  d.pool("pool-2", "B", "w2");
  EXPECT_TRUE(d.told_mismatch());
  EXPECT_EQ(d.runs_on("j1"), "w1");
  EXPECT_EQ(d.runs_on("j2"), "") << "w2 is free, and of another version";
  const auto reason = d.query("j2").reason;
  EXPECT_EQ(reason->code, "WAITING_FOR_SLOT");
  EXPECT_NE(reason->human.find("another engine version"), std::string::npos) << reason->human;
  d.send(PoolDeregistered{.request = {}, .pool_id = base::PoolId("pool-1")});
  const auto executes = d.all<Execute>();
  ASSERT_EQ(executes.size(), 1U);
  EXPECT_EQ(executes[0].job_id.value, "j2");
  EXPECT_EQ(executes[0].worker_id.value, "w2");
}

// OC-CORE-1031: each part of the version counts; two devices of different classes are two sets, and both work.
TEST(CoreReplicas, DeviceClassesAreSetsOfTheirOwn) {
  Replicas d;
  d.pool("pool-1", "A", "w1", "GPU one");
  d.end(d.run("j0"));
  d.pool("pool-2", "B", "w2", "GPU two");
  EXPECT_FALSE(d.told_mismatch());
  EXPECT_EQ(d.runs_on("j1"), "w1");
  EXPECT_EQ(d.runs_on("j2"), "w2");
  for (const int part : {0, 1, 2}) {
    Replicas e;
    e.pool("pool-1", "A", "w1");
    e.end(e.run("j0"));
    auto s = e.pool_state("pool-2");
    s.gpus[0].device_class = "cpu-x86";
    s.workers = {Driver::worker("w2")};
    s.workers[0].device_class = "cpu-x86";
    s.workers[0].engine_build = part == 0 ? "B" : "A";
    s.workers[0].numerics = part == 1 ? "cpu-2" : "cpu-1";
    s.workers[0].sampler = part == 2 ? "sampler-2" : "sampler-1";
    e.see(s);
    EXPECT_TRUE(e.told_mismatch()) << part;
  }
}

// OC-CORE-1031: nothing is started where it would be of another version, and a worker left out is no obstacle for others.
TEST(CoreReplicas, StartsNothingOfAnotherVersion) {
  Replicas d;
  d.pool("pool-1", "A", "w1");
  d.pool("pool-2", "B", "w2");
  d.run("j1");
  d.submit("j2");
  EXPECT_TRUE(d.none<StartWorker>());
  d.submit("other", {.model = "b", .memory_bytes = 8 * kGb});
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w2") << "idle, and no job of its model will come";
  d.pool("pool-2", "B", "");
  EXPECT_EQ(d.only<StartWorker>().request.model_ref, "file:/b.gguf");
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_SLOT");
}

// OC-CORE-1031: what was begun on one version waits for a busy worker of it while a worker of another one is free.
TEST(CoreReplicas, AJobRunsAgainOnTheVersionItBeganOn) {
  Replicas d(Replicas::quick());
  d.pool("pool-1", "A", "w1");
  const ExecutionId x = d.run("j1");
  d.send(ExecuteStarted{x});
  d.pool("pool-2", "B", "w2");
  d.lose(x);
  d.pool("pool-1", "A", "");  // w1 is gone, its device is not
  d.after_ms(10);
  EXPECT_TRUE(d.none<Execute>()) << "w2 is free, and what the client holds is from A";
  d.pool("pool-1", "A", "w3");
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w3");
  EXPECT_EQ(d.only<Execute>().attempt, 2);
}

// OC-CORE-1032, ORCH-3046: over an update nothing is promised: with no chance of the old version the job runs on the new
// one, and the stream decides by its hash.
TEST(CoreReplicas, WithoutTheOldVersionTheNewOneIsTried) {
  Replicas d(Replicas::quick());
  const ExecutionId x = d.begin_on_a();
  d.pool("pool-1", "B", "w2", "cpu-x86", "boot-2");
  d.lose(x);
  d.after_ms(10);
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
  // It is now the new version's job: with both around it goes there again.
  const ExecutionId y = d.only<Execute>().execution;
  d.send(ExecuteStarted{y});
  d.pool("pool-2", "A", "w3");
  d.lose(y);
  d.pool("pool-1", "B", "w2", "cpu-x86", "boot-2");
  d.after_ms(10);
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
}

// OC-CORE-1031: a job that no worker had begun is free to go anywhere.
TEST(CoreReplicas, AJobThatNobodyBeganIsNotBound) {
  Replicas d(Replicas::quick());
  d.pool("pool-1", "A", "w1");
  const ExecutionId x = d.run("j1");
  d.lose(x, base::ErrorCode::kUnreachable);
  d.pool("pool-1", "A", "");
  d.pool("pool-2", "B", "w2");
  d.after_ms(10);
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
}

// OC-CORE-1031: also after a restart of orchestratord, from the row; the row is written when a worker begins.
TEST(CoreReplicas, TheVersionSurvivesARestart) {
  std::string version;
  {
    Replicas d;
    d.begin_on_a();
    version = d.only<CommitTransition>().record.worker_version.value_or("");
  }
  EXPECT_EQ(version, "cpu-x86 A cpu-1 sampler-1");
  Restored restored;
  restored.jobs.push_back({.spec = Driver::spec("j1", {}),
                           .status = wire::JobStatus::kRunning,
                           .attempts = 1,
                           .submitted_unix_ms = 1'700'000'000'000,
                           .session_key = {},
                           .payload_available = true,
                           .worker_version = version});
  Replicas d({}, restored);
  d.pool("pool-1", "B", "w1");
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w1") << "the only version there is";
  Replicas e({}, restored);
  e.auto_commit = false;
  auto s = e.pool_state("pool-1", 2);
  for (const int i : {0, 1}) {
    s.gpus[static_cast<std::size_t>(i)].device_class = "cpu-x86";
    s.workers.push_back(Driver::worker(i == 0 ? "w1" : "w2", "a", std::to_string(i)));
    s.workers.back().engine_build = i == 0 ? "B" : "A";
    s.workers.back().numerics = "cpu-1";
    s.workers.back().sampler = "sampler-1";
    s.workers.back().device_class = "cpu-x86";
  }
  e.see(s);
  EXPECT_EQ(e.only<Execute>().worker_id.value, "w2");
}

// Every wait explains itself: the only worker's connection broke, and its pool has not spoken.
TEST(CoreReplicas, AWaitForADoubtedWorkerSaysSo) {
  Replicas d(Replicas::quick());
  d.pool("pool-1", "A", "w1");
  d.lose(d.run("j1"));
  d.after_ms(10);
  EXPECT_TRUE(d.none<Execute>());
  const auto reason = d.query("j1").reason;
  EXPECT_EQ(reason->code, "WAITING_FOR_WORKER_CHECK");
  EXPECT_NE(reason->human.find("pool"), std::string::npos) << reason->human;
  d.pool("pool-1", "A", "w1");
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w1");
}

}  // namespace
}  // namespace llorch::orchestratord::core
