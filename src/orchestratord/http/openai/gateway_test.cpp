// Several choices of one request: what is done once, and what each job has of its own.
#include "orchestratord/http/openai/gateway.h"

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "net/testing/silent_exchange.h"
#include "orchestratord/http/openai/choices.h"
#include "orchestratord/http/testing/held_pool.h"
#include "orchestratord/http/testing/idle_store.h"
#include "wire/json.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::openai {
namespace {

struct GatewayTest : testing::HeldPool {
  GatewayTest() {
    context.core = &core;
    context.board = &board;
    context.store = &store;
    context.hub = &hub;
    context.stopping = &stopping;
    EXPECT_TRUE(names->put({.model_id = "tale",
                            .source = "file:/models/tale.gguf",
                            .pool_id = pool.value,
                            .model_ref = "file:/models/tale.gguf"}));
  }
  void ask(std::string path, std::string body) {
    net::Request request;
    request.path = std::move(path);
    request.body = std::move(body);
    request.peer.principal = net::http::local_operator();
    gateway.create(request, std::make_shared<net::testing::SilentExchange>());
  }
  void describe() {
    wire::ModelFacts facts;
    facts.model_ref = "file:/models/tale.gguf";
    facts.digest = "sha256:aa";
    facts.context_length = 4096;
    facts.takes = wire::PromptForm::kText;
    answer("/v2/models/describe", wire::encode(facts));
  }

  std::vector<base::JobId> submitted;
  std::atomic<bool> stopping{false};
  AdmissionBoard board;
  IdleStore store;
  streams::StreamHub hub{{.limits = {}, .clock = &clock, .answers = &executor}};
  // Admits every job, and takes longer for each than what is known of a model stays new.
  CorePort core{[this](core::Event event) {
    const auto& submit = std::get<core::Submit>(event);
    submitted.push_back(submit.job.job_id);
    clock.advance_ms(60'000);
    core.answer(core::AnswerSubmit{submit.request, submit.job.job_id, core::Admission{}});
  }};
  tasks::Submitter submitter{context};
  deferred::BatchRunner batch_runner{context, submitter};
  Gateway gateway{context, submitter, batch_runner};
};

TEST_F(GatewayTest, ChoicesOfOnePromptArePreparedOnce) {
  ask("/v1/chat/completions",
      R"({"model":"tale","messages":[{"role":"user","content":"Hi"}],"n":3,"seed":7,"stop":["end"],"max_tokens":5})");
  describe();
  ASSERT_EQ(submitted.size(), 3U);
  EXPECT_TRUE(client.requests.empty()) << "the model is looked for once";
  std::set<std::string> tasks, requests;
  for (std::size_t i = 0; i < submitted.size(); ++i) {
    const LiveJobPtr job = jobs.find(submitted[i]);
    ASSERT_NE(job, nullptr);
    const auto execution = wire::decode<wire::ExecuteRequest>(job->payload);
    ASSERT_TRUE(execution) << execution.error().message;
    EXPECT_EQ(execution->job_id, submitted[i].value);
    EXPECT_EQ(execution->seed, choice_seed(7, static_cast<std::int64_t>(i)));
    EXPECT_EQ(execution->messages->text, R"([{"role":"user","content":"Hi"}])");
    EXPECT_EQ(execution->stop, std::vector<std::string>{"end"});
    EXPECT_EQ(execution->max_tokens, 5);
    EXPECT_EQ(job->record.model_ref, "file:/models/tale.gguf");
    tasks.insert(job->record.task_id);
    requests.insert(job->record.request_sha256);
  }
  EXPECT_EQ(tasks.size(), 3U);
  EXPECT_EQ(requests.size(), 3U) << "each is a request of its own";
}

TEST_F(GatewayTest, EachPromptIsPreparedOnce) {
  ask("/v1/completions", R"({"model":"tale","prompt":["a","b"],"n":2,"seed":7,"max_tokens":5})");
  describe();
  describe();
  ASSERT_EQ(submitted.size(), 4U);
  EXPECT_TRUE(client.requests.empty());
  std::string prompts;
  for (const base::JobId& job_id : submitted) {
    prompts += *wire::decode<wire::ExecuteRequest>(jobs.find(job_id)->payload)->prompt;
  }
  EXPECT_EQ(prompts, "aabb");
}

// Nothing of a choice is passed on before all have ended, so all share what one answer tells.
TEST_F(GatewayTest, ChoicesOfAWholeAnswerShareItsLogprobs) {
  const std::string body =
      R"({"model":"tale","messages":[{"role":"user","content":"Hi"}],"n":16,"logprobs":true,"top_logprobs":20,)"
      R"("max_tokens":2000,"stream":)";
  ask("/v1/chat/completions", body + "false}");
  describe();
  ask("/v1/chat/completions", body + "true}");
  describe();
  ASSERT_EQ(submitted.size(), 32U);
  EXPECT_EQ(jobs.find(submitted.front())->record.max_tokens, 262'144 / 21 / 16);
  EXPECT_EQ(jobs.find(submitted.back())->record.max_tokens, 2000);
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
