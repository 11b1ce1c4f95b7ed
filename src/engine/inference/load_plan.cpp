#include "engine/inference/load_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/inference/prepared_plan.h"
#include "engine/models/plan_compiler/physical.h"
#include "engine/plan/slots.h"
#include "engine/plan/validate.h"

namespace llorch::engine::inference {

using namespace plan;
using base::ErrorCode;
using base::Result;

namespace {

// Slots beyond this are no serving setup but a typing error; the page table and the batch arrays scale with it.
constexpr std::uint32_t kSlotsMax = 1024;
constexpr std::uint32_t kRowsMax = 1U << 16;
constexpr std::uint32_t kImageRowsMax = 1U << 20;
// How far rotation angles are exact enough (docs/internals/numerics.md): beyond it no context is one by default.
constexpr std::uint32_t kPositionsMax = 1U << 20;
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
  const std::uint32_t context = options.context_tokens == 0 ? config.context_tokens : options.context_tokens;
  if (config.wants_whole_sequences() && context > kRowsMax) {
    return refuse(fmt::format("context_tokens = {}; this model computes a sequence in one step, of at most {} rows",
                              context, kRowsMax));
  }
  if (std::max(options.kv_tokens, options.kv_tokens_max) > kKvTokensMax) {
    return refuse(fmt::format("kv_tokens = {}, kv_tokens_max = {}; at most {}", options.kv_tokens,
                              options.kv_tokens_max, kKvTokensMax));
  }
  return {};
}

// Wherever a model may have a matrix of this type.
bool has_kernels_for(const Backend& backend, DType type) {
  return std::ranges::all_of(kOpcodes, [&](const OpcodeInfo& info) {
    const auto row = static_cast<std::size_t>(info.opcode);
    const bool has_matrices = std::ranges::any_of(*weight_slots(info.opcode),
                                                  [](const SlotSpec& slot) { return slot.use != WeightUse::kVector; });
    return !has_matrices || (backend.tables().capabilities[row].dtype_mask_weights & dtype_bit(type)) != 0;
  });
}

memory::LoadShape shape_of(const EngineOptions& options, const models::ModelConfig& config) {
  const std::uint32_t context =
      options.context_tokens == 0 ? std::min(config.context_tokens, kPositionsMax) : options.context_tokens;
  return {.context_tokens = context,
          .slots = options.slots,
          .prefill_chunk = config.wants_whole_sequences() ? context : std::min(options.prefill_chunk, context),
          .kv_tokens = options.kv_tokens,
          .kv_tokens_max = options.kv_tokens_max};
}

// No floor is above what was asked for.
memory::LoadFloors floors_of(const EngineOptions& options, const models::ModelConfig& config,
                             const memory::LoadShape& shape) {
  memory::LoadFloors floors = options.floors;
  if (config.wants_whole_sequences()) floors.prefill_chunk = 0;  // it is the context
  floors.context_tokens = std::min(floors.context_tokens, shape.context_tokens);
  floors.slots = std::min(floors.slots, shape.slots);
  floors.prefill_chunk = std::min(floors.prefill_chunk, shape.prefill_chunk);
  return floors;
}

StepLimits step_limits(const EngineOptions& options, const memory::LoadShape& shape) {
  const std::uint32_t rows = std::max(std::min(shape.prefill_chunk, shape.context_tokens), shape.slots);
  const std::uint32_t outputs =
      options.output_rows_max == 0 ? shape.slots + std::min(options.proposal_rows_max, rows) : options.output_rows_max;
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
  if (!options.draws || config.pooling != Pooling::kNone) return {};
  return {.rows_max = shape.slots, .width = config.vocab, .edits_max = kDrawEditsMax};
}

struct LimitedPlan {
  const CompiledPlan& plan;
  StepLimits limits;
};

std::vector<LimitedPlan> limited_plans(const ModelPlans& plans, const PartPlan& part) {
  std::vector<LimitedPlan> all{{plans.decoder_prefill, part.limits}, {plans.decoder_decode, part.limits}};
  if (plans.vision_encode) all.push_back({*plans.vision_encode, part.encode_limits});
  if (plans.predict) all.push_back({*plans.predict, part.limits});
  return all;
}

// That the backend takes the model, however short steps and contexts must be, before anything is counted by what a file says.
Result<> check_model(const models::CompiledModel& model, const PartPlan& part, Backend& backend) {
  constexpr StepLimits kLeast{.rows_max = 1, .output_rows_max = 1, .slots_max = 1, .context_tokens_max = 1};
  const std::vector<LimitedPlan> plans = limited_plans(model.plans, part);
  for (const LimitedPlan& each : plans) TRY(check_supported(each.plan, backend, each.limits));
  for (const models::BoundTensor& tensor : model.tensors) TRY(backend.check_weight(tensor.as_source()));
  for (const LimitedPlan& each : plans) TRY(check_instructions(each.plan, model.tensors, kLeast, backend));
  return {};
}

Result<PartPlan> plan_part(const models::CompiledModel& model, const EngineOptions& options,
                           const memory::LoadShape& shape, Backend& backend) {
  PartPlan part;
  part.limits = step_limits(options, shape);
  part.encode_limits = TRY(encode_limits(options, model.config.vision, part.limits));
  part.draw_limits = draw_limits(options, shape, model.config);
  part.keeps_checkpoints = options.proposal_rows_max > 0;
  TRY(check_model(model, part, backend));
  const ModelPlans& plans = model.plans;
  part.kv = kv_cache::plan_kv(plans.decoder_prefill.plan.state_descs, {.slots = shape.slots,
                                                                       .context_tokens = shape.context_tokens,
                                                                       .rows_max = part.limits.rows_max,
                                                                       .kv_tokens = shape.kv_tokens,
                                                                       .kv_tokens_max = shape.kv_tokens_max,
                                                                       .dtype = options.kv_dtype});
  const AdapterCapabilities& capabilities = backend.tables().capabilities;
  part.mappings = {models::map_registers(plans.decoder_prefill, capabilities, part.limits, *model.arena),
                   models::map_registers(plans.decoder_decode, capabilities, part.limits, *model.arena)};
  if (plans.vision_encode) {
    part.mappings.push_back(
        models::map_registers(*plans.vision_encode, capabilities, part.encode_limits, *model.arena));
  }
  if (plans.predict)
    part.mappings.push_back(models::map_registers(*plans.predict, capabilities, part.limits, *model.arena));
  part.buffers = memory::shared_buffers(part.mappings);
  part.memory_plan = memory::predict_memory({.model = model,
                                             .buffers = part.buffers,
                                             .kv = part.kv,
                                             .limits = part.limits,
                                             .encode_limits = part.encode_limits,
                                             .draw_limits = part.draw_limits,
                                             .keeps_checkpoints = part.keeps_checkpoints},
                                            backend);
  return part;
}

Result<std::vector<PartPlan>> plan_parts(const LoadPlan& load, const EngineOptions& options) {
  std::vector<PartPlan> parts;
  for (std::size_t rank = 0; rank < load.models.size(); ++rank) {
    EngineOptions own = options;
    own.draws = options.draws && rank == 0;  // whose rows are the engine's
    parts.push_back(TRY(plan_part(load.models[rank], own, load.shape, *load.devices.backends[rank])));
  }
  if (load.models.size() == 1) return parts;
  for (std::size_t rank = 0; rank < load.models.size(); ++rank) {
    parts[rank].memory_plan.sums_bytes = load.devices.backends[rank]->sum_bytes(
        {.ranks = load.devices.count(),
         .values_max = memory::summed_values_max(load.models[rank], parts[rank].limits)});
  }
  return parts;
}

}  // namespace

Result<LoadPlan> plan_load(const std::filesystem::path& path, const EngineOptions& options,
                           const parallel::Devices& devices) {
  TRY(parallel::check_devices(devices));
  if (options.predicts && devices.count() > 1) {
    return base::fail(ErrorCode::kModelIncompatible,
                      fmt::format("a layer that predicts further tokens runs on one device, and the model is shared by "
                                  "{}; choose another way to propose tokens",
                                  devices.count()));
  }
  io::ModelFiles files = TRY(io::ModelFiles::open(path));
  if (!options.projector.empty()) TRY(files.add_projector(TRY(io::GgufFile::open(options.projector))));
  models::VisionOptions vision{.image_rows_max = options.image_rows_max, .image_token = {}};
  if (options.context_tokens != 0) vision.image_rows_max = std::min(vision.image_rows_max, options.context_tokens);
  if (options.image_token) vision.image_token = index(*options.image_token);
  std::vector<models::CompiledModel> models;
  for (std::uint32_t rank = 0; rank < devices.count(); ++rank)
    models.push_back(TRY(models::compile_model(
        files, options.kv_dtype, vision, {.rank = rank, .ranks = devices.count()},
        {.keeps_f8 = has_kernels_for(*devices.backends[rank], DType::kF8_E4M3), .predicts = options.predicts})));
  return plan_load(std::move(files), std::move(models), options, devices);
}

Result<LoadPlan> plan_load(io::ModelFiles files, std::vector<models::CompiledModel> models,
                           const EngineOptions& options, const parallel::Devices& devices) {
  TRY(check_options(options, models[0].config));
  for (const models::CompiledModel& model : models) TRY(validate_vision_handoff(model.plans));
  LoadPlan load{
      .files = std::move(files), .models = std::move(models), .shape = {}, .parts = {}, .oom = {}, .devices = devices};
  load.shape = shape_of(options, load.models[0].config);
  load.parts = TRY(plan_parts(load, options));
  return load;
}

Result<> check_shape(const LoadPlan& load) {
  for (std::uint32_t rank = 0; rank < load.devices.count(); ++rank) {
    const models::CompiledModel& model = load.models[rank];
    for (const LimitedPlan& each : limited_plans(model.plans, load.parts[rank]))
      TRY(check_instructions(each.plan, model.tensors, each.limits, *load.devices.backends[rank]));
  }
  return {};
}

Result<> check_fits(const LoadPlan& load) {
  for (std::uint32_t rank = 0; rank < load.devices.count(); ++rank) {
    Result<> fits = memory::check_fits(load.parts[rank].memory_plan, *load.devices.backends[rank]);
    if (!fits) return base::fail(parallel::error_at(std::move(fits).error(), rank, load.devices.count()));
  }
  return {};
}

Result<> make_smaller(const base::Error& error, const EngineOptions& options, LoadPlan& load) {
  if (error.code != ErrorCode::kOutOfDeviceMemory) return base::fail(error);
  const memory::LoadShape asked = shape_of(options, load.models[0].config);
  const auto next = memory::next_step(load.shape, floors_of(options, load.models[0].config, asked));
  if (!next) {
    base::Error refusal = error;
    for (const memory::OomRecord& record : load.oom) refusal.message += fmt::format("; tried {}", record.action);
    return base::fail(std::move(refusal));
  }
  load.oom.push_back(memory::record_of(error, "load", next->action));
  load.shape = next->shape;
  load.parts = TRY(plan_parts(load, options));
  return {};
}

}  // namespace llorch::engine::inference
