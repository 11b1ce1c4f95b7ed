#pragma once
#include "engine/models/plan_compiler/arena.h"
#include "engine/plan/adapter.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// Assigns buffers to registers by a linear scan in instruction order. An output takes over the buffer of input(0) when the
// instruction is its last reader, the adapter may alias and the specs match; else the best-fitting free buffer of equal
// type; else a new one. Sizes hold `limits`. REQUIRES: a validated plan. The result lives in `arena`.
plan::PhysicalMapping map_registers(const plan::CompiledPlan& plan, const plan::AdapterCapabilities& capabilities,
                                    const plan::StepLimits& limits, PlanArena& arena);

}  // namespace llorch::engine::models
