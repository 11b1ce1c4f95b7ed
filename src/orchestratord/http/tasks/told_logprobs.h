#pragma once
// How many log-probabilities one answer tells: all of them lie in memory until it ends. Pure.
#include <cstdint>
#include <optional>

#include "base/result.h"
#include "wire/sampling.h"

namespace llorch::orchestratord::http::tasks {

// Entries of all outputs of one answer, and as many of all its prompts: those of the tokens themselves and the likeliest. As JSON some
// 20 MB each; a response that is kept has its output's five times.
inline constexpr std::int64_t kAnswerLogprobsMax = 262'144;

// How many tokens of output each of `jobs` jobs of one answer may have; absent: the request asks for no log-probabilities.
std::optional<std::int64_t> told_tokens_max(const wire::SamplingRequest& sampling, std::int64_t jobs);
// Whether that is room for a max_tokens that is not lowered. INVALID_PARAMS with the numbers.
base::Result<> check_told_tokens(const wire::SamplingRequest& sampling, std::optional<std::int64_t> max_tokens);
// Whether one answer may tell prompts of so many tokens together. INVALID_PARAMS with the numbers.
base::Result<> check_told_prompts(const wire::SamplingRequest& sampling, std::int64_t prompt_tokens);

}  // namespace llorch::orchestratord::http::tasks
