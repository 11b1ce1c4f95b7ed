#pragma once
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// First 128 bits of SHA-256 over a canonical little-endian form of everything in the plan but its diagnostics and hash.
plan::Hash128 hash_plan(const plan::CompiledPlan& plan, plan::ExecutionMode mode);

}  // namespace llorch::engine::models
