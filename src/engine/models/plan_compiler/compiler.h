#pragma once
#include "base/result.h"
#include "engine/models/config/model_config.h"
#include "engine/models/plan_compiler/arena.h"
#include "engine/models/plan_compiler/shard.h"
#include "engine/models/weights/names.h"
#include "engine/models/weights/recipe.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// What the layers of another plan have of the pages that see every position.
struct SharedPages {
  std::uint32_t layers_count = 0;
  std::uint64_t page_bytes = 0;
  std::uint64_t bytes_per_token = 0;
};

struct CompileInput {
  const WeightNames& names;
  const ModelConfig& config;
  plan::ExecutionMode mode;
  plan::DType kv_dtype;
  Shard shard = {};
  SharedPages shared_pages = {};  // of a plan that predicts: its layer's part of a page follows
};

// Walks the family's layer templates and emits the whole model as one SSA plan. The result is validated and lives in `arena`;
// the tensors it binds are added to `tensors`.
// Errors: those of plan::validate and TensorTable::add, CONFIG_KEY_INVALID (a cache beyond 4 GiB per position),
// UNSUPPORTED_OPCODE (an operation the compiler has no rule for), MODEL_INCOMPATIBLE (shard.h).
base::Result<plan::CompiledPlan> compile_plan(const CompileInput& input, TensorTable& tensors, PlanArena& arena);

}  // namespace llorch::engine::models
