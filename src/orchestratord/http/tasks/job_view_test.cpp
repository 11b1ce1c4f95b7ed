#include "orchestratord/http/tasks/job_view.h"

#include <gtest/gtest.h>

#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

store::JobRecord record() {
  store::JobRecord r;
  r.job_id = base::JobId("job-1");
  r.task_id = "task-1";
  r.model = "demo";
  r.model_ref = "file:/m.gguf";
  r.tokens_in = 3;
  r.submitted_unix_ms = 1'700'000'000'000;
  r.facts.memory_bytes = 42;
  return r;
}

// A waiting job says where it stands, when it will start and what it waits for.
TEST(JobView, AQueuedJobExplainsItself) {
  core::LiveJob live;
  live.job_id = base::JobId("job-1");
  live.queue_position = 2;
  live.predicted_start_ms = 900;
  live.reason = wire::WaitReason{"WAITING_FOR_SLOT", "Every worker is busy."};
  EXPECT_EQ(
      wire::encode(job_view(record(), LiveDetails{live, "0-aa"})),
      R"({"job_id":"job-1","task_id":"task-1","status":"queued","model":"demo","model_ref":"file:/m.gguf",)"
      R"("priority":"interactive","queue_position":2,"predicted_start_ms":900,)"
      R"("reason":{"code":"WAITING_FOR_SLOT","human":"Every worker is busy."},"submitted_at":"2023-11-14T22:13:20.000Z",)"
      R"("attempts":0,"tokens_in":3,"tokens_out":0,"on_disconnect":"cancel","events_url":"/v2/tasks/job-1/events",)"
      R"("last_event_id":"0-aa"})");
}

// ORCH-3903: where a job may run is part of its row, so that a restart forgets nothing of it.
TEST(JobView, ThePlacementIsKeptWithTheJob) {
  EXPECT_TRUE(job_spec(record()).placement == wire::Placement{});
  store::JobRecord r = record();
  r.params = R"({"temperature":0.7,"stop_count":0,"placement":{"mode":"pin","pin_pool_id":"b"}})";
  const auto placement = job_spec(r).placement;
  EXPECT_EQ(placement.mode, wire::PlacementMode::kPin);
  EXPECT_EQ(placement.pin_pool_id, "b");
  EXPECT_EQ(job_view(r, std::nullopt).placement->pin_pool_id, "b");
}

TEST(JobView, AFinishedJobShowsItsOutcomeFromTheRow) {
  store::JobRecord r = record();
  r.progress.status = wire::JobStatus::kCompleted;
  r.progress.dispatched_unix_ms = 1'700'000'000'100;
  r.progress.finished_unix_ms = 1'700'000'001'000;
  r.progress.tokens_out = 5;
  r.progress.decode_time_ms = 70;
  r.progress.last_event_id = "7-ab";
  r.progress.end = wire::EndEvent{.job_id = "job-1", .tokens_out = 5, .stop_reason = wire::StopReason::kStop};
  r.progress.end->first_token_ms = 9;
  r.progress.end->receipt = wire::Receipt{.model_digest = "sha256:1"};
  const wire::JobView view = job_view(r, std::nullopt);
  EXPECT_EQ(view.stop_reason, wire::StopReason::kStop);
  EXPECT_EQ(view.receipt->model_digest, "sha256:1");
  EXPECT_EQ(view.dispatched_at, "2023-11-14T22:13:20.100Z");
  EXPECT_EQ(view.finished_at, "2023-11-14T22:13:21.000Z");
  EXPECT_EQ(view.first_token_ms, 9);
  EXPECT_EQ(view.decode_time_ms, 70);
  EXPECT_EQ(view.tokens_out, 5);
  EXPECT_TRUE(std::holds_alternative<wire::EndEvent>(terminal_event(r.progress)));
  store::JobProgress failed;
  failed.status = wire::JobStatus::kFailed;
  failed.error = wire::ErrorBody{.code = "TIMEOUT", .message = "m"};
  EXPECT_EQ(std::get<wire::ErrorBody>(terminal_event(failed)).code, "TIMEOUT");
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
