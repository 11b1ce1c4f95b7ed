// Quotas of tenants: jobs at a time, tokens a day.
#include <gtest/gtest.h>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;

struct Quotas : Driver {
  using Driver::Driver;
  const std::vector<Command>& submit_as(const std::string& tenant, const std::string& id, const SubmitOptions& o) {
    jobs::JobSpec s = spec(id, o);
    s.tenant_id = tenant;
    return send(Submit{{++requests}, std::move(s)});
  }
  const std::vector<Command>& submit_as(const std::string& tenant, const std::string& id) {
    return submit_as(tenant, id, SubmitOptions{});
  }
  std::vector<std::string> started() const {
    std::vector<std::string> ids;
    for (const Execute& x : all<Execute>()) ids.push_back(x.job_id.value);
    return ids;
  }
  static CoreConfig with(config::QuotaConfig quotas) {
    CoreConfig c;
    c.quotas = quotas;
    return c;
  }
};
using Ids = std::vector<std::string>;

// SYS-9.3.2, SYS-5.1.2: above its jobs at a time a tenant's next job waits and says so; others pass; it is never refused.
TEST(CoreQuotas, JobsAboveTheQuotaWait) {
  Quotas d(Quotas::with({.max_concurrent_jobs = 1}));
  d.add_worker("w1", 4);
  d.submit_as("a", "a1");
  const ExecutionId x = d.only<Execute>().execution;
  EXPECT_TRUE((d.submit_as("a", "a2"), d.only<AnswerSubmit>().result));
  EXPECT_EQ(d.started(), Ids{});
  d.submit_as("a", "a3");
  d.submit_as("b", "b1");
  EXPECT_EQ(d.started(), Ids{"b1"}) << "another tenant's job is not held up";
  const LiveJob waits = d.query("a2");
  EXPECT_EQ(waits.reason->code, "WAITING_FOR_QUOTA");
  EXPECT_NE(waits.reason->human.find("max_concurrent_jobs"), std::string::npos);
  EXPECT_EQ(d.query("a3").reason->code, "WAITING_FOR_TURN");
  d.end(x);
  EXPECT_EQ(d.started(), Ids{"a2"}) << "in order";
  EXPECT_TRUE(d.query("a3").predicted_start_ms.has_value()) << "one run has been measured";
}

// SYS-9.3.2: over all models, and until a worker has really let go of a job.
TEST(CoreQuotas, CountsOverModelsAndUntilTheAttemptIsOver) {
  Quotas d(Quotas::with({.max_concurrent_jobs = 1}));
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1"), Driver::worker("w2", "b", "1")};
  d.see(s);
  d.submit_as("a", "a1");
  const ExecutionId x = d.only<Execute>().execution;
  d.submit_as("a", "b1", {.model = "b"});
  EXPECT_EQ(d.started(), Ids{});
  d.send(CancelRequested{.request = {}, .job_id = base::JobId("a1")});
  EXPECT_EQ(d.started(), Ids{}) << "a1 has ended, its attempt has not";
  d.lose(x, ErrorCode::kCancelled);
  EXPECT_EQ(d.started(), Ids{"b1"});
}

// SYS-9.3.2: a job that may not run keeps no worker for itself and starts none.
TEST(CoreQuotas, AHeldJobHoldsNoMemory) {
  Quotas d(Quotas::with({.max_concurrent_jobs = 1}));
  auto s = d.pool_state("pool-1", 2);
  s.workers = {Driver::worker("w1"), Driver::worker("w2", "b", "1", 8 * kGb)};
  s.gpus[0].vram_available_bytes = s.gpus[1].vram_available_bytes = 0;
  s.gpus[0].vram_allocated_bytes = s.gpus[1].vram_allocated_bytes = 8 * kGb;
  d.see(s);
  d.submit_as("a", "a1");
  d.submit_as("a", "b1", {.model = "b", .memory_bytes = 8 * kGb});
  d.submit_as("a", "c1", {.model = "c"});
  EXPECT_TRUE(d.none<StartWorker>() && d.none<StopWorker>());
  d.submit_as("z", "d1", {.model = "d", .memory_bytes = 8 * kGb});
  EXPECT_EQ(d.only<StopWorker>().worker_id.value, "w2");
}

// SYS-9.3.2: a tenant of its own has its own numbers.
TEST(CoreQuotas, TenantsHaveTheirOwnLimits) {
  CoreConfig c = Quotas::with({.max_concurrent_jobs = 1});
  c.tenants = {{.id = "big", .token_file = {}, .throttle = {}, .quotas = {{.max_concurrent_jobs = 2}}},
               {.id = "free", .token_file = {}, .throttle = {}, .quotas = {{.max_concurrent_jobs = 0}}}};
  Quotas d(c);
  d.add_worker("w1", 10);
  int big = 0, free_count = 0, others = 0;
  for (int i = 0; i < 3; ++i) {
    d.submit_as("big", "b" + std::to_string(i));
    big += !d.none<Execute>();
    d.submit_as("free", "f" + std::to_string(i));
    free_count += !d.none<Execute>();
    d.submit_as("localhost", "l" + std::to_string(i));
    others += !d.none<Execute>();
  }
  EXPECT_EQ(big, 2);
  EXPECT_EQ(free_count, 3);
  EXPECT_EQ(others, 1);
}

// SYS-9.3.2, SYS-7.1.1, ORCH-1012: the day's tokens are checked before a job is enqueued; what a job did not use comes back.
TEST(CoreQuotas, TokensOfTheDay) {
  Quotas d(Quotas::with({.token_budget_daily = 100}));
  d.add_worker("w1", 4);
  d.submit_as("a", "a1");  // 10 + 20
  const ExecutionId x = d.only<Execute>().execution;
  d.submit_as("a", "a2", {.tokens_in = 10, .max_tokens = 70});
  const auto refused = d.only<AnswerSubmit>().result;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kQuotaExceeded);
  EXPECT_TRUE(d.none<CommitAdmission>());
  EXPECT_TRUE((d.submit_as("b", "b1", {.tokens_in = 10, .max_tokens = 70}), d.only<AnswerSubmit>().result));
  d.end(x, 5);  // 15 used
  EXPECT_TRUE((d.submit_as("a", "a3", {.tokens_in = 10, .max_tokens = 75}), d.only<AnswerSubmit>().result));
  EXPECT_FALSE((d.submit_as("a", "a4", {.tokens_in = 1, .max_tokens = 1}), d.only<AnswerSubmit>().result));
  d.send(CancelRequested{.request = {}, .job_id = base::JobId("a3")});
  EXPECT_FALSE((d.submit_as("a", "a5", {.tokens_in = 10, .max_tokens = 70}), d.only<AnswerSubmit>().result))
      << "its prompt was read";
  EXPECT_TRUE((d.submit_as("a", "a6", {.tokens_in = 10, .max_tokens = 65}), d.only<AnswerSubmit>().result));
}

// What stands for a job that was charged is nobody's to refuse, and costs nothing: neither its tenant nor its session.
TEST(CoreQuotas, WhatStandsForAChargedJobIsFree) {
  CoreConfig config = Quotas::with({.token_budget_daily = 30});
  config.sessions.turns_max = 1;
  Quotas d(config);
  d.add_worker("w1", 4);
  const Driver::SubmitOptions in_session{.session_id = base::SessionId("s")};
  d.submit_as("a", "a1", in_session);  // 10 + 20
  d.end(d.only<Execute>().execution, 20);
  EXPECT_FALSE((d.submit_as("a", "a2", in_session), d.only<AnswerSubmit>().result));
  jobs::JobSpec again = Driver::spec("a3", in_session);
  again.tenant_id = "a";
  again.charged = true;
  d.send(Submit{{++d.requests}, again});
  EXPECT_TRUE(d.only<AnswerSubmit>().result);
  EXPECT_FALSE(d.only<CommitAdmission>().session) << "no row of it counts in the session";
  d.end(d.only<Execute>().execution, 20);
  EXPECT_TRUE(d.all<PublishStanding>().back().standing.quota->refusal(1, d.now.unix_ms)) << "30 are used";
  EXPECT_FALSE(d.all<PublishStanding>().back().standing.quota->refusal(0, d.now.unix_ms)) << "and no more";
}

// SYS-9.3.2: an admission that the store refused took nothing; a job that was never run neither.
TEST(CoreQuotas, WhatWasNotEnqueuedTookNothing) {
  Quotas d(Quotas::with({.token_budget_daily = 30}));
  d.auto_commit = false;
  d.submit_as("a", "a1");
  d.send(CommitFailed{{d.only<CommitAdmission>().commit}, {ErrorCode::kIoError, "disk", {}}});
  d.auto_commit = true;
  EXPECT_TRUE((d.submit_as("a", "a2"), d.only<AnswerSubmit>().result));
  d.send(CancelRequested{.request = {}, .job_id = base::JobId("a2")});
  EXPECT_TRUE((d.submit_as("a", "a3"), d.only<AnswerSubmit>().result));
}

// SYS-9.3.2: what was used, and what lives, counts after a restart.
TEST(CoreQuotas, SurviveARestart) {
  Restored restored;
  jobs::JobSpec live = Driver::spec("j1", {});
  live.tenant_id = "a";
  restored.jobs.push_back({.spec = live,
                           .status = wire::JobStatus::kQueued,
                           .attempts = 0,
                           .submitted_unix_ms = 1'700'000'000'000,
                           .session_key = {},
                           .payload_available = true,
                           .worker_version = {}});
  restored.tenants = {{"a", 50}};
  Quotas d(Quotas::with({.token_budget_daily = 100}), restored);
  EXPECT_FALSE((d.submit_as("a", "a1", {.tokens_in = 10, .max_tokens = 11}), d.only<AnswerSubmit>().result));
  EXPECT_TRUE((d.submit_as("a", "a2", {.tokens_in = 10, .max_tokens = 10}), d.only<AnswerSubmit>().result));
  EXPECT_TRUE((d.submit_as("b", "b1", {.tokens_in = 10, .max_tokens = 90}), d.only<AnswerSubmit>().result));
}

// What a tenant may do is told in the step that changes it, when it has limits, and refuses no sooner than the core.
TEST(CoreQuotas, StandingsAreToldAsTheyChange) {
  Quotas d(Quotas::with({.token_budget_daily = 100}));
  d.add_worker("w1", 4);
  d.submit_as("a", "a1", {.tokens_in = 10, .max_tokens = 90});
  const auto told = d.all<PublishStanding>();
  ASSERT_FALSE(told.empty());
  EXPECT_EQ(told.back().tenant_id, "a");
  const auto early = told.back().standing.quota->refusal(2, d.now.unix_ms);
  ASSERT_TRUE(early);
  d.submit_as("a", "a2", {.tokens_in = 1, .max_tokens = 1});
  const auto refused = d.only<AnswerSubmit>().result;
  ASSERT_FALSE(refused);
  EXPECT_EQ(early->code, refused.error().code);
  EXPECT_EQ(early->message, refused.error().message);
  EXPECT_EQ(early->details, refused.error().details);
  Quotas free(Quotas::with({}));
  free.add_worker("w1", 4);
  free.submit_as("a", "a1");
  EXPECT_TRUE(free.all<PublishStanding>().empty()) << "no limits, nothing to tell";
}

// The lines of a job's end and of a refusal say whose job it is, where it is a tenant's.
TEST(CoreQuotas, TheLogSaysWhoseJobsEndAndAreRefused) {
  Quotas d(Quotas::with({.token_budget_daily = 100}));
  d.add_worker("w1", 4);
  std::vector<std::string> said;
  const auto note = [&](std::string_view event) {
    for (const Log& log : d.all<Log>()) {
      if (log.event != event) continue;
      for (const base::LogField& f : log.fields)
        if (f.name == "tenant") said.push_back(std::get<std::string>(f.value));
    }
  };
  for (const char* account : {"a", "localhost", "token:0123"}) {
    d.submit_as(account, "j" + std::to_string(2 * said.size()));
    d.end(d.only<Execute>().execution);
    note("stream.ended");
    d.submit_as(account, "refused", {.max_tokens = 1000});
    note("admission.rejected");
  }
  EXPECT_EQ(said, (std::vector<std::string>{"a", "a", "", "", "", ""}));
}

SetLimits limits_of(config::OrchestratordConfig config) { return SetLimits::from(config); }

// A quota that comes, falls or goes while jobs run and wait: those that run go on, the others wait for no more than they must.
TEST(CoreQuotas, OtherLimitsHoldFromTheNextStartOn) {
  const auto with = [](config::QuotaConfig quotas) {
    return limits_of({.quotas = quotas,
                      .tenants = {{.id = "a", .token_file = {}, .throttle = {}, .quotas = {}},
                                  {.id = "b", .token_file = {}, .throttle = {}, .quotas = {}}}});
  };
  Quotas d;
  d.add_worker("w1", 2);
  d.submit_as("a", "a1");
  const ExecutionId first = d.only<Execute>().execution;
  d.submit_as("a", "a2");
  const ExecutionId second = d.only<Execute>().execution;
  d.submit_as("a", "a3");
  d.submit_as("b", "b1");
  d.send(with({.max_concurrent_jobs = 1}));
  EXPECT_EQ(d.started(), Ids{});
  EXPECT_EQ(d.query("a3").reason->code, "WAITING_FOR_QUOTA");
  d.end(first);
  EXPECT_EQ(d.started(), Ids{"b1"}) << "it waits behind no job that a quota holds";
  const ExecutionId other = d.only<Execute>().execution;
  d.end(other);
  EXPECT_EQ(d.started(), Ids{}) << "a2 runs";
  d.send(with({.max_concurrent_jobs = 2}));
  EXPECT_EQ(d.started(), Ids{"a3"});
  const ExecutionId third = d.only<Execute>().execution;
  d.submit_as("a", "a4");
  EXPECT_EQ(d.started(), Ids{});
  d.send(with({}));
  d.end(second);
  EXPECT_EQ(d.started(), Ids{"a4"});
  d.lose(third);
  d.after_ms(5'000);
  d.see(d.state_of_worker("w1", 2));
  EXPECT_EQ(d.started(), Ids{"a3"}) << "back in the queue among the jobs that no quota counts";
}

// What a tenant that is removed has submitted goes on as after a restart: one job at a time.
TEST(CoreQuotas, JobsOfATenantThatIsRemovedGoOn) {
  const config::TenantConfig tenant{.id = "a", .token_file = {}, .throttle = {}, .quotas = {}};
  CoreConfig c;
  c.tenants = {tenant};
  Quotas d(c);
  d.add_worker("w1", 3);
  d.submit_as("a", "a1");
  const ExecutionId first = d.only<Execute>().execution;
  d.submit_as("a", "a2");
  const ExecutionId second = d.only<Execute>().execution;
  d.submit_as("a", "a3");
  const ExecutionId third = d.only<Execute>().execution;
  d.submit_as("a", "a4");
  d.send(limits_of({}));
  d.end(first);
  d.end(second);
  EXPECT_EQ(d.started(), Ids{});
  d.end(third);
  EXPECT_EQ(d.started(), Ids{"a4"});
  d.submit_as("a", "a5");
  d.send(limits_of({.tenants = {tenant}}));
  EXPECT_EQ(d.started(), Ids{"a5"}) << "with its entry back, its limits are";
}

// Copies of limits are told with the step that changes them, also that there is none any more, and the room of a full queue is told anew.
TEST(CoreQuotas, OtherLimitsAreTold) {
  CoreConfig c = Quotas::with({.token_budget_daily = 40});
  c.throttle = {.requests_per_second = 1, .burst_seconds = 1};
  c.queue.capacity = 1;
  Quotas d(c);
  d.submit_as("a", "a1");
  EXPECT_TRUE(d.only<PublishQueueRoom>().refusals.contains(""));
  d.send(limits_of({.tenants = {{.id = "a", .token_file = {}, .throttle = {}, .quotas = {}}}}));
  const auto told = d.only<PublishStanding>();
  EXPECT_EQ(told.tenant_id, "a");
  EXPECT_FALSE(told.standing.throttle || told.standing.quota);
  const auto room = d.only<PublishQueueRoom>();
  EXPECT_TRUE(room.refusals.contains("a")) << "it has its share";
  EXPECT_FALSE(room.refusals.contains("")) << "the operator has a share of its own now";
  d.send(limits_of({.quotas = {.token_budget_daily = 40}}));
  EXPECT_TRUE(d.only<PublishStanding>().standing.quota->refusal(11, d.now.unix_ms)) << "30 are reserved";
}

}  // namespace
}  // namespace llorch::orchestratord::core
