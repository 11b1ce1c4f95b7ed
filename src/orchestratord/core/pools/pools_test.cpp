#include "orchestratord/core/testing/pools.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace llorch::orchestratord::core {
namespace {

using base::ErrorCode;
using wire::PoolStatus;

// What a pool says next may need to know where it is: that is known before it is answered.
TEST(Pools, APoolIsAnsweredWhenItsAddressIsKnown) {
  Driver d;
  const auto& commands = d.send(PoolSeen{.request = RequestId{7}, .state = d.pool_state(), .asked_endpoint = {}});
  const auto at = [&](auto is) { return std::find_if(commands.begin(), commands.end(), is) - commands.begin(); };
  const auto remembered = at([](const Command& c) { return std::holds_alternative<RememberPool>(c); });
  const auto answered = at([](const Command& c) { return std::holds_alternative<AnswerPool>(c); });
  EXPECT_LT(remembered, answered);
  EXPECT_LT(answered, std::ssize(commands));
}

// SYS-8.3.2, SYS-6.2.4, SYS-5.2.2#missing: three missed heartbeats make a pool unhealthy: no new work; its return makes it healthy again.
TEST(Pools, MissedHeartbeats) {
  Driver d;
  d.add_worker();
  d.after_ms(22'500);
  EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");  // SYS-7.1.1: stale state is refreshed
  EXPECT_EQ(pool_of(d).status, PoolStatus::kHealthy);
  d.after_ms(22'499);
  EXPECT_EQ(pool_of(d).status, PoolStatus::kHealthy);
  d.after_ms(1);
  EXPECT_EQ(pool_of(d).status, PoolStatus::kUnhealthy);
  d.submit("j1");
  EXPECT_TRUE(d.none<Execute>());
  EXPECT_EQ(d.query("j1").reason->code, "WAITING_FOR_POOL");
  d.add_worker();
  EXPECT_EQ(d.only<Execute>().job_id, base::JobId("j1"));
}

// POOLREG-19040: a pool that stays away is dropped after its grace.
TEST(Pools, ForgottenAfterTheGrace) {
  Driver d;
  d.add_worker();
  for (int i = 0; i < 30; ++i) d.after_ms(15'000);
  d.send(QueryPools{{1}});
  EXPECT_TRUE(d.only<AnswerQueryPools>().pools.empty());
}

// A pool was removed while an answer of it was on its way, which brought it back to the core and not to the shell, where only its
// own report counts: calls went nowhere for ever (simulator, seed 3000014545).
TEST(Pools, APoolThatRecoversTellsItsAddressAgain) {
  Driver d;
  d.send(PoolSeen{.request = {}, .state = d.pool_state(), .asked_endpoint = "http://pool-1"});
  EXPECT_EQ(d.only<RememberPool>().endpoint, "http://pool-1");
  d.cannot_reach("http://pool-1");
  d.send(PoolSeen{RequestId{5}, d.pool_state(), {}});
  EXPECT_EQ(d.only<RememberPool>().endpoint, "http://pool-1");
  d.send(PoolSeen{RequestId{6}, d.pool_state(), {}});
  EXPECT_TRUE(d.none<RememberPool>()) << "once is enough";
}

// The same without a word of anybody that the pool was out of reach (simulator, seed 8000052513).
TEST(Pools, APoolThatAnAnswerListedTellsItsAddressWithItsFirstReport) {
  Driver d;
  d.send(PoolSeen{.request = {}, .state = d.pool_state(), .asked_endpoint = "http://pool-1"});
  EXPECT_EQ(d.only<RememberPool>().endpoint, "http://pool-1");
  d.send(PoolSeen{RequestId{5}, d.pool_state(), {}});
  EXPECT_EQ(d.only<RememberPool>().endpoint, "http://pool-1");
  EXPECT_TRUE(d.none<Log>()) << "it is no news to an operator";
  d.send(PoolSeen{RequestId{6}, d.pool_state(), {}});
  EXPECT_TRUE(d.none<RememberPool>()) << "once is enough";
}

// SYS-5.2.1#unique: two machines with one credential and one advertised address: the one that was replaced hears of it.
TEST(Pools, AProcessThatGoesOnBesideItsSuccessorIsToldOfTheConflict) {
  Driver d;
  d.report(d.pool_state());
  auto copy = d.pool_state();
  copy.boot_id = "boot-2";
  d.after_ms(1'000);
  d.report(copy);
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  d.after_ms(15'000);
  d.report(d.pool_state());
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms) << "it may have been late on its way";
  EXPECT_TRUE(d.none<Log>());
  d.after_ms(20'000);
  copy.timestamp_ms = d.now.unix_ms;
  d.report(copy);
  d.report(d.pool_state());
  const auto refused = d.only<AnswerPool>().heartbeat_interval_ms;
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_NE(refused.error().message.find("Another process has registered with this pool's credential"),
            std::string::npos);
  EXPECT_EQ(d.only<Log>().event, "pool.conflict");
  EXPECT_TRUE(d.none<AskPoolState>()) << "at its own address it is asked itself, registers again, and so on";
  d.see(d.pool_state());  // it is the old process that answers there
  EXPECT_TRUE(d.none<AskPoolState>() && d.none<Log>()) << d.dump();
  EXPECT_EQ(pool_of(d).status, PoolStatus::kHealthy);
}

// SYS-5.2.1#unique: a conflicting registration is refused and its holder asked; deregistration removes the pool.
TEST(Pools, ConflictAndDeregistration) {
  Driver d;
  d.see(d.pool_state());
  EXPECT_EQ(d.only<RememberPool>().endpoint, "http://pool-1");
  auto other = d.pool_state();
  other.endpoint = "http://elsewhere";
  other.boot_id = "boot-2";
  d.send(PoolSeen{RequestId{5}, other, {}});
  EXPECT_EQ(d.only<AnswerPool>().heartbeat_interval_ms.error().code, ErrorCode::kConflict);
  EXPECT_EQ(d.only<AskPoolState>().endpoint, "http://pool-1");
  d.cannot_reach("http://pool-1");
  d.send(PoolSeen{RequestId{6}, other, {}});
  EXPECT_EQ(d.only<AnswerPool>().heartbeat_interval_ms.value(), 15'000);
  d.send(PoolDeregistered{RequestId{7}, base::PoolId("pool-1")});
  EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
  EXPECT_EQ(d.all<ForgetPool>().size(), 1u);
  d.send(PoolDeregistered{RequestId{8}, base::PoolId("pool-1")});
  EXPECT_EQ(d.only<AnswerPool>().heartbeat_interval_ms.error().code, ErrorCode::kPoolNotFound);
}

// A machine that was cloned registers again and again, and each time is told why it may not.
TEST(Pools, AConflictThatGoesOnDoesNotFillTheLog) {
  Driver d;
  d.see(d.pool_state());
  auto other = d.pool_state();
  other.endpoint = "http://elsewhere";
  other.boot_id = "boot-2";
  const auto claim = [&] {
    d.send(PoolSeen{RequestId{++d.requests}, other, {}});
    EXPECT_EQ(d.only<AnswerPool>().heartbeat_interval_ms.error().code, ErrorCode::kConflict);
    EXPECT_EQ(d.all<AskPoolState>().size(), 1u);
    return d.all<Log>();
  };
  std::size_t lines = 0;
  for (int i = 0; i < 500; ++i) lines += claim().size();
  EXPECT_EQ(lines, 10u);
  d.after_ms(10'000);
  const auto next = claim();
  ASSERT_EQ(next.size(), 1u);
  const auto& fields = next.front().fields;
  const auto left_out =
      std::ranges::find_if(fields, [](const base::LogField& field) { return field.name == "left_out_before"; });
  ASSERT_NE(left_out, fields.end());
  EXPECT_EQ(std::get<std::int64_t>(left_out->value), 490);
}

// A node says with every report that it has begun anew, with other workers than before.
TEST(Pools, ANodeThatComesAgainAndAgainDoesNotFillTheLog) {
  Driver d;
  std::map<std::string, std::int64_t> lines, left_out;
  const auto tell = [&](int i) {
    wire::PoolState state = d.state_of_worker("w" + std::to_string(i));
    state.boot_id = "boot-" + std::to_string(i);
    d.report(state);
    EXPECT_TRUE(d.only<AnswerPool>().heartbeat_interval_ms);
    for (const Log& log : d.all<Log>()) {
      ++lines[std::string(log.event)];
      for (const base::LogField& field : log.fields) {
        if (field.name == "left_out_before") left_out[std::string(log.event)] = std::get<std::int64_t>(field.value);
      }
    }
  };
  for (int i = 0; i < 500; ++i) {
    tell(i);
    d.after_ms(1);
  }
  for (const char* event : {"pool.registered", "worker.ready", "worker.gone"}) EXPECT_EQ(lines[event], 100) << event;
  EXPECT_TRUE(left_out.empty());
  d.see(d.pool_state("pool-2"));
  EXPECT_EQ(std::ranges::count(d.all<Log>(), "pool.registered", &Log::event), 1)
      << "another node does not lose its lines";
  d.after_ms(10'000);
  tell(500);
  EXPECT_EQ(lines["pool.registered"], 101);
  EXPECT_EQ(left_out["pool.registered"], 400);
}

// Another boot means the old workers are gone; their jobs are replayed.
TEST(Pools, ARestartedPoolHasLostItsWorkers) {
  Driver d(no_jitter());
  d.add_worker();
  const ExecutionId x = d.run("j1");
  auto s = d.pool_state();
  s.boot_id = "boot-2";
  d.after_ms(10);
  d.see(s);
  EXPECT_TRUE(d.none<Finish>());
  d.lose(x);
  d.after_ms(1000);
  EXPECT_EQ(d.all<StartWorker>().size(), 1u);
}

// OC-CORE-1010, ORCH-1004: only Ready workers get work; a full one shows as busy.
TEST(Pools, OnlyReadyWorkersGetWork) {
  for (const auto status : {wire::WorkerStatus::kStarting, wire::WorkerStatus::kDraining}) {
    Driver d;
    auto s = d.pool_state();
    s.workers = {Driver::worker("w1")};
    s.workers[0].status = status;
    s.gpus[0].vram_available_bytes = 0;
    d.see(s);
    d.submit("j1");
    EXPECT_TRUE(d.none<Execute>());
  }
  Driver d;
  d.add_worker();
  d.run("j1");
  EXPECT_EQ(pool_of(d).workers[0].status, wire::WorkerStatus::kBusy);
  d.send(QueryGauges{{1}});
  EXPECT_EQ(d.only<AnswerQueryGauges>().gauges.executions_active, 1);
}

// Memory for images is taken when a worker starts: one that was started for fewer tokens than jobs may bring gets none.
TEST(Pools, AWorkerForFewerImageTokensIsNotUsed) {
  for (const std::int64_t tokens : {99, 100}) {
    CoreConfig config;
    config.worker_image_tokens_max = 200;
    Driver d(config);
    auto s = d.pool_state();
    s.workers = {Driver::worker("w1")};
    s.workers[0].image_tokens_max = tokens;
    d.see(s);
    jobs::JobSpec spec = Driver::spec("j1", {});
    spec.model.images = wire::ModelImages{.tokens_max = 100};
    d.send(Submit{{1}, spec});
    EXPECT_EQ(d.all<Execute>().size(), tokens == 100 ? 1U : 0U);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::core
