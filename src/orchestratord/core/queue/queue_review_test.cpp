#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using wire::PlacementMode;

CoreConfig config() {
  CoreConfig c;
  c.queue_optimizer.threshold_jobs = 3;
  c.timeout.idle_ms = c.timeout.default_ms = c.timeout.max_ms = 1'000'000;
  return c;
}
wire::Placement pinned_to(const std::string& pool) { return {.mode = PlacementMode::kPin, .pin_pool_id = pool}; }

// The review as the shell does it.
const std::vector<Command>& answer(Driver& d, const ReviewQueue& review) {
  return d.send(QueueReviewed{queue::review(review.snapshot, [] { return false; })});
}
std::int64_t counted(const Driver& d, Metric metric, const std::string& label) {
  std::int64_t n = 0;
  for (const Count& c : d.all<Count>()) {
    if (c.metric == metric && c.label == label) n += c.value;
  }
  return n;
}

// SYS-6.1.4: only while more jobs wait than the threshold, once per interval, one at a time; the pass goes on meanwhile.
TEST(Optimizing, RunsOnlyWhileTheQueueIsLong) {
  Driver d(config());
  const auto pass = [&](int times = 1) {  // with heartbeats
    for (int i = 0; i < times; ++i) {
      d.add_worker();
      d.after_ms(30'000);
    }
  };
  d.add_worker();
  auto x = d.run("j0");
  for (const char* id : {"j1", "j2", "j3"}) d.submit(id);
  pass(3);
  EXPECT_TRUE(d.none<ReviewQueue>());  // three wait, and three are no more than the threshold
  d.submit("j4");
  EXPECT_TRUE(d.none<ReviewQueue>());
  pass();
  const auto review = d.only<ReviewQueue>();
  EXPECT_EQ(review.max_runtime_ms, 5000);
  ASSERT_EQ(review.snapshot.groups.size(), 1u);
  EXPECT_EQ(review.snapshot.groups[0].jobs, 4);
  pass();
  EXPECT_TRUE(d.none<ReviewQueue>());  // the last one has not answered
  d.end(x);
  x = d.only<Execute>().execution;  // nothing waited for the review
  d.submit("j5");
  answer(d, review);
  EXPECT_EQ(counted(d, Metric::kOptimizerRuns, "completed"), 1);
  pass();
  answer(d, d.only<ReviewQueue>());
  d.end(x);  // three wait
  pass(2);
  EXPECT_TRUE(d.none<ReviewQueue>());
}

// SYS-6.1.4: advice is logged, counted and told to who waits; jobs stay where they are.
TEST(Optimizing, StaleJobsAndCostlyWishesAreTold) {
  Driver d(config());
  d.add_worker();
  auto s = d.pool_state("pool-2");
  s.workers = {Driver::worker("w2")};
  d.see(s);
  d.run("j0", {.placement = pinned_to("pool-1")});
  for (const char* id : {"j1", "j2", "j3", "j4"}) d.submit(id, {.placement = pinned_to("pool-1")});
  d.after_ms(30'000);
  answer(d, d.only<ReviewQueue>());
  EXPECT_EQ(counted(d, Metric::kOptimizerSuggestions, "relax_placement"), 1);
  EXPECT_TRUE(d.none<Execute>());
  EXPECT_NE(d.query("j2").reason->human.find("A worker in pool-2 is free"), std::string::npos);
  d.send(PoolDeregistered{.request = {}, .pool_id = base::PoolId("pool-1")});
  d.after_ms(30'000);
  answer(d, d.only<ReviewQueue>());
  EXPECT_EQ(counted(d, Metric::kOptimizerSuggestions, "stale"), 1);
  EXPECT_NE(d.query("j1").reason->human.find("can ever run it"), std::string::npos);
  EXPECT_TRUE(d.none<Finish>());
}

// SYS-6.1.4: a second worker in the place of one that nobody asks for; the scheduler does it, and that is counted.
TEST(Optimizing, ALongQueueGetsTheMemoryOfAnIdleWorker) {
  Driver d(config());
  d.see(d.pool_state("pool-1"));
  d.submit("b0", {.model = "b"});
  auto start = d.only<StartWorker>();
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  d.now.mono_ms += 500;
  d.send(WorkerReady{{.pool_id = "pool-1", .worker = Driver::worker(start.request.worker_id, "b")}});
  d.end(d.only<Execute>().execution);
  d.see(d.pool_state("pool-2"));
  d.submit("j0");
  start = d.only<StartWorker>();
  ASSERT_EQ(start.pool_id.value, "pool-2");
  d.send(StartWorkerAnswered{base::WorkerId(start.request.worker_id), {}});
  d.now.mono_ms += 500;
  d.send(WorkerReady{{.pool_id = "pool-2", .worker = Driver::worker(start.request.worker_id)}});
  d.now.mono_ms += 10'000;
  d.end(d.only<Execute>().execution);
  for (const char* id : {"j1", "j2", "j3", "j4", "j5"}) d.submit(id);
  EXPECT_TRUE(d.none<StopWorker>());
  d.after_ms(30'000);
  answer(d, d.only<ReviewQueue>());
  EXPECT_EQ(counted(d, Metric::kOptimizerSuggestions, "add_worker"), 1);
  EXPECT_EQ(d.only<StopWorker>().pool_id.value, "pool-1");
  EXPECT_EQ(counted(d, Metric::kOptimizerImprovements, "add_worker"), 1);
}

// What would be free on a device if a worker over several left is what it has of that one.
TEST(Optimizing, ASharedWorkerIsWorthItsPartOfADevice) {
  Driver d(config());
  auto s = d.pool_state("pool-1", 2);
  auto wide = Driver::worker("wide", "wide", "0,1", 6 * kGb);
  wide.vram_bytes_by_device = {4 * kGb, 2 * kGb};
  s.workers = {Driver::worker("w1"), wide};
  d.see(s);
  d.run("j0");
  for (const char* id : {"j1", "j2", "j3", "j4"}) d.submit(id);
  d.after_ms(30'000);
  const auto review = d.only<ReviewQueue>();
  std::vector<std::int64_t> bytes;
  for (const auto& device : review.snapshot.devices) {
    for (const auto& w : device.workers) {
      if (w.worker_id.value == "wide") bytes.push_back(w.bytes);
    }
  }
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{4 * kGb, 2 * kGb}));
}

TEST(Optimizing, CanBeSwitchedOff) {
  auto c = config();
  c.queue_optimizer.enabled = false;
  Driver d(c);
  d.add_worker();
  for (const char* id : {"j0", "j1", "j2", "j3", "j4", "j5"}) d.submit(id);
  d.after_ms(100'000);
  EXPECT_TRUE(d.none<ReviewQueue>());
}

}  // namespace
}  // namespace llorch::orchestratord::core
