// A configuration that is read anew while jobs run.
#include <gtest/gtest.h>

#include "orchestratord/daemon/testing/daemon_fixture.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class ReloadTest : public DaemonTest {
 protected:
  ReloadTest() {
    options_.api_token = token('o');
    set_tenant('a');
  }
  static std::string token(char who) { return std::string(32, who); }
  // The one tenant, with this token.
  void set_tenant(char who,
                  config::TenantConfig tenant = {.id = "lab", .token_file = {}, .throttle = {}, .quotas = {}}) {
    options_.tenants = {{"lab", token(who)}};
    options_.config.orchestratord.tenants = {std::move(tenant)};
  }
  static net::http::Headers bearer(char who) {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + token(who));
    return headers;
  }
  net::Response submit_as(char who, int max_tokens = 10) {
    return client_->call("POST", "/v2/tasks", task(1, max_tokens), bearer(who));
  }
  int listed_by(char who) { return client_->call("GET", "/v2/tasks", "", bearer(who)).status; }
};

TEST_F(ReloadTest, ATokenEndsAndAnotherCounts) {
  start();
  EXPECT_EQ(listed_by('a'), 200);
  set_tenant('b');
  options_.reader_tokens = {token('r')};
  ASSERT_TRUE(daemon_->reload(options_));
  EXPECT_EQ(listed_by('a'), 401);
  EXPECT_EQ(listed_by('b'), 200);
  EXPECT_EQ(client_->call("GET", "/metrics", "", bearer('r')).status, 200);
  const std::string line = log().substr(log().find("config.reloaded"));
  EXPECT_EQ(field(line, "tokens_added"), "2") << line;
  EXPECT_EQ(field(line, "tokens_revoked"), "1") << line;
  EXPECT_EQ(log().find(token('b')), std::string::npos);
  options_.tenants.clear();
  options_.config.orchestratord.tenants.clear();
  ASSERT_TRUE(daemon_->reload(options_));
  EXPECT_EQ(listed_by('b'), 401);
}

// The pool of the daemon goes on: its credential is not the configuration's.
TEST_F(ReloadTest, LimitsHoldForWhatIsUnderWay) {
  start_with_pool(2);
  pool_->hold(true);
  const net::Response running = submit_as('a');
  ASSERT_EQ(running.status, 202) << running.body;
  wait_until([&] { return pool_->executions() == 1; }, "the first job");
  set_tenant('a', {.id = "lab",
                   .token_file = {},
                   .throttle = {},
                   .quotas = {{.max_concurrent_jobs = 1, .token_budget_daily = 60}}});
  ASSERT_TRUE(daemon_->reload(options_));
  const net::Response waiting = submit_as('a', 5);
  ASSERT_EQ(waiting.status, 202) << waiting.body;
  const net::Response refused = submit_as('a');
  EXPECT_EQ(code_of(refused), "QUOTA_EXCEEDED")
      << "16 and 10 are reserved from before, 16 and 5 since: " << refused.body;
  const std::string waits = client_->call("GET", "/v2/tasks/" + field(waiting.body, "job_id"), "", bearer('a')).body;
  EXPECT_NE(waits.find("WAITING_FOR_QUOTA"), std::string::npos) << waits;
  set_tenant('a', {.id = "lab",
                   .token_file = {},
                   .throttle = {{.requests_per_second = 0.001, .burst_seconds = 1}},
                   .quotas = {{.max_concurrent_jobs = 77}}});
  ASSERT_TRUE(daemon_->reload(options_));
  wait_until([&] { return pool_->executions() == 2; }, "the job that waited for the quota");
  EXPECT_EQ(submit_as('a').status, 202) << "a throttle begins full";
  const net::Response throttled = submit_as('a');
  EXPECT_EQ(field(throttled.body, "policy_label"), "throttle.requests_per_second") << throttled.body;
  EXPECT_EQ(listed_by('a'), 429) << "nobody was counted when the routes were made";
  const std::string settings = client_->call("GET", "/v2/meta/settings", "", bearer('o')).body;
  EXPECT_NE(settings.find(R"("max_concurrent_jobs":77)"), std::string::npos) << "what holds is shown";
  pool_->hold(false);
}

TEST_F(ReloadTest, WhatIsRefusedChangesNothing) {
  start();
  const auto refuse = [&](const std::function<void(OrchestratorOptions&)>& change) {
    OrchestratorOptions bad = options_;
    bad.tenants = {{"lab", token('b')}};
    change(bad);
    const auto outcome = daemon_->reload(bad);
    EXPECT_FALSE(outcome);
    EXPECT_EQ(listed_by('a'), 200);
    EXPECT_EQ(listed_by('b'), 401);
    return outcome ? base::ErrorCode::kInternal : outcome.error().code;
  };
  using base::ErrorCode;
  EXPECT_EQ(refuse([](auto& o) { o.reader_tokens = {token('b')}; }), ErrorCode::kConfigInvalid) << "two with one token";
  EXPECT_EQ(refuse([](auto& o) { o.config.models.known_models = {"/nowhere"}; }), ErrorCode::kIoError);
  EXPECT_EQ(refuse([](auto& o) {
              o.api_token.clear();
              o.tenants.clear();
              o.config.orchestratord.tenants.clear();
            }),
            ErrorCode::kConfigInvalid)
      << "a file that is gone opens nothing";
}

// A bind that is configured anew is not in force, so it does not say who needs a token.
TEST_F(ReloadTest, WhatNeedsARestartIsNamedAndNotApplied) {
  options_.config.orchestratord.bind = "0.0.0.0:0";
  start();
  client_ = std::make_unique<TestClient>("http://127.0.0.1" + daemon_->bind().substr(daemon_->bind().rfind(':')));
  options_.config.orchestratord.bind = "127.0.0.1:0";
  options_.config.orchestratord.queue.capacity = 7;
  set_tenant('b');
  ASSERT_TRUE(daemon_->reload(options_));
  EXPECT_EQ(listed_by('b'), 200);
  EXPECT_NE(log().find("orchestratord.bind, orchestratord.queue.capacity"), std::string::npos);
  const std::string shown = client_->call("GET", "/v2/meta/capabilities", "", bearer('b')).body;
  EXPECT_NE(shown.find(R"("queue_capacity":100)"), std::string::npos) << shown;
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
