#pragma once
// A model on its devices: one, or several that share it.
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/inference/batch_builder.h"
#include "engine/inference/executor.h"
#include "engine/inference/kv_cache/kv_memory.h"
#include "engine/inference/load_plan.h"
#include "engine/inference/memory/activations.h"
#include "engine/inference/memory/state_arena.h"
#include "engine/inference/memory/weight_store.h"
#include "engine/inference/output_rows.h"
#include "engine/inference/parallel/rank_threads.h"
#include "engine/inference/prepared_plan.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "engine/inference/speculation/hidden_states.h"
#include "engine/inference/vision/image_encoder.h"

namespace llorch::engine::inference {

// Of the bytes a load copies, in hundredths; 100 is for when steps can run. Of several devices it is any one's thread, one at
// a time.
using LoadProgress = std::function<void(unsigned percent)>;

enum class PassKind : std::uint8_t { kPrefill, kDecode, kEncode, kPredict };

// What every device runs at once.
struct Pass {
  PassKind kind = PassKind::kPrefill;
  OutputRows* rows = nullptr;  // takes those of the last instruction, on the first device; null: nobody wants them
  InstructionObserver* observer = nullptr;
};

// What a step needs on one device but the weights.
struct PartMemory {
  memory::StateArena state;
  memory::Activations activations;
  plan::DeviceBuffer joined_logits;  // [output_rows_max, vocab] where devices share the vocabulary out; else none
  plan::DeviceBuffer workspace;
  plan::DeviceBuffer rope_memory;
  std::vector<plan::RopeTable> rope_tables;
  plan::DeviceBuffer long_rope_memory;  // [slots], of models with two rotations
  BatchBuilder batch;
  PreparedPlan prefill_plan;
  PreparedPlan decode_plan;
  vision::ImageEncoder encoder;  // of models with images
  PreparedPlan encode_plan;
  speculation::HiddenStates hidden;  // of models that predict
  PreparedPlan predict_plan;
  std::unique_ptr<plan::DeviceSampler> device_sampler;  // the first device's; null: it has none, or nobody wants one

  const PreparedPlan& plan_of(PassKind kind) const {
    if (kind == PassKind::kEncode) return encode_plan;
    if (kind == PassKind::kPredict) return predict_plan;
    return kind == PassKind::kDecode ? decode_plan : prefill_plan;
  }
  // What the last two instructions of a pass, norm and head, have read: [T, D] ahead of the norm, and behind it.
  const std::byte* states_of(PassKind kind, bool is_normed = true) const {
    const auto instructions = plan_of(kind).instructions();
    return instructions[instructions.size() - (is_normed ? 1 : 2)].input<std::byte>(0);
  }
};

// One device's part of the model.
struct ModelPart {
  plan::Backend* backend = nullptr;
  models::CompiledModel model;
  memory::MemoryPlan memory;
  memory::WeightStore weights;
  plan::ExecutionContext ctx;
  plan::ExecutionContext encode_ctx;
  plan::ExecutionContext predict_ctx;
  plan::DispatchCounters counters;  // of its last pass but that of a predictor
  base::Result<> outcome;           // of its last pass, upload or check
};

// All parts, and the thread that each of them runs on. Thread rule: one call at a time.
class ModelParts {
 public:
  explicit ModelParts(const parallel::Devices& devices);

  // Every device takes its part at the same time; what the slowest one has reached is reached. Errors: the backends'.
  base::Result<> upload_weights(const LoadPlan& load, const EngineOptions& options, const LoadProgress& reach);
  // Why the weights came from the model's files and not as they were packed before; empty: they did not.
  const std::string& not_kept_why() const { return not_kept_why_; }
  // As Engine::keep_weights().
  base::Result<repack_cache::Kept> keep_weights(const repack_cache::RepackCache& cache, const std::string& model_digest,
                                                const std::stop_token& stop) const;
  // Taken on all devices or on none. Errors: OUT_OF_DEVICE_MEMORY; those of PreparedPlan::make.
  base::Result<> take_step_memory(const LoadPlan& load);
  // Takes the models of the plan, which is over.
  void become_ready(LoadPlan& load);

  // Runs a pass on all devices. Errors: that of the first device to fail, with its rank where there are several.
  base::Result<> run(const Pass& pass);

  std::size_t size() const { return parts_.size(); }
  ModelPart& operator[](std::size_t rank) { return parts_[rank]; }
  const ModelPart& operator[](std::size_t rank) const { return parts_[rank]; }
  PartMemory& memory(std::size_t rank) { return step_.ranks[rank]; }
  const PartMemory& memory(std::size_t rank) const { return step_.ranks[rank]; }
  std::vector<PartMemory>& memories() { return step_.ranks; }
  kv_cache::KvMemory& kv() const { return *step_.kv; }

  std::vector<std::uint64_t> memory_used_bytes() const;  // by rank
  base::Result<> check_residency();                      // Errors: Backend::check_residency.

 private:
  struct ReleaseSums {
    void operator()(plan::Collective* collective) const noexcept { collective->release(); }
  };
  // Taken as a whole or not at all.
  struct StepMemory {
    std::unique_ptr<kv_cache::KvMemory> kv;
    std::unique_ptr<plan::Collective, ReleaseSums> sums;  // of several devices; the room it has reserved is owned
    std::vector<PartMemory> ranks;
  };
  base::Result<memory::WeightStore> kept_weights(std::span<const models::BoundTensor> tensors,
                                                 const EngineOptions& options, std::uint32_t rank,
                                                 const plan::UploadProgress& progress) const;
  repack_cache::RepackKey repack_key(std::uint32_t rank, const std::string& model_digest) const;
  base::Result<PartMemory> take_part_memory(const LoadPlan& load, const kv_cache::KvMemory& kv, std::uint32_t rank);
  base::Result<> prepare_plans(const LoadPlan& load, std::uint32_t rank, PartMemory& room);
  // What a device's last pass, upload or check came to, with its rank where there are several.
  base::Result<> outcome_of(std::uint32_t rank) const;
  void run_rank(const Pass& pass, std::uint32_t rank) noexcept;
  plan::Status join_logits(std::uint32_t rank, const std::byte* part) noexcept;

  plan::Collective* collective_ = nullptr;
  std::vector<ModelPart> parts_;
  std::string not_kept_why_;
  StepMemory step_;
  std::atomic<std::uint32_t> failed_{0};  // rank that ended the last pass; one past the last: none
  std::unique_ptr<parallel::RankThreads> threads_;
};

}  // namespace llorch::engine::inference
