#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

wire::JobPreview preview(Driver& d, const Driver::SubmitOptions& o = {}) {
  d.send(QueryPreview{{++d.requests}, Driver::spec("probe", o)});
  return d.only<AnswerQueryPreview>().preview;
}

TEST(Preview, SaysWhichWorkerWouldTakeTheJob) {
  Driver d;
  d.add_worker("w1", 2);
  const wire::JobPreview p = preview(d);
  EXPECT_TRUE(p.feasible);
  EXPECT_EQ(p.model_ref, "file:/a.gguf");
  EXPECT_EQ(p.tokens_in, 10);
  EXPECT_EQ(p.queue_position, 0);
  EXPECT_EQ(p.predicted_start_ms, 0);
  ASSERT_TRUE(p.decision);
  EXPECT_EQ(p.decision->outcome, "use_worker");
  EXPECT_EQ(p.decision->pool_id, "pool-1");
  EXPECT_EQ(p.decision->worker_ids, std::vector<std::string>{"w1"});
  EXPECT_FALSE(p.reason);
}

TEST(Preview, AdmitsStartsAndRemembersNothing) {
  Driver d;
  d.see(d.pool_state());
  for (int i = 0; i < 3; ++i) {
    const wire::JobPreview p = preview(d, {.placement = {.avoid_pools = {"other-" + std::to_string(i)}}});
    ASSERT_TRUE(p.decision);
    EXPECT_EQ(p.decision->outcome, "start_worker");
    EXPECT_EQ(p.decision->device_mask, "0");
  }
  EXPECT_TRUE(d.none<StartWorker>());
  d.after_ms(1000);
  EXPECT_TRUE(d.none<StartWorker>());
  d.submit("j1");
  EXPECT_EQ(d.all<StartWorker>().size(), 1u) << "a real one is as it would have been";
}

TEST(Preview, SaysWhatTheJobWouldWaitFor) {
  Driver d;
  d.add_worker();
  d.run("j1");
  const wire::JobPreview busy = preview(d);
  EXPECT_TRUE(busy.feasible);
  EXPECT_EQ(busy.decision->outcome, "wait");
  EXPECT_EQ(busy.reason, "WAITING_FOR_SLOT");
  EXPECT_TRUE(busy.message->starts_with("Every worker of this model is busy")) << *busy.message;
  d.submit("j2");
  const wire::JobPreview behind = preview(d);
  EXPECT_EQ(behind.queue_position, 1);
  EXPECT_EQ(behind.reason, "WAITING_FOR_TURN");
  EXPECT_EQ(behind.message, "1 job for the same model would go first.");
  EXPECT_EQ(preview(d, {.priority = wire::Priority::kBatch}).queue_position, 1);
  // The group of j2 waits for what it waited for.
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_SLOT");
}

TEST(Preview, SaysWhyTheJobWouldBeRefused) {
  CoreConfig config;
  config.queue.capacity = 1;
  Driver d(config);
  d.add_worker();
  d.run("j1");
  d.submit("j2");
  const wire::JobPreview full = preview(d);
  EXPECT_FALSE(full.feasible);
  EXPECT_EQ(full.reason, "QUEUE_FULL");
  EXPECT_TRUE(full.retry_after_ms);
  EXPECT_FALSE(full.decision);
  EXPECT_EQ(preview(d, {.max_tokens = 5000}).reason, "INVALID_PARAMS");
  EXPECT_EQ(preview(d, {.model = "b", .memory_bytes = 99 * kGb}).reason, "POOL_UNAVAILABLE");
  EXPECT_EQ(preview(d, {.placement = {.mode = wire::PlacementMode::kPin, .pin_pool_id = "nowhere"}}).reason,
            "INVALID_PARAMS");
  EXPECT_EQ(preview(d, {.deadline_ms = 0}).reason, "DEADLINE_UNMET");
  d.send(Shutdown{});
  EXPECT_EQ(preview(d).reason, "SHUTTING_DOWN");
}

}  // namespace
}  // namespace llorch::orchestratord::core
