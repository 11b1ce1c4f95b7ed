#pragma once
// Log-probabilities as llama.cpp's server tells them in both of its APIs.
#include <vector>

#include "base/json_view.h"
#include "wire/sampling.h"

namespace llorch::adapter::engines {

// Of a list of tokens; empty: it is absent, or holds one that is none (without an id, or with a number out of range).
std::vector<wire::TokenLogprobs> token_logprobs(const boost::json::value* list);

}  // namespace llorch::adapter::engines
