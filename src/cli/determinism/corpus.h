#pragma once
// The requests every determinism check runs: corpus.json, built into the binary. Seeds and order never change; new requests
// come at the end with the next seed (OC-TEST-7003).
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/sampling/params.h"

namespace llorch::cli::determinism {

struct Request {
  std::uint64_t seed = 0;  // names the request
  std::vector<base::TokenId> prompt;
  std::uint32_t max_tokens = 0;  // drawn exactly as many: no token ends a request of the corpus
  engine::sampling::SamplingParams sampling;
  std::uint32_t tokens_max() const { return static_cast<std::uint32_t>(prompt.size()) + max_tokens; }
};

struct ModelShape {
  std::uint32_t vocab = 0;
  std::uint32_t context_tokens = 0;
};

// The text of corpus.json.
std::string_view corpus_json();
// The corpus for a model. A prompt is a function of the vocabulary's size, not of its words: token i is drawn from the
// request's seed, or, within a shared beginning, from the other request's. Prompts that the context cannot hold are cut.
// Errors: INVALID_PARAMS (a corpus that is not one; a context of fewer than 64 tokens).
base::Result<std::vector<Request>> make_corpus(std::string_view json, const ModelShape& model);
// `count` requests spread evenly over the corpus, in order.
std::vector<Request> thin_out(std::vector<Request> corpus, std::size_t count);

}  // namespace llorch::cli::determinism
