#pragma once
#include "engine/contract/plan.h"

namespace llorch::engine::models {

// First 128 bits of SHA-256 over a canonical little-endian form of everything in the plan but its diagnostics and hash.
contract::Hash128 hash_plan(const contract::CompiledPlan& plan, contract::ExecutionMode mode);

}  // namespace llorch::engine::models
