#include "orchestratord/http/tasks/told_logprobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "orchestratord/http/chat/parsing.h"

namespace llorch::orchestratord::http::tasks {
namespace {

std::int64_t entries_of_token(const wire::SamplingRequest& sampling) { return 1 + sampling.top_logprobs; }

}  // namespace

std::optional<std::int64_t> told_tokens_max(const wire::SamplingRequest& sampling, std::int64_t jobs) {
  if (!sampling.logprobs) return std::nullopt;
  return std::max<std::int64_t>(kAnswerLogprobsMax / entries_of_token(sampling) / jobs, 1);
}

base::Result<> check_told_tokens(const wire::SamplingRequest& sampling, std::optional<std::int64_t> max_tokens) {
  const std::optional<std::int64_t> most = told_tokens_max(sampling, 1);
  if (!most || max_tokens.value_or(1) <= *most) return {};
  return chat::refused("max_tokens", "logprobs",
                       fmt::format("max_tokens is {}; with {} of the likeliest ones each, log-probabilities of at most "
                                   "{} tokens of output are told: ask for fewer tokens, or list fewer",
                                   *max_tokens, sampling.top_logprobs, *most));
}

base::Result<> check_told_prompts(const wire::SamplingRequest& sampling, std::int64_t prompt_tokens) {
  const std::int64_t most = kAnswerLogprobsMax / entries_of_token(sampling);
  if (!sampling.prompt_logprobs.value_or(false) || prompt_tokens <= most) return {};
  return chat::refused("prompt", "logprobs",
                       fmt::format("the prompts of all choices have {} tokens or more; with {} of the likeliest ones "
                                   "each, one answer tells log-probabilities of at most {}: list fewer, send fewer "
                                   "prompts, or stream",
                                   prompt_tokens, sampling.top_logprobs, most));
}

}  // namespace llorch::orchestratord::http::tasks
