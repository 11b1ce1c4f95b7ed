#include "worker/embedding/embedding_job.h"

#include <fmt/format.h>

#include <utility>

#include "base/assert.h"
#include "engine/inference/batch_builder.h"
#include "worker/embedding/vector_text.h"

namespace llorch::worker::embedding {

// A token of the wire is one of the engine's.
static_assert(wire::kTokenTypeShift == engine::inference::kTokenTypeShift);

using base::ErrorCode;
using base::TokenId;

base::Result<EmbeddingSpec> make_embedding_spec(const wire::ExecuteRequest& request, const EmbeddingModel& model) {
  EmbeddingSpec spec{.job_id = base::JobId(request.job_id),
                     .execution_id = request.execution_id,
                     .prompt = {},
                     .input_begins = {0},
                     .prompt_sha256 = request.prompt_sha256.value_or(""),
                     .parameters_sha256 = wire::parameters_sha256(request),
                     .dimensions = request.embedding->dimensions,
                     .scores = request.embedding->scores.value_or(false),
                     .seed = request.seed.value_or(0)};
  if (spec.dimensions.value_or(1) > model.dimensions) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("dimensions is {}; vectors of this model have {}",
                                                             *spec.dimensions, model.dimensions));
  }
  spec.prompt.reserve(request.prompt_tokens->size());
  for (const std::int32_t id : *request.prompt_tokens) {
    const std::uint32_t type = static_cast<std::uint32_t>(id) >> wire::kTokenTypeShift;
    const std::uint32_t token = static_cast<std::uint32_t>(id) & ((1U << wire::kTokenTypeShift) - 1);
    if (id < 0 || token >= model.vocab || (type != 0 && type >= model.token_types)) {
      return base::fail(ErrorCode::kInvalidParams,
                        fmt::format("prompt_tokens holds an id outside the vocabulary of {} tokens", model.vocab));
    }
    spec.prompt.push_back(TokenId{static_cast<std::uint32_t>(id)});
  }
  for (const std::int64_t count : request.embedding->input_tokens) {
    if (count > model.context_tokens) {
      return base::fail(base::Error{
          ErrorCode::kInvalidParams,
          fmt::format("an input has {} tokens and this worker's context holds {}; send it in parts", count,
                      model.context_tokens),
          {}}.with("reason", "CONTEXT_TOO_LARGE")
                            .with("prompt_tokens", count)
                            .with("context_tokens", model.context_tokens));
    }
    spec.input_begins.push_back(spec.input_begins.back() + static_cast<std::size_t>(count));
  }
  return spec;
}

base::Result<std::vector<VectorOut>> EmbeddingJob::accept(std::size_t input, std::span<const float> row) {
  ASSERT(input < waiting_.size() && input >= handed_out_ && !waiting_[input], "input {} of {}", input, waiting_.size());
  waiting_[input] = TRY(spec_.scores ? score_text(row) : vector_text(row, spec_.dimensions));
  std::vector<VectorOut> ready;
  for (; handed_out_ < waiting_.size() && waiting_[handed_out_]; ++handed_out_) {
    ready.push_back({.text = *std::exchange(waiting_[handed_out_], std::nullopt), .index = tokens_out()});
    output_hash_.update(ready.back().text);
  }
  return ready;
}

}  // namespace llorch::worker::embedding
