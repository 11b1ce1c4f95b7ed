#pragma once
// Converts a request's sampling fields to the sampler's parameters, and log-probabilities to their form on the wire.
#include <cstdint>
#include <string>

#include "engine/sampling/logprobs.h"
#include "engine/sampling/params.h"
#include "text/tokenizer.h"
#include "wire/sampling.h"
#include "wire/worker.h"

namespace llorch::worker::sampling {

// REQUIRES a decoded request, whose ranges are those of the wire.
engine::sampling::SamplingParams engine_params(const wire::ExecuteRequest& request, std::uint64_t seed);

// Of a prompt's token that follows on nothing.
wire::PromptTokenLogprobs first_logprobs(base::TokenId token, const text::Tokenizer& tokenizer);
wire::PromptTokenLogprobs prompt_logprobs(const engine::sampling::TokenLogprobs& logprobs,
                                          const text::Tokenizer& tokenizer);
// Ids with what they spell.
wire::TokenLogprobs wire_logprobs(const engine::sampling::TokenLogprobs& logprobs, const text::Tokenizer& tokenizer);

}  // namespace llorch::worker::sampling
