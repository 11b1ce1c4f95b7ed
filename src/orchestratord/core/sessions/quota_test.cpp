#include "orchestratord/core/sessions/quota.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace llorch::orchestratord::core::sessions {
namespace {

using base::ErrorCode;

constexpr std::int64_t kDayMs = 86'400'000;
constexpr std::int64_t kNoon = 20'000 * kDayMs + kDayMs / 2;

std::int64_t number(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::int64_t>(value);
  }
  return -1;
}

QuotaTable daily(std::int64_t tokens) { return {{.token_budget_daily = tokens}, {}}; }

// SYS-9.3.2: nobody is held by default.
TEST(Quota, IsPermissiveByDefault) {
  QuotaTable q({}, {});
  for (int i = 0; i < 1000; ++i) {
    ASSERT_FALSE(q.refusal("localhost", 1'000'000'000, kNoon));
    q.reserve("localhost", 1'000'000'000);
    ASSERT_TRUE(q.may_run("localhost"));
    q.began("localhost");
  }
}

// SYS-9.3.2: so many jobs at a time; a tenant of its own has its own limit, and nobody's jobs count for another.
TEST(Quota, BoundsJobsThatRun) {
  QuotaTable q({.max_concurrent_jobs = 1}, {{.id = "a", .token_file = {}, .throttle = {}, .quotas = {{2, 0}}}});
  EXPECT_EQ(q.concurrent_max("a"), 2);
  q.began("a");
  EXPECT_TRUE(q.may_run("a"));
  q.began("a");
  EXPECT_FALSE(q.may_run("a"));
  EXPECT_TRUE(q.may_run("localhost"));
  q.began("localhost");
  EXPECT_FALSE(q.may_run("localhost"));
  q.ended("a");
  EXPECT_TRUE(q.may_run("a"));
}

// What was accepted of a tenant that is thrown out goes on, and not without limits.
TEST(Quota, WhoIsNoTenantAnyMoreRunsOneJobAtATime) {
  const std::vector<config::TenantConfig> tenants{
      {.id = "a", .token_file = {}, .throttle = {}, .quotas = {}},
      {.id = "b", .token_file = {}, .throttle = {}, .quotas = {{.max_concurrent_jobs = 4}}}};
  QuotaTable q({.token_budget_daily = 100}, tenants,
               config::QuotaConfig{.max_concurrent_jobs = 1, .token_budget_daily = 100});
  EXPECT_TRUE(is_former_tenant("gone", tenants));
  EXPECT_EQ(q.concurrent_max("gone"), 1);
  q.began("gone");
  EXPECT_FALSE(q.may_run("gone"));
  EXPECT_TRUE(q.refusal("gone", 101, kNoon));
  for (const char* account : {"a", "b", "localhost", "nobody", "", "token:0123abcd"}) {
    EXPECT_FALSE(is_former_tenant(account, tenants)) << account;
    EXPECT_EQ(q.concurrent_max(account), std::string_view(account) == "b" ? 4 : 0) << account;
  }
}

// Other limits find what was used, is reserved and runs; what runs above a lower one runs on.
TEST(Quota, OtherLimitsForgetNothing) {
  QuotaTable q({}, {});
  q.reserve("a", 60);
  q.settle("a", {.reserved = 60, .used = 50, .ended_unix_ms = kNoon});
  q.reserve("a", 20);
  for (int i = 0; i < 3; ++i) q.began("a");
  q.set_limits({.max_concurrent_jobs = 2, .token_budget_daily = 100}, {}, std::nullopt);
  EXPECT_TRUE(q.refusal("a", 31, kNoon));
  EXPECT_FALSE(q.refusal("a", 30, kNoon));
  EXPECT_EQ(q.running_max("a"), 3);
  q.ended("a");
  EXPECT_FALSE(q.may_run("a"));
  EXPECT_EQ(q.running_max("a"), 2);
  q.ended("a");
  EXPECT_TRUE(q.may_run("a"));
  q.set_limits({}, {}, std::nullopt);
  EXPECT_FALSE(q.standing("a"));
  q.set_limits({.token_budget_daily = 100}, {}, std::nullopt);
  EXPECT_TRUE(q.refusal("a", 31, kNoon)) << "what was used while there was no limit counts";
}

// A limit of its own changes that one alone: the other stays that of everybody, until 0 says that there is none.
TEST(Quota, WhatATenantLeavesOutIsThatOfEverybody) {
  QuotaTable q({.max_concurrent_jobs = 1, .token_budget_daily = 100},
               {{.id = "jobs", .token_file = {}, .throttle = {}, .quotas = {{.max_concurrent_jobs = 2}}},
                {.id = "tokens", .token_file = {}, .throttle = {}, .quotas = {{.token_budget_daily = 200}}},
                {.id = "free", .token_file = {}, .throttle = {}, .quotas = {{0, 0}}},
                {.id = "empty", .token_file = {}, .throttle = {}, .quotas = {{}}}});
  EXPECT_EQ(q.concurrent_max("jobs"), 2);
  EXPECT_TRUE(q.refusal("jobs", 101, kNoon));
  EXPECT_EQ(q.concurrent_max("tokens"), 1);
  EXPECT_FALSE(q.refusal("tokens", 200, kNoon));
  EXPECT_TRUE(q.refusal("tokens", 201, kNoon));
  EXPECT_EQ(q.concurrent_max("free"), 0);
  EXPECT_FALSE(q.refusal("free", 1'000'000, kNoon));
  EXPECT_EQ(q.concurrent_max("empty"), 1);
  EXPECT_TRUE(q.refusal("empty", 101, kNoon));
}

// SYS-9.3.2, ORCH-1012: what is used and what is reserved count; the refusal says both, and when to come back.
TEST(Quota, BoundsTokensOfADay) {
  QuotaTable q = daily(100);
  EXPECT_FALSE(q.refusal("a", 100, kNoon));
  q.reserve("a", 60);
  auto refused = q.refusal("a", 50, kNoon);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kQuotaExceeded);
  EXPECT_EQ(number(*refused, "tokens_reserved"), 60);
  EXPECT_EQ(number(*refused, "retry_after_ms"), 1000);  // the job that runs may leave enough
  EXPECT_FALSE(q.refusal("b", 100, kNoon));
  q.settle("a", {.reserved = 60, .used = 55, .ended_unix_ms = kNoon});
  EXPECT_FALSE(q.refusal("a", 45, kNoon));
  refused = q.refusal("a", 46, kNoon);
  ASSERT_TRUE(refused);
  EXPECT_EQ(number(*refused, "tokens_used_today"), 55);
  EXPECT_EQ(number(*refused, "retry_after_ms"), kDayMs / 2);
  EXPECT_EQ(base::info(refused->code).http_status, 429);
  EXPECT_FALSE(q.refusal("a", 100, kNoon + kDayMs / 2)) << "a new day";
  // No day is long enough: trying again is of no use.
  refused = q.refusal("a", 101, kNoon);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, ErrorCode::kBudgetExceeded);
  EXPECT_FALSE(base::info(refused->code).retriable);
}

// What the table says that is used, nothing being reserved.
std::int64_t used_at(const QuotaTable& q, std::int64_t budget, std::int64_t unix_ms) {
  const auto refused = q.refusal("a", budget, unix_ms);
  return refused ? number(*refused, "tokens_used_today") : 0;
}
void take(QuotaTable& q, std::int64_t tokens, std::int64_t unix_ms) {
  q.reserve("a", tokens);
  q.settle("a", {.reserved = tokens, .used = tokens, .ended_unix_ms = unix_ms});
}

// SYS-9.3.2: over midnight, and with a clock that is set back a little behind it. The day that began stays open, and a job that ends
// then is charged to it: if it were charged to the day that is over, or to none, a tenant could take it twice.
TEST(Quota, AStepBackOverMidnightRefillsNothing) {
  constexpr std::int64_t kMidnight = kNoon + kDayMs / 2;
  QuotaTable q = daily(100);
  take(q, 90, kMidnight - 5);
  take(q, 80, kMidnight + 5);
  EXPECT_FALSE(q.refusal("a", 20, kMidnight + 5));
  const auto refused = q.refusal("a", 21, kMidnight - 5);
  ASSERT_TRUE(refused);
  EXPECT_EQ(number(*refused, "tokens_used_today"), 80);
  EXPECT_EQ(number(*refused, "retry_after_ms"), kDayMs);
  take(q, 15, kMidnight - 5);
  EXPECT_TRUE(q.refusal("a", 6, kMidnight - 5));
  EXPECT_TRUE(q.refusal("a", 6, kMidnight + 5));
  EXPECT_FALSE(q.refusal("a", 5, kMidnight + 5));
  EXPECT_FALSE(q.refusal("a", 100, kMidnight + kDayMs)) << "a new day";
}

// SYS-9.3.2: a clock that jumps ahead and is corrected. The jobs that end behind that are charged, and nobody waits for a day that is far.
TEST(Quota, AJumpAheadThatIsCorrectedEndsNoCharging) {
  for (const std::int64_t days : {2, 400, 40'000}) {
    QuotaTable q = daily(100);
    take(q, 60, kNoon);
    take(q, 100, kNoon + days * kDayMs);
    EXPECT_FALSE(q.refusal("a", 40, kNoon)) << "the day goes on as it was";
    EXPECT_TRUE(q.refusal("a", 41, kNoon));
    take(q, 40, kNoon);
    const auto refused = q.refusal("a", 1, kNoon);
    ASSERT_TRUE(refused) << "40 of 100 were charged";
    EXPECT_EQ(number(*refused, "retry_after_ms"), kDayMs / 2);
    EXPECT_FALSE(q.refusal("a", 100, kNoon + kDayMs)) << "a new day";
    take(q, 100, kNoon + kDayMs);
    EXPECT_TRUE(q.refusal("a", 1, kNoon + kDayMs));
  }
}

// Nor does a jump back and ahead again refill a day, nor one over days that are forgotten.
TEST(Quota, AJumpBackRefillsNothing) {
  QuotaTable q = daily(100);
  take(q, 90, kNoon);
  EXPECT_TRUE(q.refusal("a", 11, kNoon - 5 * kDayMs));
  take(q, 10, kNoon - 5 * kDayMs);
  EXPECT_TRUE(q.refusal("a", 1, kNoon - 5 * kDayMs));
  EXPECT_TRUE(q.refusal("a", 11, kNoon));
  take(q, 10, kNoon + 10 * kDayMs);
  take(q, 20, kNoon + 20 * kDayMs);
  EXPECT_EQ(used_at(q, 100, kNoon), 20);
}

// However the clock goes: a job that ends is charged where the next one is asked about, and nobody is told to wait for more than a day.
TEST(Quota, EveryJobIsChargedWhateverTheClockDoes) {
  EXPECT_TRUE(rc::check("used grows by each job", [] {
    constexpr std::int64_t kBudget = 1 << 20;
    QuotaTable q = daily(kBudget);
    std::int64_t now = kNoon;
    const auto steps = *rc::gen::inRange(1, 60);
    for (int i = 0; i < steps; ++i) {
      now += *rc::gen::inRange<std::int64_t>(-6, 7) * (kDayMs / 2);
      const auto tokens = *rc::gen::inRange<std::int64_t>(0, 100);
      const std::int64_t before = used_at(q, kBudget, now);
      take(q, tokens, now);
      RC_ASSERT(used_at(q, kBudget, now) == before + tokens);
      if (const auto refused = q.refusal("a", kBudget, now)) {
        RC_ASSERT(number(*refused, "retry_after_ms") >= 1);
        RC_ASSERT(number(*refused, "retry_after_ms") <= kDayMs);
      }
    }
  }));
}

// SYS-9.3.2: a restart refills nothing.
TEST(Quota, GoesOnAfterARestart) {
  QuotaTable q = daily(100);
  q.restore({{"a", 70}}, kNoon);
  q.reserve("a", 20);
  EXPECT_TRUE(q.refusal("a", 11, kNoon));
  EXPECT_FALSE(q.refusal("a", 10, kNoon));
  EXPECT_FALSE(q.refusal("a", 80, kNoon + kDayMs)) << "but for what runs, a new day is a new budget";
}

// Whatever runs at once: used + reserved never exceeds the budget of the day.
TEST(Quota, NobodyOverspends) {
  EXPECT_TRUE(rc::check("used + reserved <= budget", [] {
    const auto budget = *rc::gen::inRange<std::int64_t>(1, 200);
    QuotaTable q = daily(budget);
    std::vector<std::int64_t> live;
    std::int64_t used = 0, reserved = 0;
    const auto steps = *rc::gen::inRange(1, 80);
    for (int i = 0; i < steps; ++i) {
      if (live.empty() || *rc::gen::arbitrary<bool>()) {
        const auto tokens = *rc::gen::inRange<std::int64_t>(1, 60);
        const bool fits = used + reserved + tokens <= budget;
        RC_ASSERT(!q.refusal("a", tokens, kNoon) == fits);
        if (!fits) continue;
        q.reserve("a", tokens);
        live.push_back(tokens);
        reserved += tokens;
      } else {
        const std::int64_t tokens = live.back();
        live.pop_back();
        const auto took = *rc::gen::inRange<std::int64_t>(0, tokens + 1);
        q.settle("a", {.reserved = tokens, .used = took, .ended_unix_ms = kNoon});
        reserved -= tokens;
        used += took;
      }
      RC_ASSERT(q.reserved("a") == reserved);
      RC_ASSERT(used + reserved <= budget);
    }
  }));
}

// A copy says what the table says, with the same numbers, as long as nothing changes.
TEST(Quota, AStandingRefusesAsTheTableDoes) {
  QuotaTable q = daily(100);
  EXPECT_FALSE(QuotaTable({}, {}).standing("a")) << "no budget, nothing to look at";
  q.reserve("a", 60);
  const auto standing = q.standing("a");
  ASSERT_TRUE(standing);
  EXPECT_FALSE(standing->refusal(40, kNoon));
  const auto early = standing->refusal(41, kNoon), final = q.refusal("a", 41, kNoon);
  ASSERT_TRUE(early && final);
  EXPECT_EQ(early->message, final->message);
  EXPECT_EQ(early->details, final->details);
  q.withdraw("a", 60);
  EXPECT_FALSE(q.standing("a")->refusal(41, kNoon));
}

// What is left is what just passes, today and on the day after.
TEST(Quota, AStandingSaysWhatIsLeft) {
  constexpr std::int64_t kNextNoon = kNoon + 24LL * 3600 * 1000;
  QuotaTable q = daily(100);
  EXPECT_EQ(q.standing("a")->left(kNoon), 100) << "of one that never came";
  q.reserve("a", 90);
  q.settle("a", {.reserved = 60, .used = 50, .ended_unix_ms = kNoon});
  const auto standing = *q.standing("a");
  EXPECT_EQ(standing.left(kNoon), 20);
  EXPECT_FALSE(standing.refusal(20, kNoon));
  EXPECT_TRUE(standing.refusal(21, kNoon));
  EXPECT_EQ(standing.left(kNextNoon), 70) << "what is reserved stays so";
  q.reserve("a", 1000);  // as after a restart with a smaller budget
  EXPECT_EQ(q.standing("a")->left(kNoon), 0);
}

// With bounds alone nothing is refused that might pass, nor with a code that might be another.
TEST(Quota, AStandingLeavesOpenWhatBoundsLeaveOpen) {
  QuotaTable q = daily(100);
  q.reserve("a", 60);
  const auto standing = *q.standing("a");
  EXPECT_FALSE(standing.refusal({.at_least = 40, .at_most = 90}, kNoon));
  EXPECT_EQ(standing.refusal({.at_least = 41, .at_most = 100}, kNoon)->code, ErrorCode::kQuotaExceeded);
  EXPECT_FALSE(standing.refusal({.at_least = 41, .at_most = 101}, kNoon)) << "may be BUDGET_EXCEEDED";
  EXPECT_EQ(standing.refusal({.at_least = 101, .at_most = 200}, kNoon)->code, ErrorCode::kBudgetExceeded);
}

}  // namespace
}  // namespace llorch::orchestratord::core::sessions
