#include "engine/inference/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/sha256.h"
#include "engine/contract/validate.h"
#include "engine/models/plan/physical.h"

namespace llorch::engine::inference {

using namespace contract;
using base::ErrorCode;
using base::Result;
using base::TokenId;

namespace {

// Slots beyond this are no serving setup but a typing error; the page table and the batch arrays scale with it.
constexpr std::uint32_t kSlotsMax = 1024;
constexpr std::uint32_t kRowsMax = 1U << 16;
constexpr std::uint32_t kImageRowsMax = 1U << 20;

Result<StepLimits> step_limits(const EngineOptions& options, const models::ModelConfig& config) {
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
  const std::uint32_t rows = std::max(std::min(options.prefill_chunk, context), options.slots);
  const std::uint32_t outputs = options.output_rows_max == 0 ? options.slots : options.output_rows_max;
  return StepLimits{.rows_max = rows,
                    .output_rows_max = std::min(std::max(outputs, options.slots), rows),
                    .slots_max = options.slots,
                    .context_tokens_max = context};
}

// Of the vision_encode plan; a frame is never cut.
Result<StepLimits> encode_limits(const EngineOptions& options, const StepLimits& limits) {
  if (options.frame_patches_max == 0 || options.frame_patches_max > kRowsMax || options.image_rows_max == 0 ||
      options.image_rows_max > kImageRowsMax) {
    return base::fail(ErrorCode::kInvalidParams,
                      fmt::format("frame_patches_max = {}, image_rows_max = {}; must be 1..{} and 1..{}",
                                  options.frame_patches_max, options.image_rows_max, kRowsMax, kImageRowsMax));
  }
  StepLimits encode = limits;
  encode.rows_max = options.frame_patches_max;
  return encode;
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

// Everything that is known before memory is taken.
struct Engine::Draft {
  io::ModelFiles files;
  models::CompiledModel model;
  StepLimits limits, encode_limits;
  std::vector<PhysicalMapping> mappings;  // prefill, decode, vision_encode if there is one
  std::vector<PhysicalSpec> buffers;
  memory::MemoryPlan memory_plan;
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
  Draft draft{.files = std::move(files),
              .model = std::move(model),
              .limits = {},
              .encode_limits = {},
              .mappings = {},
              .buffers = {},
              .memory_plan = {}};
  draft.limits = TRY(step_limits(options, draft.model.config));
  const ModelPlans& plans = draft.model.plans;
  TRY(validate_vision_handoff(plans));
  draft.encode_limits = TRY(encode_limits(options, draft.limits));
  const AdapterCapabilities& capabilities = backend.tables().capabilities;
  draft.mappings = {models::map_registers(plans.decoder_prefill, capabilities, draft.limits, *draft.model.arena),
                    models::map_registers(plans.decoder_decode, capabilities, draft.limits, *draft.model.arena)};
  if (plans.vision_encode) {
    draft.mappings.push_back(
        models::map_registers(*plans.vision_encode, capabilities, draft.encode_limits, *draft.model.arena));
  }
  draft.buffers = memory::shared_buffers(draft.mappings);
  draft.memory_plan = TRY(memory::predict_memory(
      {.model = draft.model, .buffers = draft.buffers, .limits = draft.limits, .encode_limits = draft.encode_limits},
      backend));
  return draft;
}

Result<memory::MemoryPlan> Engine::predict(const std::filesystem::path& path, const EngineOptions& options,
                                           Backend& backend) {
  return TRY(draft(path, options, backend)).memory_plan;
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
  TRY(memory::check_fits(draft.memory_plan, backend));
  std::unique_ptr<Engine> engine(new Engine);
  engine->backend_ = &backend;
  engine->limits_ = draft.limits;
  engine->encode_limits_ = draft.encode_limits;
  engine->memory_ = draft.memory_plan;
  engine->prefill_chunk_ = std::min(options.prefill_chunk, draft.limits.rows_max);
  engine->describe(draft, options);
  engine->model_ = std::move(draft.model);
  TRY(engine->take_memory(draft, progress));
  engine->model_.tensors.clear();  // views into the files, which close here
  return engine;
}

Result<> Engine::take_memory(Draft& draft, const LoadProgress& progress) {
  Quarters quarters(progress);
  weights_ = TRY(memory::WeightStore::upload(model_.tensors, *backend_, [&](std::uint64_t done, std::uint64_t total) {
    quarters.reach(static_cast<unsigned>(done * 99 / total));  // 100 is for when steps can run
  }));
  state_ = TRY(memory::StateArena::make(model_.plans.decoder_prefill.plan.state_descs,
                                        {.slots = limits_.slots_max, .context_tokens = limits_.context_tokens_max},
                                        *backend_));
  activations_ = TRY(memory::Activations::make(draft.buffers, *backend_));
  workspace_ = TRY(DeviceBuffer::allocate(*backend_, memory_.workspace_bytes, MemoryPurpose::kWorkspace));
  const bool takes_images = model_.plans.vision_encode.has_value();
  batch_ = TRY(BatchBuilder::make(
      limits_,
      {.vocab = model_.config.vocab, .takes_images = takes_images, .image_row_ids = model_.config.vision.image_row_ids},
      *backend_));
  TRY(upload_rope_tables());
  const auto prepare = [&](const CompiledPlan& plan, const PhysicalMapping& mapping, const StepLimits& limits) {
    return PreparedPlan::make({.plan = plan,
                               .mapping = mapping,
                               .buffers = activations_.of(mapping),
                               .weights = weights_,
                               .states = state_.handles(),
                               .backend = *backend_,
                               .limits = limits});
  };
  prefill_plan_ = TRY(prepare(model_.plans.decoder_prefill, draft.mappings[0], limits_));
  decode_plan_ = TRY(prepare(model_.plans.decoder_decode, draft.mappings[1], limits_));
  if (takes_images) {
    encoder_ = TRY(vision::ImageEncoder::make(model_.config.vision, encode_limits_, *backend_));
    encode_plan_ = TRY(prepare(*model_.plans.vision_encode, draft.mappings[2], encode_limits_));
  }
  TRY(backend_->synchronize());

  slots_.resize(limits_.slots_max);
  long_rope_memory_ =
      TRY(DeviceBuffer::allocate(*backend_, memory::long_rope_flag_bytes(model_, limits_), MemoryPurpose::kTables));
  for (std::uint32_t slot = 0; slot < limits_.slots_max; ++slot) admit(slot, 0);
  logits_.resize(std::size_t{limits_.output_rows_max} * model_.config.vocab);
  ctx_.rope_tables = rope_tables_;
  ctx_.long_rope_of_slot = reinterpret_cast<const std::uint8_t*>(long_rope_memory_.data());
  ctx_.workspace = {.ptr = workspace_.data(), .bytes = workspace_.size_bytes()};
  ctx_.stream = backend_->stream();
  ctx_.counters = &counters_;
  encode_ctx_ = ctx_;
  quarters.reach(100);
  return {};
}

Result<> Engine::upload_rope_tables() {
  rope_memory_ = TRY(DeviceBuffer::allocate(*backend_, memory::rope_table_bytes(model_), MemoryPurpose::kTables));
  std::byte* at = rope_memory_.data();
  for (const models::RopeTableData& table : model_.rope_tables) {
    const auto bytes = std::as_bytes(std::span(table.inv_freq));
    backend_->copy_to_device(at, bytes);
    rope_tables_.push_back({.inv_freq = reinterpret_cast<const float*>(at),
                            .count = static_cast<std::uint32_t>(table.inv_freq.size()),
                            .attn_factor = table.attn_factor});
    at += bytes.size();
  }
  return {};
}

void Engine::describe(const Draft& draft, const EngineOptions& options) {
  const models::ModelConfig& config = draft.model.config;
  facts_ = {.architecture = config.architecture,
            .name = config.name,
            .vocab = config.vocab,
            .context_tokens = draft.limits.context_tokens_max,
            .context_tokens_model = config.context_tokens,
            .slots = options.slots,
            .rows_max = draft.limits.rows_max,
            .layers = static_cast<std::uint32_t>(config.layers.size()),
            .width = config.width,
            .image_rows_max = config.vision.image_rows_max,
            .parameters_count = draft.model.parameters_count,
            .file_bytes = draft.files.file_bytes(),
            .weight_type = std::string(dtype_info(draft.model.weight_dtype).name),
            .kv_dtype = lower(dtype_info(options.kv_dtype).name),
            .plan_hash = base::to_hex(draft.model.plans.decoder_prefill.plan_hash),
            .device_class = std::string(backend_->device_class()),
            .numerics = std::string(backend_->numerics()),
            .implementation = std::string(backend_->implementation())};
}

Result<> Engine::reset(std::uint32_t slot, std::uint32_t tokens_max) {
  ASSERT(slot < slots_.size(), "slot={} slots={}", slot, slots_.size());
  TRY(state_.apply_all(LifecycleAction::kReset, slot));
  if (model_.plans.vision_encode) TRY(state_.apply(LifecycleAction::kDeinit, kVisionStateId, slot));
  admit(slot, tokens_max);
  return {};
}

Result<> Engine::encode_images(std::uint32_t slot, std::span<const vision::Image> images,
                               std::span<const float> patch_rows) {
  ASSERT(slot < slots_.size(), "slot={} slots={}", slot, slots_.size());
  if (!model_.plans.vision_encode)
    return base::fail(ErrorCode::kInvalidParams, fmt::format("{} as loaded takes no images", facts_.architecture));
  if (slots_[slot].length != 0) {
    return base::fail(ErrorCode::kInvalidParams, fmt::format("slot {} holds {} positions; images come before the first",
                                                             slot, slots_[slot].length));
  }
  vision::Frames frames = TRY(encoder_.frames_of(images, patch_rows));
  TRY(state_.apply(LifecycleAction::kAlloc, kVisionStateId, slot));
  if (Result<> encoded = run_encoder(slot, frames, patch_rows); !encoded) {
    TRY(state_.apply(LifecycleAction::kDeinit, kVisionStateId, slot));
    return encoded;
  }
  slots_[slot].image_rows = frames.rows_count;
  slots_[slot].frames = std::move(frames.rows);
  return {};
}

Result<> Engine::run_encoder(std::uint32_t slot, const vision::Frames& frames, std::span<const float> patch_rows) {
  vision::ImageEncoder::Progress progress{.slot = slot};
  while (progress.frame < frames.patches.size()) {
    encoder_.fill(progress, frames, patch_rows, encode_ctx_);
    counters_ = {};
    if (const Status status = run(encode_ctx_, encode_plan_.instructions()); !status.is_ok()) {
      return base::fail(status.error(), fmt::format("instruction {} of the vision plan failed on {}", counters_.total,
                                                    backend_->device_class()));
    }
    TRY(backend_->synchronize());
  }
  return {};
}

void Engine::admit(std::uint32_t slot, std::uint32_t tokens_max) {
  const std::uint32_t context = limits_.context_tokens_max;
  slots_[slot] = {};
  slots_[slot].tokens_max = tokens_max == 0 ? context : std::min(tokens_max, context);
  if (model_.long_rope_context == 0) return;
  const std::uint8_t is_long = slots_[slot].tokens_max > model_.long_rope_context ? 1 : 0;
  backend_->copy_to_device(long_rope_memory_.data() + slot, std::as_bytes(std::span(&is_long, 1)));
}

Result<StepOutput> Engine::step(std::span<const SlotRows> requests) {
  TRY(batch_.build(requests, slots_, ctx_));
  counters_ = {};
  const PreparedPlan& plan = ctx_.mode == ExecutionMode::kDecode ? decode_plan_ : prefill_plan_;
  if (const Status status = run(ctx_, plan.instructions(), observer_); !status.is_ok()) {
    return base::fail(status.error(), fmt::format("instruction {} of the plan failed on {}", counters_.total,
                                                  backend_->device_class()));
  }
  const std::span<float> logits = std::span(logits_).first(ctx_.output_rows.size() * facts_.vocab);
  backend_->copy_to_host(std::as_writable_bytes(logits), plan.output_of(plan.instructions().size() - 1));
  TRY(backend_->synchronize());
  for (std::size_t b = 0; b < requests.size(); ++b) {
    SlotFill& fill = slots_[requests[b].slot];
    fill.length = ctx_.sequence_lengths[b];
    if (!batch_.cursors().empty()) fill.cursor = batch_.cursors()[b];
  }
  return StepOutput{.logits = logits, .vocab = facts_.vocab};
}

Result<std::span<const float>> Engine::prefill(std::uint32_t slot, std::span<const TokenId> tokens) {
  TRY(batch_.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone}, slots_[slot]));
  while (tokens.size() > prefill_chunk_) {
    const SlotRows chunk{.slot = slot, .tokens = tokens.first(prefill_chunk_), .wanted = RowsWanted::kNone};
    TRY(step({&chunk, 1}));
    tokens = tokens.subspan(prefill_chunk_);
  }
  const SlotRows last{.slot = slot, .tokens = tokens, .wanted = RowsWanted::kLast};
  return TRY(step({&last, 1})).logits;
}

Result<std::span<const float>> Engine::decode(std::uint32_t slot, TokenId token) { return prefill(slot, {&token, 1}); }

Result<> Engine::score(std::uint32_t slot, std::span<const TokenId> tokens, const RowSink& sink) {
  TRY(batch_.check_request({.slot = slot, .tokens = tokens, .wanted = RowsWanted::kNone}, slots_[slot]));
  const std::size_t chunk_max = std::min(prefill_chunk_, limits_.output_rows_max);
  for (std::size_t done = 0; done < tokens.size();) {
    const std::size_t count = std::min(chunk_max, tokens.size() - done);
    const SlotRows chunk{.slot = slot, .tokens = tokens.subspan(done, count), .wanted = RowsWanted::kAll};
    const StepOutput output = TRY(step({&chunk, 1}));
    for (std::size_t r = 0; r < count; ++r) sink(done + r, output.row(r));
    done += count;
  }
  return {};
}

}  // namespace llorch::engine::inference
