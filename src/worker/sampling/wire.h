#pragma once
// Between the wire's sampling fields and the sampler's.
#include <cstdint>
#include <string>

#include "contract/sampling.h"
#include "contract/worker.h"
#include "engine/sampling/logprobs.h"
#include "engine/sampling/params.h"
#include "engine/text/tokenizer.h"

namespace llorch::worker::sampling {

// REQUIRES a decoded request, whose ranges are those of the wire.
engine::sampling::SamplingParams engine_params(const contract::ExecuteRequest& request, std::uint64_t seed);

// Ids with what they spell.
contract::TokenLogprobs wire_logprobs(const engine::sampling::TokenLogprobs& logprobs,
                                      const engine::text::Tokenizer& tokenizer);

}  // namespace llorch::worker::sampling
