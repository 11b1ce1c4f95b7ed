#pragma once
// Log-probabilities of the model itself: from the raw logits, before any step of the chain (OpenAI's meaning).
#include <array>
#include <cstdint>
#include <span>

#include "engine/sampling/params.h"

namespace llorch::engine::sampling {

struct TokenLogprob {
  TokenId token{};
  float logprob = 0;  // natural logarithm, at most 0, finite
};

struct TokenLogprobs {
  TokenLogprob chosen;
  std::array<TokenLogprob, kTopLogprobsMax> top{};  // by (logit desc, id asc)
  std::uint32_t top_count = 0;

  std::span<const TokenLogprob> likeliest() const { return std::span(top).first(top_count); }
};

// logprob = (l - l_max) - ln_s1(sum of exp_s1(l - l_max)), the sum in the order of math/dense_sums.h; clamped to the
// finite range. `top_count`: how many of the likeliest tokens, at most kTopLogprobsMax (and the vocabulary). Pure.
// REQUIRES every logit finite, index(chosen) < logits.size().
TokenLogprobs token_logprobs(std::span<const float> logits, TokenId chosen, std::uint32_t top_count);

}  // namespace llorch::engine::sampling
