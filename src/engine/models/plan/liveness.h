#pragma once
#include <cstdint>
#include <span>

#include "engine/contract/plan.h"
#include "engine/models/plan/arena.h"

namespace llorch::engine::models {

struct Liveness {
  contract::LivenessMap map;         // lives in the arena
  std::uint16_t peak_registers = 0;  // after adding an instruction's outputs, before its kills
};

// REQUIRES: registers in range, each written once and before it is read.
Liveness compute_liveness(std::span<const contract::Instruction> instructions, std::uint16_t register_count,
                          PlanArena& arena);

}  // namespace llorch::engine::models
