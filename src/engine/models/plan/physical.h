#pragma once
#include "engine/contract/adapter.h"
#include "engine/contract/plan.h"
#include "engine/models/plan/arena.h"

namespace llorch::engine::models {

// Assigns buffers to registers by a linear scan in instruction order. An output takes over the buffer of input(0) when the
// instruction is its last reader, the adapter may alias and the specs match; else the best-fitting free buffer of equal type
// and layout; else a new one. Sizes hold `limits`. REQUIRES: a validated plan. The result lives in `arena`.
contract::PhysicalMapping map_registers(const contract::CompiledPlan& plan,
                                        const contract::AdapterCapabilities& capabilities,
                                        const contract::StepLimits& limits, PlanArena& arena);

}  // namespace llorch::engine::models
