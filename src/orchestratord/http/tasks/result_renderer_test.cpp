#include "orchestratord/http/tasks/result_renderer.h"

#include <gtest/gtest.h>

#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

TEST(ResultRenderer, ACompletedJobIsOneTaskResult) {
  ResultRenderer renderer("job-1", "task-1", wire::Workload::kCompletion);
  std::string out;
  renderer.started({.job_id = "job-1", .seed = 7}, {1, 0}, out);
  renderer.token({.t = "Once\n", .i = 0}, {2, 0}, out);
  renderer.token({.t = "", .i = 1}, {3, 0}, out);
  renderer.token({.t = " upon", .i = 2}, {4, 0}, out);
  EXPECT_EQ(out, "");
  const wire::EndEvent end{.job_id = "job-2", .tokens_in = 4, .tokens_out = 3, .receipt = wire::Receipt{.seed = 7}};
  renderer.end(end, {5, 0}, out);
  EXPECT_EQ(renderer.head().status, 200);
  EXPECT_EQ(renderer.head().headers.get("Content-Type"), "application/json");
  const auto result = wire::decode<wire::TaskResult>(out, wire::UnknownKeys::kRefuse);
  ASSERT_TRUE(result) << out;
  EXPECT_EQ(result->text, "Once\n upon");
  EXPECT_EQ(result->job_id, "job-1") << "it ran once more, under another name";
  EXPECT_EQ(result->task_id, "task-1");
  EXPECT_EQ(result->tokens_out, 3);
  EXPECT_EQ(result->receipt, end.receipt);
  EXPECT_FALSE(result->logprobs);
}

TEST(ResultRenderer, LogprobsAreThoseOfTheTokens) {
  ResultRenderer renderer("job-1", "task-1", wire::Workload::kCompletion);
  std::string out;
  const wire::TokenLogprobs logprobs{.id = 5, .logprob = -0.5, .token = "a", .bytes = {97}, .top_logprobs = {}};
  renderer.token({.t = "a", .i = 0, .logprobs = wire::encode(logprobs)}, {2, 0}, out);
  renderer.end({.job_id = "job-1", .tokens_out = 1}, {3, 0}, out);
  const auto result = wire::decode<wire::TaskResult>(out, wire::UnknownKeys::kRefuse);
  ASSERT_TRUE(result && result->logprobs);
  ASSERT_EQ(result->logprobs->size(), 1u);
  EXPECT_EQ(wire::encode(result->logprobs->front()), wire::encode(logprobs));
}

TEST(ResultRenderer, LogprobsOfThePromptStandApart) {
  ResultRenderer renderer("job-1", "task-1", wire::Workload::kCompletion);
  std::string out;
  const wire::PromptTokenLogprobs first{.id = 4, .token = "p", .bytes = {112}};
  renderer.token({.t = "", .i = 0, .logprobs = wire::encode(first), .of_prompt = true}, {2, 0}, out);
  renderer.token({.t = "a", .i = 1}, {3, 0}, out);
  renderer.end({.job_id = "job-1", .tokens_out = 1}, {4, 0}, out);
  const auto result = wire::decode<wire::TaskResult>(out, wire::UnknownKeys::kRefuse);
  ASSERT_TRUE(result && result->prompt_logprobs) << out;
  ASSERT_EQ(result->prompt_logprobs->size(), 1u);
  EXPECT_EQ(wire::encode(result->prompt_logprobs->front()), wire::encode(first));
  EXPECT_FALSE(result->logprobs);
  EXPECT_EQ(result->text, "a");
}

TEST(ResultRenderer, TokensOfAnEmbeddingJobAreItsVectors) {
  ResultRenderer renderer("job-1", "task-1", wire::Workload::kEmbedding);
  std::string out;
  renderer.token({.t = "AACAPw==", .i = 0}, {2, 0}, out);
  renderer.token({.t = "AACAvw==", .i = 1}, {3, 0}, out);
  renderer.end({.job_id = "job-1", .tokens_out = 2}, {4, 0}, out);
  const auto result = wire::decode<wire::TaskResult>(out, wire::UnknownKeys::kRefuse);
  ASSERT_TRUE(result && result->embeddings);
  EXPECT_EQ(*result->embeddings, (std::vector<std::string>{"AACAPw==", "AACAvw=="}));
  EXPECT_EQ(result->text, "");
}

// What was said before a failure is no result.
TEST(ResultRenderer, AFailedJobIsItsErrorUnderItsStatus) {
  ResultRenderer renderer("job-1", "task-1", wire::Workload::kCompletion);
  std::string out;
  renderer.token({.t = "half a secret", .i = 0}, {2, 0}, out);
  renderer.error({.code = "TIMEOUT", .message = "m", .correlation_id = "c-1"}, streams::EventId{3, 0}, out);
  EXPECT_EQ(renderer.head().status, 504);
  EXPECT_EQ(
      out,
      R"({"error":{"code":"TIMEOUT","message":"m","details":{"job_id":"job-1"},"retriable":false,"correlation_id":"c-1"}})");
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
