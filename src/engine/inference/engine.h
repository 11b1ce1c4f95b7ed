#pragma once
// The engine's front: a model (a GGUF file, or one of several parts, or a Hugging Face folder) on a device, slots in, logits out. Text, sampling and requests are the caller's.
//
// Thread rule: one thread at a time per engine and backend. The step functions allocate nothing unless they fail.
// A step that fails leaves the lengths of the slots it names as they were; a slot with recurrent state must be reset.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/contract/backend.h"
#include "engine/inference/batch_builder.h"
#include "engine/inference/executor.h"
#include "engine/inference/memory/activations.h"
#include "engine/inference/memory/memory_plan.h"
#include "engine/inference/memory/state_arena.h"
#include "engine/inference/memory/weight_store.h"
#include "engine/inference/prepared_plan.h"
#include "engine/inference/vision/image_encoder.h"
#include "engine/models/model.h"

namespace llorch::engine::inference {

struct EngineOptions {
  std::uint32_t context_tokens = 0;  // positions per slot; 0 = what the model was made for, which is also the most
  std::uint32_t slots = 1;
  contract::DType kv_dtype = contract::DType::kF16;  // F16 or F32; part of a request's identity
  std::uint32_t prefill_chunk = 512;  // rows per step; past a few hundred a pass over the weights is well shared
  std::uint32_t output_rows_max = 0;  // rows of a step whose logits can be had; 0 = one per slot
  // Of models that take images. The defaults are one image of 1024 x 1024 pixels and four such images per request.
  std::filesystem::path projector;           // file of a GGUF model's tower; none: a text model
  std::uint32_t frame_patches_max = 4096;    // of the largest image
  std::uint32_t image_rows_max = 4096;       // of a request, at most the context; each costs memory in every slot
  std::optional<base::TokenId> image_token;  // stands for a row of an image, instead of what the files say
};

struct EngineFacts {
  std::string architecture;
  std::string name;
  std::uint32_t vocab = 0;
  std::uint32_t context_tokens = 0;        // per slot, as loaded
  std::uint32_t context_tokens_model = 0;  // what the model was made for
  std::uint32_t slots = 0;
  std::uint32_t rows_max = 0;  // rows one step takes, never fewer than slots
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t image_rows_max = 0;  // of a request; 0: takes no images
  std::uint64_t parameters_count = 0;
  std::uint64_t file_bytes = 0;
  std::string weight_type;     // "F16", "Q8_0", ...: the type most matrix elements are stored in
  std::string kv_dtype;        // "f16"
  std::string plan_hash;       // 32 hex digits, of the prefill plan
  std::string device_class;    // "cpu-x86"
  std::string numerics;        // "cpu-1"
  std::string implementation;  // "avx2", "avx512"
};

// 0, 25, 50, 75 and 100, each once.
using LoadProgress = std::function<void(unsigned percent)>;
// One row of logits, [vocab], valid during the call.
using RowSink = std::function<void(std::size_t row, std::span<const float> logits)>;

// Logits of a step, in row order: requests in order, each request's wanted rows in order. Valid until the next step.
struct StepOutput {
  std::span<const float> logits;  // [rows, vocab]
  std::uint32_t vocab = 0;
  std::size_t rows() const { return logits.size() / vocab; }
  std::span<const float> row(std::size_t i) const { return logits.subspan(i * vocab, vocab); }
};

class Engine {
 public:
  // What load() would take, without reading weights. Errors: as load().
  static base::Result<memory::MemoryPlan> predict(const std::filesystem::path& path, const EngineOptions& options,
                                                  contract::Backend& backend);
  // The backend outlives the engine. Errors: those of ModelFiles::open and compile_model; INVALID_PARAMS (options);
  // UNSUPPORTED_OPCODE, BATCH_UNSUPPORTED, WEIGHT_DTYPE_UNSUPPORTED; OUT_OF_DEVICE_MEMORY, found before any weight is read.
  static base::Result<std::unique_ptr<Engine>> load(const std::filesystem::path& path, const EngineOptions& options,
                                                    contract::Backend& backend, const LoadProgress& progress = {});
  // The same for a model compiled by the caller from these files.
  static base::Result<std::unique_ptr<Engine>> load(io::ModelFiles files, models::CompiledModel model,
                                                    const EngineOptions& options, contract::Backend& backend);

  const EngineFacts& facts() const { return facts_; }
  const memory::MemoryPlan& memory_plan() const { return memory_; }

  std::uint32_t length(std::uint32_t slot) const { return slots_[slot].length; }  // positions the slot holds
  // Empties a slot for the next request, which may hold up to `tokens_max` positions (0, or more than the context: the
  // context). Some models rotate long sequences by other tables than short ones: the choice falls here, for the request's
  // whole life, so its bits do not depend on when it grew. Errors: those of memory::StateArena::apply.
  base::Result<> reset(std::uint32_t slot, std::uint32_t tokens_max = 0);

  // Turns the images of a slot's request into the rows that its image tokens, in order, stand for. They stay until the
  // next reset. `patch_rows` are the patches of all frames, image by image, each frame's by blocks of merge x merge, each
  // patch channel, frame, row, column. Errors: INVALID_PARAMS (a model without images, a slot that holds positions already,
  // grids that cannot be), INVALID_STATE_LIFECYCLE_ACTION (the request has its images).
  base::Result<> encode_images(std::uint32_t slot, std::span<const vision::Image> images,
                               std::span<const float> patch_rows);

  // Appends tokens to a slot, in chunks of at most prefill_chunk; the logits are those after the last token, [vocab].
  // Errors: CONTEXT_EXHAUSTED, INVALID_PARAMS, both before anything is run. REQUIRES: at least one token.
  base::Result<std::span<const float>> prefill(std::uint32_t slot, std::span<const base::TokenId> tokens);
  base::Result<std::span<const float>> decode(std::uint32_t slot, base::TokenId token);
  // Appends tokens and hands out the logits after every one of them (teacher forcing). Errors: as prefill().
  base::Result<> score(std::uint32_t slot, std::span<const base::TokenId> tokens, const RowSink& sink);
  // One step over several slots. Errors and REQUIRES: BatchBuilder::build.
  base::Result<StepOutput> step(std::span<const SlotRows> requests);

  // Looks on at every step from now on; null for nobody. It outlives the engine or is taken away first.
  void observe(InstructionObserver* observer) { observer_ = observer; }
  // Instructions run by the last step.
  const contract::DispatchCounters& counters() const { return counters_; }

 private:
  struct Draft;
  Engine() = default;
  static base::Result<Draft> draft(const std::filesystem::path& path, const EngineOptions& options,
                                   contract::Backend& backend);
  static base::Result<Draft> draft(io::ModelFiles files, models::CompiledModel model, const EngineOptions& options,
                                   contract::Backend& backend);
  static base::Result<std::unique_ptr<Engine>> load(Draft draft, const EngineOptions& options,
                                                    contract::Backend& backend, const LoadProgress& progress);
  void admit(std::uint32_t slot, std::uint32_t tokens_max);
  base::Result<> run_encoder(std::uint32_t slot, const vision::Frames& frames, std::span<const float> patch_rows);
  base::Result<> take_memory(Draft& draft, const LoadProgress& progress);
  base::Result<> upload_rope_tables();
  void describe(const Draft& draft, const EngineOptions& options);

  contract::Backend* backend_ = nullptr;
  models::CompiledModel model_;
  contract::StepLimits limits_, encode_limits_;
  EngineFacts facts_;
  memory::MemoryPlan memory_;
  std::uint32_t prefill_chunk_ = 0;

  memory::WeightStore weights_;
  memory::StateArena state_;
  memory::Activations activations_;
  contract::DeviceBuffer workspace_;
  contract::DeviceBuffer rope_memory_;
  std::vector<contract::RopeTable> rope_tables_;
  BatchBuilder batch_;
  PreparedPlan prefill_plan_;
  PreparedPlan decode_plan_;
  vision::ImageEncoder encoder_;  // of models with images
  PreparedPlan encode_plan_;

  std::vector<SlotFill> slots_;
  contract::DeviceBuffer long_rope_memory_;  // [slots], of models with two rotations
  std::vector<float> logits_;                // [output_rows_max, vocab]
  contract::ExecutionContext ctx_;
  contract::ExecutionContext encode_ctx_;
  contract::DispatchCounters counters_;
  InstructionObserver* observer_ = nullptr;
};

}  // namespace llorch::engine::inference
