#include <gtest/gtest.h>

#include <algorithm>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::JobStatus;
using wire::Priority;

std::int64_t number(const base::Error& e, std::string_view key) {
  for (const auto& [k, v] : e.details) {
    if (k == key && std::holds_alternative<std::int64_t>(v)) return std::get<std::int64_t>(v);
  }
  return -1;
}
std::string word(const base::Error& e, std::string_view key) {
  for (const auto& [k, v] : e.details) {
    if (k == key && std::holds_alternative<std::string>(v)) return std::get<std::string>(v);
  }
  return "";
}

// SYS-7.1.1: nothing is answered, published or dispatched before the row is durable.
TEST(Admission, AnswersOnlyAfterTheCommit) {
  Driver d;
  d.add_worker();
  d.auto_commit = false;
  d.submit("j1");
  const CommitId commit = d.only<CommitAdmission>().commit;
  EXPECT_TRUE(d.none<AnswerSubmit>());
  EXPECT_TRUE(d.none<PublishQueued>());
  EXPECT_TRUE(d.after_ms(100).size() < 10 && d.none<Execute>());
  d.send(Committed{{commit}});
  EXPECT_TRUE(d.only<AnswerSubmit>().result);
  EXPECT_EQ(d.only<PublishQueued>().queue_position, 0);
  EXPECT_EQ(d.only<Execute>().uri, "http://w1");
  EXPECT_TRUE(d.send(Committed{{commit}}).empty());  // said twice
}

// Promise 2: a store that cannot write gives 503, frees the place and forgets the job.
TEST(Admission, AFailedCommitIsARefusal) {
  Driver d(CoreConfig{.queue = {.capacity = 1}});
  d.auto_commit = false;
  d.submit("j1");
  const CommitId commit = d.only<CommitAdmission>().commit;
  d.send(CommitFailed{{commit}, {ErrorCode::kIoError, "no space", {}}});
  const auto answer = d.only<AnswerSubmit>();
  ASSERT_FALSE(answer.result);
  EXPECT_EQ(answer.result.error().code, ErrorCode::kStoreUnavailable);
  EXPECT_TRUE(d.none<Finish>());
  d.submit("j2");
  EXPECT_EQ(d.all<CommitAdmission>().size(), 1u);
}

// A store that fails is known to be failing until it commits, or until nobody can know any more.
TEST(Admission, AFailingStoreIsKnownForAWhile) {
  Driver d;
  d.add_worker();
  const auto failing = [&] {
    d.send(QueryPools{++d.requests});
    return d.only<AnswerQueryPools>().store_failing;
  };
  EXPECT_FALSE(failing());
  d.auto_commit = false;
  const auto fail = [&](const std::string& id) {
    d.submit(id);
    const CommitId commit = d.only<CommitAdmission>().commit;
    d.send(CommitFailed{{commit}, {ErrorCode::kStoreUnavailable, "full", {}}});
  };
  fail("j1");
  EXPECT_TRUE(failing());
  d.after_ms(29'000);
  EXPECT_TRUE(failing());
  d.after_ms(1'000);
  EXPECT_FALSE(failing());
  fail("j2");
  EXPECT_TRUE(failing());
  d.submit("j3");
  d.send(Committed{{d.only<CommitAdmission>().commit}});
  EXPECT_FALSE(failing());
}

// What another reference to the same bytes says of devices and memory is that of its own jobs.
TEST(Admission, AnotherReferenceToTheSameBytesFailsNobodysJob) {
  jobs::JobSpec other = Driver::spec("other", {.devices = 2});
  other.model.model_ref = "file:/link.gguf";
  for (const bool is_preview : {true, false}) {
    Driver d;
    d.submit("j1");
    if (is_preview) {
      d.send(QueryPreview{{++d.requests}, other});
    } else {
      d.send(Submit{{++d.requests}, other});
      EXPECT_TRUE(d.only<AnswerSubmit>().result) << "a pool with two devices may come";
    }
    d.see(d.pool_state());  // of one
    for (const Finish& end : d.all<Finish>()) EXPECT_EQ(end.job_id.value, "other");
    const auto start = d.only<StartWorker>().request;
    EXPECT_EQ(start.model_ref, "file:/a.gguf");
    EXPECT_EQ(start.gpu_id, "0");
  }
}

// What is displaced under the policies is said, and so is it when nothing is.
TEST(Admission, AQueueThatGivesNoWaySaysSo) {
  for (const auto policy : {config::QueuePolicy::kReject, config::QueuePolicy::kDropLru}) {
    Driver d(CoreConfig{.queue = {.capacity = 1, .policy = policy}});
    d.submit("j1");
    d.submit("j2", {.priority = Priority::kBatch});
    const std::string message = d.only<AnswerSubmit>().result.error().message;
    EXPECT_EQ(message.find("gives way") != std::string::npos, policy == config::QueuePolicy::kDropLru) << message;
  }
}

// ORCH-2007, ORCH-3005, OC-CORE-1002: what the shell needs for the 429: policy_label, retry_after_ms, numbers.
TEST(Admission, AFullQueueRefusesWithTheNumbers) {
  Driver d(CoreConfig{.queue = {.capacity = 1}});
  d.submit("j1");
  d.submit("j2");
  const auto result = d.only<AnswerSubmit>().result;
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, ErrorCode::kQueueFull);
  EXPECT_TRUE(base::info(result.error().code).retriable);
  EXPECT_EQ(base::info(result.error().code).http_status, 429);
  EXPECT_EQ(word(result.error(), "policy_label"), "reject");
  EXPECT_EQ(number(result.error(), "retry_after_ms"), 1000);
  EXPECT_EQ(number(result.error(), "queue_capacity"), 1);
}

// ORCH-3005, ORCH-3904: the newcomer is accepted, the victim ends with its own code.
TEST(Admission, DropLruEndsTheVictim) {
  Driver d(CoreConfig{.queue = {.capacity = 1, .policy = config::QueuePolicy::kDropLru}});
  d.submit("j1", {.priority = Priority::kBatch});
  d.submit("j2");
  EXPECT_TRUE(d.only<AnswerSubmit>().result);
  const auto finish = d.only<Finish>();
  EXPECT_EQ(finish.job_id, base::JobId("j1"));
  EXPECT_EQ(finish.status, JobStatus::kFailed);
  EXPECT_EQ(finish.error->code, ErrorCode::kQueueFullDropLru);
}

// SCHED-11010: context and deadline are refused up front with the numbers.
TEST(Admission, RefusesWhatCannotWork) {
  Driver d;
  d.submit("j1", {.tokens_in = 600, .max_tokens = 500});
  auto result = d.only<AnswerSubmit>().result;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(word(result.error(), "reason"), "CONTEXT_TOO_LARGE");
  d.submit("j2", {.deadline_ms = 0});
  EXPECT_EQ(d.only<AnswerSubmit>().result.error().code, ErrorCode::kDeadlineUnmet);
  d.see(d.pool_state());
  d.submit("j3", {.memory_bytes = 9 * kGb});
  result = d.only<AnswerSubmit>().result;
  EXPECT_EQ(result.error().code, ErrorCode::kPoolUnavailable);
  EXPECT_EQ(number(result.error(), "required_bytes"), 9 * kGb);
  EXPECT_EQ(number(result.error(), "available_bytes"), 8 * kGb);
}

// OC-CTRL-2021, HME-020: position and predicted start of every accepted job; the estimate uses what runs took.
TEST(Admission, PredictsTheStartFromMeasuredRuns) {
  Driver d;
  d.add_worker();
  const ExecutionId first = d.run("j1");
  d.after_ms(700);
  d.end(first);
  d.run("j2");
  d.submit("j3");
  EXPECT_EQ(d.only<AnswerSubmit>().result->predicted_start_ms, 700);
  d.submit("j4");
  EXPECT_EQ(d.only<AnswerSubmit>().result->queue_position, 1);
  EXPECT_EQ(d.only<AnswerSubmit>().result->predicted_start_ms, 1400);
  EXPECT_EQ(d.query("j4").predicted_start_ms, 1400);
  EXPECT_EQ(d.query("j4").reason->code, "WAITING_FOR_TURN");
  EXPECT_EQ(d.query("j3").reason->code, "WAITING_FOR_SLOT");
  d.submit("j5", {.deadline_ms = 1500});
  EXPECT_EQ(d.only<AnswerSubmit>().result.error().code, ErrorCode::kDeadlineUnmet);
}

// OC-CORE-1003#arrival-order, OC-CORE-1004: interactive before batch, FIFO inside, no head-of-line blocking by another model.
TEST(Admission, DispatchOrder) {
  Driver d;
  d.add_worker();
  const ExecutionId first = d.run("j1");
  d.submit("b1", {.priority = Priority::kBatch});
  d.submit("other", {.model = "b", .memory_bytes = 8 * kGb});
  d.submit("j2");
  d.submit("j3");
  std::vector<std::string> order;
  ExecutionId x = first;
  for (int i = 0; i < 3; ++i) {
    d.end(x);
    const auto execute = d.only<Execute>();
    order.push_back(execute.job_id.value);
    x = execute.execution;
  }
  EXPECT_EQ(order, (std::vector<std::string>{"j2", "j3", "b1"}));
  EXPECT_EQ(d.query("other").reason->code, "WAITING_FOR_MEMORY");
}

// Promise 2: a restart resumes the queue in order; what ran is replayed as the same attempt.
TEST(Restart, ResumesTheQueue) {
  Restored restored;
  restored.jobs.push_back({.spec = Driver::spec("j1", {}),
                           .status = JobStatus::kRunning,
                           .attempts = 2,
                           .submitted_unix_ms = 1'699'999'990'000});
  restored.jobs.push_back({.spec = Driver::spec("j2", {}), .submitted_unix_ms = 1'699'999'995'000});
  restored.jobs.push_back(
      {.spec = Driver::spec("j3", {}), .submitted_unix_ms = 1'699'999'995'000, .payload_available = false});
  restored.jobs.push_back({.spec = Driver::spec("j4", {.deadline_ms = 3000}), .submitted_unix_ms = 1'699'999'996'000});
  restored.jobs.push_back({.spec = Driver::spec("j5", {}),
                           .status = JobStatus::kRunning,
                           .attempts = 1,
                           .submitted_unix_ms = 1'699'999'996'000,
                           .readable = false});
  restored.pool_endpoints = {"http://pool-1"};
  Driver d({}, restored);
  EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");
  EXPECT_EQ(d.all<PublishQueued>().size(), 5u);
  std::map<std::string, std::string> ended;
  for (const Finish& f : d.all<Finish>()) ended[f.job_id.value] = f.error->name();
  EXPECT_EQ(ended,
            (std::map<std::string, std::string>{{"j3", "PAYLOAD_LOST"}, {"j4", "TIMEOUT"}, {"j5", "PAYLOAD_LOST"}}));
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_TURN");
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_POOL");
  d.add_worker();
  const auto execute = d.only<Execute>();
  EXPECT_EQ(execute.job_id, base::JobId("j1"));
  EXPECT_EQ(execute.attempt, 2);
}

// A clock was corrected by a day before the restart: what it says has passed has not.
TEST(Restart, AClockThatWasSetForwardEndsNoDeadline) {
  Restored restored;
  const std::int64_t admitted_unix_ms = 1'700'000'000'000 - 86'400'000;
  const auto job = [&](const std::string& id, std::int64_t deadline_ms, std::int64_t submitted_unix_ms) {
    restored.jobs.push_back(
        {.spec = Driver::spec(id, {.deadline_ms = deadline_ms}), .submitted_unix_ms = submitted_unix_ms});
  };
  job("over", 1'000, admitted_unix_ms);
  job("waits", 60'000, admitted_unix_ms);
  job("week", 604'800'000, admitted_unix_ms);
  job("new", 60'000, 1'700'000'000'000 - 10'000);
  restored.settled_unix_ms = admitted_unix_ms + 20'000;
  Driver d({}, restored);
  EXPECT_EQ(d.only<Finish>().job_id.value, "over") << "by either clock";
  d.after_ms(39'999);
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(1);
  EXPECT_EQ(d.only<Finish>().job_id.value, "waits");
  d.after_ms(10'000);
  EXPECT_EQ(d.only<Finish>().job_id.value, "new") << "what has not passed by the wall clock goes by it";
  EXPECT_EQ(d.query("week").status, JobStatus::kQueued);
}

TEST(Restart, ADeadlineThatAClockHasPassedMovesNoOtherJobs) {
  Restored restored;
  const std::int64_t admitted_unix_ms = 1'700'000'000'000 - 86'400'000;
  for (const auto& [id, deadline_ms] : {std::pair("passed", 60'000), std::pair("later", 86'400'000 + 10'000)}) {
    restored.jobs.push_back(
        {.spec = Driver::spec(id, {.deadline_ms = deadline_ms}), .submitted_unix_ms = admitted_unix_ms});
  }
  restored.settled_unix_ms = admitted_unix_ms + 20'000;
  Driver d({}, restored);
  d.after_ms(9'999);
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(1);
  EXPECT_EQ(d.only<Finish>().job_id.value, "later") << "by the wall clock, as if it were alone";
  d.after_ms(30'000);
  EXPECT_EQ(d.only<Finish>().job_id.value, "passed");
}

// A job that was tried once is not dropped for a newer one, whether it waited for its next attempt or ran.
TEST(Restart, WhatWasDispatchedOnceIsNotDisplaced) {
  for (const auto status : {JobStatus::kQueued, JobStatus::kRunning}) {
    Restored restored;
    restored.jobs.push_back({.spec = Driver::spec("j1", {}), .status = status, .attempts = 1});
    Driver d(CoreConfig{.queue = {.capacity = 1, .policy = config::QueuePolicy::kDropLru}}, restored);
    d.submit("j2");
    EXPECT_FALSE(d.only<AnswerSubmit>().result);
    EXPECT_TRUE(d.none<Finish>());
  }
}

TEST(Restart, RunningJobsFailIfTheOperatorSaysSo) {
  Restored restored;
  restored.jobs.push_back({.spec = Driver::spec("j1", {}), .status = JobStatus::kDispatched, .attempts = 1});
  Driver d(CoreConfig{.restart = {.running_jobs = config::RunningJobs::kFail}}, restored);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kWorkerReset);
}

TEST(Shutdown, RefusesNewWorkAndLetsRunningJobsFinish) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.submit("j2");
  d.send(Shutdown{.grace_ms = 10'000});
  EXPECT_TRUE(d.none<Drained>());
  d.submit("j3");
  EXPECT_EQ(d.only<AnswerSubmit>().result.error().code, ErrorCode::kShuttingDown);
  EXPECT_EQ(d.query("j2").reason->code, "WAITING_FOR_RESTART");
  d.end(x);
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCompleted);
  EXPECT_TRUE(d.none<Execute>());
  EXPECT_EQ(d.all<Drained>().size(), 1u);
  EXPECT_TRUE(d.after_ms(20'000).empty() || d.none<Drained>());
}

TEST(Shutdown, LeavesUnfinishedJobsToTheNextProcess) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.send(Shutdown{.grace_ms = 1000});
  d.after_ms(1000);
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_TRUE(d.none<Finish>());
  EXPECT_TRUE(d.none<CommitTransition>());
  EXPECT_EQ(d.all<Drained>().size(), 1u);
}

// ORCH-3040: while the wait is too long, load is shed: batch jobs first, then all; once it is short again, none is.
TEST(Admission, LoadIsShedWhileTheWaitIsTooLong) {
  Driver d(CoreConfig{.queue = {.shed_after_ms = 1000}});
  const Driver::SubmitOptions batch{.priority = Priority::kBatch};
  const auto refusal = [&](const std::string& id, const Driver::SubmitOptions& o) -> std::optional<base::Error> {
    const auto answers = (d.submit(id, o), d.all<AnswerSubmit>());
    if (answers.empty() || answers.front().result) return std::nullopt;
    return answers.front().result.error();
  };
  EXPECT_FALSE(refusal("j1", {}));
  d.after_ms(999);
  EXPECT_FALSE(refusal("j2", batch));
  d.after_ms(1);
  const auto shed = refusal("j3", batch);
  ASSERT_TRUE(shed);
  EXPECT_EQ(shed->code, base::ErrorCode::kQueueFull);
  EXPECT_EQ(word(*shed, "policy_label"), "circuit-breaker");
  EXPECT_FALSE(refusal("j4", {})) << "interactive jobs still come";
  d.after_ms(1000);
  EXPECT_TRUE(refusal("j5", {}));
  for (const char* id : {"j1", "j2"}) {
    d.send(CancelRequested{.request = {}, .job_id = base::JobId(id), .reason = jobs::CancelReason::kClientRequest});
  }
  EXPECT_FALSE(refusal("j6", {})) << "j4 has waited for 1000 ms alone";
}

// Whether the queue has room is told in the step that changes it, with the core's own refusal.
TEST(Admission, AFullQueueIsToldBeforeAnybodyAsks) {
  Driver d(CoreConfig{.queue = {.capacity = 1}});
  EXPECT_TRUE(d.none<PublishQueueRoom>());
  d.submit("j1");
  const auto full = d.only<PublishQueueRoom>();
  ASSERT_EQ(full.refusals.size(), 1U);
  const auto& refusal = full.refusals.at("");
  EXPECT_TRUE(refusal.refuses[0] && refusal.refuses[1]);
  d.submit("j2");
  const base::Error refused = d.only<AnswerSubmit>().result.error();
  EXPECT_EQ(refusal.error.code, refused.code);
  EXPECT_EQ(refusal.error.message, refused.message);
  EXPECT_EQ(refusal.error.details, refused.details);
  EXPECT_TRUE(d.none<PublishQueueRoom>()) << "nothing has changed";
  d.send(CancelRequested{.request = {}, .job_id = base::JobId("j1"), .reason = jobs::CancelReason::kClientRequest});
  const auto room = d.only<PublishQueueRoom>();
  EXPECT_TRUE(room.refusals.empty());
  EXPECT_TRUE((d.submit("j3"), d.only<AnswerSubmit>().result));
}

// One tenant's flood is its own affair: it is refused with its own numbers, on the head too, and nobody else is.
TEST(Admission, AFullQueueRefusesATenantWithItsShare) {
  CoreConfig config{.queue = {.capacity = 4}};
  config.tenants = {{.id = "flood", .token_file = {}, .throttle = {}, .quotas = {}}};
  Driver d(config);
  const auto submit_as = [&](const std::string& tenant, const std::string& id) {
    jobs::JobSpec spec = Driver::spec(id, {});
    spec.tenant_id = tenant;
    d.send(Submit{{++d.requests}, std::move(spec)});
    return d.only<AnswerSubmit>().result;
  };
  for (const char* id : {"f1", "f2", "f3", "f4"}) EXPECT_TRUE(submit_as("flood", id));
  const auto told = d.only<PublishQueueRoom>().refusals;
  ASSERT_EQ(told.size(), 1U);
  const auto refused = submit_as("flood", "f5");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kQueueFull);
  EXPECT_EQ(refused.error().message,
            "The queue is full, and 4 of its jobs are the caller's, whose share of its 4 places is 2. Try again in "
            "1000 ms, or raise orchestratord.queue.capacity.");
  EXPECT_EQ(number(refused.error(), "limit"), 2);
  EXPECT_EQ(number(refused.error(), "jobs_waiting"), 4);
  const auto is_depth = [](const auto& detail) { return detail.first == "queue_depth"; };
  EXPECT_TRUE(std::ranges::none_of(refused.error().details, is_depth)) << "others' jobs are none of the caller's";
  EXPECT_TRUE(std::ranges::none_of(told.at("flood").error.details, is_depth));
  EXPECT_EQ(told.at("flood").error.message, refused.error().message);
  const auto preview_as = [&](const std::string& tenant) {
    jobs::JobSpec spec = Driver::spec("probe", {});
    spec.tenant_id = tenant;
    d.send(QueryPreview{{++d.requests}, std::move(spec)});
    return d.only<AnswerQueryPreview>().preview.feasible;
  };
  EXPECT_FALSE(preview_as("flood"));
  EXPECT_TRUE(preview_as("localhost"));
  EXPECT_TRUE(submit_as("localhost", "o1"));
  EXPECT_TRUE(submit_as("token:0123", "o2")) << "whoever is no tenant is the operator";
  EXPECT_EQ(d.only<PublishQueueRoom>().refusals.size(), 2U);
  const auto full = submit_as("localhost", "o3");
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().message.find("flood"), std::string::npos);
}

// Who submits upon a 202 asks the copy first.
TEST(Admission, RoomIsToldBeforeTheAnswerThatMadeIt) {
  Driver d(CoreConfig{.queue = {.capacity = 1, .policy = config::QueuePolicy::kDropLru}});
  jobs::JobSpec batch = Driver::spec("j1", {});
  batch.priority = wire::Priority::kBatch;
  std::string order;
  for (const Command& command : d.send(Submit{{++d.requests}, std::move(batch)})) {
    if (const auto* room = std::get_if<PublishQueueRoom>(&command)) order += room->refusals.empty() ? "room " : "full ";
    if (std::holds_alternative<AnswerSubmit>(command)) order += "202";
  }
  EXPECT_EQ(order, "full room 202") << "an uncommitted job gives way to nobody, a committed one does";
}

// A list counts in one walk what each job's own question counts for it.
TEST(Views, AListSaysOfEachJobWhatItsOwnQuestionSays) {
  Driver d;
  d.add_worker("w1", 2);
  for (int i = 0; i < 24; ++i) {
    Driver::SubmitOptions o;
    o.model = i % 3 == 0 ? "b" : "a";
    o.priority = i % 4 == 1 ? wire::Priority::kBatch : wire::Priority::kInteractive;
    if (i % 5 == 2) o.placement.require_device_mask = "0";
    d.submit("j" + std::to_string(i), o);
  }
  d.send(QueryJobs{{++d.requests}});
  const auto list = d.only<AnswerQueryJobs>().jobs;
  EXPECT_EQ(list.size(), 24U);
  for (const LiveJob& job : list) {
    const LiveJob own = d.query(job.job_id.value);
    EXPECT_EQ(job.queue_position, own.queue_position) << job.job_id.value;
    EXPECT_EQ(job.predicted_start_ms, own.predicted_start_ms) << job.job_id.value;
    ASSERT_EQ(job.reason.has_value(), own.reason.has_value()) << job.job_id.value;
    if (job.reason) {
      EXPECT_EQ(job.reason->human, own.reason->human) << job.job_id.value;
    }
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
