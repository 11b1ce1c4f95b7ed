#pragma once
#include "base/result.h"
#include "engine/plan/plan.h"

namespace llorch::engine::plan {

// Checks every invariant of a plan before anything runs it. The first broken one is returned, naming the instruction.
// Errors: UNSUPPORTED_OPCODE (no such opcode), INVALID_INSTRUCTION_BINDING (register arity, an instruction nothing reads,
// a missing or needless state), INVALID_REGISTER_REF, REGISTER_REDEFINED, REGISTER_READ_BEFORE_WRITE, INVALID_REGISTER_SPEC,
// INVALID_WEIGHT_REF_COUNT, INVALID_WEIGHT_REF_INDEX, MISSING_WEIGHT (a required slot is absent), MISSING_PARAM_BLOCK,
// UNKNOWN_PARAM_BLOCK_ID, PARAM_BLOCK_OPCODE_MISMATCH, INVALID_PARAM_BLOCK_ABI, UNKNOWN_STATE_DESCRIPTOR_ID,
// DUPLICATE_STATE_DESCRIPTOR_ID, INVALID_STATE_ALIGNMENT, INVALID_LIVENESS, INVALID_PEAK_REGISTERS.
base::Result<> validate(const CompiledPlan& plan);

// Checks that the stages of a model agree about images: both or none of vision_encode and scattering prefill; one writer
// per part of the vision state, every part read, the same row and the same state on both sides; no scatter in decode.
// REQUIRES: each plan passed validate(). Errors: INVALID_VISION_STAGE_HANDOFF.
base::Result<> validate_vision_handoff(const ModelPlans& plans);

}  // namespace llorch::engine::plan
