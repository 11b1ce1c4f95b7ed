#pragma once
// Names to tensors: which stored tensor fills a weight slot, what is missing and what nobody uses.
#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "engine/contract/plan.h"
#include "engine/io/gguf.h"
#include "engine/models/family.h"

namespace llorch::engine::models {

// Replaces the `{}` of a pattern by the layer number; patterns without one are returned as they are.
std::string tensor_name(std::string_view pattern, std::uint32_t layer);

struct ResolvedWeight {
  std::uint32_t tensor = 0;  // index into file.tensors()
  bool fallback = false;     // found under WeightName::gguf_fallback
};

// The tensor of a slot; nullopt when the family has no name for it or the file no such tensor.
std::optional<ResolvedWeight> resolve_weight(const io::GgufFile& file, const Family& family,
                                             const contract::WeightKey& key);

// Every required slot has a tensor and every tensor a purpose.
// Errors: MISSING_WEIGHT, UNCLAIMED_WEIGHT; both say how many there are and name the first few.
base::Result<> check_tensor_names(const io::GgufFile& file, const Family& family, std::uint32_t layers);

}  // namespace llorch::engine::models
