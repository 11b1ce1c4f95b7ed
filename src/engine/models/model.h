#pragma once
// The public door of engine/models: files in, plans and what they need out.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/model_files.h"
#include "engine/models/config/model_config.h"
#include "engine/models/plan_compiler/arena.h"
#include "engine/models/plan_compiler/shard.h"
#include "engine/models/rope.h"
#include "engine/models/weights/bound_tensor.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

struct Family;

struct CompiledModel {
  ModelConfig config;
  plan::ModelPlans plans;                    // views into `arena`
  std::vector<RopeTableData> rope_tables;    // index is rope_table_id
  std::uint32_t long_rope_context = 0;       // slots that may pass it use the long tables; 0 = no long tables
  std::vector<BoundTensor> tensors;          // index is WeightBinding::tensor; fetch before the files are closed
  bool predictor_hands_on_unnormed = false;  // Predictor's, where there is a predict plan
  std::uint64_t parameters_count = 0;        // of the whole model
  std::vector<std::string> notes;            // sentences about what of the files is not used
  plan::DType weight_dtype{};                // the type most matrix elements are stored in
  std::unique_ptr<PlanArena> arena;
};

// Choices a model that takes images leaves to its caller.
struct VisionOptions {
  std::uint32_t image_rows_max = 4096;       // rows of one request, at most the context; 0: a text model, no tower
  std::optional<std::uint32_t> image_token;  // instead of what the files say
};

// Which weights there are to be, and as what the device has kernels for.
struct WeightOptions {
  bool keeps_f8 = false;  // DType::kF8_E4M3; else such weights become BF16
  bool predicts = false;  // also those of the first layer that predicts a further token, and its plan
};

// Reads the configuration, checks every tensor and compiles the plans. Touches no weight bytes but a rotation's divisors.
// Errors: CONFIG_KEY_MISSING, CONFIG_KEY_INVALID, UNKNOWN_ARCHITECTURE, MISSING_WEIGHT, UNCLAIMED_WEIGHT,
// WEIGHT_SHAPE_MISMATCH, WEIGHT_DTYPE_UNSUPPORTED, and those of plan::validate. Of one of several devices that share the
// model (plan_compiler/shard.h) also MODEL_INCOMPATIBLE: numbers that do not divide, or nothing to share out. The same where a
// layer is to predict and the files have none that can.
base::Result<CompiledModel> compile_model(const io::ModelFiles& files, plan::DType kv_dtype,
                                          const VisionOptions& vision = {}, const Shard& shard = {},
                                          const WeightOptions& weights = {});
// The same for a family that is not in the registry.
base::Result<CompiledModel> compile_model(const io::ModelFiles& files, const Family& family, plan::DType kv_dtype,
                                          const VisionOptions& vision = {}, const Shard& shard = {},
                                          const WeightOptions& weights = {});

}  // namespace llorch::engine::models
