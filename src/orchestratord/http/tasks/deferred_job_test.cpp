#include "orchestratord/http/tasks/deferred_job.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "base/sha256.h"
#include "orchestratord/http/tenancy.h"
#include "orchestratord/http/testing/held_pool.h"
#include "orchestratord/http/testing/idle_store.h"
#include "orchestratord/http/testing/test_thread.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

// Finds jobs, and is asked for nothing else.
class JobsOfATest final : public IdleStore {
 public:
  std::map<std::string, store::JobRecord> by_task;

  void find(base::JobId job_id, Found done) override {
    for (const auto& [task_id, record] : by_task) {
      if (record.job_id == job_id) return done(record);
    }
    done(std::nullopt);
  }
  void find_task(std::string id, Found done) override {
    asked.push_back(id);
    const auto it = by_task.find(id);
    done(it == by_task.end() ? std::nullopt : std::optional(it->second));
  }

  std::vector<std::string> asked;
};

class TextRenderer final : public streams::WholeRenderer {
 public:
  void token(const streams::TokenView& token, const streams::EventId&, std::string&) override { text_ += token.t; }
  void end(const wire::EndEvent&, const streams::EventId&, std::string& out) override {
    answer({.status = 200, .headers = {}, .body = text_}, out);
  }
  void error(const wire::ErrorBody& error, const std::optional<streams::EventId>&, std::string& out) override {
    answer({.status = 500, .headers = {}, .body = error.code}, out);
  }

 private:
  std::string text_;
};

struct Deferred : ::testing::Test {
  Deferred() {
    context.config = &config;
    context.clock = &clock;
    context.entropy = &entropy;
    context.request_executor = &requests;
    context.files = &files;
    context.core = &core;
    context.store = &jobs;
    context.hub = &hub;
    context.metrics = &metrics;
    context.stopping = &stopping;
  }

  // A try that has completed now, and whose stream is held.
  streams::StreamPtr completed(int number, const std::string& text) {
    wire::SubmitRequest request = job->submission.request;
    request.on_disconnect = wire::OnDisconnect::kResume;
    if (number > 0) request.task_id = uuid_of_name(fmt::format("{}/{}", kTask, number));
    if (number > 0) request.seed = kSeed;
    store::JobRecord record{.job_id = base::JobId(fmt::format("job-{}", number)),
                            .task_id = *request.task_id,
                            .request_sha256 = base::to_hex(base::sha256(wire::encode(request))),
                            .max_tokens = 9,
                            .seed = kSeed};
    record.progress.status = wire::JobStatus::kCompleted;
    record.progress.finished_unix_ms = clock.now().unix_ms;
    record.progress.end = wire::EndEvent{};
    const streams::StreamPtr stream = hub.open(record.job_id, wire::OnDisconnect::kResume);
    stream->queued({.job_id = record.job_id.value});
    stream->begin_attempt(false);
    stream->started({.job_id = record.job_id.value, .seed = 1});
    const streams::TokenView token{.t = text, .i = 0};
    EXPECT_TRUE(stream->tokens({&token, 1}, clock.now().mono_ms));
    stream->finish(wire::EndEvent{}, clock.now().mono_ms);
    jobs.by_task.emplace(record.task_id, std::move(record));
    return stream;
  }
  void run() {
    run_deferred(
        context, submitter, job,
        {.admitted = [this](const wire::SubmitReply&, const Admission& now) { admitted.push_back(now.reply.job_id); },
         .done =
             [this](base::Result<net::Response> answer) {
               EXPECT_TRUE(answer) << answer.error().message;
               if (answer) answers.push_back(fmt::format("{} {}", answer->status, answer->body));
             }});
  }

  static constexpr const char* kTask = "11111111-2222-4333-8444-555555555555";
  static constexpr std::uint64_t kSeed = 7;
  const std::shared_ptr<DeferredJob> job = [] {
    auto out = std::make_shared<DeferredJob>();
    out->submission.caller = net::http::local_operator();
    out->submission.request.task_id = kTask;
    out->submission.request.model_ref = "file:/a.gguf";
    out->submission.request.prompt = {.text = "p"};
    out->submission.request.max_tokens = 9;
    out->make_renderer = [](const wire::SubmitReply&, const std::shared_ptr<const chat::Reading>&) {
      return std::make_shared<TextRenderer>();
    };
    return out;
  }();
  config::Config config;
  base::ManualClock clock;
  base::SystemEntropy entropy;
  Metrics metrics{{.engine_version = {}, .algorithm = {}}};
  std::atomic<bool> stopping{false};
  TestThread requests{clock}, files{clock};
  JobsOfATest jobs;
  streams::StreamHub hub{{.limits = {}, .clock = &clock, .answers = &requests}};
  CorePort core{[this](core::Event event) {
    core.answer(core::AnswerQueryJob{std::get<core::QueryJob>(event).request, std::nullopt});
  }};
  Context context;
  Submitter submitter{context};
  std::vector<std::string> admitted, answers;
};

TEST_F(Deferred, TheAnswerOfAHeldStreamIsGathered) {
  completed(0, "text");
  run();
  for (int i = 0; i < 2; ++i) {
    requests.run_for(0);
    files.run_for(0);
  }
  EXPECT_EQ(admitted, std::vector<std::string>{"job-0"});
  EXPECT_EQ(answers, std::vector<std::string>{"200 text"});
}

// It was found, and memory ran short before it was read: what is kept is the output, made once more, and not that it is gone.
TEST_F(Deferred, AStreamThatIsLetGoOfAfterItWasFoundIsMadeAgain) {
  const streams::StreamPtr stream = completed(0, "text");
  completed(1, "same text");
  run();
  requests.run_for(0);
  ASSERT_TRUE(stream->let_go(true));
  for (int i = 0; i < 3; ++i) {
    files.run_for(0);
    requests.run_for(0);
  }
  EXPECT_EQ(answers, std::vector<std::string>{"200 same text"});
  EXPECT_EQ(admitted, std::vector<std::string>{"job-1"}) << "nobody is shown a stream that nobody can read";
  EXPECT_EQ(jobs.asked.size(), 2u);
}

using base::ErrorCode;

using DeferredJobs = http::testing::HeldPool;

// A batch of a model that fits nowhere ends with the numbers, and does not ask for a day.
TEST_F(DeferredJobs, WhatNoDeviceCanHoldWaitsOnlyForAPoolThatIsAway) {
  const auto passes = [&](ErrorCode code) { return may_pass(context, {code, "refused", {}}); };
  EXPECT_FALSE(passes(ErrorCode::kPoolUnavailable));
  ASSERT_TRUE(pools->pair(base::PoolId("pool-b")));
  EXPECT_TRUE(passes(ErrorCode::kPoolUnavailable)) << "one that has yet to come may have such a device";
  ASSERT_TRUE(pools->unpair(base::PoolId("pool-b")).value());
  pools->forget(pool);
  EXPECT_TRUE(passes(ErrorCode::kPoolUnavailable)) << "it may come back";
  for (const ErrorCode code : {ErrorCode::kQueueFull, ErrorCode::kPoolUnready, ErrorCode::kStoreUnavailable})
    EXPECT_TRUE(passes(code));
  EXPECT_FALSE(passes(ErrorCode::kInvalidParams));
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
