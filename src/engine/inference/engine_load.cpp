// How an engine comes to be: from a file and options to sizes, from sizes to memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/sha256.h"
#include "engine/contract/validate.h"
#include "engine/inference/engine.h"
#include "engine/models/plan/physical.h"

namespace llorch::engine::inference {

using namespace contract;
using base::ErrorCode;
using base::Result;

namespace {

// Slots beyond this are no serving setup but a typing error; the page table and the batch arrays scale with it.
constexpr std::uint32_t kSlotsMax = 1024;
constexpr std::uint32_t kRowsMax = 1U << 16;
constexpr std::uint32_t kImageRowsMax = 1U << 20;
constexpr std::uint64_t kKvTokensMax = std::uint64_t{1} << 36;

Result<> check_options(const EngineOptions& options, const models::ModelConfig& config) {
  const auto refuse = [](std::string message) { return base::fail(ErrorCode::kInvalidParams, std::move(message)); };
  if (options.slots == 0 || options.slots > kSlotsMax)
    return refuse(fmt::format("slots = {}; must be 1..{}", options.slots, kSlotsMax));
  if (options.prefill_chunk == 0 || options.prefill_chunk > kRowsMax) {
    return refuse(fmt::format("prefill_chunk = {}; must be 1..{}", options.prefill_chunk, kRowsMax));
  }
  if (options.context_tokens > config.context_tokens) {
    return refuse(
        fmt::format("context_tokens = {}; the model was made for {}", options.context_tokens, config.context_tokens));
  }
  if (options.kv_dtype != DType::kF16 && options.kv_dtype != DType::kF32) {
    return refuse(fmt::format("kv_dtype {} is not supported; use f16 or f32", dtype_info(options.kv_dtype).name));
  }
  if (std::max(options.kv_tokens, options.kv_tokens_max) > kKvTokensMax) {
    return refuse(fmt::format("kv_tokens = {}, kv_tokens_max = {}; at most {}", options.kv_tokens,
                              options.kv_tokens_max, kKvTokensMax));
  }
  return {};
}

memory::LoadShape shape_of(const EngineOptions& options, const models::ModelConfig& config) {
  const std::uint32_t context = options.context_tokens == 0 ? config.context_tokens : options.context_tokens;
  return {.context_tokens = context,
          .slots = options.slots,
          .prefill_chunk = std::min(options.prefill_chunk, context),
          .kv_tokens = options.kv_tokens,
          .kv_tokens_max = options.kv_tokens_max};
}

// No floor is above what was asked for.
memory::LoadFloors floors_of(const EngineOptions& options, const memory::LoadShape& shape) {
  memory::LoadFloors floors = options.floors;
  floors.context_tokens = std::min(floors.context_tokens, shape.context_tokens);
  floors.slots = std::min(floors.slots, shape.slots);
  floors.prefill_chunk = std::min(floors.prefill_chunk, shape.prefill_chunk);
  return floors;
}

StepLimits step_limits(const EngineOptions& options, const memory::LoadShape& shape) {
  const std::uint32_t rows = std::max(std::min(shape.prefill_chunk, shape.context_tokens), shape.slots);
  const std::uint32_t outputs = options.output_rows_max == 0 ? shape.slots : options.output_rows_max;
  return {.rows_max = rows,
          .output_rows_max = std::min(std::max(outputs, shape.slots), rows),
          .slots_max = shape.slots,
          .context_tokens_max = shape.context_tokens};
}

// Of the vision_encode plan; a frame is never cut.
Result<StepLimits> encode_limits(const EngineOptions& options, const models::VisionConfig& vision,
                                 const StepLimits& limits) {
  if (options.frame_patches_max > kRowsMax || options.image_rows_max > kImageRowsMax) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("frame_patches_max = {}, image_rows_max = {}; must be at most {} and {}",
                                  options.frame_patches_max, options.image_rows_max, kRowsMax, kImageRowsMax));
  }
  StepLimits encode = limits;
  const std::uint64_t patches_max = std::uint64_t{vision.image_rows_max} * vision.patches_per_row();
  encode.rows_max = options.frame_patches_max != 0
                        ? options.frame_patches_max
                        : static_cast<std::uint32_t>(std::min<std::uint64_t>(patches_max, kRowsMax));
  return encode;
}

DrawLimits draw_limits(const EngineOptions& options, const memory::LoadShape& shape,
                       const models::ModelConfig& config) {
  if (!options.draws) return {};
  return {.rows_max = shape.slots, .width = config.vocab, .edits_max = kDrawEditsMax};
}

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

}  // namespace

// What a load of one shape takes.
struct Engine::Sizing {
  StepLimits limits, encode_limits;
  DrawLimits draw_limits;  // no rows: no drawer
  kv_cache::KvPlan kv;
  std::vector<PhysicalMapping> mappings;  // prefill, decode, vision_encode if there is one
  std::vector<PhysicalSpec> buffers;
  memory::MemoryPlan memory_plan;
};

// Everything that is known before memory is taken.
struct Engine::Draft {
  io::ModelFiles files;
  models::CompiledModel model;
  memory::LoadShape shape;
  Sizing sizing;
  std::vector<memory::OomRecord> oom;
};

Result<Engine::Draft> Engine::draft(const std::filesystem::path& path, const EngineOptions& options, Backend& backend) {
  io::ModelFiles files = TRY(io::ModelFiles::open(path));
  if (!options.projector.empty()) TRY(files.add_projector(TRY(io::GgufFile::open(options.projector))));
  models::VisionOptions vision{.image_rows_max = options.image_rows_max, .image_token = {}};
  if (options.context_tokens != 0) vision.image_rows_max = std::min(vision.image_rows_max, options.context_tokens);
  if (options.image_token) vision.image_token = index(*options.image_token);
  models::CompiledModel model = TRY(models::compile_model(files, options.kv_dtype, vision));
  return draft(std::move(files), std::move(model), options, backend);
}

Result<Engine::Draft> Engine::draft(io::ModelFiles files, models::CompiledModel model, const EngineOptions& options,
                                    Backend& backend) {
  TRY(check_options(options, model.config));
  TRY(validate_vision_handoff(model.plans));
  Draft draft{.files = std::move(files), .model = std::move(model), .shape = {}, .sizing = {}, .oom = {}};
  draft.shape = shape_of(options, draft.model.config);
  draft.sizing = TRY(size(draft.model, options, draft.shape, backend));
  return draft;
}

Result<Engine::Sizing> Engine::size(const models::CompiledModel& model, const EngineOptions& options,
                                    const memory::LoadShape& shape, const Backend& backend) {
  Sizing sizing;
  sizing.limits = step_limits(options, shape);
  sizing.encode_limits = TRY(encode_limits(options, model.config.vision, sizing.limits));
  sizing.draw_limits = draw_limits(options, shape, model.config);
  const ModelPlans& plans = model.plans;
  sizing.kv = kv_cache::plan_kv(plans.decoder_prefill.plan.state_descs, {.slots = shape.slots,
                                                                         .context_tokens = shape.context_tokens,
                                                                         .rows_max = sizing.limits.rows_max,
                                                                         .kv_tokens = shape.kv_tokens,
                                                                         .kv_tokens_max = shape.kv_tokens_max,
                                                                         .dtype = options.kv_dtype});
  const AdapterCapabilities& capabilities = backend.tables().capabilities;
  sizing.mappings = {models::map_registers(plans.decoder_prefill, capabilities, sizing.limits, *model.arena),
                     models::map_registers(plans.decoder_decode, capabilities, sizing.limits, *model.arena)};
  if (plans.vision_encode) {
    sizing.mappings.push_back(
        models::map_registers(*plans.vision_encode, capabilities, sizing.encode_limits, *model.arena));
  }
  sizing.buffers = memory::shared_buffers(sizing.mappings);
  sizing.memory_plan = TRY(memory::predict_memory({.model = model,
                                                   .buffers = sizing.buffers,
                                                   .kv = sizing.kv,
                                                   .limits = sizing.limits,
                                                   .encode_limits = sizing.encode_limits,
                                                   .draw_limits = sizing.draw_limits},
                                                  backend));
  return sizing;
}

Result<memory::MemoryPlan> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                           Backend& backend) {
  return TRY(draft(path, options, backend)).sizing.memory_plan;
}

Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& path, const EngineOptions& options,
                                             Backend& backend, const LoadProgress& progress) {
  return load(TRY(draft(path, options, backend)), options, backend, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(io::ModelFiles files, models::CompiledModel model,
                                             const EngineOptions& options, Backend& backend) {
  return load(TRY(draft(std::move(files), std::move(model), options, backend)), options, backend, {});
}

Result<std::unique_ptr<Engine>> Engine::load(Draft draft, const EngineOptions& options, Backend& backend,
                                             const LoadProgress& progress) {
  Result<> fits = memory::check_fits(draft.sizing.memory_plan, backend);
  for (; !fits; fits = memory::check_fits(draft.sizing.memory_plan, backend)) {
    TRY(make_smaller(fits.error(), options, backend, draft));
  }
  std::unique_ptr<Engine> engine(new Engine);
  engine->backend_ = &backend;
  Quarters quarters(progress);
  engine->weights_ =
      TRY(memory::WeightStore::upload(draft.model.tensors, backend, [&](std::uint64_t done, std::uint64_t total) {
        quarters.reach(static_cast<unsigned>(done * 99 / total));  // 100 is for when steps can run
      }));
  Result<StepMemory> step = engine->take_step_memory(draft);
  while (!step) {
    TRY(make_smaller(step.error(), options, backend, draft));
    step = engine->take_step_memory(draft);
  }
  engine->step_ = *std::move(step);
  engine->describe(draft, options);
  engine->model_ = std::move(draft.model);
  engine->model_.tensors.clear();  // views into the files, which close here
  engine->become_ready(draft.sizing);
  TRY(backend.synchronize());
  quarters.reach(100);
  return engine;
}

// Goes on with the next smaller shape when `error` is one of memory and the floors allow it; else returns the error.
Result<> Engine::make_smaller(const base::Error& error, const EngineOptions& options, const Backend& backend,
                              Draft& draft) {
  if (error.code != ErrorCode::kOutOfDeviceMemory) return base::fail(error);
  const memory::LoadShape asked = shape_of(options, draft.model.config);
  const auto next = memory::next_step(draft.shape, floors_of(options, asked));
  if (!next) {
    base::Error refusal = error;
    for (const memory::OomRecord& record : draft.oom) refusal.message += fmt::format("; tried {}", record.action);
    return base::fail(std::move(refusal));
  }
  draft.oom.push_back(memory::record_of(error, "load", next->action));
  draft.shape = next->shape;
  draft.sizing = TRY(size(draft.model, options, draft.shape, backend));
  return {};
}

Result<Engine::StepMemory> Engine::take_step_memory(const Draft& draft) {
  const models::CompiledModel& model = draft.model;
  const Sizing& sizing = draft.sizing;
  StepMemory step;
  step.kv = TRY(kv_cache::KvMemory::make(sizing.kv, *backend_));
  step.state = TRY(memory::StateArena::make({.descs = model.plans.decoder_prefill.plan.state_descs,
                                             .paged = step.kv->handles(),
                                             .slots = sizing.limits.slots_max},
                                            *backend_));
  step.activations = TRY(memory::Activations::make(sizing.buffers, *backend_));
  step.workspace =
      TRY(DeviceBuffer::allocate(*backend_, sizing.memory_plan.workspace_bytes, MemoryPurpose::kWorkspace));
  const models::VisionConfig& vision = model.config.vision;
  const bool takes_images = model.plans.vision_encode.has_value();
  step.batch = TRY(BatchBuilder::make(
      sizing.limits, {.vocab = model.config.vocab, .takes_images = takes_images, .image_row_ids = vision.image_row_ids},
      *backend_));
  step.long_rope_memory = TRY(
      DeviceBuffer::allocate(*backend_, memory::long_rope_flag_bytes(model, sizing.limits), MemoryPurpose::kTables));
  TRY(upload_rope_tables(model, step));
  if (takes_images) step.encoder = TRY(vision::ImageEncoder::make(vision, sizing.encode_limits, *backend_));
  if (sizing.draw_limits.rows_max != 0) step.drawer = TRY(backend_->make_drawer(sizing.draw_limits));
  TRY(prepare_plans(draft, step));
  return step;
}

Result<> Engine::prepare_plans(const Draft& draft, StepMemory& step) {
  const ModelPlans& plans = draft.model.plans;
  const Sizing& sizing = draft.sizing;
  const auto prepare = [&](const CompiledPlan& plan, const PhysicalMapping& mapping, const StepLimits& limits) {
    return PreparedPlan::make({.plan = plan,
                               .mapping = mapping,
                               .buffers = step.activations.of(mapping),
                               .weights = weights_,
                               .states = step.state.handles(),
                               .backend = *backend_,
                               .limits = limits});
  };
  step.prefill_plan = TRY(prepare(plans.decoder_prefill, sizing.mappings[0], sizing.limits));
  step.decode_plan = TRY(prepare(plans.decoder_decode, sizing.mappings[1], sizing.limits));
  if (plans.vision_encode)
    step.encode_plan = TRY(prepare(*plans.vision_encode, sizing.mappings[2], sizing.encode_limits));
  return {};
}

Result<> Engine::upload_rope_tables(const models::CompiledModel& model, StepMemory& step) {
  step.rope_memory = TRY(DeviceBuffer::allocate(*backend_, memory::rope_table_bytes(model), MemoryPurpose::kTables));
  std::byte* at = step.rope_memory.data();
  for (const models::RopeTableData& table : model.rope_tables) {
    const auto bytes = std::as_bytes(std::span(table.inv_freq));
    backend_->copy_to_device(at, bytes);
    step.rope_tables.push_back({.inv_freq = reinterpret_cast<const float*>(at),
                                .count = static_cast<std::uint32_t>(table.inv_freq.size()),
                                .attn_factor = table.attn_factor});
    at += bytes.size();
  }
  return {};
}

void Engine::become_ready(const Sizing& sizing) {
  limits_ = sizing.limits;
  memory_ = sizing.memory_plan;
  slots_.resize(limits_.slots_max);
  for (std::uint32_t slot = 0; slot < limits_.slots_max; ++slot) admit(slot, 0);
  draws_.reserve(limits_.output_rows_max);
  logits_.resize(std::size_t{limits_.output_rows_max} * model_.config.vocab);
  ctx_.rope_tables = step_.rope_tables;
  ctx_.long_rope_of_slot = reinterpret_cast<const std::uint8_t*>(step_.long_rope_memory.data());
  ctx_.workspace = {.ptr = step_.workspace.data(), .bytes = step_.workspace.size_bytes()};
  ctx_.stream = backend_->stream();
  ctx_.counters = &counters_;
  encode_ctx_ = ctx_;
}

void Engine::describe(const Draft& draft, const EngineOptions& options) {
  const models::ModelConfig& config = draft.model.config;
  const StepLimits& limits = draft.sizing.limits;
  prefill_chunk_ = std::min(draft.shape.prefill_chunk, limits.rows_max);
  facts_ = {.architecture = config.architecture,
            .name = config.name,
            .vocab = config.vocab,
            .context_tokens = limits.context_tokens_max,
            .context_tokens_model = config.context_tokens,
            .slots = limits.slots_max,
            .rows_max = limits.rows_max,
            .layers = static_cast<std::uint32_t>(config.layers.size()),
            .width = config.width,
            .image_rows_max = config.vision.image_rows_max,
            .kv_tokens = draft.sizing.kv.pages * kPageTokens,
            .kv_tokens_max = draft.sizing.kv.pages_max * kPageTokens,
            .parameters_count = draft.model.parameters_count,
            .file_bytes = draft.files.file_bytes(),
            .weight_type = std::string(dtype_info(draft.model.weight_dtype).name),
            .kv_dtype = lower(dtype_info(options.kv_dtype).name),
            .plan_hash = base::to_hex(draft.model.plans.decoder_prefill.plan_hash),
            .device_class = std::string(backend_->device_class()),
            .numerics = std::string(backend_->numerics()),
            .implementation = std::string(backend_->implementation()),
            .oom = draft.oom};
}

}  // namespace llorch::engine::inference
