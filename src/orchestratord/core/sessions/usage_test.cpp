#include <gtest/gtest.h>

#include <map>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using base::SessionId;
using wire::JobStatus;

const SessionId kId("agent-1");

CoreConfig with_tokens(std::int64_t token_budget) {
  CoreConfig config;
  config.sessions.token_budget = token_budget;
  return config;
}

struct Sessions : Driver {
  using Driver::Driver;
  const std::vector<Command>& open(std::optional<std::int64_t> token_budget = {},
                                   std::optional<std::int64_t> time_budget_ms = {}) {
    return send(OpenSession{{++requests},
                            {.session_id = kId.value, .token_budget = token_budget, .time_budget_ms = time_budget_ms}});
  }
  base::Result<wire::SessionView> ask() {
    send(QuerySession{{++requests}, kId});
    return only<AnswerSession>().result;
  }
  ErrorCode refusal_of(const std::string& id, SubmitOptions o) {
    submit(id, o);
    const auto result = only<AnswerSubmit>().result;
    EXPECT_FALSE(result) << dump();
    EXPECT_TRUE(none<CommitAdmission>());
    return result ? ErrorCode::kInternal : result.error().code;
  }
  // Of a run, as its stream tells it.
  bool warmth(ExecutionId execution) {
    send(ExecuteProgress{execution, 1});
    return only<PublishMetrics>().metrics.kv_warmth.value();
  }
  static SubmitOptions in_session(std::int64_t max_tokens = 20) {
    SubmitOptions o;
    o.max_tokens = max_tokens;
    o.session_id = kId;
    return o;
  }
};

// ORCH-3099, OC-CORE-1023, OC-CTRL-2068: a job reserves what it may take, is charged what it took, and a budget that does
// not cover a job refuses it before it is enqueued.
TEST(CoreSessions, BudgetsAreEnforcedBeforeEnqueue) {
  Sessions d(with_tokens(100));
  d.add_worker();
  const ExecutionId x = d.run("j1", Sessions::in_session(60));
  EXPECT_EQ(d.only<AnswerSubmit>().result->budget.tokens_budget_remaining, 30);
  EXPECT_EQ(d.only<CommitAdmission>().session->session_id, kId);
  EXPECT_EQ(d.refusal_of("j2", Sessions::in_session(21)), ErrorCode::kBudgetExceeded);
  d.end(x, 5);
  EXPECT_EQ(d.only<Finish>().end->budget.tokens_budget_remaining, 85);
  EXPECT_EQ(d.ask()->tokens_used, 15);
  d.submit("j3", Sessions::in_session(75));
  EXPECT_TRUE(d.only<AnswerSubmit>().result);
}

// ORCH-3021: without budgets a session is made by its first job, counts turns and ends by its age; the store is told.
TEST(CoreSessions, AreMadeLazilyAndExpire) {
  Sessions d;
  d.add_worker();
  d.end(d.run("j1", Sessions::in_session()));
  const auto key = d.ask()->turns;
  EXPECT_EQ(key, 1);
  d.after_ms(599'999);
  EXPECT_TRUE(d.none<ForgetSession>());
  d.after_ms(1);
  EXPECT_EQ(d.all<ForgetSession>().size(), 1u);
  ASSERT_FALSE(d.ask());
  EXPECT_EQ(d.ask().error().code, ErrorCode::kNotFound);
}

// A job that the store refused takes no turn and no budget.
TEST(CoreSessions, ARefusedAdmissionIsTakenBack) {
  Sessions d(with_tokens(30));
  d.auto_commit = false;
  d.submit("j1", Sessions::in_session());
  d.send(CommitFailed{{d.only<CommitAdmission>().commit}, {ErrorCode::kIoError, "no space", {}}});
  EXPECT_EQ(d.ask()->turns, 0);
  EXPECT_EQ(d.ask()->tokens_remaining, 30);
}

// What a client that went away was sent is what is charged: the shell counts it when the stream is sealed.
TEST(CoreSessions, ACancelledJobIsChargedWhatItsStreamHolds) {
  Sessions d(with_tokens(100));
  d.add_worker();
  const ExecutionId x = d.run("j1", Sessions::in_session());
  d.send(ExecuteStarted{x});
  d.send(ExecuteProgress{x, 1});
  d.after_ms(40);
  d.auto_commit = false;
  d.send(CancelRequested{{}, base::JobId("j1")});
  const auto record = d.only<CommitTransition>();
  EXPECT_EQ(record.record.decode_time_ms, 40);
  d.send(StreamCounted{base::JobId("j1"), 7});
  d.send(Committed{{record.commit}});
  EXPECT_EQ(d.ask()->tokens_used, 17);
  EXPECT_EQ(d.ask()->time_used_ms, 40);
  EXPECT_EQ(d.ask()->tokens_reserved, 0);
}

TEST(CoreSessions, AJobThatNeverRanIsChargedNothing) {
  Sessions d(with_tokens(100));
  d.submit("j1", Sessions::in_session());
  d.send(CancelRequested{{}, base::JobId("j1")});
  EXPECT_EQ(d.ask()->tokens_used, 0);
  EXPECT_EQ(d.ask()->turns, 1);
}

// ORCH-3099: a time budget is the limit of the run; who runs into it is told which limit it was.
TEST(CoreSessions, TimeLeftLimitsTheRun) {
  Sessions d;
  d.open({}, 1000);
  EXPECT_TRUE(d.only<AnswerSession>().created);
  d.add_worker();
  d.run("j1", Sessions::in_session());
  EXPECT_EQ(d.only<Execute>().timeout_ms, 1000);
  EXPECT_EQ(d.refusal_of("j2", Sessions::in_session()), ErrorCode::kBudgetExceeded);
  d.after_ms(1000);
  const auto finish = d.only<Finish>();
  EXPECT_EQ(finish.error->code, ErrorCode::kTimeout);
  EXPECT_NE(finish.error->message.find("session_time_budget"), std::string::npos);
  EXPECT_EQ(d.ask()->remaining.time_budget_remaining_ms, 0);
}

// ORCH-3009, OC-CORE-1013, ORCH-3023: the next job goes to the worker of the last one and says that it is warm there; after
// a failover it says that it is not, and that nothing moved.
TEST(CoreSessions, StayOnTheirLastGoodWorker) {
  Sessions d;
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1"), Driver::worker("w2", "a", "1")};
  for (auto& gpu : s.gpus) gpu.vram_allocated_bytes = gpu.vram_available_bytes = 4 * kGb;
  d.see(s);
  const ExecutionId other = d.run("j0");
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w1");
  const ExecutionId first = d.run("j1", Sessions::in_session());
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
  EXPECT_FALSE(d.warmth(first));
  d.end(other);
  d.end(first);
  EXPECT_EQ(d.ask()->worker_id, "w2");
  EXPECT_TRUE(d.ask()->kv_warmth);
  const ExecutionId second = d.run("j2", Sessions::in_session());
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");  // w1 is as free and comes first otherwise
  EXPECT_TRUE(d.warmth(second));
  s.workers.pop_back();
  s.gpus[1].vram_allocated_bytes = 0;
  d.see(s);
  EXPECT_FALSE(d.ask()->kv_warmth);
  d.lose(second);
  d.after_ms(2000);
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w1");
  EXPECT_FALSE(d.warmth(d.only<Execute>().execution));
}

// ORCH-3009, ORCH-3023, OC-CORE-1024, OC-METRICS-7111: from the first token on the stream of a job with a session says what is left and
// how warm its worker is; a job without one says nothing of it.
TEST(CoreSessions, MetricsTellWhatIsLeft) {
  Sessions d(with_tokens(100));
  d.add_worker();
  const ExecutionId x = d.run("j1", Sessions::in_session());
  d.send(ExecuteStarted{x});
  d.send(ExecuteProgress{x, 0});
  EXPECT_TRUE(d.none<PublishMetrics>());
  d.send(ExecuteProgress{x, 1});
  const wire::MetricsEvent first = d.only<PublishMetrics>().metrics;
  EXPECT_EQ(first.kv_warmth, false);
  EXPECT_EQ(first.kv_migrated, false);
  d.send(ExecuteProgress{x, 5});
  EXPECT_EQ(d.only<PublishMetrics>().metrics.budget.tokens_budget_remaining, *first.budget.tokens_budget_remaining - 4);
  EXPECT_FALSE(first.budget.time_budget_remaining_ms);
  d.end(x);
  const ExecutionId without = d.run("j2");
  d.send(ExecuteProgress{without, 1});
  const wire::MetricsEvent other = d.only<PublishMetrics>().metrics;
  EXPECT_FALSE(other.kv_warmth || other.kv_migrated || other.budget.tokens_budget_remaining);
}

// OC-CORE-1013: affinity makes no job wait.
TEST(CoreSessions, DoNotWaitForTheirWorker) {
  Sessions d;
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1"), Driver::worker("w2", "a", "1")};
  for (auto& gpu : s.gpus) gpu.vram_allocated_bytes = gpu.vram_available_bytes = 4 * kGb;
  d.see(s);
  d.end(d.run("j1", Sessions::in_session()));
  d.run("j2");
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w1");
  d.run("j3", Sessions::in_session());
  EXPECT_EQ(d.only<Execute>().worker_id.value, "w2");
  EXPECT_FALSE(d.warmth(d.only<Execute>().execution));
}

// A restart refills nothing, and what was running runs on within its reservation.
TEST(CoreSessions, SurviveARestart) {
  jobs::RestoredJob job{.spec = Driver::spec("j1", Sessions::in_session(20)),
                        .status = JobStatus::kRunning,
                        .attempts = 1,
                        .submitted_unix_ms = 1'700'000'000'000,
                        .session_key = 9};
  Restored restored{
      .jobs = {job},
      .pool_endpoints = {},
      .sessions = {{.session = {.key = 9, .session_id = kId, .created_unix_ms = 1'699'999'000'000, .token_budget = 100},
                    .use = {.turns = 3, .tokens_in = 20, .tokens_out = 30},
                    .last_activity_unix_ms = 1'699'999'990'000}}};
  Sessions d(CoreConfig{}, restored);
  EXPECT_EQ(d.ask()->turns, 3);
  EXPECT_EQ(d.ask()->tokens_remaining, 20);
  EXPECT_EQ(d.refusal_of("j2", Sessions::in_session(11)), ErrorCode::kBudgetExceeded);
  d.add_worker();
  d.end(d.only<Execute>().execution, 4);
  EXPECT_EQ(d.ask()->tokens_used, 64);
}

// A session is there once it is durable, and its answer says whether it was made or touched.
TEST(CoreSessions, OpeningIsDurableBeforeItIsAnswered) {
  Sessions d;
  d.auto_commit = false;
  d.open(100);
  const CommitId commit = d.only<CommitSession>().commit;
  EXPECT_TRUE(d.none<AnswerSession>());
  d.send(Committed{{commit}});
  EXPECT_TRUE(d.only<AnswerSession>().created);
  EXPECT_EQ(d.only<AnswerSession>().result->token_budget, 100);
  d.open(100);
  d.send(Committed{{d.only<CommitSession>().commit}});
  EXPECT_FALSE(d.only<AnswerSession>().created);
  d.open(50);
  EXPECT_EQ(d.only<AnswerSession>().result.error().code, ErrorCode::kConflict);
}

TEST(CoreSessions, AStoreThatCannotWriteOpensNone) {
  Sessions d;
  d.auto_commit = false;
  d.open(100);
  d.send(CommitFailed{{d.only<CommitSession>().commit}, {ErrorCode::kIoError, "no space", {}}});
  EXPECT_EQ(d.only<AnswerSession>().result.error().code, ErrorCode::kStoreUnavailable);
  EXPECT_EQ(d.only<ForgetSession>().session_key > 0, true);
  EXPECT_FALSE(d.ask());
}

// Deleting a session cancels nothing: what was accepted runs on, charged to nobody.
TEST(CoreSessions, ADeletedSessionLeavesItsJobsAlone) {
  Sessions d(with_tokens(100));
  d.add_worker();
  const ExecutionId x = d.run("j1", Sessions::in_session());
  d.send(CloseSession{{++d.requests}, kId});
  EXPECT_EQ(d.only<AnswerSession>().result->jobs_live, 1);
  EXPECT_EQ(d.all<ForgetSession>().size(), 1u);
  d.send(CloseSession{{++d.requests}, kId});
  EXPECT_EQ(d.only<AnswerSession>().result.error().code, ErrorCode::kNotFound);
  d.submit("j2", Sessions::in_session());
  d.end(x);
  EXPECT_EQ(d.only<Finish>().status, JobStatus::kCompleted);
  EXPECT_EQ(d.ask()->tokens_used, 0);
  d.send(QuerySessions{{++d.requests}});
  EXPECT_EQ(d.only<AnswerQuerySessions>().sessions.size(), 1u);
  d.send(QuerySessions{{++d.requests}, kId.value + "x"});
  EXPECT_EQ(d.only<AnswerQuerySessions>().sessions.size(), 0u);
}

// OC-CTRL-2010, ORCH-3014: what the core checks, in order, each before a place in the queue is taken: context, budget,
// deadline.
TEST(CoreSessions, ChecksContextThenBudgetThenDeadline) {
  Sessions d(with_tokens(500));
  d.add_worker();
  Driver::SubmitOptions o = Sessions::in_session(2000);
  o.deadline_ms = -1;
  EXPECT_EQ(d.refusal_of("j1", o), ErrorCode::kInvalidParams);
  o.max_tokens = 600;
  EXPECT_EQ(d.refusal_of("j2", o), ErrorCode::kBudgetExceeded);
  o.max_tokens = 100;
  EXPECT_EQ(d.refusal_of("j3", o), ErrorCode::kDeadlineUnmet);
  EXPECT_FALSE(d.ask());  // refused jobs make no session
}

// OC-CORE-1040, ORCH-3027: the line at a job's end says everything countable about it.
TEST(CoreSessions, TheLineAtTheEndHasItsFields) {
  Sessions d;
  d.add_worker();
  d.end(d.run("j0", Sessions::in_session(20)));
  const ExecutionId second = d.run("j1", Sessions::in_session(20));
  d.send(ExecuteStarted{second, 0.5});
  d.end(second);
  std::map<std::string, base::LogField::Value, std::less<>> fields;
  for (const Log& log : d.all<Log>()) {
    if (log.event != "stream.ended") continue;
    for (const base::LogField& f : log.fields) fields[std::string(f.name)] = f.value;
  }
  for (const char* name : {"job_id",
                           "session_id",
                           "engine",
                           "engine_version",
                           "pool_id",
                           "replica_id",
                           "worker_id",
                           "gpu_id",
                           "model_id",
                           "model_ref",
                           "execution_latency_ms",
                           "quant",
                           "ctx",
                           "kv_warmth",
                           "queue_position",
                           "predicted_start_ms",
                           "queue_time_ms",
                           "decode_time_ms",
                           "tokens_in",
                           "tokens_out"}) {
    EXPECT_TRUE(fields.contains(name)) << name;
  }
  EXPECT_EQ(std::get<double>(fields["scheduling_latency_ms"]), 0.5);
  EXPECT_TRUE(std::get<bool>(fields["kv_warmth"])) << "the second turn went where the first had run";
}

// What a worker said of its failure is in the job's error and in the log, also when the job is tried again.
TEST(CoreSessions, WhyAWorkerFailedIsInTheLog) {
  Driver d;
  d.add_worker();
  const auto said = [&] {
    std::map<std::string, std::string> out;
    for (const Log& log : d.all<Log>())
      for (const base::LogField& f : log.fields)
        if (f.name == "message") out[std::string(log.event)] = std::get<std::string>(f.value);
    return out;
  };
  d.lose(d.run("j0"), base::ErrorCode::kCudaError);
  EXPECT_EQ(said()["job.failed"], "lost");
  EXPECT_EQ(said()["stream.ended"], "lost");
  d.lose(d.run("j1"));
  EXPECT_EQ(said()["job.retry"], "lost");
}

// A client decides how often a job of its has no time: each is accepted, ends and is told in one line at info; the warnings are bounded.
TEST(CoreSessions, JobsWithoutTimeDoNotFillTheLogWithWarnings) {
  CoreConfig config;
  config.queue.capacity = 1000;
  config.timeout.queue_ms = 1000;
  Driver d(config);
  d.see(d.pool_state());
  for (int i = 0; i < 300; ++i) d.submit("j" + std::to_string(i));
  std::map<std::string, int> lines;
  d.after_ms(1000);
  for (const Log& log : d.all<Log>()) ++lines[std::string(log.event)];
  EXPECT_EQ(lines["job.timeout"], 100);
  EXPECT_EQ(lines["stream.ended"], 300);
}

// Clients decide how often a job is refused; the log says some of it and how much it left out.
TEST(CoreSessions, RefusalsDoNotFillTheLog) {
  Driver d;
  std::int64_t lines = 0, left_out = 0;
  const auto refuse = [&](const std::string& id) {
    d.submit(id, {.deadline_ms = 0});
    ASSERT_FALSE(d.only<AnswerSubmit>().result);
    for (const Log& log : d.all<Log>()) {
      if (log.event != "admission.rejected") continue;
      ++lines;
      for (const base::LogField& f : log.fields)
        if (f.name == "left_out_before") left_out += std::get<std::int64_t>(f.value);
    }
  };
  for (int i = 0; i < 100; ++i) refuse("j" + std::to_string(i));
  EXPECT_EQ(lines, 10);
  EXPECT_EQ(left_out, 0);
  d.now.mono_ms += 10'000;
  refuse("later");
  EXPECT_EQ(lines, 11);
  EXPECT_EQ(left_out, 90);
}

// ORCH-3006, ORCH-1012: a caller over its rate is refused with the time to wait; others are not.
TEST(CoreSessions, ThrottlesPerCaller) {
  CoreConfig config;
  config.throttle = {.requests_per_second = 1, .burst_seconds = 1};
  Driver d(config);
  const auto submit = [&](const std::string& id, const std::string& caller) {
    jobs::JobSpec spec = Driver::spec(id, {});
    spec.tenant_id = caller;
    d.send(Submit{{++d.requests}, std::move(spec)});
    return d.only<AnswerSubmit>().result;
  };
  EXPECT_TRUE(submit("j1", "token:aaaaaa"));
  const auto refused = submit("j2", "token:aaaaaa");
  ASSERT_FALSE(refused);
  EXPECT_EQ(base::info(refused.error().code).http_status, 429);
  EXPECT_TRUE(submit("j3", "localhost"));
  d.after_ms(1000);
  EXPECT_TRUE(submit("j4", "token:aaaaaa"));
}

// Work that becomes no job takes a request of the same rate, and no token.
TEST(CoreSessions, ThrottlesWhatBecomesNoJob) {
  CoreConfig config;
  config.throttle = {.requests_per_second = 1, .tokens_per_second = 100, .burst_seconds = 2};
  Driver d(config);
  const auto arrives = [&](const std::string& caller) {
    d.send(CountArrival{{++d.requests}, caller});
    return d.only<AnswerArrival>().refusal;
  };
  const auto submit = [&](const std::string& id) {
    jobs::JobSpec spec = Driver::spec(id, {});
    spec.tenant_id = "a";
    d.send(Submit{{++d.requests}, std::move(spec)});
    return d.only<AnswerSubmit>().result;
  };
  EXPECT_FALSE(arrives("a"));
  EXPECT_TRUE(submit("j1"));
  const auto refused = arrives("a");
  ASSERT_TRUE(refused);
  const auto as_a_submission = submit("j2");
  ASSERT_FALSE(as_a_submission);
  EXPECT_EQ(refused->message, as_a_submission.error().message);
  EXPECT_EQ(refused->details, as_a_submission.error().details);
  EXPECT_FALSE(arrives("b"));
  d.after_ms(1000);
  EXPECT_FALSE(arrives("a"));
  EXPECT_FALSE(submit("j3"));  // it took the request that was there
  d.after_ms(1000);
  EXPECT_TRUE(submit("j3"));
}

// A submission that was counted when it arrived takes no second request, and its tokens all the same.
TEST(CoreSessions, ASubmissionIsOneRequest) {
  CoreConfig config;
  config.throttle = {.requests_per_second = 1, .tokens_per_second = 20, .burst_seconds = 2};
  Driver d(config);
  const auto arrives = [&] {
    d.send(CountArrival{{++d.requests}, "a"});
    return d.only<AnswerArrival>().refusal;
  };
  const auto submit = [&](const std::string& id) {
    jobs::JobSpec spec = Driver::spec(id, {});  // of 30 tokens
    spec.tenant_id = "a";
    d.send(Submit{.request = {++d.requests}, .job = std::move(spec), .counted = true});
    return d.only<AnswerSubmit>().result;
  };
  EXPECT_FALSE(arrives());
  EXPECT_TRUE(submit("j1"));
  EXPECT_FALSE(arrives()) << "it took one of two";
  const auto refused = submit("j2");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("throttle.tokens_per_second"), std::string::npos) << refused.error().message;
  EXPECT_NE(arrives().value().message.find("throttle.requests_per_second"), std::string::npos);
}

// OC-CTRL-2050: `started` says what was told at admission.
TEST(CoreSessions, StartedCarriesTheAdmission) {
  Driver d;
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.submit("j2");
  const auto told = d.only<AnswerSubmit>().result;
  d.submit("j3");
  EXPECT_EQ(d.only<AnswerSubmit>().result->queue_position, 1);
  d.end(x);
  EXPECT_EQ(d.only<Execute>().queue_position, told->queue_position);
  EXPECT_EQ(d.only<Execute>().predicted_start_ms, told->predicted_start_ms);
}

}  // namespace
}  // namespace llorch::orchestratord::core
