// How an engine comes to be: from a file and options to sizes, from sizes to memory.
#include <algorithm>

#include "base/sha256.h"
#include "engine/inference/engine.h"

namespace llorch::engine::inference {

using namespace plan;
using base::Result;

namespace {

// Turns bytes uploaded into the five calls of a LoadProgress.
class Quarters {
 public:
  explicit Quarters(const LoadProgress& progress) : progress_(progress) { reach(0); }
  void reach(unsigned percent) {
    for (; next_ <= percent; next_ += 25) {
      if (progress_) progress_(next_);
    }
  }

 private:
  const LoadProgress& progress_;
  unsigned next_ = 0;
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return result;
}

// Whether all a slot holds lies in pages.
bool is_paged(const models::CompiledModel& model) {
  return std::ranges::all_of(model.plans.decoder_prefill.plan.state_descs, [](const StateDescriptor& desc) {
    return desc.kind == StateKind::kKv || desc.lifecycle != StateLifecycle::kSlotPersistent;
  });
}

bool has_windows(const paging::PageTables& tables) {
  for (std::uint32_t group = 0; group < tables.groups_count(); ++group)
    if (tables.group(group).window_tokens != 0) return true;
  return false;
}

}  // namespace

Result<memory::MemoryPlan> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                           Backend& backend) {
  return TRY(predict(path, options, parallel::Devices{.backends = {&backend}}))[0];
}

Result<std::vector<memory::MemoryPlan>> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                                        const parallel::Devices& devices) {
  const LoadPlan load = TRY(plan_load(path, options, devices));
  TRY(check_shape(load));
  std::vector<memory::MemoryPlan> plans;
  for (const PartPlan& part : load.parts) plans.push_back(part.memory_plan);
  return plans;
}

Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& path, const EngineOptions& options,
                                             Backend& backend, const LoadProgress& progress) {
  return load(path, options, parallel::Devices{.backends = {&backend}}, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& path, const EngineOptions& options,
                                             const parallel::Devices& devices, const LoadProgress& progress) {
  return load(TRY(plan_load(path, options, devices)), options, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(io::ModelFiles files, models::CompiledModel model,
                                             const EngineOptions& options, Backend& backend) {
  std::vector<models::CompiledModel> models;
  models.push_back(std::move(model));
  return load(TRY(plan_load(std::move(files), std::move(models), options, {.backends = {&backend}})), options, {});
}

Result<std::unique_ptr<Engine>> Engine::load(LoadPlan load, const EngineOptions& options,
                                             const LoadProgress& progress) {
  ASSERT(load.devices.count() == 1 ||
             (load.devices.collective != nullptr && load.devices.collective->ranks() == load.devices.count()),
         "{} devices without a collective of theirs", load.devices.count());
  for (Result<> fits = check_fits(load); !fits; fits = check_fits(load)) TRY(make_smaller(fits.error(), options, load));
  TRY(check_shape(load));
  std::unique_ptr<Engine> engine(new Engine(load.devices));
  ModelParts& parts = engine->parts_;
  Quarters quarters(progress);
  TRY(parts.upload_weights(load, options, [&](unsigned percent) { quarters.reach(percent); }));
  for (Result<> taken = parts.take_step_memory(load); !taken; taken = parts.take_step_memory(load))
    TRY(make_smaller(taken.error(), options, load));
  engine->describe(load, options);
  engine->become_ready(load);
  for (std::size_t rank = 0; rank < parts.size(); ++rank) TRY(parts[rank].backend->synchronize());
  quarters.reach(100);
  return engine;
}

void Engine::become_ready(LoadPlan& load) {
  limits_ = load.parts[0].limits;
  parts_.become_ready(load);
  slots_.resize(limits_.slots_max);
  for (std::uint32_t slot = 0; slot < limits_.slots_max; ++slot) admit(slot, 0);
  outputs_ = OutputRows(limits_.output_rows_max, facts_.output_width);
  foreseen_.reserve(limits_.slots_max);
  places_.reserve(limits_.slots_max);
}

void Engine::describe(const LoadPlan& load, const EngineOptions& options) {
  const models::CompiledModel& model = load.models[0];
  const models::ModelConfig& config = model.config;
  const PartPlan& part = load.parts[0];
  const StepLimits& limits = part.limits;
  const auto& sampler = parts_.memory(0).device_sampler;
  prefill_chunk_ = std::min(load.shape.prefill_chunk, limits.rows_max);
  facts_ = {.architecture = config.architecture,
            .name = config.name,
            .vocab = config.vocab,
            .output_width = config.output_width(),
            .pooling = config.pooling,
            .scores = config.scores,
            .token_types = config.token_types,
            .context_tokens = limits.context_tokens_max,
            .context_tokens_model = config.context_tokens,
            .slots = limits.slots_max,
            .rows_max = limits.rows_max,
            .output_rows_max = limits.output_rows_max,
            .proposal_rows_max = std::min(options.proposal_rows_max, limits.output_rows_max - limits.slots_max),
            .layers = static_cast<std::uint32_t>(config.layers.size()),
            .width = config.width,
            .image_rows_max = config.vision.image_rows_max,
            .kv_tokens = part.kv.pages * kPageTokens,
            .kv_tokens_max = part.kv.pages_max * kPageTokens,
            .parameters_count = model.parameters_count,
            .file_bytes = load.files.file_bytes(),
            .weight_type = std::string(dtype_info(model.weight_dtype).name),
            .kv_dtype = lower(dtype_info(options.kv_dtype).name),
            .plan_hash = base::to_hex(model.plans.decoder_prefill.plan_hash),
            .devices = load.devices.count(),
            .device_class = parallel::device_class_of(load.devices),
            .numerics = parallel::numerics_of(load.devices),
            .implementation = std::string(parts_[0].backend->implementation()),
            .oom = load.oom,
            .weights_were_kept = parts_.not_kept_why().empty(),
            .weights_not_kept_why = parts_.not_kept_why(),
            .paged = is_paged(model),
            .has_windows = has_windows(parts_.kv().tables()),
            .whole_sequences = config.wants_whole_sequences(),
            .predicts = model.plans.predict.has_value(),
            .draws = sampler != nullptr,
            .draws_at_once = sampler != nullptr && sampler->draws_at_once()};
}

}  // namespace llorch::engine::inference
