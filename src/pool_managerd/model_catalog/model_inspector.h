#pragma once
// The seam to the engine: what a file is and what a worker of it takes, without loading it.
#include <filesystem>
#include <memory>
#include <string>

#include "base/result.h"
#include "pool_managerd/model_catalog/model_plan.h"

namespace llorch::pool_managerd::model_catalog {

// Thread-safe; blocks on the file.
class ModelInspector {
 public:
  virtual ~ModelInspector() = default;
  // MODEL_INCOMPATIBLE with details.cause, the engine's own code:
  // CORRUPT_FILE, UNKNOWN_ARCHITECTURE, UNSUPPORTED_QUANT_TYPE, ...; INVALID_PARAMS for a shape the model cannot have.
  virtual base::Result<ModelPlan> inspect(const std::filesystem::path& file, const WorkerShape& shape,
                                          DeviceKind device) const = 0;
  // The blob of text. MODEL_INCOMPATIBLE as above.
  virtual base::Result<std::string> tokenizer_blob(const std::filesystem::path& file) const = 0;
};

struct EngineInspectorOptions {
  // Part of the prediction, so workers must be started with the same.
  std::uint32_t threads_count = 1;
  std::uint32_t proposals_max = 0;  // tokens computed ahead for a job in a step
  bool predicts = false;            // by the layer for further tokens of models that have one
};
// Predicts with the engine's own formulas; touches no device.
std::unique_ptr<ModelInspector> make_engine_inspector(const EngineInspectorOptions& options);

}  // namespace llorch::pool_managerd::model_catalog
