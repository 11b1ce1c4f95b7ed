#pragma once
#include <cstdint>
#include <span>

#include "engine/models/plan_compiler/arena.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

struct Liveness {
  plan::LivenessMap map;             // lives in the arena
  std::uint16_t peak_registers = 0;  // after adding an instruction's outputs, before its kills
};

// REQUIRES: registers in range, each written once and before it is read.
Liveness compute_liveness(std::span<const plan::Instruction> instructions, std::uint16_t register_count,
                          PlanArena& arena);

}  // namespace llorch::engine::models
