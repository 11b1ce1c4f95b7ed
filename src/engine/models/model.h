#pragma once
// The public door of engine/models: a file in, plans and what they need out.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/contract/backend.h"
#include "engine/contract/plan.h"
#include "engine/io/gguf.h"
#include "engine/models/config.h"
#include "engine/models/plan/arena.h"
#include "engine/models/rope.h"

namespace llorch::engine::models {

struct BoundTensor {
  std::uint32_t tensor = 0;       // WeightBinding::tensor
  std::string_view name;          // view into the file
  contract::StoredTensor stored;  // bytes are a view into the file
};

struct CompiledModel {
  ModelConfig config;
  contract::ModelPlans plans;              // views into `arena`
  std::vector<RopeTableData> rope_tables;  // index is rope_table_id
  std::vector<BoundTensor> tensors;        // each bound tensor once, ascending; use before the file is closed
  std::uint64_t parameters_count = 0;
  contract::DType weight_dtype{};  // the type most matrix elements are stored in
  std::unique_ptr<PlanArena> arena;
};

// Reads the configuration, checks every tensor and compiles the plans. Touches no weight bytes but rope_freqs.weight.
// Errors: CONFIG_KEY_MISSING, CONFIG_KEY_INVALID, UNKNOWN_ARCHITECTURE, MISSING_WEIGHT, UNCLAIMED_WEIGHT,
// WEIGHT_SHAPE_MISMATCH, and those of contract::validate.
base::Result<CompiledModel> compile_model(const io::GgufFile& file, contract::DType kv_dtype);

}  // namespace llorch::engine::models
