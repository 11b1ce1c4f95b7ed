#pragma once
// One embedding or rerank job inside the worker as a pure state machine: inputs in, pooled rows in, vectors or scores out.
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/id.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/token_id.h"
#include "wire/worker.h"

namespace llorch::worker::embedding {

// What the model of this worker takes and gives.
struct EmbeddingModel {
  std::size_t vocab = 0;
  std::int64_t context_tokens = 0;
  std::int64_t dimensions = 0;
  std::uint32_t token_types = 0;  // that tell a pair's texts apart
};

struct EmbeddingSpec {
  base::JobId job_id;
  std::optional<std::string> execution_id{};  // of this run
  std::vector<base::TokenId> prompt;          // of all inputs, one behind the other
  std::vector<std::size_t> input_begins;      // in `prompt`; and its size behind the last
  std::string prompt_sha256;
  std::string parameters_sha256;
  std::optional<std::int64_t> dimensions;
  bool scores = false;
  std::uint64_t seed = 0;  // decides nothing here; a receipt names it

  std::size_t inputs_count() const { return input_begins.size() - 1; }
  std::span<const base::TokenId> input(std::size_t i) const {
    return std::span(prompt).subspan(input_begins[i], input_begins[i + 1] - input_begins[i]);
  }
};

// Errors: INVALID_PARAMS (a token id outside the vocabulary, an input longer than the context, more dimensions than the
// model's). REQUIRES: a valid request with `embedding`.
base::Result<EmbeddingSpec> make_embedding_spec(const wire::ExecuteRequest& request, const EmbeddingModel& model);

// The vector of an input, or its score (vector_text.h).
struct VectorOut {
  std::string text;
  std::int64_t index = 0;  // of the input
};

class EmbeddingJob {
 public:
  explicit EmbeddingJob(EmbeddingSpec spec) : spec_(std::move(spec)), waiting_(spec_.inputs_count()) {}

  const EmbeddingSpec& spec() const { return spec_; }
  std::uint64_t seed() const { return spec_.seed; }
  // The pooled row of an input: the vectors that can be handed out now, in order. Errors: those of vector_text() and score_text().
  // REQUIRES: each input once.
  base::Result<std::vector<VectorOut>> accept(std::size_t input, std::span<const float> row);

  bool finished() const { return tokens_out() == static_cast<std::int64_t>(waiting_.size()); }
  std::int64_t tokens_out() const { return static_cast<std::int64_t>(handed_out_); }  // vectors
  // Lower-case hex SHA-256 of the texts handed out so far.
  std::string output_sha256() const { return base::to_hex(output_hash_.digest()); }

 private:
  EmbeddingSpec spec_;
  std::vector<std::optional<std::string>> waiting_;  // by input: for those before it
  std::size_t handed_out_ = 0;
  base::Sha256 output_hash_;
};

}  // namespace llorch::worker::embedding
