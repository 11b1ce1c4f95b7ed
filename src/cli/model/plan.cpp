// llorch model plan
#include <fmt/core.h>

#include <boost/json.hpp>
#include <vector>

#include "base/sha256.h"
#include "cli/model/commands.h"
#include "cli/terminal_text.h"
#include "engine/io/model_files.h"
#include "engine/models/model.h"
#include "engine/models/plan_compiler/dump.h"

namespace llorch::cli::model {
namespace {

using engine::plan::CompiledPlan;

const CompiledPlan* plan_of(const engine::plan::ModelPlans& plans, const std::string& mode) {
  if (mode == "prefill") return &plans.decoder_prefill;
  if (mode == "decode") return &plans.decoder_decode;
  if (mode != "vision") return nullptr;
  return plans.vision_encode ? &*plans.vision_encode : nullptr;
}

struct Plan {
  std::string hash, text;
};

base::Result<Plan> compiled(const PlanOptions& options) {
  auto files = TRY(engine::io::ModelFiles::open(options.model));
  if (!options.projector.empty()) TRY(files.add_projector(TRY(engine::io::GgufFile::open(options.projector))));
  const auto kv_dtype = options.kv_dtype == "f32" ? engine::plan::DType::kF32 : engine::plan::DType::kF16;
  engine::models::VisionOptions vision;
  if (options.image_token >= 0) vision.image_token = static_cast<std::uint32_t>(options.image_token);
  const auto compiled = TRY(engine::models::compile_model(files, kv_dtype, vision));
  const CompiledPlan* plan = plan_of(compiled.plans, options.mode);
  if (plan == nullptr) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} as given is a text model: it has no {} plan; use --mode prefill or decode",
                                  options.model, options.mode));
  }
  std::vector<std::string> names;
  for (const auto& tensor : compiled.tensors) names.emplace_back(tensor.name);
  return Plan{.hash = base::to_hex(plan->plan_hash), .text = engine::models::dump(*plan, names)};
}

}  // namespace

int plan(const GlobalOptions& global, const PlanOptions& options) {
  const auto described = compiled(options);
  if (!described) return report(described.error(), global.json);
  if (global.json) {
    fmt::print("{}\n", boost::json::serialize(boost::json::object{
                           {"mode", options.mode}, {"plan_hash", described->hash}, {"text", described->text}}));
  } else {
    print_text("{}", described->text);
  }
  return kOk;
}

}  // namespace llorch::cli::model
