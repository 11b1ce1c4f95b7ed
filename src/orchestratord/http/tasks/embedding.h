#pragma once
// The inputs of an embedding or rerank job as tokens, each checked against the model. Pure.
#include <cstdint>
#include <string>
#include <vector>

#include "orchestratord/models/catalog.h"
#include "wire/task.h"
#include "wire/worker.h"

namespace llorch::orchestratord::http::tasks {

// What such a job gives a worker.
struct EmbeddingPrompt {
  std::vector<std::int32_t> tokens;  // of all inputs, one behind the other
  wire::EmbeddingOrder order;
  // Hex SHA-256 over the SHA-256 (32 bytes) of each input: of its text, or of its ids as i32, little-endian. Of an input that
  // was cut, the ids that are left. Of reranking, of the query first.
  std::string sha256;
  std::vector<std::int64_t> cut_inputs;  // their numbers, ascending
};

// What becomes of an input that is longer than the context.
enum class LongInputs : std::uint8_t { kRefuse, kCut };

// Whether the model does what the request is for. Errors: INVALID_PARAMS with details field = workload.
base::Result<> check_workload(const wire::SubmitRequest& request, const wire::ModelFacts& facts);

// `context_tokens`: that an input may have; 0: unknown. Errors: INVALID_PARAMS with details field = input (one without tokens,
// with kRefuse one longer than the context, an id outside the vocabulary) or dimensions (more than the model's). A text that is
// cut keeps the tokens that the tokenizer puts behind every text. Of reranking an input is the query and a document, told as the
// model's chat template or its tokenizer tells pairs, at `now`; a model that has neither is INVALID_PARAMS, field = query.
// REQUIRES: a request with `input` and a model that passes check_workload().
base::Result<EmbeddingPrompt> embedding_prompt(const wire::SubmitRequest& request, const models::KnownModel& model,
                                               std::int64_t context_tokens,
                                               LongInputs long_inputs = LongInputs::kRefuse, base::Time now = {});

}  // namespace llorch::orchestratord::http::tasks
