#include "orchestratord/http/tasks/told_logprobs.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http::tasks {
namespace {

TEST(ToldLogprobs, OfAnOutputHaveABound) {
  wire::SamplingRequest sampling;
  EXPECT_EQ(told_tokens_max(sampling, 1), std::nullopt) << "nobody asked";
  EXPECT_TRUE(check_told_tokens(sampling, 1'000'000));
  sampling.logprobs = true;
  EXPECT_EQ(told_tokens_max(sampling, 1), kAnswerLogprobsMax);
  sampling.top_logprobs = 20;
  EXPECT_EQ(told_tokens_max(sampling, 1), kAnswerLogprobsMax / 21);
  EXPECT_EQ(told_tokens_max(sampling, 16), kAnswerLogprobsMax / 21 / 16);
  EXPECT_EQ(told_tokens_max(sampling, 1'000'000), 1) << "an output has a token";
  EXPECT_TRUE(check_told_tokens(sampling, std::nullopt));
  EXPECT_TRUE(check_told_tokens(sampling, 12483));
  const auto refused = check_told_tokens(sampling, 12484);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(
      refused.error().message.find("max_tokens is 12484; with 20 of the likeliest ones each, log-probabilities of "
                                   "at most 12483 tokens of output are told"),
      std::string::npos)
      << refused.error().message;
}

TEST(ToldLogprobs, OfAllPromptsOfAnAnswerHaveABound) {
  wire::SamplingRequest sampling{.logprobs = true, .top_logprobs = 1};
  EXPECT_TRUE(check_told_prompts(sampling, kAnswerLogprobsMax)) << "nobody asked";
  sampling.prompt_logprobs = true;
  EXPECT_TRUE(check_told_prompts(sampling, kAnswerLogprobsMax / 2));
  const auto refused = check_told_prompts(sampling, kAnswerLogprobsMax / 2 + 1);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(refused.error().message.find("at most 131072"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
