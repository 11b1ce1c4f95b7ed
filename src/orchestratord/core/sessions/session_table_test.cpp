#include "orchestratord/core/sessions/session_table.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <limits>

namespace llorch::orchestratord::core::sessions {
namespace {

using base::ErrorCode;
using base::SessionId;

const SessionId kId("agent-1");

struct Fixture {
  explicit Fixture(config::SessionConfig config = {}) : table(std::move(config)) {}
  base::Time now{1'000'000, 1'700'000'000'000};
  base::SeededEntropy entropy{7};
  SessionTable table;

  void after_ms(std::int64_t ms) { now.mono_ms += ms, now.unix_ms += ms; }
  std::int64_t open(wire::CreateSessionRequest request) {
    request.session_id = kId.value;
    const auto opened = table.open(request, now, entropy);
    EXPECT_TRUE(opened);
    return opened ? opened->key : 0;
  }
  SessionTable::Admitted admit(const Demand& demand) {
    EXPECT_FALSE(table.refusal(kId, demand, now));
    return table.admit(kId, demand, now, entropy);
  }
  base::Error refused(const Demand& demand) {
    const auto error = table.refusal(kId, demand, now);
    EXPECT_TRUE(error);
    return error.value_or(base::Error{});
  }
  wire::SessionView view() { return table.view(*table.find(kId), now); }
};

template <class T>
T detail(const base::Error& error, std::string_view key) {
  for (const auto& [k, v] : error.details) {
    if (k == key && std::holds_alternative<T>(v)) return std::get<T>(v);
  }
  ADD_FAILURE() << key << " is missing";
  return {};
}

// ORCH-3021: made by the first job, ten minutes of disuse and eight turns at most.
TEST(SessionTable, IsMadeByItsFirstJobAndEndsByItself) {
  Fixture f;
  EXPECT_EQ(f.table.find(kId), nullptr);
  EXPECT_EQ(f.table.next_expiry_ms(), std::numeric_limits<std::int64_t>::max());
  const auto job = f.admit({.tokens_in = 3, .max_tokens = 5});
  EXPECT_EQ(f.view().turns, 1);
  EXPECT_EQ(f.view().turns_max, 8);
  f.after_ms(3'600'000);
  EXPECT_TRUE(f.table.expire(f.now.mono_ms).empty());  // its job runs
  f.table.settle(job, {.tokens_in = 3, .tokens_out = 2}, f.now);
  EXPECT_EQ(f.view().ttl_ms_remaining, 600'000);
  f.after_ms(599'999);
  EXPECT_TRUE(f.table.expire(f.now.mono_ms).empty());
  EXPECT_EQ(f.view().ttl_ms_remaining, 1);
  f.after_ms(1);
  EXPECT_EQ(f.table.expire(f.now.mono_ms), std::vector{job.key});
  EXPECT_EQ(f.table.find(kId), nullptr);
  EXPECT_NE(f.admit({}).key, job.key);  // the id again, another session
}

// ORCH-3021
TEST(SessionTable, TurnsEnd) {
  Fixture f({.turns_max = 2});
  f.table.settle(f.admit({}), {}, f.now);
  const auto withdrawn = f.admit({});
  f.table.withdraw(withdrawn);  // the store refused it: no turn
  f.table.settle(f.admit({}), {}, f.now);
  const base::Error error = f.refused({});
  EXPECT_EQ(error.code, ErrorCode::kBudgetExceeded);
  EXPECT_EQ(detail<std::string>(error, "budget"), "turns");
  EXPECT_EQ(detail<std::int64_t>(error, "limit"), 2);
}

// ORCH-3099, OC-CORE-1023: what two running jobs may take is gone for a third, and comes back as far as they left it.
TEST(SessionTable, ReservesWhatARunningJobMayTake) {
  Fixture f;
  f.open({.token_budget = 100});
  const Demand half{.tokens_in = 10, .max_tokens = 40};
  const auto a = f.admit(half), b = f.admit(half);
  const base::Error error = f.refused({.tokens_in = 1, .max_tokens = 1});
  EXPECT_EQ(error.code, ErrorCode::kBudgetExceeded);
  EXPECT_EQ(base::info(error.code).http_status, 400);
  EXPECT_EQ(detail<std::string>(error, "budget"), "tokens");
  EXPECT_EQ(detail<std::int64_t>(error, "remaining"), 0);
  EXPECT_EQ(detail<std::int64_t>(error, "reserved"), 100);
  EXPECT_EQ(detail<std::int64_t>(error, "requested"), 2);
  f.table.settle(a, {.tokens_in = 10, .tokens_out = 5}, f.now);
  EXPECT_EQ(f.view().tokens_used, 15);
  EXPECT_EQ(f.view().tokens_reserved, 50);
  EXPECT_EQ(f.view().tokens_remaining, 35);
  f.table.settle(b, {}, f.now);  // never ran
  EXPECT_EQ(f.view().tokens_remaining, 85);
  EXPECT_FALSE(f.table.refusal(kId, {.tokens_in = 45, .max_tokens = 40}, f.now));
  EXPECT_TRUE(f.table.refusal(kId, {.tokens_in = 45, .max_tokens = 41}, f.now));
}

// ORCH-3099: with a time budget a run may last as long as there is time left, and the next one starts with the rest.
TEST(SessionTable, TimeIsGivenOutAsALimitOfTheRun) {
  Fixture f;
  f.open({.time_budget_ms = 1000});
  const auto a = f.admit({.timeout_ms = 400});
  EXPECT_EQ(a.reservation.time_ms, 400);
  const auto b = f.admit({.timeout_ms = 300'000});
  EXPECT_EQ(b.reservation.time_ms, 600);
  EXPECT_EQ(detail<std::string>(f.refused({.timeout_ms = 1}), "budget"), "time");
  f.table.settle(a, {.decode_time_ms = 150}, f.now);
  EXPECT_EQ(f.view().remaining.time_budget_remaining_ms, 250);
  EXPECT_EQ(f.admit({.timeout_ms = 300'000}).reservation.time_ms, 250);
}

// ORCH-3099: cost is prompt and output tokens at the prices of the session's first day.
TEST(SessionTable, CostIsExact) {
  Fixture f({.cost_per_prompt_token = 0.000001, .cost_per_output_token = 0.000002});
  f.open({.cost_budget = 0.0005});
  const auto job = f.admit({.tokens_in = 100, .max_tokens = 200});
  const base::Error error = f.refused({.tokens_in = 1, .max_tokens = 1});
  EXPECT_EQ(detail<std::string>(error, "budget"), "cost");
  f.table.settle(job, {.tokens_in = 100, .tokens_out = 10}, f.now);
  EXPECT_DOUBLE_EQ(f.view().cost_used, 0.00012);
  EXPECT_DOUBLE_EQ(f.view().remaining.cost_budget_remaining.value_or(0), 0.00038);
}

// OC-CORE-1024, ORCH-3099: what a stream says is left counts down from what the job found.
TEST(SessionTable, SaysWhatIsLeftWhileAJobRuns) {
  Fixture f({.cost_per_output_token = 0.000002});
  f.open({.token_budget = 100, .time_budget_ms = 5000, .cost_budget = 0.001});
  const auto other = f.admit({.tokens_in = 5, .max_tokens = 15, .timeout_ms = 1000});
  const auto job = f.admit({.tokens_in = 10, .max_tokens = 20, .timeout_ms = 1000});
  const auto share = f.table.share(job, 10, true);
  ASSERT_TRUE(share);
  EXPECT_TRUE(share->kv_warmth);
  const wire::BudgetRemaining left = after(*share, 7, 300);
  EXPECT_EQ(left.tokens_budget_remaining, 100 - 20 - 17);
  EXPECT_EQ(left.time_budget_remaining_ms, 5000 - 1000 - 300);
  EXPECT_DOUBLE_EQ(left.cost_budget_remaining.value_or(0), 0.001 - 0.00003 - 0.000014);
  f.table.settle(other, {.tokens_in = 5, .tokens_out = 15, .decode_time_ms = 1000}, f.now);
  f.table.settle(job, {.tokens_in = 10, .tokens_out = 7, .decode_time_ms = 300}, f.now);
  EXPECT_EQ(f.table.remaining(*f.table.find(kId)), left);
}

// The same id with other budgets is another wish; with the same, or none, it is a touch.
TEST(SessionTable, OpeningTwiceTouches) {
  Fixture f;
  const std::int64_t key = f.open({.token_budget = 100});
  f.after_ms(500'000);
  EXPECT_EQ(f.open({.token_budget = 100}), key);
  EXPECT_EQ(f.open({}), key);
  EXPECT_EQ(f.view().ttl_ms_remaining, 600'000);
  const auto other = f.table.open({.session_id = kId.value, .token_budget = 200}, f.now, f.entropy);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::kConflict);
  const auto unnamed = f.table.open({}, f.now, f.entropy);
  ASSERT_TRUE(unnamed);
  EXPECT_TRUE(base::is_uuid(f.table.find(unnamed->key)->record.session_id.value));
}

// Sessions are bounded; the refusal says when there is room.
TEST(SessionTable, KeepsSoManyAndNoMore) {
  Fixture f({.count_max = 1});
  f.table.settle(f.admit({}), {}, f.now);
  f.after_ms(100'000);
  const auto error = f.table.refusal(SessionId("agent-2"), {}, f.now);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, ErrorCode::kQuotaExceeded);
  EXPECT_EQ(detail<std::string>(*error, "policy_label"), "quota.sessions");
  EXPECT_EQ(detail<std::int64_t>(*error, "retry_after_ms"), 500'000);
  EXPECT_FALSE(f.table.refusal(kId, {}, f.now));
  EXPECT_TRUE(f.table.close(f.table.find(kId)->record.key));
  EXPECT_FALSE(f.table.refusal(SessionId("agent-2"), {}, f.now));
}

// One tenant's sessions leave the others, and the operator, their places.
TEST(SessionTable, EachTenantHasAnEqualShare) {
  Fixture f;
  SessionTable table({.count_max = 9}, 2);
  const auto open = [&](const std::string& id) {
    f.after_ms(1000);
    return table.open({.session_id = id}, f.now, f.entropy);
  };
  for (const std::string tenant : {"", "red:", "blue:"}) {
    for (const std::string id : {"a", "b", "c"}) ASSERT_TRUE(open(tenant + id)) << tenant << id;
    const auto refused = open(tenant + "d");
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kQuotaExceeded);
    EXPECT_EQ(detail<std::int64_t>(refused.error(), "limit"), 3);
    EXPECT_EQ(detail<std::int64_t>(refused.error(), "retry_after_ms"), 597'000) << "when its own oldest one ends";
    EXPECT_TRUE(open(tenant + "b")) << "one that is there is no new one";
    EXPECT_TRUE(table.close(table.find(SessionId(tenant + "c"))->record.key));
    EXPECT_TRUE(open(tenant + "d"));
  }
  const std::vector<std::int64_t> over = table.expire(f.now.mono_ms + 600'000);
  EXPECT_EQ(over.size(), 9u);
  EXPECT_TRUE(open("red:e"));
}

// A job of a session that is over ends without a trace in the session that has its id now.
TEST(SessionTable, AnEndAfterTheEndChargesNobody) {
  Fixture f;
  const auto old_job = f.admit({.max_tokens = 10});
  EXPECT_TRUE(f.table.close(old_job.key));
  EXPECT_FALSE(f.table.close(old_job.key));
  f.admit({.max_tokens = 10});
  f.table.settle(old_job, {.tokens_out = 10}, f.now);
  EXPECT_EQ(f.view().tokens_used, 0);
  EXPECT_EQ(f.view().jobs_live, 1);
  EXPECT_FALSE(f.table.share(old_job, 0, false));
  EXPECT_FALSE(f.table.readmit(old_job.key, {}));
}

// A restart refills nothing: use comes back, live jobs reserve again, age goes on.
TEST(SessionTable, RestoresUseReservationsAndAge) {
  Fixture f;
  const auto row = [&](std::int64_t key, std::int64_t idle_ms) {
    return RestoredSession{.session = {.key = key,
                                       .session_id = kId,
                                       .created_unix_ms = f.now.unix_ms - 1'000'000,
                                       .token_budget = 100,
                                       .time_budget_ms = 1000},
                           .use = {.turns = 3, .tokens_in = 20, .tokens_out = 40, .decode_time_ms = 1000},
                           .last_activity_unix_ms = f.now.unix_ms - idle_ms};
  };
  EXPECT_EQ(f.table.restore({row(4, 900'000), row(5, 200'000)}, f.now), std::vector<std::int64_t>{4});
  const auto job = f.table.readmit(5, {.tokens_in = 10, .max_tokens = 20, .timeout_ms = 500});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->reservation.time_ms, 1);  // accepted is accepted
  EXPECT_EQ(f.view().turns, 3);
  EXPECT_EQ(f.view().tokens_remaining, 10);
  f.table.settle(*job, {.tokens_in = 10}, f.now);
  Fixture g;
  g.table.restore({row(5, 200'000)}, g.now);
  EXPECT_EQ(g.view().ttl_ms_remaining, 400'000);
  EXPECT_EQ(g.table.next_expiry_ms(), g.now.mono_ms + 400'000);
}

// ORCH-3099, OC-CORE-1023: whatever is admitted, withdrawn and settled in whatever order, used + reserved <= budget, and
// reservations are those of the live jobs.
TEST(SessionTable, NobodyOverspends) {
  rc::check([] {
    Fixture f({.turns_max = 1000, .cost_per_prompt_token = 0.1, .cost_per_output_token = 0.3});
    f.open({.token_budget = *rc::gen::inRange(1, 500),
            .time_budget_ms = *rc::gen::inRange(1, 500),
            .cost_budget = *rc::gen::inRange(1, 100)});
    struct Live {
      SessionTable::Admitted admitted;
      Demand demand;
    };
    std::vector<Live> live;
    const int steps = *rc::gen::inRange(1, 60);
    for (int i = 0; i < steps; ++i) {
      if (live.empty() || *rc::gen::inRange(0, 2) == 0) {
        const Demand d{.tokens_in = *rc::gen::inRange(1, 50),
                       .max_tokens = *rc::gen::inRange(1, 50),
                       .timeout_ms = *rc::gen::inRange(1, 300)};
        if (!f.table.refusal(kId, d, f.now)) live.push_back({f.table.admit(kId, d, f.now, f.entropy), d});
      } else {
        const auto which = static_cast<std::size_t>(*rc::gen::inRange(0, static_cast<int>(live.size())));
        const Live job = live[which];
        live.erase(live.begin() + static_cast<std::ptrdiff_t>(which));
        if (*rc::gen::inRange(0, 4) == 0) {
          f.table.withdraw(job.admitted);
        } else {
          const auto time_max = static_cast<int>(*job.admitted.reservation.time_ms);
          f.table.settle(job.admitted,
                         {.tokens_in = job.demand.tokens_in,
                          .tokens_out = *rc::gen::inRange(0, static_cast<int>(job.demand.max_tokens) + 1),
                          .decode_time_ms = *rc::gen::inRange(0, time_max + 1)},
                         f.now);
        }
      }
      std::int64_t tokens = 0;
      for (const Live& job : live) tokens += job.admitted.reservation.tokens;
      const wire::SessionView v = f.view();
      RC_ASSERT(v.tokens_reserved == tokens);
      RC_ASSERT(v.jobs_live == static_cast<std::int64_t>(live.size()));
      RC_ASSERT(v.tokens_used + v.tokens_reserved + *v.tokens_remaining == *v.token_budget);
      RC_ASSERT(v.time_used_ms + *v.remaining.time_budget_remaining_ms <= *v.time_budget_ms);
      RC_ASSERT(v.cost_used + *v.remaining.cost_budget_remaining <= *v.cost_budget + 1e-9);
    }
  });
}

}  // namespace
}  // namespace llorch::orchestratord::core::sessions
