// Sessions, budgets and throttles over HTTP, and the order in which a submission is checked.
#include <gtest/gtest.h>

#include "orchestratord/daemon/testing/daemon_fixture.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class SessionTest : public DaemonTest {
 protected:
  net::Response submit(int max_tokens, const std::string& session, const std::string& more = "") {
    return client_->call("POST", "/v2/tasks", task(1, max_tokens, ",\"session_id\":\"" + session + "\"" + more));
  }
  std::string shown(const std::string& session, const std::string& key) {
    return field(client_->get("/v2/sessions/" + session).body, key);
  }
};

// OC-CTRL-2010, ORCH-3014: fields and priority, then the model, then context, then budget, then deadline; the first that
// fails is the answer, and no row of a refused job is ever there.
TEST_F(SessionTest, ASubmissionIsCheckedInOrderBeforeItIsEnqueued) {
  options_.config.orchestratord.sessions.token_budget = 100;
  start_with_pool();
  const auto code = [&](const std::string& fields) {
    return code_of(client_->call("POST", "/v2/tasks", R"({"session_id":"s","prompt":"Once",)" + fields + "}"));
  };
  EXPECT_EQ(code(R"("model":"nothing","max_tokens":9000,"priority":"urgent")"), "INVALID_PARAMS");
  EXPECT_EQ(code(R"("model":"nothing","max_tokens":9000,"temperature":9)"), "INVALID_PARAMS");
  EXPECT_EQ(code(R"("model":"nothing","max_tokens":9000)"), "MODEL_NOT_FOUND");
  const net::Response context =
      client_->call("POST", "/v2/tasks", R"({"session_id":"s","prompt":"Once","model":"demo","max_tokens":9000})");
  EXPECT_EQ(code_of(context), "INVALID_PARAMS");
  EXPECT_EQ(field(context.body, "reason"), "CONTEXT_TOO_LARGE");
  EXPECT_EQ(code(R"("model":"demo","max_tokens":97,"deadline_ms":1)"), "BUDGET_EXCEEDED");
  EXPECT_EQ(client_->get("/v2/tasks").body, R"({"tasks":[]})");
  EXPECT_EQ(client_->get("/v2/sessions").body, R"({"sessions":[]})");
}

// OC-CORE-1015: what counts against the context is the prompt as the worker gets it, with what the chat template adds.
TEST_F(SessionTest, TheContextIsWhatTheTemplateLeaves) {
  start_with_pool();
  const std::string text(3995, 'a');  // 4096 - 96 leaves 4000
  const std::string limits = R"(","max_tokens":96,"model":"demo"})";
  EXPECT_EQ(client_->call("POST", "/v2/tasks", R"({"prompt":")" + text + limits).status, 202);
  const net::Response refused = client_->call("POST", "/v2/tasks",
                                              R"({"messages":[{"role":"user","content":")" + text +
                                                  R"("},{"role":"x","content":""}],"max_tokens":96,"model":"demo"})");
  EXPECT_EQ(field(refused.body, "reason"), "CONTEXT_TOO_LARGE") << refused.body;
  EXPECT_EQ(field(refused.body, "tokens_in"), "4004");
}

// ORCH-3099, OC-CTRL-2068, OC-CORE-1024: the budget is charged, shown in the 202, in both heads and in `end`, and a restart
// refills nothing.
TEST_F(SessionTest, ABudgetIsChargedShownAndKept) {
  start_with_pool();
  const std::string body = R"({"session_id":"s","token_budget":100})";
  EXPECT_EQ(client_->call("POST", "/v2/sessions", body).status, 201);
  EXPECT_EQ(client_->call("POST", "/v2/sessions", body).status, 200);
  EXPECT_EQ(client_->call("POST", "/v2/sessions", R"({"session_id":"s","token_budget":99})").status, 409);
  EXPECT_EQ(client_->call("POST", "/v2/sessions", R"({"token_budget":0})").status, 400);
  const net::Response accepted = submit(10, "s");
  EXPECT_EQ(accepted.headers.get("X-Budget-Tokens-Remaining"), "74");
  EXPECT_EQ(accepted.headers.get("X-Budget-Cost-Remaining"), std::nullopt);
  EXPECT_EQ(field(accepted.body, "tokens_budget_remaining"), "74");
  const std::string job_id = field(accepted.body, "job_id");
  const auto reading = client_->read("/v2/tasks/" + job_id + "/events");
  EXPECT_EQ(field(reading.events.back().data, "tokens_budget_remaining"), "74");
  EXPECT_EQ(field(client_->get("/v2/tasks/" + job_id).body, "session_id"), "s");
  EXPECT_EQ(shown("s", "tokens_used"), "26");
  EXPECT_NE(client_->get("/v2/sessions/s").body.find(R"("kv_warmth":true)"), std::string::npos);
  const net::Response refused = submit(59, "s");
  EXPECT_EQ(code_of(refused), "BUDGET_EXCEEDED");
  EXPECT_EQ(field(refused.body, "budget"), "tokens");
  restart();
  EXPECT_EQ(shown("s", "tokens_used"), "26");
  EXPECT_EQ(shown("s", "tokens_remaining"), "74");
  EXPECT_EQ(client_->call("DELETE", "/v2/sessions/s", "").body, R"({"session_id":"s","deleted":true})");
  EXPECT_EQ(client_->call("DELETE", "/v2/sessions/s", "").status, 404);
  EXPECT_EQ(client_->get("/v2/sessions/no!such").status, 404);
}

// ORCH-3006, ORCH-1012, ORCH-2007
TEST_F(SessionTest, ACallerThatIsTooFastIsToldWhenToComeBack) {
  options_.config.orchestratord.throttle = {.requests_per_second = 0.001, .burst_seconds = 1};
  start_with_pool();
  EXPECT_EQ(submit(1, "s").status, 202);
  const net::Response refused = submit(1, "s");
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(field(refused.body, "policy_label"), "throttle.requests_per_second");
  EXPECT_TRUE(refused.headers.get("Retry-After").has_value());
  EXPECT_TRUE(refused.headers.get("X-Backoff-Ms").has_value());
}

// SYS-9.3.2, ORCH-1012, ORCH-2007: a tenant is known by its token; its day's tokens are bounded, over a restart too, and
// nobody else's are.
TEST_F(SessionTest, ATenantHasItsTokensADay) {
  options_.api_token = std::string(32, 'o');
  options_.config.auth.optional_on_loopback = true;
  options_.tenants = {{"a", std::string(32, 'a')}, {"b", std::string(32, 'b')}};
  options_.config.orchestratord.tenants = {
      {.id = "a", .token_file = {}, .throttle = {}, .quotas = {{.token_budget_daily = 60}}}};
  start_with_pool();
  const auto submit_as = [&](char who, int max_tokens) {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + std::string(32, who));
    return client_->call("POST", "/v2/tasks", task(1, max_tokens), headers);
  };
  const net::Response first = submit_as('a', 10);  // 16 and 10 tokens
  ASSERT_EQ(first.status, 202) << first.body;
  client_->read("/v2/tasks/" + field(first.body, "job_id") + "/events");
  for (int life = 0; life < 2; ++life) {
    const net::Response refused = submit_as('a', 19);
    EXPECT_EQ(refused.status, 429) << refused.body;
    EXPECT_EQ(code_of(refused), "QUOTA_EXCEEDED");
    EXPECT_EQ(field(refused.body, "policy_label"), "quotas.token_budget_daily");
    EXPECT_EQ(field(refused.body, "tokens_used_today"), "26");
    EXPECT_TRUE(refused.headers.get("Retry-After").has_value());
    EXPECT_EQ(submit_as('b', 19).status, 202);
    EXPECT_EQ(client_->call("POST", "/v2/tasks", task(1, 19)).status, 202);
    restart();
  }
  EXPECT_EQ(code_of(submit_as('a', 45)), "BUDGET_EXCEEDED");
  EXPECT_EQ(submit_as('a', 18).status, 202);
}

// A process that ends between the end of a job and the end of its result takes neither: the job runs again, at no cost, whatever is left.
// Whoever deletes a result and asks for it once more pays for it.
TEST_F(SessionTest, AJobThatRunsAgainForAResultThatWasLostIsChargedOnce) {
  options_.config.orchestratord.quotas.token_budget_daily = 26;
  options_.config.orchestratord.sessions.token_budget = 26;
  start_with_pool();
  pool_->hold(true);
  const std::string body = task(1, 10, R"(,"task_id":"t","session_id":"s","result":{"keep_ms":600000})");
  const std::string job_id = client_->submit(body);
  const auto blobs = options_.state_directory / "blobs", before = options_.state_directory / "before";
  std::filesystem::copy(blobs, before);
  pool_->hold(false);
  const auto result = [&] { return client_->get("/v2/tasks/" + job_id + "/result"); };
  wait_until([&] { return result().status != 409; }, "the result");
  const std::string text = field(result().body, "text");
  client_.reset();
  daemon_.reset();
  std::filesystem::remove_all(blobs);
  std::filesystem::rename(before, blobs);
  start();
  for (int life = 0; life < 2; ++life) {
    pool_->register_at(client_->url());
    wait_until([&] { return result().status != 409; }, "the result of the next run");
    EXPECT_EQ(result().status, 200) << result().body;
    EXPECT_EQ(field(result().body, "text"), text);
    EXPECT_EQ(pool_->executions(), 2);
    EXPECT_EQ(shown("s", "tokens_used"), "26");
    const net::Response refused = client_->post("/v2/tasks", task(1, 1));
    EXPECT_EQ(code_of(refused), "QUOTA_EXCEEDED") << refused.body;
    EXPECT_EQ(field(refused.body, "tokens_used_today"), "26");
    restart();
  }
  EXPECT_EQ(client_->call("DELETE", "/v2/tasks/" + job_id + "/result", "").status, 204);
  const net::Response again = client_->post("/v2/tasks", body);
  EXPECT_EQ(code_of(again), "BUDGET_EXCEEDED") << again.body;
  EXPECT_EQ(pool_->executions(), 2);
}

// SYS-9.3.2: what is above a tenant's jobs at a time waits, and says for what.
TEST_F(SessionTest, ATenantsNextJobWaits) {
  options_.config.orchestratord.quotas.max_concurrent_jobs = 1;
  start_with_pool(4);
  pool_->hold(true);
  const std::string first = client_->submit(task(1));
  const std::string second = client_->submit(task(2));
  wait_until([&] { return field(client_->get("/v2/tasks/" + second).body, "code") == "WAITING_FOR_QUOTA"; },
             "the quota");
  pool_->hold(false);
  wait_until([&] { return status_of(second) == "completed"; }, "the second job");
  EXPECT_EQ(status_of(first), "completed");
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
