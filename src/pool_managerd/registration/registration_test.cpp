#include "pool_managerd/registration/registration.h"

#include <gtest/gtest.h>

namespace llorch::pool_managerd::registration {
namespace {

using base::ErrorCode;

struct Harness {
  base::ManualClock clock;
  Registration core{RegistrationConfig{}};
  std::vector<Command> commands;

  void run(const Event& event) {
    commands.clear();
    core.step(event, clock.now(), commands);
  }
  void pass(std::int64_t ms) {
    clock.advance_ms(ms);
    run(Tick{});
  }
  template <class T>
  const T* find() const {
    for (const auto& c : commands) {
      if (const auto* found = std::get_if<T>(&c)) return found;
    }
    return nullptr;
  }
  void connect(std::int64_t interval_ms = 15'000) {
    run(Started{});
    ASSERT_NE(find<SendRegister>(), nullptr);
    run(RegisterEnded{wire::RegisterReply{"pool-1", "registered", interval_ms}});
    ASSERT_TRUE(core.connected());
  }
  static base::Error error(ErrorCode code) { return base::Error{code, "why", {}}; }
  static Queue failed(const std::string& id) {
    wire::WorkerFailed report;
    report.worker_id = id;
    return Queue{report};
  }
  std::string sent_id() const {
    const auto* s = find<SendReport>();
    return s == nullptr ? "" : std::get<wire::WorkerFailed>(s->report).worker_id;
  }
};

// POOLREG-18010: registration is tried after 1, 2, 4, ... 30 s, for ever.
TEST(Registration, BacksOff) {
  Harness h;
  h.run(Started{});
  for (const std::int64_t wait : {1'000, 2'000, 4'000, 8'000, 16'000, 30'000, 30'000}) {
    ASSERT_NE(h.find<SendRegister>(), nullptr);
    EXPECT_FALSE(h.core.next_wake_ms()) << "one request at a time";
    h.run(RegisterEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
    ASSERT_NE(h.find<ConnectionChanged>(), nullptr);
    EXPECT_EQ(h.find<ConnectionChanged>()->retry_in_ms, wait);
    EXPECT_EQ(h.core.next_wake_ms(), h.clock.now().mono_ms + wait);
    h.pass(wait - 1);
    EXPECT_EQ(h.find<SendRegister>(), nullptr);
    h.pass(1);
  }
  EXPECT_EQ(h.core.counters().registrations_by_outcome.at("failure"), 7);
}

// SYS-6.2.4, SYS-5.2.2#interval, POOLREG-18040: a beat every interval, also without change; replies may change the interval.
TEST(Registration, BeatsAtTheIntervalItIsTold) {
  Harness h;
  h.connect();
  h.pass(14'999);
  EXPECT_EQ(h.find<SendHeartbeat>(), nullptr);
  h.pass(1);
  ASSERT_NE(h.find<SendHeartbeat>(), nullptr);
  h.run(HeartbeatEnded{wire::HeartbeatReply{"healthy", 5'000}});
  h.pass(5'000);
  ASSERT_NE(h.find<SendHeartbeat>(), nullptr);
  h.run(HeartbeatEnded{wire::HeartbeatReply{"healthy", 0}});
  EXPECT_EQ(h.core.next_wake_ms(), h.clock.now().mono_ms + 100) << "0 must not become a storm";
}

TEST(Registration, ChangeBeatsAtOnce) {
  Harness h;
  h.connect();
  h.run(Changed{});
  ASSERT_NE(h.find<SendHeartbeat>(), nullptr);
  h.run(Changed{});
  EXPECT_EQ(h.find<SendHeartbeat>(), nullptr) << "one in flight";
  h.run(HeartbeatEnded{wire::HeartbeatReply{"healthy", 15'000}});
  ASSERT_NE(h.find<SendHeartbeat>(), nullptr) << "the change may be newer than the beat";
}

// POOLREG-18030: after a loss the pool registers again, at once when it was forgotten.
TEST(Registration, RegistersAgainAfterLoss) {
  Harness h;
  h.connect();
  h.pass(15'000);
  h.run(HeartbeatEnded{base::fail(Harness::error(ErrorCode::kPoolNotFound))});
  ASSERT_NE(h.find<SendRegister>(), nullptr);
  h.run(RegisterEnded{wire::RegisterReply{"pool-1", "registered", 15'000}});
  h.pass(15'000);
  h.run(HeartbeatEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  EXPECT_FALSE(h.core.connected());
  EXPECT_EQ(h.find<SendRegister>(), nullptr);
  h.pass(1'000);
  ASSERT_NE(h.find<SendRegister>(), nullptr);
}

// SYS-8.3.2, POOL-2043: reports go at once, in order, until they are answered.
TEST(Registration, ReportsSurviveAnOutage) {
  Harness h;
  h.run(Started{});
  h.run(Harness::failed("a"));
  h.run(RegisterEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  h.run(Harness::failed("b"));
  h.pass(1'000);
  h.run(RegisterEnded{wire::RegisterReply{"pool-1", "registered", 15'000}});
  EXPECT_EQ(h.sent_id(), "a");
  h.run(ReportEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  h.pass(1'000);
  h.run(RegisterEnded{wire::RegisterReply{"pool-1", "registered", 15'000}});
  EXPECT_EQ(h.sent_id(), "a");
  h.run(ReportEnded{});
  EXPECT_EQ(h.sent_id(), "b");
  h.run(ReportEnded{base::fail(Harness::error(ErrorCode::kWorkerNotFound))});
  EXPECT_EQ(h.core.reports_pending(), 0u) << "a refusal is an answer";
  EXPECT_TRUE(h.core.connected());
}

// SYS-8.3.2, SYS-6.1.2: a worker that became ready while orchestratord was away must not wait for the end of a long pause.
TEST(Registration, ACallEndsThePause) {
  Harness h;
  h.connect();
  h.run(Heard{});
  EXPECT_EQ(h.find<SendRegister>(), nullptr) << "connected";
  h.run(Harness::failed("a"));
  h.run(ReportEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  for (const std::int64_t wait : {1'000, 2'000, 4'000, 8'000}) {
    h.pass(wait);
    h.run(RegisterEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  }
  h.run(Heard{});
  h.pass(199);
  EXPECT_EQ(h.find<SendRegister>(), nullptr) << "it may not listen yet";
  h.run(Heard{});
  h.pass(1);
  ASSERT_NE(h.find<SendRegister>(), nullptr) << "who asks all the time does not put it off";
  h.run(RegisterEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  EXPECT_EQ(h.core.next_wake_ms(), h.clock.now().mono_ms + 400) << "and the pause grows from there";
  h.pass(400);
  h.run(RegisterEnded{wire::RegisterReply{"pool-1", "registered", 15'000}});
  EXPECT_EQ(h.sent_id(), "a");
}

TEST(Registration, ReportsAreBounded) {
  Harness h;
  h.connect();
  for (int i = 0; i < 1'000; ++i) h.run(Harness::failed(std::to_string(i)));
  EXPECT_EQ(h.core.reports_pending(), 256u);
  h.run(ReportEnded{});  // the first was in flight all the time
  EXPECT_EQ(h.sent_id(), "745");
}

// POOL-2122, POOLREG-18050: deregister after the last report; without a connection there is nobody to tell.
TEST(Registration, Leaves) {
  Harness h;
  h.connect();
  h.run(Harness::failed("a"));
  h.run(Leave{});
  EXPECT_FALSE(h.core.left());
  h.run(ReportEnded{});
  ASSERT_NE(h.find<SendDeregister>(), nullptr);
  h.run(DeregisterEnded{});
  EXPECT_TRUE(h.core.left());
  EXPECT_FALSE(h.core.next_wake_ms());

  Harness offline;
  offline.run(Started{});
  offline.run(Leave{});
  offline.run(RegisterEnded{base::fail(Harness::error(ErrorCode::kUnreachable))});
  EXPECT_TRUE(offline.core.left());
  Harness alone;  // no orchestratord configured: never started
  alone.run(Leave{});
  EXPECT_TRUE(alone.core.left());
}

}  // namespace
}  // namespace llorch::pool_managerd::registration
