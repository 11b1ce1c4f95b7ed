// POST /v2/tasks and what follows from it, through real sockets.
#include <fmt/format.h>

#include <future>
#include <set>

#include "base/sha256.h"
#include "net/test_socket.h"
#include "orchestratord/daemon/testing/daemon_fixture.h"

namespace llorch::orchestratord::daemon::testing {
namespace {

class AdmissionTest : public DaemonTest {};

// ORCH-2001#accepted, SYS-5.1.1, SYS-5.1.3, SYS-7.1.1: one prompt from admission to its terminal event.
TEST_F(AdmissionTest, AJobRunsFromSubmissionToItsEnd) {
  start_with_pool();
  const net::Response accepted = client_->post("/v2/tasks", task(7));
  ASSERT_EQ(accepted.status, 202) << accepted.body;
  const std::string job_id = field(accepted.body, "job_id");
  EXPECT_EQ(field(accepted.body, "task_id"), job_id);
  EXPECT_EQ(field(accepted.body, "status"), "queued");
  EXPECT_EQ(field(accepted.body, "events_url"), events_path(job_id));
  const auto reading = client_->read(events_path(job_id));
  EXPECT_EQ(reading.status, 200);
  EXPECT_TRUE(reading.complete);
  ASSERT_GE(reading.events.size(), 3u);
  EXPECT_EQ(reading.events.front().event, "queued");
  EXPECT_EQ(reading.events[1].event, "started");
  EXPECT_EQ(field(reading.events[1].data, "seed"), "7");
  EXPECT_EQ(reading.events.back().event, "end");
  EXPECT_EQ(tokens_of(reading.events), FakePool::expected_tokens(7, 10));
  const net::Response shown = client_->get("/v2/tasks/" + job_id);
  EXPECT_EQ(field(shown.body, "status"), "completed");
  EXPECT_EQ(field(shown.body, "tokens_out"), "10");
  EXPECT_EQ(field(shown.body, "tokens_in"), "16");
  EXPECT_EQ(field(shown.body, "stop_reason"), "max_tokens");
  EXPECT_EQ(field(shown.body, "attempts"), "1");
  EXPECT_EQ(field(shown.body, "last_event_id"), *reading.events.back().id);
  EXPECT_EQ(field(shown.body, "prompt_sha256"), base::to_hex(base::sha256("Once upon a time")));
  // The prompt is tokenised once and its text does not travel.
  EXPECT_EQ(pool_->last_request().prompt_tokens->size(), 16u);
  EXPECT_FALSE(pool_->last_request().prompt.has_value());
  EXPECT_EQ(pool_->last_request().temperature, 0.7);
}

// OC-CORE-1022: the limit of a run is the request's, else the model's, else the default.
TEST_F(AdmissionTest, AModelMayHaveALimitOfItsOwn) {
  options_.config.orchestratord.timeout.default_ms = 90'000;
  options_.config.models.aliases["other"] = "file:/models/other.gguf";
  options_.config.models.timeout_ms["demo"] = 70'000;
  start_with_pool();
  const auto limit_of = [&](const std::string& body) {
    client_->read(events_path(client_->submit(body)));
    return pool_->last_request().timeout_ms;
  };
  EXPECT_EQ(limit_of(task(1, 1, R"(,"timeout_ms":50000)")), 50'000);
  EXPECT_EQ(limit_of(task(2, 1)), 70'000);
  EXPECT_EQ(limit_of(R"({"model":"other","prompt":"Once","max_tokens":1})"), 90'000);
}

TEST_F(AdmissionTest, AnOmittedMaxTokensIsWhatTheContextHasLeft) {
  options_.config.orchestratord.limits.max_tokens = 4094;
  start_with_pool();
  const auto max_tokens_of = [&](const std::string& body) {
    client_->read(events_path(client_->submit(body)), {.last_event_id = {}, .count = 2});  // queued, started
    return pool_->last_request().max_tokens;
  };
  EXPECT_EQ(max_tokens_of(R"({"model":"demo","prompt":"Once"})"), 4096 - 4);
  EXPECT_EQ(max_tokens_of(R"({"model":"demo","prompt":"O"})"), 4094) << "the server's limit";
  const net::Response full =
      client_->post("/v2/tasks", R"({"model":"demo","prompt":")" + std::string(4096, 'a') + "\"}");
  EXPECT_EQ(full.status, 400);
  EXPECT_NE(full.body.find("CONTEXT_TOO_LARGE"), std::string::npos) << full.body;
}

// A request that names no number is not refused for what nobody asked for: also the first of the day, before its account is known.
TEST_F(AdmissionTest, AnOmittedMaxTokensIsAtMostWhatTheDayHasLeft) {
  options_.config.orchestratord.quotas.token_budget_daily = 60;
  start_with_pool();
  const std::string chat = R"({"model":"demo","messages":[{"role":"user","content":"Hi"}])";  // 8 tokens
  EXPECT_EQ(client_->post("/v2/tasks/preview", R"({"model":"demo","prompt":"Once"})").status, 200);
  client_->read(events_path(client_->submit(R"({"model":"demo","prompt":"Once","max_tokens":16})")));
  EXPECT_EQ(client_->post("/v1/chat/completions", chat + R"(,"max_tokens":100})").status, 400) << "it says so itself";
  const net::Response first = client_->post("/v1/chat/completions", chat + "}");
  EXPECT_EQ(first.status, 200) << first.body;
  EXPECT_EQ(pool_->last_request().max_tokens, 60 - 20 - 8);
  const net::Response spent = client_->post("/v1/chat/completions", chat + "}");
  EXPECT_EQ(spent.status, 429) << spent.body;
}

TEST_F(AdmissionTest, AnOmittedMaxTokensOfTheFirstJobOfTheDayIsTheDaysBudget) {
  options_.config.orchestratord.quotas.token_budget_daily = 60;
  start_with_pool();
  client_->read(events_path(client_->submit(R"({"model":"demo","prompt":"Once"})")));
  EXPECT_EQ(pool_->last_request().max_tokens, 60 - 4);
}

TEST_F(AdmissionTest, APromptWithTooManyLogprobsIsRefusedByTheNameItWasSentBy) {
  start_with_pool();
  const std::string text(4000, 'a');
  for (const auto& [body, field] :
       {std::pair(R"("prompt":")" + text + "\"", "prompt"),
        std::pair(R"("messages":[{"role":"user","content":")" + text + "\"}]", "messages")}) {
    const net::Response refused = client_->post(
        "/v2/tasks", R"({"model":"demo","logprobs":true,"top_logprobs":20,"prompt_logprobs":true,)" + body + "}");
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_NE(refused.body.find(fmt::format(R"("field":"{}")", field)), std::string::npos) << refused.body;
  }
}

TEST_F(AdmissionTest, AnAnswerThatWouldTellTooManyLogprobsIsRefused) {
  start_with_pool();
  pool_->hold(true);
  const net::Response output = client_->post(
      "/v2/tasks", R"({"model":"demo","prompt":"Once","max_tokens":12484,"logprobs":true,"top_logprobs":20})");
  EXPECT_EQ(output.status, 400) << output.body;
  EXPECT_NE(output.body.find("at most 12483 tokens of output"), std::string::npos) << output.body;
  EXPECT_NE(output.body.find(R"("field":"max_tokens","reason":"logprobs")"), std::string::npos) << output.body;

  const std::string prompt = '"' + std::string(3000, 'a') + '"';  // of which each alone would do
  const net::Response prompts =
      client_->post("/v1/completions", fmt::format(R"({{"model":"demo","prompt":[{0},{0},{0},{0},{0}],"max_tokens":1,)"
                                                   R"("echo":true,"logprobs":20}})",
                                                   prompt));
  EXPECT_EQ(prompts.status, 400) << prompts.body;
  EXPECT_NE(prompts.body.find("15000 tokens or more"), std::string::npos) << prompts.body;
  EXPECT_NE(prompts.body.find(R"("param":"prompt")"), std::string::npos) << prompts.body;
  wait_until([&] { return client_->get("/v2/tasks?live=true").body == R"({"tasks":[]})"; }, "no job to be left");
}

TEST_F(AdmissionTest, ChoicesOfOneRequestShareWhatTheDayHasLeft) {
  options_.config.orchestratord.quotas.token_budget_daily = 60;
  start_with_pool();
  const net::Response both = client_->post(
      "/v1/chat/completions", R"({"model":"demo","messages":[{"role":"user","content":"Hi"}],"n":2})");  // 8 tokens
  EXPECT_EQ(both.status, 200) << both.body;
  EXPECT_EQ(pool_->last_request().max_tokens, 60 / 2 - 8);
}

// Clients of other systems' APIs ask for as much as they like, and end where the server or the context does.
TEST_F(AdmissionTest, AMaxTokensThatIsTooLargeIsLoweredForClientsOfOtherApis) {
  options_.config.orchestratord.limits.max_tokens = 20;
  start_with_pool();
  const std::string turn = R"({"model":"demo","messages":[{"role":"user","content":"Hi"}],"max_tokens":64000)";
  const std::string prompt = R"({"model":"demo","prompt":")" + std::string(4090, 'a') + R"(","max_tokens":64000})";
  for (const auto& [path, body, expected, reason] : std::vector<std::tuple<std::string, std::string, int, std::string>>{
           {"/v1/chat/completions", turn + "}", 20, R"("finish_reason":"length")"},
           {"/v1/chat/completions", turn + R"(,"n":2})", 20, R"("finish_reason":"length")"},
           {"/v1/completions", prompt, 6, R"("finish_reason":"length")"},
           {"/v1/responses", R"({"model":"demo","input":"Hi","max_output_tokens":64000})", 20, "max_output_tokens"},
           {"/v1/messages", turn + "}", 20, R"("stop_reason":"max_tokens")"}}) {
    const net::Response answer = client_->post(path, body);
    EXPECT_EQ(answer.status, 200) << path << answer.body;
    EXPECT_EQ(pool_->last_request().max_tokens, expected) << path;
    EXPECT_NE(answer.body.find(reason), std::string::npos) << path << answer.body;
  }
  const net::Response refused = client_->post("/v2/tasks", prompt);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("limits.max_tokens"), std::string::npos) << refused.body;
}

TEST_F(AdmissionTest, AConversationIsRenderedByTheModelsTemplate) {
  start_with_pool();
  const std::string job_id = client_->submit(
      R"({"model":"demo","messages":[{"role":"user","content":"Hi"},{"role":"x","content":""}],"max_tokens":1})");
  client_->read(events_path(job_id));
  EXPECT_EQ(pool_->last_request().prompt_tokens->size(), std::string("<user>Hi<x>").size());
  EXPECT_EQ(pool_->last_request().prompt_sha256, base::to_hex(base::sha256("<user>Hi<x>")));
  const net::Response refused =
      client_->call("POST", "/v2/tasks", R"({"model":"demo","messages":["secret words"],"max_tokens":1})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("messages[0] must be an object with a string `role`"), std::string::npos) << refused.body;
  EXPECT_EQ((refused.body + log()).find("secret words"), std::string::npos);
}

// SYS-5.6.1, ORCH-1092: the caller's correlation id reaches the worker and the log.
TEST_F(AdmissionTest, TheCorrelationIdGoesAllTheWay) {
  start_with_pool();
  const net::Response accepted = client_->call("POST", "/v2/tasks", task(1), {{"X-Correlation-Id", "corr-accept-1"}});
  EXPECT_EQ(accepted.headers.get("X-Correlation-Id"), "corr-accept-1");
  client_->read(events_path(field(accepted.body, "job_id")));
  EXPECT_EQ(pool_->last_correlation_id(), "corr-accept-1");
  EXPECT_NE(log().find("\"event\":\"dispatch.sent\",\"correlation_id\":\"corr-accept-1\""), std::string::npos);
}

TEST_F(AdmissionTest, ASeedIsDrawnWhenNoneIsGiven) {
  start_with_pool();
  std::set<std::string> seeds;
  for (int i = 0; i < 3; ++i) {
    const std::string job_id = client_->submit(R"({"model":"demo","prompt":"a","max_tokens":1})");
    const auto reading = client_->read(events_path(job_id));
    seeds.insert(field(reading.events.at(1).data, "seed"));
    EXPECT_LE(std::stoull(field(reading.events.at(1).data, "seed")), 0x7fff'ffff'ffff'ffffu);
  }
  EXPECT_EQ(seeds.size(), 3u);
}

// ORCH-2007, OC-CTRL-2011: every 429 says when to come back and under which policy.
TEST_F(AdmissionTest, AFullQueueIsRefusedWithTheContract) {
  options_.config.orchestratord.queue.capacity = 3;
  start_with_pool();
  pool_->hold(true);
  client_->submit(task(1));
  wait_until([this] { return pool_->running() == 1; }, "the first job to run");
  for (int i = 0; i < 3; ++i) client_->submit(task(2));
  const net::Response full = client_->post("/v2/tasks", task(3));
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(code_of(full), "QUEUE_FULL");
  EXPECT_EQ(field(full.body, "policy_label"), "reject");
  EXPECT_EQ(field(full.body, "retriable"), "true");
  EXPECT_NE(field(full.body, "retry_after_ms"), "");
  EXPECT_TRUE(full.headers.get("Retry-After"));
  EXPECT_EQ(full.headers.get("X-Backoff-Ms"), field(full.body, "retry_after_ms"));
  const std::string metrics = client_->get("/metrics").body;
  EXPECT_NE(metrics.find("tasks_rejected_total{engine=\"llama-orch\",reason=\"ADMISSION_REJECT\"} 1"),
            std::string::npos);
  EXPECT_NE(metrics.find("orchd_queue_depth{component=\"orchestratord\",priority=\"interactive\"} 3"),
            std::string::npos);
}

// ORCH-2007: what refuses a caller whatever it submits is answered on the head alone: nobody waits for a body, and no pool is
// asked about a model.
TEST_F(AdmissionTest, ACallerOverItsLimitsIsRefusedOnTheHead) {
  options_.config.orchestratord.queue.capacity = 1;
  options_.api_token = std::string(32, 'o');
  options_.config.auth.optional_on_loopback = true;
  options_.tenants = {{"spent", std::string(32, 's')}, {"fast", std::string(32, 'f')}};
  options_.config.orchestratord.tenants = {
      {.id = "spent", .token_file = {}, .throttle = {}, .quotas = {{.token_budget_daily = 26}}},
      {.id = "fast", .token_file = {}, .throttle = {{.requests_per_second = 0.001, .burst_seconds = 1}}, .quotas = {}}};
  start_with_pool(4);
  const auto head_of = [&](char who) {
    return "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: "
           "4000000\r\n" +
           (who == 0 ? "" : "Authorization: Bearer " + std::string(32, who) + "\r\n") + "\r\n";
  };
  const auto refused_on_the_head = [&](char who) {
    net::TestSocket socket(
        static_cast<std::uint16_t>(std::stoi(daemon_->bind().substr(daemon_->bind().rfind(':') + 1))));
    EXPECT_TRUE(socket.send(head_of(who)));
    const std::string answer = socket.read_until("\"}}");
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 429 ")) << answer;
    return answer;
  };
  const auto submit_as = [&](char who, const std::string& body) {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + std::string(32, who));
    return client_->call("POST", "/v2/tasks", body, headers);
  };
  pool_->hold(true);
  ASSERT_EQ(submit_as('s', task(1, 10)).status, 202);  // 16 and 10 tokens
  wait_until([this] { return pool_->running() == 1; }, "the first job to leave the queue");
  ASSERT_EQ(submit_as('f', task(1, 10)).status, 202);
  wait_until([this] { return pool_->running() == 2; }, "the second one to");
  EXPECT_NE(refused_on_the_head('s').find("quotas.token_budget_daily"), std::string::npos);
  EXPECT_NE(refused_on_the_head('f').find("throttle.requests_per_second"), std::string::npos);
  for (const int running : {3, 4}) {
    client_->submit(task(2));
    wait_until([&] { return pool_->running() == running; }, "every slot to be used");
  }
  client_->submit(task(2));
  EXPECT_NE(refused_on_the_head(0).find("QUEUE_FULL"), std::string::npos);
  // Not even a name that nobody knows is looked up.
  EXPECT_EQ(code_of(client_->post("/v2/tasks", R"({"model":"file:/models/other.gguf","prompt":"a","max_tokens":1})")),
            "QUEUE_FULL");
  const std::string metrics = client_->get("/metrics").body;
  EXPECT_NE(metrics.find("tasks_rejected_total{engine=\"llama-orch\",reason=\"ADMISSION_REJECT\"} 2"),
            std::string::npos);
  pool_->hold(false);
}

// The store looks for a job that has ended, and for no other.
TEST_F(AdmissionTest, AnEndedJobIsLookedUpAtTheRateOfItsTenant) {
  options_.api_token = std::string(32, 'o');
  options_.config.auth.optional_on_loopback = true;
  options_.tenants = {{"fast", std::string(32, 'f')}};
  options_.config.orchestratord.tenants = {{.id = "fast",
                                            .token_file = {},
                                            .throttle = {{.requests_per_second = 0.001, .burst_seconds = 3000}},
                                            .quotas = {}}};
  start_with_pool();
  const auto as_fast = [&](const std::string& method, const std::string& path, const std::string& body = {}) {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + std::string(32, 'f'));
    return client_->call(method, path, body, headers);
  };
  pool_->hold(true);
  const net::Response accepted = as_fast("POST", "/v2/tasks", task(1, 10));
  ASSERT_EQ(accepted.status, 202);
  const std::string job_id = field(accepted.body, "job_id");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(as_fast("GET", "/v2/tasks/" + job_id).status, 200);
  pool_->hold(false);
  wait_until([&] { return status_of(job_id) == "completed"; }, "the job to end");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(as_fast("GET", "/v2/tasks/" + job_id).status, 200);
  const net::Response refused = as_fast("GET", "/v2/tasks/" + job_id);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(field(refused.body, "policy_label"), "throttle.requests_per_second");
}

// As a look at it does, and a job that lives is cancelled at any rate.
TEST_F(AdmissionTest, ACancelOfAnEndedJobCountsAtTheRateOfItsTenant) {
  options_.api_token = std::string(32, 'o');
  options_.config.auth.optional_on_loopback = true;
  options_.tenants = {{"fast", std::string(32, 'f')}};
  options_.config.orchestratord.tenants = {{.id = "fast",
                                            .token_file = {},
                                            .throttle = {{.requests_per_second = 0.001, .burst_seconds = 5000}},
                                            .quotas = {}}};
  start_with_pool(2);
  const auto as_fast = [&](const std::string& method, const std::string& path, const std::string& body = {}) {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + std::string(32, 'f'));
    return client_->call(method, path, body, headers);
  };
  const auto submitted = [&](std::uint64_t seed) {
    const net::Response accepted = as_fast("POST", "/v2/tasks", task(seed, 10));
    EXPECT_EQ(accepted.status, 202) << accepted.body;
    return field(accepted.body, "job_id");
  };
  const std::string ended = submitted(1);
  wait_until([&] { return status_of(ended) == "completed"; }, "the job to end");
  pool_->hold(true);
  const std::string live = submitted(2);
  // Three requests are left of five.
  EXPECT_EQ(as_fast("DELETE", "/v2/tasks/" + ended).status, 200);
  EXPECT_EQ(as_fast("POST", "/v2/tasks/" + ended + "/cancel").status, 200);
  EXPECT_EQ(as_fast("POST", "/v1/tasks/" + ended + "/cancel").status, 404)
      << "a look for a task of that name, all the same";
  for (const auto& [method, path] :
       {std::pair{"DELETE", "/v2/tasks/" + ended}, std::pair{"POST", "/v2/tasks/" + ended + "/cancel"}}) {
    const net::Response refused = as_fast(method, path);
    EXPECT_EQ(refused.status, 429) << method;
    EXPECT_EQ(field(refused.body, "policy_label"), "throttle.requests_per_second");
  }
  EXPECT_EQ(as_fast("DELETE", "/v2/tasks/" + live).status, 202);
  pool_->hold(false);
}

// Of a queue that one tenant has filled, that one is told so on the head; the operator's job gets in.
TEST_F(AdmissionTest, AFloodOfOneTenantKeepsNobodyOut) {
  options_.config.orchestratord.queue.capacity = 3;
  options_.api_token = std::string(32, 'o');
  options_.config.auth.optional_on_loopback = true;
  options_.tenants = {{"flood", std::string(32, 'f')}};
  options_.config.orchestratord.tenants = {{.id = "flood", .token_file = {}, .throttle = {}, .quotas = {}}};
  start_with_pool();
  pool_->hold(true);
  const auto flood = [&] {
    net::http::Headers headers;
    headers.set("Authorization", "Bearer " + std::string(32, 'f'));
    return client_->call("POST", "/v2/tasks", task(1), headers);
  };
  ASSERT_EQ(flood().status, 202);
  wait_until([this] { return pool_->running() == 1; }, "the first job to leave the queue");
  for (int i = 0; i < 3; ++i) ASSERT_EQ(flood().status, 202);
  const net::Response full = flood();
  EXPECT_EQ(full.status, 429);
  EXPECT_EQ(code_of(full), "QUEUE_FULL");
  EXPECT_NE(full.body.find("3 of its jobs are the caller's, whose share of its 3 places is 1"), std::string::npos)
      << full.body;
  net::TestSocket socket(static_cast<std::uint16_t>(std::stoi(daemon_->bind().substr(daemon_->bind().rfind(':') + 1))));
  EXPECT_TRUE(
      socket.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                  "Content-Length: 4000000\r\nAuthorization: Bearer " +
                  std::string(32, 'f') + "\r\n\r\n"));
  EXPECT_NE(socket.read_until("\"}}").find("the caller's, whose share"), std::string::npos) << "no body was sent";
  EXPECT_EQ(client_->post("/v2/tasks", task(1)).status, 202);
  EXPECT_EQ(code_of(client_->post("/v2/tasks", task(1))), "QUEUE_FULL") << "the operator has its share as well";
  pool_->hold(false);
}

// OC-CORE-1020, SYS-7.1.1: a stable code for everything a client can get wrong, and nothing half-done.
TEST_F(AdmissionTest, GarbageIsRefusedWithAStableCode) {
  start_with_pool();
  const std::string big(500'000, 'x');
  const std::vector<std::tuple<std::string, int, std::string>> cases = {
      {"", 400, "INVALID_PARAMS"},
      {"{", 400, "INVALID_PARAMS"},
      {"[]", 400, "INVALID_PARAMS"},
      {"null", 400, "INVALID_PARAMS"},
      {R"({"model":"demo"})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"","max_tokens":1})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":0})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1.5})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":60000})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"surprise":1})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"temperature":9})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"top_k":9999999})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"logit_bias":{"9999999":1}})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"mirostat":2,"top_p":0.9})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"priority":"urgent"})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":1,"task_id":"../x"})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a\u0000b","max_tokens":1})", 400, "INVALID_PARAMS"},
      {"{\"model\":\"demo\",\"prompt\":\"\xff\",\"max_tokens\":1}", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":")" + big + R"(","max_tokens":1})", 400, "INVALID_PARAMS"},
      {R"({"model":"demo","prompt":"a","max_tokens":5000})", 400, "INVALID_PARAMS"},  // beyond the context of 4096
      {R"({"model":"nobody","prompt":"a","max_tokens":1})", 404, "MODEL_NOT_FOUND"},
      {R"({"model":"hf:org/repo","prompt":"a","max_tokens":1})", 404, "MODEL_NOT_FOUND"},
      {R"({"model":"file:/etc/passwd","prompt":"a","max_tokens":1})", 403, "FORBIDDEN"},
      {std::string(5 << 20, ' '), 413, "PAYLOAD_TOO_LARGE"},
  };
  for (const auto& [body, status, code] : cases) {
    const net::Response response = client_->post("/v2/tasks", body);
    EXPECT_EQ(response.status, status) << body.substr(0, 80) << response.body;
    EXPECT_EQ(code_of(response), code) << body.substr(0, 80);
    EXPECT_NE(field(response.body, "correlation_id"), "") << body.substr(0, 80);
  }
  EXPECT_EQ(client_->get("/v2/tasks").body, R"({"tasks":[]})");
  EXPECT_EQ(pool_->executions(), 0);
  EXPECT_EQ(client_->call("PUT", "/v2/tasks").status, 405);
  EXPECT_EQ(client_->get("/v2/nothing").status, 404);
  EXPECT_EQ(client_->get("/v1/replicasets").status, 404);
}

// ORCH-3091#said: nothing to ask is said at once, never waited for.
TEST_F(AdmissionTest, WithoutAPoolTheAnswerIsPoolUnready) {
  start();
  const net::Response response = client_->post("/v2/tasks", task(1));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(code_of(response), "POOL_UNREADY");
  EXPECT_TRUE(response.headers.get("Retry-After"));
}

// The same task_id and body is one job, however often it is submitted; another body is a conflict.
TEST_F(AdmissionTest, ATaskIdNamesOneJob) {
  start_with_pool();
  pool_->hold(true);
  const std::string body = task(5, 3, R"(,"task_id":"my-task")");
  const std::string first = client_->submit(body);
  EXPECT_EQ(client_->submit(body), first);
  const net::Response other = client_->post("/v2/tasks", task(6, 3, R"(,"task_id":"my-task")"));
  EXPECT_EQ(other.status, 409);
  EXPECT_EQ(code_of(other), "CONFLICT");
  pool_->hold(false);
  client_->read(events_path(first));
  const net::Response after = client_->post("/v2/tasks", body);
  EXPECT_EQ(after.status, 202);
  EXPECT_EQ(field(after.body, "job_id"), first);
  EXPECT_EQ(field(after.body, "status"), "completed");
  // A job_id of ours is taken as well, and a UUID of the client becomes the job's.
  EXPECT_EQ(client_->post("/v2/tasks", task(5, 3, ",\"task_id\":\"" + first + "\"")).status, 409);
  const std::string uuid = "0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b";
  EXPECT_EQ(client_->submit(task(5, 3, ",\"task_id\":\"" + uuid + "\"")), uuid);
  EXPECT_EQ(pool_->completed()[first], 1);
}

// Nothing new is asked for, and only the body says so.
TEST_F(AdmissionTest, ATaskIsFoundAgainByACallerAtItsLimits) {
  options_.config.orchestratord.queue.capacity = 1;
  options_.config.orchestratord.quotas.token_budget_daily = 53;  // two of 16 and 10 tokens, and one more
  start_with_pool();
  pool_->hold(true);
  const std::string first = task(1, 10, R"(,"task_id":"first")"), second = task(2, 10, R"(,"task_id":"second")");
  const std::string first_id = client_->submit(first);
  wait_until([this] { return pool_->running() == 1; }, "the first job to leave the queue");
  const std::string second_id = client_->submit(second);
  EXPECT_EQ(code_of(client_->post("/v2/tasks", task(3, 1))), "QUOTA_EXCEEDED");
  for (const auto& [body, id] : {std::pair(first, first_id), std::pair(second, second_id)}) {
    const net::Response again = client_->post("/v2/tasks", body);
    EXPECT_EQ(again.status, 202) << again.body;
    EXPECT_EQ(field(again.body, "job_id"), id);
  }
  pool_->hold(false);
  for (const std::string& id : {first_id, second_id}) client_->read(events_path(id));
  const net::Response stream = client_->post("/v2/tasks?stream=true", second);
  EXPECT_EQ(stream.status, 200) << stream.body;
}

TEST_F(AdmissionTest, TheSameTaskSubmittedManyTimesAtOnceIsOneJob) {
  start_with_pool();
  std::vector<std::future<std::string>> answers;
  for (int i = 0; i < 8; ++i) {
    answers.push_back(std::async(std::launch::async, [this] {
      TestClient own(client_->url());
      return own.submit(task(5, 3, R"(,"task_id":"my-task")"));
    }));
  }
  std::set<std::string> ids;
  for (auto& answer : answers) ids.insert(answer.get());
  EXPECT_EQ(ids.size(), 1u);
  client_->read(events_path(*ids.begin()));
  EXPECT_EQ(pool_->executions(), 1);
}

TEST_F(AdmissionTest, TheListShowsTheNewestFirst) {
  start_with_pool();
  pool_->hold(true);
  std::vector<std::string> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(client_->submit(task(1)));
  wait_until([this] { return pool_->running() == 1; }, "the first job to run");
  wait_until([&] { return status_of(ids[0]) == "running"; }, "its row");
  const std::string list = client_->get("/v2/tasks?limit=2").body;
  EXPECT_LT(list.find(ids[2]), list.find(ids[1]));
  EXPECT_EQ(list.find(ids[0]), std::string::npos);
  EXPECT_NE(list.find("\"queue_position\":1"), std::string::npos) << list;
  EXPECT_NE(list.find("\"reason\":{\"code\":\"WAITING_FOR_"), std::string::npos) << list;
  // A job that comes meanwhile is on no later page.
  const std::string newer = client_->submit(task(1));
  EXPECT_EQ(field(list, "next_before"), ids[1]) << "no number of jobs that others could be counted by";
  const std::string rest = client_->get("/v2/tasks?limit=2&before=" + field(list, "next_before")).body;
  EXPECT_NE(rest.find(ids[0]), std::string::npos) << rest;
  for (const std::string& other : {ids[1], ids[2], newer}) EXPECT_EQ(rest.find(other), std::string::npos) << rest;
  EXPECT_EQ(rest.find("next_before"), std::string::npos) << rest;
  for (const char* bad :
       {"limit=0", "limit=1001", "limit=x", "limit=", "before=0", "before=", "before=a%20b", "live=", "live=queued"}) {
    EXPECT_EQ(client_->get(std::string("/v2/tasks?") + bad).status, 400) << bad;
  }
}

TEST_F(AdmissionTest, TheListOfLiveJobsLeavesOutWhatHasEnded) {
  start_with_pool();
  pool_->hold(true);
  std::vector<std::string> ids;
  for (int i = 0; i < 4; ++i) ids.push_back(client_->submit(task(1)));
  wait_until([&] { return status_of(ids[0]) == "running"; }, "the first job to run");
  client_->call("DELETE", "/v2/tasks/" + ids[2]);
  wait_until([&] { return status_of(ids[2]) == "cancelled"; }, "a job to end");
  const auto shown = [&](const std::string& query) {
    const std::string list = client_->get("/v2/tasks?" + query).body;
    std::string out;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (list.find("\"job_id\":\"" + ids[i]) != std::string::npos) out += std::to_string(i);
    }
    return out;
  };
  EXPECT_EQ(shown("live=true"), "013");
  EXPECT_EQ(shown("live=true&limit=2"), "13") << "the newest";
  EXPECT_EQ(shown("live=true&before=" + ids[2]), "01");
  EXPECT_EQ(shown("live=false"), "0123");
}

// ---- cancelling ---------------------------------------------------------------------------------------------------

// ORCH-2003, SYS-7.4.1, ORCH-3026: cancel is idempotent, and no token follows its answer.
TEST_F(AdmissionTest, CancelByPostAndByDelete) {
  start_with_pool();
  pool_->hold(true);
  const std::string running = client_->submit(task(1, 1000));
  const std::string queued = client_->submit(task(2));
  wait_until([this] { return pool_->running() == 1; }, "the first job to run");

  const net::Response by_delete = client_->call("DELETE", "/v2/tasks/" + queued);
  EXPECT_EQ(by_delete.status, 202);
  EXPECT_EQ(field(by_delete.body, "status"), "cancelled");
  const auto of_queued = client_->read(events_path(queued));
  EXPECT_EQ(names_of(of_queued.events), (std::vector<std::string>{"queued", "error"}));
  EXPECT_EQ(field(of_queued.events.back().data, "code"), "CANCELLED");

  auto reading = std::async(std::launch::async, [&] { return client_->read(events_path(running)); });
  pool_->hold(false);
  wait_until([&] { return client_->get("/v2/tasks/" + running).body.find("\"tokens_out\":0") == std::string::npos; },
             "tokens");
  const net::Response by_post = client_->post("/v2/tasks/" + running + "/cancel");
  EXPECT_EQ(by_post.status, 202);
  const std::string tokens_at_answer = field(client_->get("/v2/tasks/" + running).body, "tokens_out");
  const auto events = reading.get().events;
  EXPECT_EQ(events.back().event, "error");
  EXPECT_LE(tokens_of(events).size(), std::stoul(tokens_at_answer));
  wait_until([this] { return pool_->running() == 0; }, "the worker to be told");
  EXPECT_GE(pool_->cancels(), 1);

  const net::Response again = client_->post("/v2/tasks/" + running + "/cancel");
  EXPECT_EQ(again.status, 200);
  EXPECT_EQ(field(again.body, "status"), "cancelled");
  EXPECT_EQ(client_->post("/v2/tasks/no-such-job/cancel").status, 404);
  EXPECT_EQ(client_->call("DELETE", "/v2/tasks/..%2f").status, 404);
  // The slot is usable again.
  const std::string next = client_->submit(task(3));
  EXPECT_EQ(client_->read(events_path(next)).events.back().event, "end");
}

TEST_F(AdmissionTest, UnknownJobsAreNotFound) {
  start();
  for (const char* path : {"/v2/tasks/nobody", "/v2/tasks/nobody/events"}) {
    const net::Response response = client_->get(path);
    EXPECT_EQ(response.status, 404) << path;
    EXPECT_EQ(code_of(response), "JOB_NOT_FOUND") << path;
  }
}

// Promise 5, SYS-9.2.3: prompts and outputs reach neither disk nor log.
TEST_F(AdmissionTest, NoPromptAndNoOutputIsKept) {
  start_with_pool();
  const std::string needle = "The needle in the haystack sings at midnight";
  const std::string body =
      R"({"model":"demo","prompt":")" + needle + R"(","max_tokens":20,"seed":5,"stop":["needle stop"]})";
  pool_->hold(true);
  const std::string job_id = client_->submit(body);
  wait_until([this] { return pool_->running() == 1; }, "the job to run");
  EXPECT_FALSE(any_file_holds(options_.state_directory, needle));
  EXPECT_FALSE(any_file_holds(options_.state_directory, "needle stop"));
  pool_->hold(false);
  client_->read(events_path(job_id));
  client_->post("/v2/tasks", R"({"model":"nobody","prompt":")" + needle + R"(","max_tokens":20})");
  client_->post("/v2/tasks", R"({"model":"demo","prompt":")" + needle + R"(","max_tokens":-1})");
  client_.reset();
  daemon_.reset();
  EXPECT_FALSE(any_file_holds(options_.state_directory, needle));
  for (const std::string& token : FakePool::expected_tokens(5, 20)) {
    EXPECT_FALSE(any_file_holds(options_.state_directory, token.substr(1))) << token;
    EXPECT_EQ(log().find(token), std::string::npos) << token;
  }
  EXPECT_EQ(log().find("needle"), std::string::npos);
}

}  // namespace
}  // namespace llorch::orchestratord::daemon::testing
