#pragma once
// The choice of experts of docs/internals/numerics.md, one scalar step after the other.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/params.h"

namespace llorch::engine::compute::reference {

struct ExactRoute {
  std::vector<std::uint32_t> experts;  // ascending
  std::vector<float> weights;
};
// `logits` [E], bias included; `selection_bias` [E] or empty. No logit is NaN.
ExactRoute route_exact(std::span<const float> logits, std::span<const float> selection_bias,
                       const plan::MoeParams& params);

}  // namespace llorch::engine::compute::reference
