#pragma once
// Which experts a row goes to, and with which weight.
#include <cstdint>
#include <span>

#include "engine/compute/cpu/kernels.h"
#include "engine/plan/params.h"

namespace llorch::engine::compute::cpu::adapters::moe {

// What one call works in; nothing of it is kept.
struct RouteScratch {
  float* scores = nullptr;          // [E]
  float* group_scores = nullptr;    // [groups]
  float* best = nullptr;            // [max(k, groups_used)]
  std::uint32_t* groups = nullptr;  // [groups_used]
};

struct Route {
  std::uint32_t* experts = nullptr;  // [k], ascending
  float* weights = nullptr;          // [k], parallel
};

// What a row's choice depends on beside its logits.
struct RouteRules {
  const float* selection_bias = nullptr;  // [E] or null: steers the choice and not the weights
  const float* table_row = nullptr;       // [k] or null: the experts, whatever the logits are
  const float* expert_scale = nullptr;    // [E] or null: weights are multiplied with it
};

// `logits` [E] are the router's, bias included, and are overwritten. A function of its inputs alone; equal scores go to the lower number. REQUIRES: routable(p) (adapter_checks.h).
void route_row(const Kernels& kernels, const plan::MoeParams& p, float* logits, const RouteRules& rules,
               const RouteScratch& scratch, const Route& out);

// The numbers of the `out.size()` largest scores, largest first, equal ones in ascending order. `best` [out.size()] is
// scratch. REQUIRES: out.size() <= scores.size().
void choose_largest(std::span<const float> scores, float* best, std::span<std::uint32_t> out);

}  // namespace llorch::engine::compute::cpu::adapters::moe
