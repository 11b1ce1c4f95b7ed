// Pools whose reports arrive while calls to them fail.
#include <gtest/gtest.h>

#include <algorithm>

#include "orchestratord/core/testing/driver.h"

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::PoolStatus;

PoolView only_pool(Driver& d) {
  d.send(QueryPools{{1}});
  return d.only<AnswerQueryPools>().pools.front();
}

// What the pool sends arrives, and calls to it fail: an attempt of j1 has found that.
void one_way_fault(Driver& d) {
  d.add_worker();
  const ExecutionId x = d.run("j1");
  d.after_ms(5'000);
  d.lose(x, ErrorCode::kUnreachable);
  d.after_ms(5'000);
  d.cannot_reach("http://pool-1");
}

// Its own reports say nothing of the way to it: its jobs wait, and keep their attempts, until it answers.
TEST(Pools, AJobKeepsItsAttemptsWhileItsPoolReportsAndCannotBeReached) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  one_way_fault(d);
  for (int i = 0; i < 40; ++i) {
    d.after_ms(15'000);
    EXPECT_TRUE(d.none<Execute>());
    std::size_t asked = d.all<AskPoolState>().size();
    d.report(d.state_of_worker());
    EXPECT_TRUE(d.none<Execute>()) << "report " << i;
    asked += d.all<AskPoolState>().size();
    EXPECT_EQ(asked, 1u);
    d.cannot_reach("http://pool-1");
  }
  const LiveJob job = d.query("j1");
  EXPECT_EQ(job.status, wire::JobStatus::kQueued);
  EXPECT_EQ(job.attempts, 1);
  ASSERT_TRUE(job.reason);
  EXPECT_EQ(job.reason->code, "WAITING_FOR_POOL");
  EXPECT_EQ(
      job.reason->human,
      "orchestratord has not reached pool pool-1 for 600 s, though what the pool sends arrives; the job goes on when "
      "it answers.");
  d.add_worker();
  EXPECT_EQ(d.only<Execute>().attempt, 2);
}

// A start that finds nobody there says the same.
TEST(Pools, NoStartIsTriedAtAPoolThatReportsAndCannotBeReached) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  d.see(d.pool_state());
  d.submit("j1");
  d.send(StartWorkerAnswered{base::WorkerId(d.only<StartWorker>().request.worker_id),
                             base::Error{ErrorCode::kUnreachable, "", {}}});
  for (int i = 0; i < 4; ++i) {
    d.after_ms(15'000);
    d.report(d.pool_state());
    EXPECT_TRUE(d.none<StartWorker>());
  }
  EXPECT_EQ(only_pool(d).status, PoolStatus::kUnhealthy);
  d.see(d.pool_state());
  EXPECT_EQ(d.all<StartWorker>().size(), 1u);
}

// It is asked with each of its reports, and not more often than every two seconds, however many come.
TEST(Pools, APoolThatCannotBeReachedIsAskedAtABoundedRate) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  one_way_fault(d);
  std::size_t asked = 0;
  for (int i = 0; i < 600; ++i) {
    d.after_ms(100);
    asked += d.all<AskPoolState>().size();
    d.report(d.state_of_worker());
    asked += d.all<AskPoolState>().size();
  }
  EXPECT_GE(asked, 25u);
  EXPECT_LE(asked, 31u);
}

// An answer to what was asked before the failure was perhaps on its way then.
TEST(Pools, AnAnswerToAnEarlierQuestionDoesNotShowThatAPoolIsReached) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  d.add_worker();
  const std::int64_t asked_ms = d.now.mono_ms;
  const ExecutionId x = d.run("j1");
  d.after_ms(1'000);
  d.lose(x, ErrorCode::kUnreachable);
  d.cannot_reach("http://pool-1");
  d.after_ms(1'000);
  const auto answer = [&](std::int64_t asked) {
    d.send(PoolSeen{.request = {}, .state = d.state_of_worker(), .asked_endpoint = "http://pool-1", .asked_ms = asked});
  };
  answer(asked_ms);
  EXPECT_TRUE(d.none<Execute>());
  EXPECT_EQ(d.all<AskPoolState>().size(), 1u);
  EXPECT_EQ(only_pool(d).status, PoolStatus::kUnhealthy);
  answer(d.now.mono_ms);
  EXPECT_EQ(d.only<Execute>().attempt, 2);
}

// The other way round: a question that hung fails after a later one was answered.
TEST(Pools, AFailureOfAnEarlierQuestionDoesNotUndoANewerAnswer) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  d.add_worker();
  const auto fails = [&](std::int64_t asked_ms) { d.send(PoolUnreachable{"http://pool-1", asked_ms}); };
  const std::int64_t asked_ms = d.now.mono_ms;
  d.after_ms(1'000);
  d.add_worker();
  fails(asked_ms);
  EXPECT_TRUE(d.none<Log>()) << "nobody is told of an outage";
  EXPECT_EQ(only_pool(d).status, PoolStatus::kHealthy);
  d.run("j1");
  // Nor does it where a report overtook that answer.
  auto answer = d.state_of_worker();
  answer.sequence = 7;
  auto report = answer;
  report.sequence = 8;
  d.report(report);
  d.after_ms(1'000);
  const std::int64_t answered_ms = d.now.mono_ms;
  d.see(answer);
  fails(answered_ms - 1);
  EXPECT_EQ(only_pool(d).status, PoolStatus::kHealthy);
  fails(answered_ms);
  EXPECT_EQ(only_pool(d).status, PoolStatus::kUnhealthy) << "of one moment the worse is believed";
}

// A report that was written later may arrive before the answer.
TEST(Pools, AnAnswerThatAReportOvertookShowsThatAPoolIsReached) {
  Driver d(CoreConfig{.retry = {.jitter = false}});
  one_way_fault(d);
  d.after_ms(15'000);
  auto answer = d.state_of_worker();
  answer.sequence = 7;
  auto report = answer;
  report.sequence = 8;
  d.report(report);
  d.see(answer);
  EXPECT_EQ(only_pool(d).status, PoolStatus::kHealthy);
}

}  // namespace
}  // namespace llorch::orchestratord::core
