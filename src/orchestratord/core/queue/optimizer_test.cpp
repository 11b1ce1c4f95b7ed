#include "orchestratord/core/queue/optimizer.h"

#include <gtest/gtest.h>

#include "orchestratord/core/testing/units.h"

namespace llorch::orchestratord::core::queue {
namespace {

bool never() { return false; }

WaitingGroup group(std::uint64_t number, const std::string& model, std::int64_t jobs) {
  return {.group = {number},
          .first_job = base::JobId("j" + std::to_string(number)),
          .model_digest = model,
          .placement = {},
          .jobs = jobs,
          .memory_bytes = 6 * kGb,
          .run_ms = 10'000,
          .start_ms = 5'000};
}
WorkerView busy(const std::string& id, const std::string& model) {
  return {.worker_id = base::WorkerId(id),
          .model_digest = model,
          .serves = true,
          .wanted = true,
          .slots_total = 1,
          .slots_in_use = 1,
          .bytes = 6 * kGb};
}
WorkerView idle(const std::string& id, const std::string& model, std::int64_t idle_ms = 60'000) {
  WorkerView w = busy(id, model);
  w.wanted = false;
  w.slots_in_use = 0;
  w.idle_ms = idle_ms;
  return w;
}
DeviceView device(const std::string& pool, std::vector<WorkerView> workers) {
  return {.pool_id = base::PoolId(pool),
          .gpu_id = "0",
          .usable = true,
          .free_bytes = 2 * kGb,
          .total_bytes = 8 * kGb,
          .workers = std::move(workers)};
}

// SYS-6.1.4: jobs that nothing here can ever run are flagged; not while a pool may still turn up.
TEST(QueueOptimizer, FlagsStaleJobs) {
  Snapshot s;
  s.groups = {group(1, "a", 12), group(2, "b", 1)};
  s.groups[0].placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "gone"};
  s.groups[1].memory_bytes = 9 * kGb;
  s.devices = {device("pool-1", {})};
  const Report report = review(s, never);
  ASSERT_EQ(report.suggestions.size(), 2u);
  EXPECT_EQ(report.suggestions[0].kind, Kind::kStale);
  EXPECT_EQ(report.suggestions[0].first_job.value, "j1");
  EXPECT_EQ(report.suggestions[0].jobs, 12);
  EXPECT_EQ(report.suggestions[1].kind, Kind::kStale);
  s.pools_expected = true;
  EXPECT_TRUE(review(s, never).suggestions.empty());
  s.pools_expected = false;
  s.groups = {group(3, "a", 12)};  // a device can hold it: the scheduler's business
  EXPECT_TRUE(review(s, never).suggestions.empty());
}

// SYS-6.1.4: jobs that wait for a busy worker while another one is idle.
TEST(QueueOptimizer, SaysWhatAPlacementCosts) {
  Snapshot s;
  s.groups = {group(1, "a", 12)};
  s.groups[0].placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "pool-1"};
  s.devices = {device("pool-1", {busy("w1", "a")}), device("pool-2", {idle("w2", "a")})};
  const Report report = review(s, never);
  ASSERT_EQ(report.suggestions.size(), 1u);
  EXPECT_EQ(report.suggestions[0].kind, Kind::kRelaxPlacement);
  EXPECT_EQ(report.suggestions[0].pool_id->value, "pool-2");
  EXPECT_EQ(report.suggestions[0].worker_id->value, "w2");
  s.devices[1].workers[0].slots_in_use = 1;
  EXPECT_TRUE(review(s, never).suggestions.empty());
}

// SYS-6.1.4: 12 jobs of 10 s behind one slot take 120 s; with a second worker 60 s, and its start takes 5 s.
TEST(QueueOptimizer, AddsAWorkerWhereItPays) {
  Snapshot s;
  s.groups = {group(1, "a", 12)};
  s.devices = {device("pool-1", {busy("w1", "a")}), device("pool-2", {idle("w2", "b", 40'000)}),
               device("pool-3", {idle("w3", "c", 90'000)})};
  auto found = review(s, never).suggestions;
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, Kind::kAddWorker);
  EXPECT_EQ(found[0].worker_id->value, "w3");  // idle longest
  EXPECT_EQ(found[0].gain_ms, 55'000);
  s.devices[2].workers[0].wanted = true;
  EXPECT_EQ(review(s, never).suggestions.at(0).worker_id->value, "w2");
  s.devices[1].workers[0].idle_ms = kIdleMsMin - 1;  // its model may be asked for any moment
  EXPECT_TRUE(review(s, never).suggestions.empty());
  s.devices[1].workers[0].idle_ms = kIdleMsMin;
  s.devices[1].free_bytes = 0;
  s.devices[1].workers[0].bytes = 5 * kGb;  // would not make enough room
  EXPECT_TRUE(review(s, never).suggestions.empty());
  s.devices[1].workers[0].bytes = 6 * kGb;
  EXPECT_EQ(review(s, never).suggestions.size(), 1u);
  s.groups[0].jobs = 1;  // over before the start is
  EXPECT_TRUE(review(s, never).suggestions.empty());
  s.groups[0].jobs = 12;
  s.groups[0].run_ms.reset();  // nothing measured, nothing guessed
  EXPECT_TRUE(review(s, never).suggestions.empty());
}

// SYS-6.1.4: a review that takes too long is given up.
TEST(QueueOptimizer, GivesUpWhenOutOfTime) {
  Snapshot s;
  for (std::uint64_t i = 0; i < 10; ++i) s.groups.push_back(group(i, "a", 1));
  int asked = 0;
  const Report report = review(s, [&] { return ++asked > 3; });
  EXPECT_TRUE(report.aborted);
  EXPECT_EQ(report.suggestions.size(), 3u);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace llorch::orchestratord::core::queue
