#pragma once
// The engine's front: a model (a GGUF file, or one of several parts, or a Hugging Face directory) on a device, or on several that
// share it, slots in, logits out. Text, sampling and requests are the caller's.
//
// Thread rule: one thread at a time per engine and backend; where several devices share a model the engine has a thread for
// each and uses the backends from these and from the caller's, never at once. The step functions allocate nothing unless they fail.
// A step that fails leaves the lengths of the slots it names as they were; a slot with recurrent state must be reset.
#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/batch_builder.h"
#include "engine/inference/executor.h"
#include "engine/inference/kv_cache/kv_memory.h"
#include "engine/inference/memory/activations.h"
#include "engine/inference/memory/memory_plan.h"
#include "engine/inference/memory/oom_ladder.h"
#include "engine/inference/memory/state_arena.h"
#include "engine/inference/memory/weight_store.h"
#include "engine/inference/parallel/devices.h"
#include "engine/inference/parallel/rank_threads.h"
#include "engine/inference/prepared_plan.h"
#include "engine/inference/repack_cache/repack_cache.h"
#include "engine/inference/vision/image_encoder.h"
#include "engine/models/model.h"
#include "engine/plan/backend.h"

namespace llorch::engine::inference {

// Edits of one row that a device draws from. Penalties of a long text name a few thousand ids; with more the row is read back.
inline constexpr std::uint32_t kDrawEditsMax = 4096;

struct EngineOptions {
  std::uint32_t context_tokens = 0;  // positions per slot; 0 = what the model was made for, which is also the most
  std::uint32_t slots = 1;
  plan::DType kv_dtype = plan::DType::kF16;  // F16 or F32; part of a request's identity
  std::uint32_t prefill_chunk = 512;         // rows per step; past a few hundred a pass over the weights is well shared
  std::uint32_t output_rows_max = 0;  // rows of a step whose logits can be had; 0 = one per slot, and all proposals
  // Rows of a step that may be proposals (SlotRows::proposals). With some, recurrent state has a copy in every slot.
  std::uint32_t proposal_rows_max = 0;
  // Positions the cache holds over all slots, and may grow to while it runs (kv_cache/kv_plan.h). 0: every slot's context;
  // what is there at load. Never less than one context.
  std::uint64_t kv_tokens = 0;
  std::uint64_t kv_tokens_max = 0;
  // How much smaller the load may be when the device has too little memory, instead of refusing it.
  memory::LoadFloors floors;
  // Of models that take images. The defaults are one image of 1024 x 1024 pixels and four such images per request.
  std::filesystem::path projector;         // file of a GGUF model's tower; none: a text model
  std::uint32_t frame_patches_max = 4096;  // of the largest image; 0: what image_rows_max rows are made of
  std::uint32_t image_rows_max = 4096;  // of a request, at most the context; each costs memory in every slot. 0: none
  std::optional<base::TokenId> image_token;  // stands for a row of an image, instead of what the files say
  bool draws = false;  // steps may draw on the device (StepHooks::draw), which takes some of its memory
  // Where weights that were packed before are looked for; null: nowhere. `model_digest`: of the files as they are now, 64
  // hex digits; empty: not known, so nothing is looked for.
  const repack_cache::RepackCache* repack_cache = nullptr;
  std::string model_digest;
};

struct EngineFacts {
  std::string architecture;
  std::string name;
  std::uint32_t vocab = 0;
  std::uint32_t output_width = 0;                // of an output row: vocab, or of a model of embeddings their width
  plan::Pooling pooling = plan::Pooling::kNone;  // kNone: output rows are logits
  bool scores = false;                           // a pooled row is a score (models::ModelConfig::scores)
  std::uint32_t token_types = 0;                 // of a pair's texts (kTokenTypeShift)
  std::uint32_t context_tokens = 0;              // per slot, as loaded
  std::uint32_t context_tokens_model = 0;        // what the model was made for
  std::uint32_t slots = 0;
  std::uint32_t rows_max = 0;           // rows one step takes, never fewer than slots
  std::uint32_t proposal_rows_max = 0;  // of them, that may be proposals
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t image_rows_max = 0;  // of a request; 0: takes no images
  std::uint64_t kv_tokens = 0;       // positions the cache holds over all slots, as loaded
  std::uint64_t kv_tokens_max = 0;   // and may grow to
  std::uint64_t parameters_count = 0;
  std::uint64_t file_bytes = 0;
  std::string weight_type;             // "F16", "Q8_0", ...: the type most matrix elements are stored in
  std::string kv_dtype;                // "f16"
  std::string plan_hash;               // 32 hex digits, of the prefill plan
  std::uint32_t devices = 1;           // that share the model
  std::string device_class;            // "cpu-x86"; of devices of several kinds "A + B", by rank
  std::string numerics;                // "cpu-1"; over two devices "cpu-1/tp2"
  std::string implementation;          // "avx2", "avx512"
  std::vector<memory::OomRecord> oom;  // what was given up to fit the device, in order
  // Where the weights of the devices came from: packed ones that were kept, or the model's files and why.
  bool weights_were_kept = false;
  std::string weights_not_kept_why;
};

// A sequence that begins in a slot.
struct SequenceStart {
  std::uint32_t tokens_max = 0;  // as of Engine::reset()
  std::uint32_t held = 0;        // positions whose pages the slot has been given (PageTables::adopt)
};

struct SequenceFork {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t tokens_max = 0;
};

// 0, 25, 50, 75 and 100, each once, when every device has come so far. Of several devices it is any one's thread, one at a time.
using LoadProgress = std::function<void(unsigned percent)>;
// One row of logits, [vocab], valid during the call.
using RowSink = std::function<void(std::size_t row, std::span<const float> logits)>;

// What the caller does while the device runs a step: its instructions are on their way when draw() is asked, and the draws too
// when meanwhile() is.
struct StepHooks {
  // How the device is to draw from the last row of the i-th request, which wants it; null: the logits are wanted. It lives
  // until step() returns. Asked when Engine::draws().
  std::function<const plan::RowDraw*(std::size_t request)> draw{};
  std::function<void()> meanwhile{};
};

// Logits of a step (of a model of embeddings: what its rows are pooled to), in row order: requests in order, each request's
// wanted rows in order. Valid until the next step.
struct StepOutput {
  std::span<const float> logits;            // [rows, width]; of rows that were drawn from, nothing
  std::span<const plan::RowDrawn> drawn{};  // for each row that was, in order
  std::uint32_t width = 0;
  std::size_t rows() const { return logits.size() / width; }
  std::span<const float> row(std::size_t i) const { return logits.subspan(i * width, width); }
};

class Engine {
 public:
  // What load() would take, without reading weights. Errors: as load().
  static base::Result<memory::MemoryPlan> predict(const std::filesystem::path& path, const EngineOptions& options,
                                                  plan::Backend& backend);
  // Of each of several devices, by rank.
  static base::Result<std::vector<memory::MemoryPlan>> predict(const std::filesystem::path& path,
                                                               const EngineOptions& options,
                                                               const parallel::Devices& devices);
  // The backend outlives the engine. Errors: those of ModelFiles::open and compile_model; INVALID_PARAMS (options);
  // UNSUPPORTED_OPCODE, BATCH_UNSUPPORTED, WEIGHT_DTYPE_UNSUPPORTED; OUT_OF_DEVICE_MEMORY once no floor of the options
  // allows to go on smaller, found before any weight is read unless the device has less than it says.
  static base::Result<std::unique_ptr<Engine>> load(const std::filesystem::path& path, const EngineOptions& options,
                                                    plan::Backend& backend, const LoadProgress& progress = {});
  // The same on several devices that share the model. What fails on one of them gives back what all have taken. Further
  // errors: MODEL_INCOMPATIBLE (what cannot be shared out, with the numbers), INVALID_PARAMS (devices whose numerics differ).
  static base::Result<std::unique_ptr<Engine>> load(const std::filesystem::path& path, const EngineOptions& options,
                                                    const parallel::Devices& devices,
                                                    const LoadProgress& progress = {});
  // The same for a model compiled by the caller from these files.
  static base::Result<std::unique_ptr<Engine>> load(io::ModelFiles files, models::CompiledModel model,
                                                    const EngineOptions& options, plan::Backend& backend);

  const EngineFacts& facts() const { return facts_; }
  const memory::MemoryPlan& memory_plan(std::uint32_t rank = 0) const { return ranks_[rank].memory; }
  // What the model wants of images; image_rows_max 0: takes none.
  const models::VisionConfig& vision() const { return model().config.vision; }

  // Whether all a slot holds lies in pages, so that full pages may serve other sequences.
  bool caches_prefixes() const;
  // Whether all rows of a sequence must be in one step.
  bool wants_whole_sequences() const { return model().config.wants_whole_sequences(); }
  // Whether a sequence of at most `tokens_max` positions is rotated by the tables for long ones: its pages are its kind's.
  bool rotates_long(std::uint32_t tokens_max) const;

  std::uint32_t length(std::uint32_t slot) const { return slots_[slot].length; }  // positions the slot holds

  // Whose cache pages are whose. Who shares pages or keeps them for later requests (scheduling/) changes this between steps;
  // for everyone else reset() and the step functions keep it in order.
  paging::PageTables& pages() { return step_.kv->tables(); }
  // For when pages run out, and for when the device's memory is wanted elsewhere.
  kv_cache::KvMemory& kv() { return *step_.kv; }
  // A slot goes back to hold `length` positions. REQUIRES: with state that pages do not hold (rewinds_by_rows()), exactly as
  // many as before its last step, which had proposals; with windows, no fewer than before its last step.
  void rewind(std::uint32_t slot, std::uint32_t length);
  bool rewinds_by_rows() const { return caches_prefixes(); }
  // Whether some layers see only the last positions of a context as loaded.
  bool has_windows() const;
  // Copies whole pages, as PageTables::fork() asks for.
  void copy_pages(std::span<const paging::PageCopy> copies) { step_.kv->copy(copies); }

  // Begins a sequence in a slot whose pages are in order: none, or those of its first `held` positions. Recurrent state
  // begins with zeros. Errors: those of memory::StateArena::apply. REQUIRES: held is 0 for models with recurrent state,
  // and less than tokens_max.
  base::Result<> start(std::uint32_t slot, const SequenceStart& sequence);
  // `to` holds what `from` holds, and its state is a copy; the pages are in order already (PageTables::fork(), copy_pages()).
  // Errors: INVALID_STATE_LIFECYCLE_ACTION (a request with images); INVALID_PARAMS (fewer positions than `from` holds, or
  // so many more or less that the model rotates them by another table).
  base::Result<> fork(const SequenceFork& sequence);
  // pages().release() and start() of an empty sequence.
  // Empties a slot for the next request, which may hold up to `tokens_max` positions (0, or more than the context: the
  // context). Some models rotate long sequences by other tables than short ones: the choice falls here, for the request's
  // whole life, so its bits do not depend on when it grew. Errors: those of memory::StateArena::apply.
  base::Result<> reset(std::uint32_t slot, std::uint32_t tokens_max = 0);

  // What encode_images() would refuse of these, without running anything. Errors: INVALID_PARAMS.
  base::Result<> check_images(std::span<const vision::Image> images, std::span<const float> patch_rows) const;
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
  // One step over several slots. Takes the pages its rows need unless that has been done. Errors and REQUIRES:
  // BatchBuilder::build; OUT_OF_DEVICE_MEMORY (the cache has too few pages), INVALID_PARAMS (more rows of a sequence that
  // is to be whole), before anything is run.
  base::Result<StepOutput> step(std::span<const SlotRows> requests, const StepHooks& hooks = {});
  // Whether rows can be drawn from where they are computed: only what is drawn travels.
  bool draws() const { return step_.ranks[0].device_sampler != nullptr; }
  // Whether what was drawn is known before StepHooks::meanwhile is asked. REQUIRES: draws().
  bool draws_at_once() const { return step_.ranks[0].device_sampler->draws_at_once(); }

  // Device memory it holds now, by rank: what was loaded and what its cache has grown by. For between steps.
  std::vector<std::uint64_t> memory_used_bytes() const;
  // Whether all it holds still lies where it was put. For between steps. Errors: Backend::check_residency.
  base::Result<> check_residency();

  // Keeps the packed weights of every device for later loads of the model with this digest, unless they are kept already.
  // Beside the steps, from one other thread; ends soon once `stop` is asked for. Errors: those of RepackCache::keep().
  base::Result<repack_cache::Kept> keep_weights(const repack_cache::RepackCache& cache, const std::string& model_digest,
                                                const std::stop_token& stop) const;

  // Looks on at every step from now on; null for nobody. It outlives the engine or is taken away first.
  void observe(InstructionObserver* observer) { observer_ = observer; }
  // Instructions run by the last step, on the first device.
  const plan::DispatchCounters& counters() const { return ranks_[0].counters; }

 private:
  struct Sizing;
  struct Draft;
  // What a step needs on one device but the weights.
  struct RankMemory {
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
    std::unique_ptr<plan::DeviceSampler> device_sampler;  // the first device's; null: it has none, or nobody wants one
  };
  struct ReleaseSums {
    void operator()(plan::Collective* collective) const noexcept { collective->release(); }
  };
  // The same on all of them; taken as a whole or not at all.
  struct StepMemory {
    std::unique_ptr<kv_cache::KvMemory> kv;
    std::unique_ptr<plan::Collective, ReleaseSums> sums;  // of several devices; the room it has reserved is owned
    std::vector<RankMemory> ranks;
  };
  // One device's part of the engine.
  struct Rank {
    plan::Backend* backend = nullptr;
    models::CompiledModel model;
    memory::MemoryPlan memory;
    memory::WeightStore weights;
    plan::ExecutionContext ctx;
    plan::ExecutionContext encode_ctx;
    plan::DispatchCounters counters;
    base::Result<> outcome;  // of its last pass, upload or check
  };
  // What the caller wants of a step.
  struct Harvest {
    std::span<const SlotRows> requests;
    const StepHooks& hooks;
    StepOutput& output;
  };
  // What every device runs at once.
  struct Pass {
    PreparedPlan RankMemory::*plan;
    plan::ExecutionContext Rank::*ctx;
    const Harvest* harvest = nullptr;  // of the first device's last instruction; none: nothing
    InstructionObserver* observer = nullptr;
  };
  Engine() = default;
  static base::Result<Draft> draft(const std::filesystem::path& path, const EngineOptions& options,
                                   const parallel::Devices& devices);
  static base::Result<Draft> draft(io::ModelFiles files, std::vector<models::CompiledModel> models,
                                   const EngineOptions& options, const parallel::Devices& devices);
  static base::Result<std::vector<Sizing>> size(const Draft& draft, const EngineOptions& options);
  static base::Result<Sizing> size(const models::CompiledModel& model, const EngineOptions& options,
                                   const memory::LoadShape& shape, const plan::Backend& backend);
  static base::Result<> check_fits(const Draft& draft);
  static base::Result<std::unique_ptr<Engine>> load(Draft draft, const EngineOptions& options,
                                                    const LoadProgress& progress);
  static base::Result<> make_smaller(const base::Error& error, const EngineOptions& options, Draft& draft);
  base::Result<> upload_weights(const Draft& draft, const EngineOptions& options, const LoadProgress& reach);
  base::Result<memory::WeightStore> kept_weights(std::span<const models::BoundTensor> tensors,
                                                 const EngineOptions& options, std::uint32_t rank,
                                                 const plan::UploadProgress& progress) const;
  repack_cache::RepackKey repack_key(std::uint32_t rank, const std::string& model_digest) const;
  base::Result<StepMemory> take_step_memory(const Draft& draft);
  base::Result<RankMemory> take_rank_memory(const Draft& draft, const kv_cache::KvMemory& kv, std::uint32_t rank);
  base::Result<> prepare_plans(const Draft& draft, std::uint32_t rank, RankMemory& room);
  static base::Result<> upload_rope_tables(const models::CompiledModel& model, plan::Backend& backend,
                                           RankMemory& room);
  void describe(const Draft& draft, const EngineOptions& options);
  void become_ready(Draft draft);

  const models::CompiledModel& model() const { return ranks_[0].model; }
  // What a device's last pass, upload or check came to, with its rank where there are several.
  base::Result<> outcome_of(std::uint32_t rank) const;
  base::Result<> run(const Pass& pass);
  void run_rank(const Pass& pass, std::uint32_t rank) noexcept;
  plan::Status join_logits(std::uint32_t rank, const std::byte* part) noexcept;
  base::Result<> gather(const Harvest& harvest, std::byte* rows);
  void admit(std::uint32_t slot, std::uint32_t tokens_max);
  std::uint32_t tokens_admitted(std::uint32_t tokens_max) const;
  base::Result<> reserve_pages(std::span<const SlotRows> requests);
  base::Result<> check_whole(std::span<const SlotRows> requests) const;
  void checkpoint(std::span<const SlotRows> requests);
  void collect_draws(std::span<const SlotRows> requests, const StepHooks& hooks);
  void read_rows_not_drawn(const std::byte* rows);
  base::Result<vision::Frames> frames_of(std::span<const vision::Image> images,
                                         std::span<const float> patch_rows) const;
  base::Result<> run_encoder(std::uint32_t slot, const vision::Frames& frames, std::span<const float> patch_rows);

  plan::Collective* collective_ = nullptr;
  plan::StepLimits limits_;
  EngineFacts facts_;
  std::uint32_t prefill_chunk_ = 0;

  std::vector<Rank> ranks_;
  StepMemory step_;
  std::vector<SlotFill> slots_;
  std::vector<float> logits_;         // [output_rows_max, output_width]
  std::vector<plan::RowDraw> draws_;  // of a step, in row order
  InstructionObserver* observer_ = nullptr;
  std::atomic<std::uint32_t> failed_{0};  // rank that ended the last pass; one past the last: none
  std::unique_ptr<parallel::RankThreads> threads_;
};

}  // namespace llorch::engine::inference
