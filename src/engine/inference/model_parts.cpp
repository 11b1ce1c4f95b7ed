#include "engine/inference/model_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>

#include "base/build_id.h"

namespace llorch::engine::inference {

using namespace plan;
using base::ErrorCode;
using base::Result;

namespace {

Result<> upload_rope_tables(const models::CompiledModel& model, Backend& backend, PartMemory& room) {
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

}  // namespace

ModelParts::ModelParts(const parallel::Devices& devices)
    : collective_(devices.count() == 1 ? nullptr : devices.collective),
      parts_(devices.count()),
      threads_(std::make_unique<parallel::RankThreads>(devices.count())) {
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) parts_[rank].backend = devices.backends[rank];
}

// Every device takes its part at the same time; what the slowest one has reached is reached.
Result<> ModelParts::upload_weights(const LoadPlan& load, const EngineOptions& options, const LoadProgress& reach) {
  std::mutex mutex;
  std::vector<unsigned> percents(parts_.size());  // guarded by it
  std::vector<std::string> not_kept_whys(parts_.size());
  threads_->run([&](std::uint32_t rank) {
    const auto report = [&](std::uint64_t done, std::uint64_t total) {
      const std::scoped_lock lock(mutex);
      percents[rank] = static_cast<unsigned>(done * 99 / total);  // 100 is for when steps can run
      reach(*std::ranges::min_element(percents));
    };
    const std::span<const models::BoundTensor> tensors = load.models[rank].tensors;
    auto weights = kept_weights(tensors, options, rank, report);
    if (!weights && weights.error().code != ErrorCode::kOutOfDeviceMemory) {
      not_kept_whys[rank] = weights.error().message;
      weights = memory::WeightStore::upload(tensors, *parts_[rank].backend, report);
    }
    if (!weights) {
      parts_[rank].outcome = base::fail(std::move(weights).error());
      return;
    }
    parts_[rank].weights = *std::move(weights);
    parts_[rank].outcome = {};
  });
  for (std::uint32_t rank = 0; rank < parts_.size(); ++rank) TRY(outcome_of(rank));
  const auto why = std::ranges::find_if(not_kept_whys, [](const std::string& text) { return !text.empty(); });
  not_kept_why_ = why == not_kept_whys.end() ? "" : *why;
  return {};
}

// The weights of a device as they were packed by an earlier load. Errors: why there are none.
Result<memory::WeightStore> ModelParts::kept_weights(std::span<const models::BoundTensor> tensors,
                                                     const EngineOptions& options, std::uint32_t rank,
                                                     const UploadProgress& progress) const {
  Backend& backend = *parts_[rank].backend;
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

repack_cache::RepackKey ModelParts::repack_key(std::uint32_t rank, const std::string& model_digest) const {
  return {.model_digest = model_digest,
          .build = base::build_id(),
          .layout = std::string(parts_[rank].backend->packed_layout()),
          .rank = rank,
          .ranks = static_cast<std::uint32_t>(parts_.size()),
          .tensors = {}};
}

Result<repack_cache::Kept> ModelParts::keep_weights(const repack_cache::RepackCache& cache,
                                                    const std::string& model_digest,
                                                    const std::stop_token& stop) const {
  repack_cache::Kept kept{.bytes = 0, .already = true};
  for (std::uint32_t rank = 0; rank < parts_.size(); ++rank) {
    const Backend& backend = *parts_[rank].backend;
    if (backend.packed_layout().empty()) continue;
    repack_cache::RepackKey key = repack_key(rank, model_digest);
    std::vector<std::span<const std::byte>> weights;
    for (const memory::DeviceWeight& weight : parts_[rank].weights.all()) {
      weights.push_back(backend.packed_bytes(weight.ptr));
      key.tensors.push_back({.name = weight.name, .view = weight.view, .packed_bytes = weights.back().size()});
    }
    const repack_cache::Kept of_rank = TRY(cache.keep(key, weights, stop));
    kept.bytes += of_rank.bytes;
    kept.already = kept.already && of_rank.already;
  }
  return kept;
}

Result<> ModelParts::take_step_memory(const LoadPlan& load) {
  StepMemory step;
  step.kv = TRY(kv_cache::KvMemory::make(load.parts[0].kv, load.devices.backends));
  if (collective_ != nullptr) {
    TRY(collective_->reserve(memory::summed_values_max(load.models[0], load.parts[0].limits)));
    step.sums.reset(collective_);
  }
  for (std::uint32_t rank = 0; rank < parts_.size(); ++rank) {
    Result<PartMemory> room = take_part_memory(load, *step.kv, rank);
    if (!room) return base::fail(parallel::error_at(std::move(room).error(), rank, load.devices.count()));
    step.ranks.push_back(*std::move(room));
  }
  step_ = std::move(step);
  return {};
}

Result<PartMemory> ModelParts::take_part_memory(const LoadPlan& load, const kv_cache::KvMemory& kv,
                                                std::uint32_t rank) {
  const models::CompiledModel& model = load.models[rank];
  const PartPlan& part = load.parts[rank];
  Backend& backend = *parts_[rank].backend;
  PartMemory room;
  const std::vector<StateBlockHandle> paged = kv.handles(rank);
  room.state = TRY(memory::StateArena::make({.descs = model.plans.decoder_prefill.plan.state_descs,
                                             .paged = paged,
                                             .slots = part.limits.slots_max,
                                             .keeps_checkpoints = part.keeps_checkpoints},
                                            backend));
  room.activations = TRY(memory::Activations::make(part.buffers, backend));
  room.joined_logits = TRY(
      DeviceBuffer::allocate(backend, memory::joined_logits_bytes(model, part.limits), MemoryPurpose::kActivations));
  room.workspace = TRY(DeviceBuffer::allocate(backend, part.memory_plan.workspace_bytes, MemoryPurpose::kWorkspace));
  const models::VisionConfig& vision = model.config.vision;
  const bool takes_images = model.plans.vision_encode.has_value();
  room.batch = TRY(BatchBuilder::make(part.limits, memory::batch_model(model), backend));
  room.long_rope_memory =
      TRY(DeviceBuffer::allocate(backend, memory::long_rope_flag_bytes(model, part.limits), MemoryPurpose::kTables));
  TRY(upload_rope_tables(model, backend, room));
  if (takes_images) room.encoder = TRY(vision::ImageEncoder::make(vision, part.encode_limits, backend));
  if (model.plans.predict) room.hidden = TRY(speculation::HiddenStates::make(part.limits, model.config.width, backend));
  if (part.draw_limits.rows_max != 0) room.device_sampler = TRY(backend.make_device_sampler(part.draw_limits));
  TRY(prepare_plans(load, rank, room));
  return room;
}

Result<> ModelParts::prepare_plans(const LoadPlan& load, std::uint32_t rank, PartMemory& room) {
  const ModelPlans& plans = load.models[rank].plans;
  const PartPlan& part = load.parts[rank];
  const auto prepare = [&](const CompiledPlan& plan, const PhysicalMapping& mapping, const StepLimits& limits) {
    return PreparedPlan::make({.plan = plan,
                               .mapping = mapping,
                               .buffers = room.activations.of(mapping),
                               .weights = parts_[rank].weights,
                               .states = room.state.handles(),
                               .backend = *parts_[rank].backend,
                               .limits = limits});
  };
  room.prefill_plan = TRY(prepare(plans.decoder_prefill, part.mappings[0], part.limits));
  room.decode_plan = TRY(prepare(plans.decoder_decode, part.mappings[1], part.limits));
  if (plans.vision_encode) room.encode_plan = TRY(prepare(*plans.vision_encode, part.mappings[2], part.encode_limits));
  if (plans.predict) room.predict_plan = TRY(prepare(*plans.predict, part.mappings.back(), part.limits));
  return {};
}

void ModelParts::become_ready(LoadPlan& load) {
  for (std::size_t rank = 0; rank < parts_.size(); ++rank) {
    ModelPart& part = parts_[rank];
    const PartMemory& room = step_.ranks[rank];
    part.model = std::move(load.models[rank]);
    part.model.tensors.clear();  // views into the files, which close here
    part.memory = load.parts[rank].memory_plan;
    part.ctx.rope_tables = room.rope_tables;
    part.ctx.long_rope_of_slot = reinterpret_cast<const std::uint8_t*>(room.long_rope_memory.data());
    part.ctx.workspace = {.ptr = room.workspace.data(), .bytes = room.workspace.size_bytes()};
    part.ctx.stream = part.backend->stream();
    part.ctx.counters = &part.counters;
    part.encode_ctx = part.ctx;
    part.predict_ctx = part.ctx;
    part.predict_ctx.counters = nullptr;
  }
}

Result<> ModelParts::run(const Pass& pass) {
  if (collective_ != nullptr) TRY(collective_->begin());
  const auto nobody = static_cast<std::uint32_t>(parts_.size());
  failed_.store(nobody, std::memory_order_relaxed);
  threads_->run([&](std::uint32_t rank) { run_rank(pass, rank); });
  const std::uint32_t failed = failed_.load(std::memory_order_relaxed);
  return failed == nobody ? Result<>() : outcome_of(failed);
}

void ModelParts::run_rank(const Pass& pass, std::uint32_t rank) noexcept {
  ModelPart& own = parts_[rank];
  const bool predicts = pass.kind == PassKind::kPredict;
  ExecutionContext& ctx = predicts ? own.predict_ctx : pass.kind == PassKind::kEncode ? own.encode_ctx : own.ctx;
  const PreparedPlan& plan = step_.ranks[rank].plan_of(pass.kind);
  if (!predicts) own.counters = {};
  own.backend->begin_step(ctx);
  Status status = inference::run(ctx, plan.instructions(), rank == 0 ? pass.observer : nullptr,
                                 {.collective = collective_, .rank = rank});
  const bool has_run = status.is_ok();
  std::byte* rows = nullptr;  // of logits
  if (has_run && pass.rows != nullptr) {
    rows = plan.output_of(plan.instructions().size() - 1);
    if (DeviceBuffer& joined = step_.ranks[rank].joined_logits; joined.data() != nullptr) {
      status = join_logits(rank, rows);
      rows = joined.data();
    }
  }
  own.backend->end_step();
  if (has_run && !status.is_ok()) {
    own.outcome = base::fail(status.error(),
                             fmt::format("the rows of logits could not be joined on {}", own.backend->device_class()));
  } else if (!status.is_ok()) {
    own.outcome = base::fail(status.error(), fmt::format("instruction {} of the plan failed on {}", own.counters.total,
                                                         own.backend->device_class()));
  } else if (rank == 0 && pass.rows != nullptr) {
    own.outcome = pass.rows->gather({.backend = *own.backend,
                                     .device_sampler = step_.ranks[rank].device_sampler.get(),
                                     .rows = rows,
                                     .count = ctx.output_rows.size()});
  } else {
    own.outcome = own.backend->synchronize();
  }
  if (own.outcome) return;
  // The first to fail is the one to tell of; the others fail because it will not come.
  auto nobody = static_cast<std::uint32_t>(parts_.size());
  failed_.compare_exchange_strong(nobody, rank, std::memory_order_relaxed);
  if (collective_ != nullptr) collective_->abort();
}

// Each device has made its part of every row.
Status ModelParts::join_logits(std::uint32_t rank, const std::byte* part) noexcept {
  const std::uint64_t rows = parts_[rank].ctx.output_rows.size();
  if (rows == 0) return Status::ok();
  return collective_->join(rank, {.part = reinterpret_cast<const float*>(part),
                                  .whole = reinterpret_cast<float*>(step_.ranks[rank].joined_logits.data()),
                                  .rows = rows,
                                  .width = parts_[rank].model.config.output_width() / parts_.size()});
}

Result<> ModelParts::outcome_of(std::uint32_t rank) const {
  if (parts_[rank].outcome) return {};
  return base::fail(parallel::error_at(parts_[rank].outcome.error(), rank, static_cast<std::uint32_t>(parts_.size())));
}

std::vector<std::uint64_t> ModelParts::memory_used_bytes() const {
  std::vector<std::uint64_t> bytes;
  for (const ModelPart& part : parts_) bytes.push_back(part.backend->memory_used_bytes());
  return bytes;
}

Result<> ModelParts::check_residency() {
  for (std::uint32_t rank = 0; rank < parts_.size(); ++rank) {
    parts_[rank].outcome = parts_[rank].backend->check_residency();
    TRY(outcome_of(rank));
  }
  return {};
}

}  // namespace llorch::engine::inference
