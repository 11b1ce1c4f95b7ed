#include "pool_managerd/model_catalog/model_inspector.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "engine/compute/cpu/backend.h"
#include "engine/compute/cuda/backend.h"
#include "engine/inference/devices/open_devices.h"
#include "engine/inference/engine.h"
#include "engine/inference/speculation/speculator.h"
#include "engine/io/model_files.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "engine/models/model.h"
#include "text/tokenizer_data.h"

namespace llorch::pool_managerd::model_catalog {
namespace {

using base::Error;
using base::ErrorCode;

// The engine's reasons why a file does not run are many; to the outside it is one code and the reason.
Error incompatible(const Error& cause) {
  if (cause.code == ErrorCode::kInvalidParams || cause.code == ErrorCode::kGpuUnavailable) return cause;
  Error out{ErrorCode::kModelIncompatible, "this model file does not run here: " + cause.message, cause.details};
  return std::move(out).with("cause", std::string(cause.name()));
}

base::Result<engine::plan::DType> kv_dtype_of(const std::string& name) {
  if (name == "f16") return engine::plan::DType::kF16;
  if (name == "f32") return engine::plan::DType::kF32;
  return base::fail(Error{ErrorCode::kInvalidParams, "kv_dtype is f16 or f32 in this build", {}}.with(
      "field", std::string("kv_dtype")));
}

// Most rows of one step of a worker; never changes an answer. A step reads every weight once and keeps its neighbours waiting
// while it lasts: with BF16 weights an H200 needs 200 rows (989 TFLOP/s over 4.8 TB/s) before arithmetic is what takes its time. On a
// CPU 64 are enough. A mixture would gain a fifth with 256, but choices of one prompt begin in one step then, and each
// computes what the others could have given it.
std::uint32_t prefill_chunk_of(DeviceKind device) { return device == DeviceKind::kCuda ? 512 : 64; }

std::optional<wire::ModelImages> images_of(const engine::models::VisionConfig& vision, std::int64_t context_tokens) {
  if (vision.depth == 0) return std::nullopt;
  const auto rules = vision.image_rules();
  return wire::ModelImages{.image_token = vision.image_row_ids[0],
                           .pixels_per_side = rules.unit(),
                           .pixels_min = static_cast<std::int64_t>(rules.pixels_min),
                           .pixels_max = static_cast<std::int64_t>(rules.pixels_max),
                           .tokens_max = std::min<std::int64_t>(vision.image_rows_max, context_tokens)};
}

class EngineInspector final : public ModelInspector {
 public:
  explicit EngineInspector(const EngineInspectorOptions& options) : options_(options) {}

  base::Result<ModelPlan> inspect(const std::filesystem::path& file, const WorkerShape& shape,
                                  DeviceKind device) const override {
    auto plan = inspect_file(file, shape, device);
    if (!plan) return base::fail(incompatible(plan.error()));
    return plan;
  }

  base::Result<std::string> tokenizer_blob(const std::filesystem::path& file) const override {
    auto blob = read_blob(file);
    if (!blob) return base::fail(incompatible(blob.error()));
    return blob;
  }

 private:
  base::Result<std::string> read_blob(const std::filesystem::path& file) const {
    return text::serialize(TRY(engine::io::tokenizer_json::read_tokenizer(file)));
  }

  // Nothing is allocated on them, so their budget is nobody's: what fits is preflight's to say.
  base::Result<std::vector<std::unique_ptr<engine::plan::Backend>>> make_planners(DeviceKind device,
                                                                                  std::int64_t count) const {
    std::vector<std::unique_ptr<engine::plan::Backend>> planners;
    const auto threads = engine::inference::devices::cpu_threads_each(options_.threads_count, count);
    for (std::int64_t rank = 0; rank < count; ++rank) {
      planners.push_back(
          device == DeviceKind::kCuda
              ? engine::compute::cuda::make_cuda_planner()
              : TRY(engine::compute::cpu::make_cpu_backend(
                    {.threads_count = threads, .memory_budget_bytes = std::numeric_limits<std::int64_t>::max()})));
    }
    return planners;
  }

  base::Result<ModelPlan> inspect_file(const std::filesystem::path& file, const WorkerShape& shape,
                                       DeviceKind device) const {
    const auto kv_dtype = TRY(kv_dtype_of(shape.kv_dtype));
    const auto files = TRY(engine::io::ModelFiles::open(file));
    const auto compile = [&](bool predicts) {
      return engine::models::compile_model(
          files, kv_dtype, {.image_rows_max = static_cast<std::uint32_t>(shape.image_tokens_max), .image_token = {}},
          {}, {.predicts = predicts});
    };
    const bool predicts = options_.predicts && shape.devices == 1;
    auto compiled = compile(predicts);
    // Proposals change no answer: a model that cannot make them runs without.
    if (predicts && !compiled && compiled.error().code == ErrorCode::kModelIncompatible) compiled = compile(false);
    const auto model = TRY(std::move(compiled));
    const std::uint32_t proposal_rows = engine::inference::speculation::proposal_rows_of(
        static_cast<std::uint32_t>(shape.slots), options_.proposals_max);
    const engine::inference::EngineOptions options{
        .context_tokens =
            static_cast<std::uint32_t>(std::min<std::int64_t>(shape.context_tokens, model.config.context_tokens)),
        .slots = static_cast<std::uint32_t>(shape.slots),
        .kv_dtype = kv_dtype,
        .prefill_chunk = prefill_chunk_of(device),
        .output_rows_max = engine::inference::output_rows_of(static_cast<std::uint32_t>(shape.slots), proposal_rows),
        .proposal_rows_max = proposal_rows,
        .predicts = model.plans.predict.has_value(),
        .kv_tokens = static_cast<std::uint64_t>(shape.kv_tokens),
        .frame_patches_max = 0,
        .image_rows_max = static_cast<std::uint32_t>(shape.image_tokens_max),
        .draws = true};
    const auto planners = TRY(make_planners(device, shape.devices));
    engine::inference::parallel::Devices devices;
    for (const auto& planner : planners) devices.backends.push_back(planner.get());
    const auto memory = TRY(engine::inference::Engine::predict(file, options, devices));
    ModelPlan plan;
    plan.path = file.string();
    plan.prefill_chunk = options.prefill_chunk;
    plan.predicts = options.predicts;
    plan.architecture = model.config.architecture;
    plan.quant_kind = engine::plan::dtype_info(memory.front().weight_dtype).name;
    plan.size_bytes = static_cast<std::int64_t>(files.file_bytes());
    plan.vocab_size = model.config.vocab;
    plan.hidden_size = model.config.width;
    plan.model_context = model.config.context_tokens;
    plan.shape = {.context_tokens = memory.front().context_tokens,
                  .slots = memory.front().slots,
                  .kv_tokens = shape.kv_tokens,
                  .kv_dtype = shape.kv_dtype,
                  .image_tokens_max = shape.image_tokens_max,
                  .devices = shape.devices};
    plan.images = images_of(model.config.vision, memory.front().context_tokens);
    plan.reranks = model.config.scores;
    if (model.config.pooling != engine::plan::Pooling::kNone && !plan.reranks)
      plan.embedding_dimensions = model.config.output_width();
    for (const auto& m : memory) {
      plan.memory.push_back(
          {.weights_bytes = static_cast<std::int64_t>(m.weights_bytes),
           .kv_bytes = static_cast<std::int64_t>(m.state_bytes),
           .working_bytes = static_cast<std::int64_t>(m.total_bytes() - m.weights_bytes - m.state_bytes),
           .staging_bytes = static_cast<std::int64_t>(m.staging.least),
           .staging_wanted_bytes = static_cast<std::int64_t>(m.staging.wanted),
           .widened_bytes = static_cast<std::int64_t>(m.widened_bytes)});
    }
    return plan;
  }

  EngineInspectorOptions options_;
};

}  // namespace

std::unique_ptr<ModelInspector> make_engine_inspector(const EngineInspectorOptions& options) {
  return std::make_unique<EngineInspector>(options);
}

}  // namespace llorch::pool_managerd::model_catalog
