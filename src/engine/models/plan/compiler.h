#pragma once
#include "base/result.h"
#include "engine/contract/plan.h"
#include "engine/io/gguf.h"
#include "engine/models/config.h"
#include "engine/models/family.h"
#include "engine/models/plan/arena.h"

namespace llorch::engine::models {

struct CompileInput {
  const io::GgufFile& file;
  const Family& family;
  const ModelConfig& config;
  contract::ExecutionMode mode;
  contract::DType kv_dtype;
};

// Walks the family's programmes and emits the whole model as one SSA plan. The result is validated and lives in `arena`.
// Errors: those of contract::validate, WEIGHT_SHAPE_MISMATCH, UNSUPPORTED_OPCODE (an operation the compiler has no rule for).
base::Result<contract::CompiledPlan> compile_plan(const CompileInput& input, PlanArena& arena);

}  // namespace llorch::engine::models
