#include <gtest/gtest.h>

#include <algorithm>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::JobStatus;

// SYS-7.1.1, SYS-6.1.2: queued -> dispatched -> running -> completed, each written, the ending told after its commit.
TEST(Attempts, TheStraightWay) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  EXPECT_EQ(d.all<CommitTransition>().back().record.status, JobStatus::kDispatched);
  d.send(ExecuteStarted{x});
  EXPECT_EQ(d.only<CommitTransition>().record.status, JobStatus::kRunning);
  EXPECT_TRUE(d.send(ExecuteStarted{x}).empty());
  d.auto_commit = false;
  d.end(x);
  const auto last = d.only<CommitTransition>();
  EXPECT_EQ(last.record.status, JobStatus::kCompleted);
  EXPECT_EQ(last.record.end->tokens_out, 20);
  EXPECT_TRUE(d.none<Finish>());
  d.send(Committed{{last.commit}});
  EXPECT_EQ(d.only<Finish>().end->tokens_out, 20);
  d.end(x);  // said twice
  EXPECT_TRUE(d.none<CommitTransition>());
}

// HME-021, OC-METRICS-7110: from the first token on the stream says how long the queue is and whether the job will be in time.
TEST(Attempts, MetricsTellTheQueueAndTheChanceToBeInTime) {
  Driver d;
  d.add_worker();
  Driver::SubmitOptions wanted;
  wanted.max_tokens = 101;
  wanted.deadline_ms = 10'000;
  const ExecutionId x = d.run("j1", wanted);
  d.submit("j2");
  d.submit("j3");
  d.send(ExecuteStarted{x});
  d.send(ExecuteProgress{x, 1});
  EXPECT_EQ(d.only<PublishMetrics>().job_id, base::JobId("j1"));
  EXPECT_EQ(d.only<PublishMetrics>().metrics.queue_depth, 2);
  EXPECT_FALSE(d.only<PublishMetrics>().metrics.on_time_probability) << "nobody knows how fast it is";
  d.after_ms(2000);
  d.send(ExecuteProgress{x, 11});  // 200 ms each, 90 to come, 8 s left
  EXPECT_EQ(d.only<PublishMetrics>().metrics.decode_time_ms, 2000);
  EXPECT_DOUBLE_EQ(*d.only<PublishMetrics>().metrics.on_time_probability, 8000.0 / (90 * 200));
  d.end(x);
  const ExecutionId next = d.only<Execute>().execution;
  d.send(ExecuteStarted{next});
  d.send(ExecuteProgress{next, 1});
  EXPECT_EQ(d.only<PublishMetrics>().metrics.queue_depth, 1);
  EXPECT_EQ(d.only<PublishMetrics>().metrics.on_time_probability, 1.0) << "as fast as the run before";
  d.send(CancelRequested{{}, base::JobId("j2")});
  d.send(ExecuteProgress{next, 2});
  EXPECT_TRUE(d.none<PublishMetrics>()) << "it is over";
}

// SYS-6.1.6, SYS-7.3.1: worker loss puts the job back at its place with a backoff, until attempts run out.
TEST(Attempts, RetriesWithBackoffUntilExhausted) {
  Driver d(without_jitter());
  d.add_worker();
  ExecutionId x = d.run("j1");
  d.submit("j2");
  for (int attempt = 1; attempt < 5; ++attempt) {
    d.lose(x);
    EXPECT_TRUE(d.none<Finish>());
    d.add_worker();
    const auto next = d.only<Execute>();  // the worker does not stand idle meanwhile
    EXPECT_NE(next.job_id, base::JobId("j1"));
    EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_RETRY");
    d.submit("x" + std::to_string(attempt));
    d.after_ms(1000 << (attempt - 1));
    d.end(next.execution);
    const auto again = d.only<Execute>();
    EXPECT_EQ(again.job_id, base::JobId("j1"));  // ahead of what came later
    EXPECT_EQ(again.attempt, attempt + 1);
    x = again.execution;
  }
  d.lose(x);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kRetryExhausted);
}

// SYS-8.3.2, ORCH-3010: a worker whose connection broke gets nothing until its pool has named it since; what waits keeps
// its turn instead of losing an attempt, and its place, to a dead process.
TEST(Attempts, NothingIsSentToAWorkerThatMayBeDead) {
  for (const ErrorCode code : {ErrorCode::kWorkerReset, ErrorCode::kUnreachable}) {
    Driver d(without_jitter());
    d.add_worker();
    const ExecutionId x = d.run("j1");
    d.submit("j2");
    d.lose(x, code);
    EXPECT_TRUE(d.none<Execute>()) << d.dump();
    EXPECT_FALSE(d.none<AskPoolState>());
    EXPECT_EQ(d.query("j2").attempts, 0);
    d.report(d.state_of_worker());
    EXPECT_TRUE(d.none<Execute>()) << "the pool may have written this before the failure";
    d.add_worker();
    EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2"));
  }
  Driver unanswered;
  unanswered.add_worker();
  const ExecutionId lost = unanswered.run("j1");
  unanswered.submit("j2");
  unanswered.lose(lost);
  unanswered.report(unanswered.state_of_worker());
  EXPECT_TRUE(unanswered.none<Execute>());
  unanswered.report(unanswered.state_of_worker());
  EXPECT_EQ(unanswered.only<Execute>().job_id, base::JobId("j2")) << "the second was written behind the failure";
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.submit("j2");
  d.lose(x, ErrorCode::kVramOom);
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2")) << "it has answered";
}

// The pool may have written it before the failure.
TEST(Attempts, AnAnswerToAnEarlierQuestionClearsNoDoubt) {
  Driver d(without_jitter());
  d.add_worker();
  const std::int64_t asked_ms = d.now.mono_ms;
  const ExecutionId x = d.run("j1");
  d.submit("j2");
  d.after_ms(1'000);
  d.lose(x);
  d.send(
      PoolSeen{.request = {}, .state = d.state_of_worker(), .asked_endpoint = "http://pool-1", .asked_ms = asked_ms});
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
  d.add_worker();
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2"));
}

// A firewall in front of a node's ephemeral ports: what its pool answers says nothing of them, so attempts are made at the pace
// of its reports, and the ending says what is wrong.
TEST(Attempts, AWorkerWhosePortIsClosedIsTriedSlowlyAndTheEndSaysWhy) {
  Driver d(without_jitter());
  d.add_worker();
  ExecutionId x = d.run("j1");
  const std::int64_t begun_ms = d.now.mono_ms;
  std::string waits;
  for (int attempt = 1; attempt < 5; ++attempt) {
    d.lose(x, ErrorCode::kUnreachable);
    d.add_worker();
    d.after_ms(10'000);  // longer than the pause before an attempt
    for (int i = 0; i < 10 && d.none<Execute>(); ++i) {
      waits = d.query("j1").reason->human;
      d.report(d.state_of_worker());
      if (d.none<Execute>()) d.after_ms(15'000);
    }
    const auto again = d.only<Execute>();
    ASSERT_EQ(again.attempt, attempt + 1);
    x = again.execution;
  }
  EXPECT_NE(waits.find("the worker's own port does not"), std::string::npos) << waits;
  EXPECT_GT(d.now.mono_ms - begun_ms, 60'000);
  d.lose(x, ErrorCode::kUnreachable);
  const auto error = d.only<Finish>().error;
  EXPECT_EQ(error->code, ErrorCode::kRetryExhausted);
  EXPECT_NE(error->message.find("its pool answers and the worker's own port does not"), std::string::npos)
      << error->message;
}

// Where heartbeats are blocked, or do not come yet, a pool is known by what it answers. Its answers to what was asked after the
// failure count like its reports.
TEST(Attempts, AWorkerWhosePortWasClosedIsTriedAgainWhereItsPoolOnlyAnswers) {
  Driver d(without_jitter());
  d.add_worker();
  d.lose(d.run("j1"), ErrorCode::kUnreachable);
  d.add_worker();
  d.after_ms(10'000);  // longer than the pause before an attempt
  d.lose(d.only<Execute>().execution, ErrorCode::kUnreachable);
  for (int i = 0; i < 3; ++i) {  // what was asked at the failure, for as many jobs
    d.add_worker();
    EXPECT_TRUE(d.none<Execute>());
  }
  d.after_ms(10'000);
  EXPECT_TRUE(d.none<Execute>()) << d.dump();
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(d.none<Execute>());
    d.after_ms(22'500);
    EXPECT_EQ(d.all<AskPoolState>().size(), 1u);
    d.add_worker();
  }
  EXPECT_EQ(d.only<Execute>().attempt, 3);
}

// A node that is gone as a whole does not answer either.
TEST(Attempts, ThatAPortIsClosedIsSaidWhereThePoolHasAnsweredSince) {
  Driver d(CoreConfig{.retry = {.enabled = false}});
  d.add_worker();
  const auto end_says_so = [&] {
    return d.only<Finish>().error->message.find("the worker's own port does not") != std::string::npos;
  };
  const auto reports = [&] {
    for (int i = 0; i < 2; ++i) d.report(d.state_of_worker());
  };
  d.lose(d.run("j1"), ErrorCode::kUnreachable);
  EXPECT_FALSE(end_says_so());
  reports();
  d.lose(d.run("j2"), ErrorCode::kUnreachable);
  EXPECT_FALSE(end_says_so()) << "nothing was answered";
  d.submit("j3");
  EXPECT_EQ(d.query("j3").reason->human.find("the worker's own port does not"), std::string::npos);
  d.add_worker();
  reports();
  d.lose(d.only<Execute>().execution, ErrorCode::kUnreachable);
  EXPECT_TRUE(end_says_so());
  reports();
  const ExecutionId not_called = d.run("j4");
  d.send(ExecuteEnded{
      not_called,
      0,
      {},
      base::Error{ErrorCode::kUnreachable, "not paired", {}}.with("reason", std::string("POOL_NOT_PAIRED"))});
  EXPECT_FALSE(end_says_so());
}

// Attempts that ran beside each other fail together: that is one failure.
TEST(Attempts, AWorkerThatWasOutOfReachOnceIsTriedAtOnceWhenItsPoolAnswers) {
  Driver d(without_jitter());
  d.add_worker("w1", 2);
  const ExecutionId one = d.run("j1"), other = d.run("j2");
  d.after_ms(5'000);
  d.lose(one, ErrorCode::kUnreachable);
  d.add_worker("w1", 2);
  d.lose(other, ErrorCode::kUnreachable);
  d.add_worker("w1", 2);
  EXPECT_TRUE(d.none<Execute>()) << "a pause before each";
  d.after_ms(1'000);
  EXPECT_EQ(d.all<Execute>().size(), 2u) << d.dump();
}

TEST(Attempts, OnlyTransientFailuresAreRetried) {
  for (const ErrorCode code :
       {ErrorCode::kVramOom, ErrorCode::kReplayDiverged, ErrorCode::kCudaError, ErrorCode::kInternal}) {
    Driver d;
    d.add_worker();
    d.lose(d.run("j1"), code);
    EXPECT_EQ(d.only<Finish>().error->code, code);
  }
  Driver off(CoreConfig{.retry = {.enabled = false}});
  off.add_worker();
  off.lose(off.run("j1"));
  EXPECT_EQ(off.only<Finish>().error->code, ErrorCode::kWorkerReset);
}

// SYS-7.4.1: a waiting job ends at once; repeating is harmless; an unknown job is for the store to answer.
TEST(Attempts, WhatIsNotRepeatedEndsOnceATokenIsOut) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId first = d.run("j1", {.replayable = false});
  d.send(ExecuteStarted{first});
  d.send(ExecuteEnded{first, 0, {}, base::Error{ErrorCode::kWorkerReset, "lost", {}}});
  EXPECT_TRUE(d.none<Finish>());  // nobody has read anything: again
  d.add_worker();
  d.after_ms(1000);
  const ExecutionId second = d.only<Execute>().execution;
  d.send(ExecuteStarted{second});
  d.lose(second);
  const auto finish = d.only<Finish>();
  EXPECT_EQ(finish.error->code, ErrorCode::kWorkerReset);
}

// Else a process that is killed before the row is on the disk leaves one that says `queued`, and the job runs again.
TEST(Attempts, TokensOfWhatIsNotRepeatedWaitForTheRowThatSaysItRuns) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId first = d.run("j1", {.replayable = false});
  EXPECT_TRUE(d.only<Execute>().holds_stream);
  d.auto_commit = false;
  d.send(ExecuteStarted{first});
  const CommitTransition running = d.only<CommitTransition>();
  EXPECT_EQ(running.record.status, wire::JobStatus::kRunning);
  d.send(ExecuteProgress{first, 3});
  EXPECT_TRUE(d.none<ReleaseStream>());
  d.send(CommitFailed{{running.commit}, {ErrorCode::kIoError, "disk", {}}});
  EXPECT_TRUE(d.none<ReleaseStream>());
  d.after_ms(CoreConfig{}.store_retry_ms);
  d.send(Committed{{d.only<CommitTransition>().commit}});
  EXPECT_EQ(d.only<ReleaseStream>().job_id, base::JobId("j1"));
}

TEST(Attempts, ALostRowHoldsNoTokens) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId first = d.run("j1", {.replayable = false});
  d.auto_commit = false;
  d.send(ExecuteStarted{first});
  d.send(CommitFailed{{d.only<CommitTransition>().commit}, {ErrorCode::kNotFound, "no such job", {}}});
  EXPECT_EQ(d.only<ReleaseStream>().job_id, base::JobId("j1"));
}

TEST(Attempts, ARowOfAnAttemptThatIsOverReleasesNothing) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId first = d.run("j1", {.replayable = false});
  d.auto_commit = false;
  d.send(ExecuteStarted{first});
  const CommitTransition running = d.only<CommitTransition>();
  d.send(CancelRequested{{}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  const CommitTransition cancelled = d.only<CommitTransition>();
  d.send(Committed{{cancelled.commit}});
  EXPECT_EQ(d.only<Finish>().status, wire::JobStatus::kCancelled);  // its worker has not answered yet
  d.send(Committed{{running.commit}});
  EXPECT_TRUE(d.none<ReleaseStream>());
}

TEST(Attempts, WhatIsRepeatedHoldsNothingBack) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId first = d.run("j1");
  EXPECT_FALSE(d.only<Execute>().holds_stream);
  d.send(ExecuteStarted{first});
  EXPECT_TRUE(d.none<ReleaseStream>());
}

TEST(Admission, OfAPromptThatOnlyItsEngineCountsTheBytesAreABound) {
  Driver d;
  d.add_worker();
  auto spec = Driver::spec("j1", {.tokens_in = 5000});
  spec.model.takes = wire::PromptForm::kText;
  d.send(Submit{{++d.requests}, spec});
  EXPECT_TRUE(d.only<AnswerSubmit>().result);  // past the context of 1,000, in bytes
}

// What its engine counted is charged in place of the bound, and never more than was reserved.
TEST(Attempts, ThePromptIsChargedAsItsEngineCounts) {
  for (const auto& [bound, charged] : {std::pair{500, 10}, std::pair{4, 4}}) {
    Driver d;
    d.add_worker();
    auto spec = Driver::spec("j1", {.tokens_in = bound});
    spec.model.takes = wire::PromptForm::kText;
    d.send(Submit{{++d.requests}, spec});
    d.end(d.only<Execute>().execution);  // it says 10
    const auto record = d.only<CommitTransition>().record;
    EXPECT_EQ(record.tokens_in.value_or(bound), charged);
    EXPECT_EQ(record.end->tokens_in, 10);
  }
  Driver ours;
  ours.add_worker();
  ours.end(ours.run("j1", {.tokens_in = 3}));
  EXPECT_EQ(ours.only<CommitTransition>().record.tokens_in, std::nullopt);  // admission counted
}

TEST(Cancel, QueuedJobEndsAtOnce) {
  Driver d;
  d.submit("j1");
  d.send(CancelRequested{RequestId{71}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCancelled);
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kCancelled);
  EXPECT_EQ(d.only<AnswerCancel>().status, JobStatus::kCancelled);
  d.send(CancelRequested{RequestId{72}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  EXPECT_EQ(d.only<AnswerCancel>().status, std::nullopt);
}

TEST(Cancel, AJobThatTakesTheMemoryOfStreamsIsToldSo) {
  Driver d;
  d.add_worker();
  d.send(ExecuteStarted{d.run("j1")});
  d.send(CancelRequested{{}, base::JobId("j1"), jobs::CancelReason::kStreamMemory});
  const base::Error error = *d.only<Finish>().error;
  EXPECT_EQ(error.code, ErrorCode::kCancelled);
  EXPECT_NE(error.message.find("orchestratord.stream.buffer_bytes_max"), std::string::npos) << error.message;
}

// ORCH-1072, SYS-7.4.1, ORCH-3026: sealed first, aborted, durable, then answered; the slot is free once the worker confirms.
TEST(Cancel, RunningJobIsSealedBeforeTheAnswer) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.send(ExecuteStarted{x});
  d.submit("j2");
  d.auto_commit = false;
  d.send(CancelRequested{RequestId{7}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  EXPECT_EQ(d.only<SealStream>().job_id, base::JobId("j1"));
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  EXPECT_TRUE(d.none<AnswerCancel>());
  const CommitId commit = d.only<CommitTransition>().commit;
  d.send(Committed{{commit}});
  EXPECT_EQ(d.only<AnswerCancel>().status, JobStatus::kCancelled);
  EXPECT_TRUE(d.none<Execute>());
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2"));
}

// A database that was failed over without its last commits: the job has ended, and nobody waits for a row that does not come back.
TEST(Cancel, ALostRowHoldsNobody) {
  Driver d;
  d.add_worker();
  d.run("j1");
  d.auto_commit = false;
  d.send(CancelRequested{RequestId{7}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  const CommitId commit = d.only<CommitTransition>().commit;
  d.send(CommitFailed{{commit}, {ErrorCode::kNotFound, "the job store has no such job", {}}});
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCancelled);
  EXPECT_EQ(d.only<AnswerCancel>().status, JobStatus::kCancelled);
  const auto logs = d.all<Log>();
  EXPECT_EQ(std::ranges::count_if(logs, [](const Log& l) { return l.event == "store.row_lost"; }), 1);
  d.after_ms(10 * CoreConfig{}.store_retry_ms);
  EXPECT_TRUE(d.none<CommitTransition>()) << "written again";
}

// ORCH-1072, SYS-7.4.1, SYS-5.4.2: after 5 s without confirmation the slot counts as free and the client has its answer.
TEST(Cancel, TheDeadlineHolds) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.submit("j2");
  d.auto_commit = false;
  d.send(CancelRequested{RequestId{7}, base::JobId("j1"), jobs::CancelReason::kClientRequest});
  const CommitId commit = d.only<CommitTransition>().commit;
  d.send(CommitFailed{{commit}, {ErrorCode::kIoError, "full", {}}});
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(5000);
  EXPECT_EQ(d.only<AnswerCancel>().status, JobStatus::kRunning);  // "cancelling"
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j2"));
  bool rewritten = false;
  for (const auto& t : d.all<CommitTransition>()) {
    if (t.record.job_id != base::JobId("j1")) continue;
    rewritten = true;
    d.auto_commit = true;
    d.send(Committed{{t.commit}});
    break;
  }
  EXPECT_TRUE(rewritten);
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCancelled);
  d.lose(x);  // late
  EXPECT_TRUE(d.none<Execute>());
}

// TIMEOUT-22051, OC-CORE-1022, TIMEOUT-22010, TIMEOUT-22011: wall, idle, queue and deadline, each with its stage.
TEST(Timeouts, WallIdleQueueAndDeadline) {
  const auto detail = [](const Finish& f, std::string_view key) {
    for (const auto& [k, v] : f.error->details) {
      if (k == key && std::holds_alternative<std::string>(v)) return std::get<std::string>(v);
    }
    return std::string();
  };
  CoreConfig config;
  config.timeout.queue_ms = 30'000;
  config.heartbeat.interval_ms = 1'000'000;  // not the subject here
  Driver d(config);
  d.add_worker();
  ExecutionId x = d.run("wall", {.timeout_ms = 10'000});
  d.submit("queued");
  d.send(ExecuteStarted{x});
  d.after_ms(9'999);
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(1);
  EXPECT_EQ(detail(d.only<Finish>(), "limit"), "wall");
  EXPECT_NE(d.only<Finish>().error->message.find("timeout_ms"), std::string::npos) << "what to do about it";
  EXPECT_EQ(detail(d.only<Finish>(), "stage"), "execution");
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  d.lose(x, ErrorCode::kCancelled);
  x = d.only<Execute>().execution;

  d.send(ExecuteStarted{x});
  d.after_ms(40'000);
  d.send(ExecuteProgress{x, 3});
  d.after_ms(59'000);
  EXPECT_TRUE(d.none<Finish>());
  d.after_ms(1'000);
  EXPECT_EQ(detail(d.only<Finish>(), "limit"), "idle");
  d.lose(x, ErrorCode::kCancelled);

  x = d.run("busy");
  d.submit("waits");
  d.submit("due", {.deadline_ms = 20'000});
  d.after_ms(20'000);
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("due"));
  EXPECT_EQ(detail(d.only<Finish>(), "limit"), "deadline");
  d.after_ms(10'000);
  EXPECT_EQ(d.only<Finish>().job_id, base::JobId("waits"));
  EXPECT_EQ(detail(d.only<Finish>(), "stage"), "queue");
  EXPECT_EQ(d.only<Finish>().error->code, ErrorCode::kQueueTimeout) << "which may be tried again";
}

// TIMEOUT-22010: who counts the time first, worker or orchestratord, changes nothing that the client reads.
TEST(Timeouts, AWorkerThatSeesItFirst) {
  CoreConfig config;
  config.heartbeat.interval_ms = 1'000'000;  // not the subject here
  Driver d(config);
  d.add_worker();
  const auto ended_by_worker = [&](const char* job, const Driver::SubmitOptions& options, std::int64_t after_ms) {
    const ExecutionId x = d.run(job, options);
    d.send(ExecuteStarted{x});
    d.now.mono_ms += after_ms;
    d.lose(x, ErrorCode::kTimeout);
    const auto logs = d.all<Log>();
    const auto timeouts = std::ranges::count_if(logs, [](const Log& l) { return l.event == "job.timeout"; });
    return std::pair(timeouts, d.only<Finish>().error->message);
  };
  const auto [walls, wall] = ended_by_worker("wall", {.timeout_ms = 10'000}, 10'000);
  EXPECT_EQ(walls, 1);
  EXPECT_TRUE(wall.starts_with("The wall limit of 10000 ms ran out in the execution stage.")) << wall;
  const auto [deadlines, deadline] = ended_by_worker("deadline", {.deadline_ms = 5'000}, 5'000);
  EXPECT_EQ(deadlines, 1);
  EXPECT_TRUE(deadline.starts_with("The deadline limit of 5000 ms ran out")) << deadline;
  const auto [none, own] = ended_by_worker("own", {.timeout_ms = 10'000}, 4'000);  // the worker has a shorter limit
  EXPECT_EQ(none, 0);
  EXPECT_EQ(own.find("wall limit"), std::string::npos) << own;
}

// TIMEOUT-22010, OC-CORE-1022: four fifths of the limit are a warning, to the operator and once.
TEST(Timeouts, AreWarnedOf) {
  Driver d;
  d.add_worker();
  const auto warnings = [&] {
    const auto logs = d.all<Log>();
    return std::count_if(logs.begin(), logs.end(), [](const Log& l) { return l.event == "job.late"; });
  };
  const ExecutionId x = d.run("j1", {.timeout_ms = 10'000});
  d.send(ExecuteStarted{x});
  d.after_ms(7'999);
  EXPECT_EQ(warnings(), 0);
  d.after_ms(1);
  EXPECT_EQ(warnings(), 1);
  EXPECT_TRUE(d.none<AbortExecute>());
  d.end(x);
  const ExecutionId y = d.run("j2", {.timeout_ms = 10'000});
  d.send(ExecuteStarted{y});
  d.after_ms(5'000);
  d.end(y);
  d.after_ms(3'000);
  EXPECT_EQ(warnings(), 0) << "it has ended in time";
}

TEST(Timeouts, RequestBeatsDefaultAndIsCapped) {
  Driver d(CoreConfig{.timeout = {.default_ms = 5000, .max_ms = 8000}});
  d.add_worker("w1", 4);
  d.submit("j1");
  EXPECT_EQ(d.only<Execute>().timeout_ms, 5000);
  d.submit("j2", {.timeout_ms = 6000});
  EXPECT_EQ(d.only<Execute>().timeout_ms, 6000);
  d.submit("j3", {.timeout_ms = 60'000});
  EXPECT_EQ(d.only<Execute>().timeout_ms, 8000);
  d.submit("j4", {.deadline_ms = 1000});
  EXPECT_EQ(d.only<Execute>().timeout_ms, 1000);
}

// A worker that never begins is given up and the job tried elsewhere, but only after the old attempt is over.
TEST(Timeouts, AWorkerThatNeverBeginsLosesTheJob) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.after_ms(60'000);
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  EXPECT_TRUE(d.none<SealStream>());
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_RETRY");
  d.add_worker();
  d.after_ms(1000);
  EXPECT_EQ(d.only<Execute>().attempt, 2);
}

// SYS-7.3.1: the pool knows before the connection does; the attempt is given up after five seconds.
TEST(Attempts, AGoneWorkersAttemptsAreGivenUp) {
  Driver d(without_jitter());
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.send(ExecuteStarted{x});
  d.send(WorkerFailed{{.worker_id = "w1", .pool_id = "pool-1", .gpu_id = "0", .exit_code = 137}});
  EXPECT_TRUE(d.none<AbortExecute>());
  EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");
  d.after_ms(5000);
  EXPECT_EQ(d.only<AbortExecute>().execution, x);
  d.lose(x);
  EXPECT_EQ(d.query("j1").status, JobStatus::kQueued);
  EXPECT_EQ(d.query("j1").attempts, 1);
}

// ORCH-3039#re-estimate: the device is measured again, and what is placed from then on goes by what it has left.
TEST(Attempts, AShortageOfDeviceMemoryHasTheDeviceMeasuredAgain) {
  for (const bool is_short : {false, true}) {
    CoreConfig config;
    config.workers_per_gpu = 2;
    Driver d(config);
    d.add_worker();
    d.lose(d.run("j1"), base::ErrorCode::kVramOom);
    EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");
    auto state = d.pool_state();
    state.workers = {Driver::worker("w1")};
    state.gpus[0].vram_allocated_bytes = 4 * kGb;
    state.gpus[0].vram_available_bytes = is_short ? kGb : 4 * kGb;
    d.see(state);
    d.submit("j2", {.model = "b"});
    EXPECT_EQ(d.none<StartWorker>(), is_short) << d.dump();
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
