#include "cli/top/view.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace llorch::cli::top {
namespace {

wire::JobView job(std::string id, wire::JobStatus status, std::int64_t tokens_out, std::string worker = {}) {
  wire::JobView out{.job_id = std::move(id), .status = status, .model = "tale", .tokens_out = tokens_out};
  if (!worker.empty()) out.worker_id = std::move(worker);
  return out;
}

wire::PoolList pools() {
  wire::PoolInfo pool{.pool_id = "here"};
  pool.gpus.push_back({.gpu_id = "0", .vram_total_bytes = 8 << 20, .vram_allocated_bytes = 2 << 20});
  pool.workers.push_back({.worker_id = "w", .model_ref = "file:/models/tale.gguf", .gpu_id = "0", .slots_total = 4});
  return {.pools = {pool, {.pool_id = "empty", .status = wire::PoolStatus::kUnhealthy}}};
}

using wire::JobStatus;

View a_view() {
  wire::JobView second = job("waits-2", JobStatus::kQueued, 0), first = job("waits-1", JobStatus::kQueued, 0);
  second.queue_position = 2;
  first.queue_position = 1;
  first.reason = wire::WaitReason{.code = "WAITING_FOR_POOL", .human = "No pool is healthy."};
  const Look before{
      .jobs = {.tasks = {job("runs", JobStatus::kRunning, 10, "w"), job("ends", JobStatus::kRunning, 5, "w"),
                         job("again", JobStatus::kRunning, 50, "w"), job("old", JobStatus::kCompleted, 99, "w")}},
      .pools = pools(),
      .at_ms = 1000};
  const Look now{
      .jobs = {.tasks = {second, first, job("new", JobStatus::kCompleted, 4, "w"),
                         job("runs", JobStatus::kRunning, 30, "w"), job("ends", JobStatus::kCompleted, 9, "w"),
                         job("again", JobStatus::kRunning, 3, "w"), job("old", JobStatus::kCompleted, 99, "w")}},
      .pools = pools(),
      .at_ms = 3000};
  return view_of(before, now);
}

TEST(Top, CountsWhatHappenedBetweenTwoLooks) {
  const View view = a_view();
  EXPECT_EQ(view.running, 2);
  EXPECT_EQ(view.waiting, 2);
  EXPECT_DOUBLE_EQ(view.tokens_per_second, (20 + 4 + 4) / 2.0);
  ASSERT_EQ(view.workers.size(), 1U);
  EXPECT_EQ(view.workers[0].jobs, 2);
  EXPECT_EQ(view.workers[0].model, "tale.gguf");
  EXPECT_DOUBLE_EQ(view.workers[0].tokens_per_second, 14);
  std::string order;
  for (const Job& j : view.jobs) order += j.job_id + " ";
  EXPECT_EQ(order, "runs again waits-1 waits-2 ");
  EXPECT_EQ(view.jobs[2].why, "No pool is healthy.");
  ASSERT_EQ(view.devices.size(), 2U);
  EXPECT_EQ(view.devices[1].pool_status, "unhealthy");
}

TEST(Top, JsonHasWhatTheTextHas) {
  const auto object = boost::json::parse(to_json(a_view())).as_object();
  EXPECT_EQ(object.at("running").as_int64(), 2);
  EXPECT_EQ(object.at("jobs").as_array().size(), 4U);
  EXPECT_EQ(object.at("workers").as_array().at(0).at("slots_total").as_int64(), 4);
  const std::string text = to_text(a_view(), 0, 0);
  for (const char* part : {"2 running, 2 waiting, 14.0 tokens/s", "2.0 MiB of 8.0 MiB", "tale.gguf", "2/4", "waits-1",
                           "No pool is healthy."})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
}

TEST(Top, NothingThatATerminalObeysIsShown) {
  View view = a_view();
  view.jobs[0].why = "no\x1b[2J\nfaked";
  EXPECT_NE(to_text(view, 0, 0).find("no [2J faked\n"), std::string::npos);
}

TEST(Top, FitsItsTerminal) {
  View view = a_view();
  view.jobs[0].model = "\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc";
  const std::string text = to_text(view, 16, 6);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);
  EXPECT_EQ(text.substr(0, text.find('\n')), "2 running, 2 wai");
  EXPECT_EQ(to_text({}, 0, 0).substr(0, 9), "0 running");
}

}  // namespace
}  // namespace llorch::cli::top
