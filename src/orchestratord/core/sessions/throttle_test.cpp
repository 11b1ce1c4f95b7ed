#include "orchestratord/core/sessions/throttle.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace llorch::orchestratord::core::sessions {
namespace {

std::int64_t retry_ms(const std::optional<base::Error>& error) {
  if (!error) return 0;
  EXPECT_EQ(base::info(error->code).http_status, 429);
  for (const auto& [key, value] : error->details) {
    if (key == "retry_after_ms") return std::get<std::int64_t>(value);
  }
  return -1;
}
std::string label(const std::optional<base::Error>& error) {
  for (const auto& [key, value] : error->details) {
    if (key == "policy_label") return std::get<std::string>(value);
  }
  return "";
}

// SYS-9.3.2: a tenant may have rates of its own, in both directions.
TEST(Throttle, TenantsHaveTheirOwnRates) {
  Throttle t(
      {.requests_per_second = 1, .burst_seconds = 1},
      {{.id = "fast", .token_file = {}, .throttle = {{.requests_per_second = 3, .burst_seconds = 1}}, .quotas = {}},
       {.id = "free", .token_file = {}, .throttle = {{.requests_per_second = 0}}, .quotas = {}},
       {.id = "plain", .token_file = {}, .throttle = {}, .quotas = {}}});
  const auto accepted = [&](const std::string& tenant) {
    int count = 0;
    while (count < 100 && !t.arrives(tenant, 1, 0)) ++count;
    return count;
  };
  EXPECT_EQ(accepted("fast"), 3);
  EXPECT_EQ(accepted("free"), 100);
  EXPECT_EQ(accepted("plain"), 1);
  EXPECT_EQ(accepted("localhost"), 1);
}

// A rate of its own changes that one alone, until 0 says that there is no other.
TEST(Throttle, WhatATenantLeavesOutIsThatOfEverybody) {
  Throttle t({.requests_per_second = 1, .tokens_per_second = 10, .burst_seconds = 2},
             {{.id = "own", .token_file = {}, .throttle = {{.requests_per_second = 3}}, .quotas = {}},
              {.id = "free", .token_file = {}, .throttle = {{.tokens_per_second = 0}}, .quotas = {}}});
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(t.arrives("own", 1, 0)) << "two seconds of three";
  EXPECT_EQ(label(t.arrives("own", 1, 0)), "throttle.requests_per_second");
  t.accepted("own", 20, 0);
  EXPECT_FALSE(t.arrives("own", 1, 2000));
  t.accepted("own", 20, 2000);
  EXPECT_EQ(label(t.arrives("own", 1, 2000)), "throttle.tokens_per_second");
  t.accepted("free", 1'000'000, 0);
  EXPECT_FALSE(t.arrives("free", 1'000'000, 0));
  EXPECT_FALSE(t.arrives("free", 1, 0));
  EXPECT_EQ(label(t.arrives("free", 1, 0)), "throttle.requests_per_second");
}

// ORCH-3006: nobody is throttled by default.
TEST(Throttle, IsPermissiveByDefault) {
  Throttle t(config::ThrottleConfig{});
  for (int i = 0; i < 100000; ++i) {
    ASSERT_FALSE(t.arrives("localhost", 1'000'000, 0));
    t.accepted("localhost", 1'000'000, 0);
  }
}

// ORCH-3006, ORCH-1012: so many requests at once, then so many per second; the refusal says when and why.
TEST(Throttle, LimitsRequestsPerCaller) {
  Throttle t({.requests_per_second = 0.5, .burst_seconds = 4});
  EXPECT_FALSE(t.arrives("token:aaaaaa", 1, 0));
  EXPECT_FALSE(t.arrives("token:aaaaaa", 1, 0));
  const auto refused = t.arrives("token:aaaaaa", 1, 500);
  EXPECT_EQ(retry_ms(refused), 1500);
  EXPECT_EQ(label(refused), "throttle.requests_per_second");
  EXPECT_FALSE(t.arrives("token:bbbbbb", 1, 500));  // another caller
  EXPECT_TRUE(t.arrives("token:aaaaaa", 1, 1999));  // a refusal costs nothing
  EXPECT_FALSE(t.arrives("token:aaaaaa", 1, 2000));
  EXPECT_TRUE(t.arrives("token:aaaaaa", 1, 2000));
}

// ORCH-3006: tokens count when the job is accepted, and a job larger than the burst needs a full bucket.
TEST(Throttle, LimitsTokensPerCaller) {
  Throttle t({.tokens_per_second = 100, .burst_seconds = 2});
  EXPECT_FALSE(t.arrives("a", 150, 0));
  EXPECT_FALSE(t.arrives("a", 150, 0));  // the first was refused by the queue
  t.accepted("a", 150, 0);
  const auto refused = t.arrives("a", 60, 0);
  EXPECT_EQ(retry_ms(refused), 100);
  EXPECT_EQ(label(refused), "throttle.tokens_per_second");
  EXPECT_FALSE(t.arrives("a", 60, 100));
  EXPECT_EQ(retry_ms(t.arrives("a", 1000, 100)), 1400);
  EXPECT_FALSE(t.arrives("a", 1000, 1500));
  t.accepted("a", 1000, 1500);
  EXPECT_EQ(retry_ms(t.arrives("a", 1, 1500)), 8010);
}

// ORCH-3006: over any stretch of time no more passes than the burst and the rate allow.
TEST(Throttle, NeverLetsMoreThrough) {
  rc::check([] {
    const int rate = *rc::gen::inRange(1, 20), burst_s = *rc::gen::inRange(1, 5);
    Throttle t({.requests_per_second = static_cast<double>(rate), .burst_seconds = static_cast<double>(burst_s)});
    std::int64_t now_ms = 0, passed = 0;
    const int calls = *rc::gen::inRange(1, 300);
    for (int i = 0; i < calls; ++i) {
      now_ms += *rc::gen::inRange(0, 100);
      const auto error = t.arrives("a", 1, now_ms);
      if (!error) ++passed;
      if (error) RC_ASSERT(!Throttle(t).arrives("a", 1, now_ms + retry_ms(error)));  // it passes when it was told to
      RC_ASSERT(passed * 1000 <= burst_s * rate * 1000 + now_ms * rate);
    }
  });
}

// What a tenant has taken is taken under other limits too; a rate that it did not have begins full.
TEST(Throttle, OtherLimitsRefillNothing) {
  Throttle t({.requests_per_second = 1, .burst_seconds = 10});
  for (int i = 0; i < 8; ++i) EXPECT_FALSE(t.arrives("a", 1, 0));
  t.set_limits({.requests_per_second = 2, .tokens_per_second = 10, .burst_seconds = 10}, {}, 1000);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(t.arrives("a", 100, 1000)) << "two were left, and one came at the old rate";
  EXPECT_EQ(label(t.arrives("a", 1, 1000)), "throttle.requests_per_second");
  EXPECT_EQ(retry_ms(t.arrives("a", 1, 1000)), 500) << "the new rate";
  t.set_limits({.requests_per_second = 2, .burst_seconds = 1},
               {{.id = "a", .token_file = {}, .throttle = {{.requests_per_second = 0}}, .quotas = {}}}, 60'000);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(t.arrives("a", 1, 60'000));
  EXPECT_FALSE(t.standing("a")) << "no limit";
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(t.arrives("b", 1, 60'000));
  t.set_limits({.requests_per_second = 2, .burst_seconds = 5}, {}, 60'000);
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(t.arrives("a", 1, 60'000));
  EXPECT_TRUE(t.arrives("a", 1, 60'000));
  EXPECT_TRUE(t.arrives("b", 1, 60'000)) << "a longer burst fills at the rate";
}

// A copy refuses as long as the table does, to the millisecond, and takes nothing.
TEST(Throttle, AStandingRefusesAsTheTableDoes) {
  Throttle t({.requests_per_second = 2, .burst_seconds = 1});
  EXPECT_FALSE(t.standing("a")) << "never came";
  EXPECT_FALSE(Throttle({}).standing("a"));
  EXPECT_FALSE(t.arrives("a", 1, 0));
  EXPECT_FALSE(t.arrives("a", 1, 0));
  const auto standing = t.standing("a");
  ASSERT_TRUE(standing);
  for (const std::int64_t now_ms : {0, 1, 499}) {
    EXPECT_EQ(standing->refusal(1, now_ms)->message, t.arrives("a", 1, now_ms)->message);
  }
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(standing->refusal(1, 500));
  EXPECT_FALSE(t.arrives("a", 1, 500));
}

}  // namespace
}  // namespace llorch::orchestratord::core::sessions
