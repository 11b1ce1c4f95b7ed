#pragma once
// What a model's jobs need of a worker, and whether a worker offers it (OC-CORE-1014, OC-CORE-1016). What nobody said is
// absent, never guessed.
#include <cstdint>
#include <optional>
#include <string_view>

#include "wire/pool.h"

namespace llorch::orchestratord::core::placement {

// How this server starts workers; part of every requirement.
struct WorkerPolicy {
  std::optional<std::int64_t> context_tokens;  // absent: the model's own
  std::int64_t image_tokens_max = 0;
  std::string_view kv_dtype;
};

// Its texts are those of the facts and the policy it was made of, which must outlive it.
struct ModelRequirements {
  std::string_view digest;
  // The limit that a user sees: prompt, with what tokenizer and template add to it, and answer together.
  std::optional<std::int64_t> context_tokens;
  std::optional<std::string_view> quant;
  std::int64_t image_tokens = 0;  // 0: the model takes no images, or the server none
  std::string_view kv_dtype;      // same bytes for the same request need the same
};
ModelRequirements requirements_of(const wire::ModelFacts& facts, const WorkerPolicy& policy);

enum class Unmet : std::uint8_t { kNone, kModel, kContext, kExtensions };
std::string_view reason(Unmet unmet);  // "", "MODEL_MISMATCH", "INSUFFICIENT_CTX", "EXTENSIONS_UNSATISFIED"

// A context or KV type that the worker does not tell refuses nothing. Of two things unmet the first of the enumeration.
Unmet unmet(const ModelRequirements& required, const wire::WorkerInfo& offered);

}  // namespace llorch::orchestratord::core::placement
