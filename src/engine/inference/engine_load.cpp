// How an engine comes to be: from a file and options to sizes, from sizes to memory.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "base/build_id.h"
#include "base/sha256.h"
#include "engine/inference/engine.h"
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
  const std::uint32_t context = options.context_tokens == 0 ? config.context_tokens : options.context_tokens;
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

// What a load of one shape takes of one device.
struct Engine::Sizing {
  StepLimits limits, encode_limits;
  DrawLimits draw_limits;  // no rows: no device sampler
  bool keeps_checkpoints = false;
  kv_cache::KvPlan kv;
  std::vector<PhysicalMapping> mappings;  // prefill, decode, vision_encode if there is one
  std::vector<PhysicalSpec> buffers;
  memory::MemoryPlan memory_plan;
};

// Everything that is known before memory is taken. By rank where devices differ.
struct Engine::Draft {
  io::ModelFiles files;
  std::vector<models::CompiledModel> models;
  memory::LoadShape shape;
  std::vector<Sizing> sizings;
  std::vector<memory::OomRecord> oom;
  parallel::Devices devices;
};

Result<Engine::Draft> Engine::draft(const std::filesystem::path& path, const EngineOptions& options,
                                    const parallel::Devices& devices) {
  TRY(parallel::check_devices(devices));
  io::ModelFiles files = TRY(io::ModelFiles::open(path));
  if (!options.projector.empty()) TRY(files.add_projector(TRY(io::GgufFile::open(options.projector))));
  models::VisionOptions vision{.image_rows_max = options.image_rows_max, .image_token = {}};
  if (options.context_tokens != 0) vision.image_rows_max = std::min(vision.image_rows_max, options.context_tokens);
  if (options.image_token) vision.image_token = index(*options.image_token);
  std::vector<models::CompiledModel> models;
  for (std::uint32_t rank = 0; rank < devices.count(); ++rank)
    models.push_back(
        TRY(models::compile_model(files, options.kv_dtype, vision, {.rank = rank, .ranks = devices.count()},
                                  {.keeps_f8 = has_kernels_for(*devices.backends[rank], DType::kF8_E4M3)})));
  return draft(std::move(files), std::move(models), options, devices);
}

Result<Engine::Draft> Engine::draft(io::ModelFiles files, std::vector<models::CompiledModel> models,
                                    const EngineOptions& options, const parallel::Devices& devices) {
  TRY(check_options(options, models[0].config));
  for (const models::CompiledModel& model : models) TRY(validate_vision_handoff(model.plans));
  Draft draft{.files = std::move(files),
              .models = std::move(models),
              .shape = {},
              .sizings = {},
              .oom = {},
              .devices = devices};
  draft.shape = shape_of(options, draft.models[0].config);
  draft.sizings = TRY(size(draft, options));
  return draft;
}

Result<std::vector<Engine::Sizing>> Engine::size(const Draft& draft, const EngineOptions& options) {
  std::vector<Sizing> sizings;
  for (std::size_t rank = 0; rank < draft.models.size(); ++rank) {
    EngineOptions own = options;
    own.draws = options.draws && rank == 0;  // whose rows are the engine's
    sizings.push_back(TRY(size(draft.models[rank], own, draft.shape, *draft.devices.backends[rank])));
  }
  if (draft.models.size() == 1) return sizings;
  for (std::size_t rank = 0; rank < draft.models.size(); ++rank) {
    sizings[rank].memory_plan.sums_bytes = draft.devices.backends[rank]->sum_bytes(
        {.ranks = draft.devices.count(),
         .values_max = memory::summed_values_max(draft.models[rank], sizings[rank].limits)});
  }
  return sizings;
}

Result<Engine::Sizing> Engine::size(const models::CompiledModel& model, const EngineOptions& options,
                                    const memory::LoadShape& shape, const Backend& backend) {
  Sizing sizing;
  sizing.limits = step_limits(options, shape);
  sizing.encode_limits = TRY(encode_limits(options, model.config.vision, sizing.limits));
  sizing.draw_limits = draw_limits(options, shape, model.config);
  sizing.keeps_checkpoints = options.proposal_rows_max > 0;
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
                                                   .draw_limits = sizing.draw_limits,
                                                   .keeps_checkpoints = sizing.keeps_checkpoints},
                                                  backend));
  return sizing;
}

Result<memory::MemoryPlan> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                           Backend& backend) {
  return TRY(draft(path, options, {.backends = {&backend}})).sizings[0].memory_plan;
}

Result<std::vector<memory::MemoryPlan>> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                                        const parallel::Devices& devices) {
  const Draft made = TRY(draft(path, options, devices));
  std::vector<memory::MemoryPlan> plans;
  for (const Sizing& sizing : made.sizings) plans.push_back(sizing.memory_plan);
  return plans;
}

Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& path, const EngineOptions& options,
                                             Backend& backend, const LoadProgress& progress) {
  return load(path, options, parallel::Devices{.backends = {&backend}}, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(const std::filesystem::path& path, const EngineOptions& options,
                                             const parallel::Devices& devices, const LoadProgress& progress) {
  return load(TRY(draft(path, options, devices)), options, progress);
}

Result<std::unique_ptr<Engine>> Engine::load(io::ModelFiles files, models::CompiledModel model,
                                             const EngineOptions& options, Backend& backend) {
  std::vector<models::CompiledModel> models;
  models.push_back(std::move(model));
  return load(TRY(draft(std::move(files), std::move(models), options, {.backends = {&backend}})), options, {});
}

// Every device that the model needs must have room for its part.
Result<> Engine::check_fits(const Draft& draft) {
  for (std::uint32_t rank = 0; rank < draft.devices.count(); ++rank) {
    Result<> fits = memory::check_fits(draft.sizings[rank].memory_plan, *draft.devices.backends[rank]);
    if (!fits) return base::fail(parallel::error_at(std::move(fits).error(), rank, draft.devices.count()));
  }
  return {};
}

Result<std::unique_ptr<Engine>> Engine::load(Draft draft, const EngineOptions& options, const LoadProgress& progress) {
  ASSERT(draft.devices.count() == 1 ||
             (draft.devices.collective != nullptr && draft.devices.collective->ranks() == draft.devices.count()),
         "{} devices without a collective of theirs", draft.devices.count());
  for (Result<> fits = check_fits(draft); !fits; fits = check_fits(draft))
    TRY(make_smaller(fits.error(), options, draft));
  std::unique_ptr<Engine> engine(new Engine);
  engine->ranks_.resize(draft.devices.count());
  for (std::size_t rank = 0; rank < engine->ranks_.size(); ++rank)
    engine->ranks_[rank].backend = draft.devices.backends[rank];
  engine->collective_ = draft.devices.count() == 1 ? nullptr : draft.devices.collective;
  engine->threads_ = std::make_unique<parallel::RankThreads>(draft.devices.count());
  Quarters quarters(progress);
  TRY(engine->upload_weights(draft, options, [&](unsigned percent) { quarters.reach(percent); }));
  Result<StepMemory> step = engine->take_step_memory(draft);
  while (!step) {
    TRY(make_smaller(step.error(), options, draft));
    step = engine->take_step_memory(draft);
  }
  engine->step_ = *std::move(step);
  engine->describe(draft, options);
  engine->become_ready(std::move(draft));
  for (Rank& rank : engine->ranks_) TRY(rank.backend->synchronize());
  quarters.reach(100);
  return engine;
}

// Goes on with the next smaller shape when `error` is one of memory and the floors allow it; else returns the error.
Result<> Engine::make_smaller(const base::Error& error, const EngineOptions& options, Draft& draft) {
  if (error.code != ErrorCode::kOutOfDeviceMemory) return base::fail(error);
  const memory::LoadShape asked = shape_of(options, draft.models[0].config);
  const auto next = memory::next_step(draft.shape, floors_of(options, draft.models[0].config, asked));
  if (!next) {
    base::Error refusal = error;
    for (const memory::OomRecord& record : draft.oom) refusal.message += fmt::format("; tried {}", record.action);
    return base::fail(std::move(refusal));
  }
  draft.oom.push_back(memory::record_of(error, "load", next->action));
  draft.shape = next->shape;
  draft.sizings = TRY(size(draft, options));
  return {};
}

// Every device takes its part at the same time; what the slowest one has reached is reached.
Result<> Engine::upload_weights(const Draft& draft, const EngineOptions& options, const LoadProgress& reach) {
  std::mutex mutex;
  std::vector<unsigned> percents(ranks_.size());  // guarded by it
  std::vector<std::string> not_kept_whys(ranks_.size());
  threads_->run([&](std::uint32_t rank) {
    const auto report = [&](std::uint64_t done, std::uint64_t total) {
      const std::scoped_lock lock(mutex);
      percents[rank] = static_cast<unsigned>(done * 99 / total);  // 100 is for when steps can run
      reach(*std::ranges::min_element(percents));
    };
    const std::span<const models::BoundTensor> tensors = draft.models[rank].tensors;
    auto weights = kept_weights(tensors, options, rank, report);
    if (!weights && weights.error().code != ErrorCode::kOutOfDeviceMemory) {
      not_kept_whys[rank] = weights.error().message;
      weights = memory::WeightStore::upload(tensors, *ranks_[rank].backend, report);
    }
    if (!weights) {
      ranks_[rank].outcome = base::fail(std::move(weights).error());
      return;
    }
    ranks_[rank].weights = *std::move(weights);
    ranks_[rank].outcome = {};
  });
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) TRY(outcome_of(rank));
  const auto why = std::ranges::find_if(not_kept_whys, [](const std::string& text) { return !text.empty(); });
  facts_.weights_were_kept = why == not_kept_whys.end();
  facts_.weights_not_kept_why = facts_.weights_were_kept ? "" : *why;
  return {};
}

// The weights of a device as they were packed by an earlier load. Errors: why there are none.
Result<memory::WeightStore> Engine::kept_weights(std::span<const models::BoundTensor> tensors,
                                                 const EngineOptions& options, std::uint32_t rank,
                                                 const UploadProgress& progress) const {
  Backend& backend = *ranks_[rank].backend;
  const auto none = [](std::string why) { return base::fail(ErrorCode::kModelNotFound, std::move(why)); };
  if (options.repack_cache == nullptr || backend.packed_layout().empty()) return none("no packed weights are kept");
  if (!options.projector.empty()) return none("packed weights are not kept of models with a separate projector");
  if (options.model_digest.empty()) return none("the digest of the model was not known before the load");
  repack_cache::RepackKey key = repack_key(rank, options.model_digest);
  for (const models::BoundTensor& tensor : tensors) {
    const StoredTensor source = tensor.as_source();
    TRY(backend.check_weight(source));
    key.tensors.push_back({.name = std::string(source.name),
                           .view = {.dtype = source.dtype, .rank = source.rank, .shape = source.shape},
                           .packed_bytes = backend.packed_weight_bytes(source)});
  }
  auto source = options.repack_cache->find(key);
  if (source && *source == nullptr) return none("no packed weights of this model and build are kept yet");
  auto weights = !source ? Result<memory::WeightStore>(base::fail(std::move(source).error()))
                         : memory::WeightStore::upload_packed(tensors, **source, backend, progress);
  if (!weights && weights.error().code != ErrorCode::kOutOfDeviceMemory) options.repack_cache->discard(key);
  return weights;
}

repack_cache::RepackKey Engine::repack_key(std::uint32_t rank, const std::string& model_digest) const {
  return {.model_digest = model_digest,
          .build = base::build_id(),
          .layout = std::string(ranks_[rank].backend->packed_layout()),
          .rank = rank,
          .ranks = static_cast<std::uint32_t>(ranks_.size()),
          .tensors = {}};
}

Result<repack_cache::Kept> Engine::keep_weights(const repack_cache::RepackCache& cache, const std::string& model_digest,
                                                const std::stop_token& stop) const {
  repack_cache::Kept kept{.bytes = 0, .already = true};
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    const Backend& backend = *ranks_[rank].backend;
    if (backend.packed_layout().empty()) continue;
    repack_cache::RepackKey key = repack_key(rank, model_digest);
    std::vector<std::span<const std::byte>> weights;
    for (const memory::DeviceWeight& weight : ranks_[rank].weights.all()) {
      weights.push_back(backend.packed_bytes(weight.ptr));
      key.tensors.push_back({.name = weight.name, .view = weight.view, .packed_bytes = weights.back().size()});
    }
    const repack_cache::Kept of_rank = TRY(cache.keep(key, weights, stop));
    kept.bytes += of_rank.bytes;
    kept.already = kept.already && of_rank.already;
  }
  return kept;
}

Result<Engine::StepMemory> Engine::take_step_memory(const Draft& draft) {
  StepMemory step;
  step.kv = TRY(kv_cache::KvMemory::make(draft.sizings[0].kv, draft.devices.backends));
  if (collective_ != nullptr) {
    TRY(collective_->reserve(memory::summed_values_max(draft.models[0], draft.sizings[0].limits)));
    step.sums.reset(collective_);
  }
  for (std::uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    Result<RankMemory> room = take_rank_memory(draft, *step.kv, rank);
    if (!room) return base::fail(parallel::error_at(std::move(room).error(), rank, draft.devices.count()));
    step.ranks.push_back(*std::move(room));
  }
  return step;
}

Result<Engine::RankMemory> Engine::take_rank_memory(const Draft& draft, const kv_cache::KvMemory& kv,
                                                    std::uint32_t rank) {
  const models::CompiledModel& model = draft.models[rank];
  const Sizing& sizing = draft.sizings[rank];
  Backend& backend = *ranks_[rank].backend;
  RankMemory room;
  const std::vector<StateBlockHandle> paged = kv.handles(rank);
  room.state = TRY(memory::StateArena::make({.descs = model.plans.decoder_prefill.plan.state_descs,
                                             .paged = paged,
                                             .slots = sizing.limits.slots_max,
                                             .keeps_checkpoints = sizing.keeps_checkpoints},
                                            backend));
  room.activations = TRY(memory::Activations::make(sizing.buffers, backend));
  room.joined_logits = TRY(
      DeviceBuffer::allocate(backend, memory::joined_logits_bytes(model, sizing.limits), MemoryPurpose::kActivations));
  room.workspace = TRY(DeviceBuffer::allocate(backend, sizing.memory_plan.workspace_bytes, MemoryPurpose::kWorkspace));
  const models::VisionConfig& vision = model.config.vision;
  const bool takes_images = model.plans.vision_encode.has_value();
  room.batch = TRY(BatchBuilder::make(sizing.limits, memory::batch_model(model), backend));
  room.long_rope_memory =
      TRY(DeviceBuffer::allocate(backend, memory::long_rope_flag_bytes(model, sizing.limits), MemoryPurpose::kTables));
  TRY(upload_rope_tables(model, backend, room));
  if (takes_images) room.encoder = TRY(vision::ImageEncoder::make(vision, sizing.encode_limits, backend));
  if (sizing.draw_limits.rows_max != 0) room.device_sampler = TRY(backend.make_device_sampler(sizing.draw_limits));
  TRY(prepare_plans(draft, rank, room));
  return room;
}

Result<> Engine::prepare_plans(const Draft& draft, std::uint32_t rank, RankMemory& room) {
  const ModelPlans& plans = draft.models[rank].plans;
  const Sizing& sizing = draft.sizings[rank];
  const auto prepare = [&](const CompiledPlan& plan, const PhysicalMapping& mapping, const StepLimits& limits) {
    return PreparedPlan::make({.plan = plan,
                               .mapping = mapping,
                               .buffers = room.activations.of(mapping),
                               .weights = ranks_[rank].weights,
                               .states = room.state.handles(),
                               .backend = *ranks_[rank].backend,
                               .limits = limits});
  };
  room.prefill_plan = TRY(prepare(plans.decoder_prefill, sizing.mappings[0], sizing.limits));
  room.decode_plan = TRY(prepare(plans.decoder_decode, sizing.mappings[1], sizing.limits));
  if (plans.vision_encode)
    room.encode_plan = TRY(prepare(*plans.vision_encode, sizing.mappings[2], sizing.encode_limits));
  return {};
}

Result<> Engine::upload_rope_tables(const models::CompiledModel& model, Backend& backend, RankMemory& room) {
  room.rope_memory = TRY(DeviceBuffer::allocate(backend, memory::rope_table_bytes(model), MemoryPurpose::kTables));
  std::byte* at = room.rope_memory.data();
  for (const models::RopeTableData& table : model.rope_tables) {
    const auto bytes = std::as_bytes(std::span(table.inv_freq));
    backend.copy_to_device(at, bytes);
    room.rope_tables.push_back({.inv_freq = reinterpret_cast<const float*>(at),
                                .count = static_cast<std::uint32_t>(table.inv_freq.size()),
                                .attn_factor = table.attn_factor});
    at += bytes.size();
  }
  return {};
}

void Engine::become_ready(Draft draft) {
  limits_ = draft.sizings[0].limits;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Rank& rank = ranks_[r];
    const RankMemory& room = step_.ranks[r];
    rank.model = std::move(draft.models[r]);
    rank.model.tensors.clear();  // views into the files, which close here
    rank.memory = draft.sizings[r].memory_plan;
    rank.ctx.rope_tables = room.rope_tables;
    rank.ctx.long_rope_of_slot = reinterpret_cast<const std::uint8_t*>(room.long_rope_memory.data());
    rank.ctx.workspace = {.ptr = room.workspace.data(), .bytes = room.workspace.size_bytes()};
    rank.ctx.stream = rank.backend->stream();
    rank.ctx.counters = &rank.counters;
    rank.encode_ctx = rank.ctx;
  }
  slots_.resize(limits_.slots_max);
  for (std::uint32_t slot = 0; slot < limits_.slots_max; ++slot) admit(slot, 0);
  draws_.reserve(limits_.output_rows_max);
  logits_.resize(std::size_t{limits_.output_rows_max} * facts_.output_width);
}

void Engine::describe(const Draft& draft, const EngineOptions& options) {
  const models::CompiledModel& model = draft.models[0];
  const models::ModelConfig& config = model.config;
  const Sizing& sizing = draft.sizings[0];
  const StepLimits& limits = sizing.limits;
  prefill_chunk_ = std::min(draft.shape.prefill_chunk, limits.rows_max);
  const bool weights_were_kept = facts_.weights_were_kept;
  std::string why = std::move(facts_.weights_not_kept_why);
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
            .proposal_rows_max = std::min(options.proposal_rows_max, limits.output_rows_max - limits.slots_max),
            .layers = static_cast<std::uint32_t>(config.layers.size()),
            .width = config.width,
            .image_rows_max = config.vision.image_rows_max,
            .kv_tokens = sizing.kv.pages * kPageTokens,
            .kv_tokens_max = sizing.kv.pages_max * kPageTokens,
            .parameters_count = model.parameters_count,
            .file_bytes = draft.files.file_bytes(),
            .weight_type = std::string(dtype_info(model.weight_dtype).name),
            .kv_dtype = lower(dtype_info(options.kv_dtype).name),
            .plan_hash = base::to_hex(model.plans.decoder_prefill.plan_hash),
            .devices = draft.devices.count(),
            .device_class = parallel::device_class_of(draft.devices),
            .numerics = parallel::numerics_of(draft.devices),
            .implementation = std::string(ranks_[0].backend->implementation()),
            .oom = draft.oom,
            .weights_were_kept = weights_were_kept,
            .weights_not_kept_why = std::move(why)};
}

}  // namespace llorch::engine::inference
