#include "orchestratord/core/placement/requirements.h"

#include <algorithm>

namespace llorch::orchestratord::core::placement {

ModelRequirements requirements_of(const wire::ModelFacts& facts, const WorkerPolicy& policy) {
  ModelRequirements r{.digest = facts.digest, .context_tokens = {}, .quant = {}, .kv_dtype = policy.kv_dtype};
  if (facts.context_length > 0) {
    r.context_tokens = std::min(facts.context_length, policy.context_tokens.value_or(facts.context_length));
  }
  if (!facts.quant_kind.empty()) r.quant = facts.quant_kind;
  if (facts.images) r.image_tokens = std::min(facts.images->tokens_max, policy.image_tokens_max);
  return r;
}

std::string_view reason(Unmet unmet) {
  switch (unmet) {
    case Unmet::kNone: return "";
    case Unmet::kModel: return "MODEL_MISMATCH";
    case Unmet::kContext: return "INSUFFICIENT_CTX";
    case Unmet::kExtensions: return "EXTENSIONS_UNSATISFIED";
  }
  return "";
}

Unmet unmet(const ModelRequirements& required, const wire::WorkerInfo& offered) {
  if (offered.model_digest != required.digest) return Unmet::kModel;
  const bool context_known = offered.context_length > 0 && required.context_tokens;
  if (context_known && offered.context_length < *required.context_tokens) return Unmet::kContext;
  const bool kv_known = !offered.kv_dtype.empty();
  if (offered.image_tokens_max < required.image_tokens) return Unmet::kExtensions;
  if (kv_known && offered.kv_dtype != required.kv_dtype) return Unmet::kExtensions;
  return Unmet::kNone;
}

}  // namespace llorch::orchestratord::core::placement
