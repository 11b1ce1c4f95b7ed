#pragma once
// The engine's front: a model (a GGUF file, or one of several parts, or a Hugging Face directory) on a device, or on several that
// share it, slots in, logits out. Text, sampling and requests are the caller's.
//
// Thread rule: one thread at a time per engine and backend; where several devices share a model the engine has a thread for
// each and uses the backends from these and from the caller's, never at once. The step functions allocate nothing unless they fail.
// A step that fails leaves the lengths of the slots it names as they were; a slot with recurrent state must be reset.
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/engine_options.h"
#include "engine/inference/model_parts.h"
#include "engine/inference/output_rows.h"

namespace llorch::engine::inference {

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
  std::uint32_t output_rows_max = 0;    // of them, whose logits can be had
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
  std::string numerics;                // "cpu-2"; over two devices "cpu-2/tp2"
  std::string implementation;          // as plan::Backend::implementation()
  std::vector<memory::OomRecord> oom;  // what was given up to fit the device, in order
  // Where the weights of the devices came from: packed ones that were kept, or the model's files and why.
  bool weights_were_kept = false;
  std::string weights_not_kept_why;
  // All a slot holds lies in pages: full pages may serve other sequences, and a slot goes back by any number of rows.
  bool paged = false;
  bool has_windows = false;      // some layers see only the last positions of a context as loaded
  bool whole_sequences = false;  // all rows of a sequence must be in one step
  bool predicts = false;         // has a layer that predicts a further token (Engine::foresee)
  bool draws = false;            // rows can be drawn from where they are computed: only what is drawn travels
  bool draws_at_once = false;    // and what was drawn is known before StepHooks::meanwhile is asked
};

// A sequence that begins in a slot.
struct SequenceStart {
  std::uint32_t tokens_max = 0;  // as of Engine::reset()
  std::uint32_t held = 0;        // positions whose pages the slot has been given (PageTables::adopt)
};

// A token at a position of a slot, behind everything that the model itself has computed.
struct ForeseenRow {
  std::uint32_t slot = 0;
  std::uint32_t position = 0;
  base::TokenId token{};
};

struct SequenceFork {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t tokens_max = 0;
};

// One row of logits, [vocab], valid during the call.
using RowSink = std::function<void(std::size_t row, std::span<const float> logits)>;

class Engine {
 public:
  // What load() would take, without reading weights. Errors: as load().
  static base::Result<memory::MemoryPlan> predict(const std::filesystem::path& path, const EngineOptions& options,
                                                  plan::Backend& backend);
  // Of each of several devices, by rank.
  static base::Result<std::vector<memory::MemoryPlan>> predict(const std::filesystem::path& path,
                                                               const EngineOptions& options,
                                                               const parallel::Devices& devices);
  // The backend outlives the engine. `progress` is told 0, 25, 50, 75 and 100, each once, when every device has come so far.
  // Errors: those of ModelFiles::open and compile_model; INVALID_PARAMS (options);
  // UNSUPPORTED_OPCODE, BATCH_UNSUPPORTED, WEIGHT_DTYPE_UNSUPPORTED; OUT_OF_DEVICE_MEMORY once no floor of the options
  // allows to go on smaller. All of it is found before any weight is read, unless the device has less than it says.
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
  const memory::MemoryPlan& memory_plan(std::uint32_t rank = 0) const { return parts_[rank].memory; }
  // Sentences about what of the model's files is not used.
  const std::vector<std::string>& notes() const { return model().notes; }
  // What the model wants of images; image_rows_max 0: takes none.
  const models::VisionConfig& vision() const { return model().config.vision; }

  // Whether a sequence of at most `tokens_max` positions is rotated by the tables for long ones: its pages are its kind's.
  bool rotates_long(std::uint32_t tokens_max) const;

  std::uint32_t length(std::uint32_t slot) const { return slots_[slot].length; }  // positions the slot holds

  // Whose cache pages are whose. Who shares pages or keeps them for later requests (scheduling/) changes this between steps;
  // for everyone else reset() and the step functions keep it in order.
  paging::PageTables& pages() { return parts_.kv().tables(); }
  // For when pages run out, and for when the device's memory is wanted elsewhere.
  kv_cache::KvMemory& kv() { return parts_.kv(); }
  // A slot goes back to hold `length` positions. REQUIRES: with state that pages do not hold (not EngineFacts::paged), exactly as
  // many as before its last step, which had proposals; with windows, no fewer than before its last step.
  void rewind(std::uint32_t slot, std::uint32_t length);

  // Begins a sequence in a slot whose pages are in order: none, or those of its first `held` positions. Recurrent state
  // begins with zeros. Errors: those of memory::StateArena::apply. REQUIRES: held is 0 for models with recurrent state,
  // and less than tokens_max.
  base::Result<> start(std::uint32_t slot, const SequenceStart& sequence);
  // `to` holds what `from` holds, and its state is a copy; the pages are in order already (PageTables::fork(), KvMemory::copy()).
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

  // Whether foresee() can take a row there: it knows what became of the position before, from the model or from a row it took
  // there since the last step, and the slot has been given the page.
  bool can_foresee(std::uint32_t slot, std::uint32_t position) const;
  // What the model's own predictor makes of the rows: logits of the tokens behind them, in their order, valid until the next
  // step or foresee(). It changes nothing that an answer depends on. Errors: BatchBuilder::build, the backend's.
  // REQUIRES: facts().predicts, slots in ascending order, can_foresee() of each row.
  base::Result<StepOutput> foresee(std::span<const ForeseenRow> rows);

  // Device memory it holds now, by rank: what was loaded and what its cache has grown by. For between steps.
  std::vector<std::uint64_t> memory_used_bytes() const { return parts_.memory_used_bytes(); }
  // Whether all it holds still lies where it was put. For between steps. Errors: Backend::check_residency.
  base::Result<> check_residency() { return parts_.check_residency(); }

  // Keeps the packed weights of every device for later loads of the model with this digest, unless they are kept already.
  // Beside the steps, from one other thread; ends soon once `stop` is asked for. Errors: those of RepackCache::keep().
  base::Result<repack_cache::Kept> keep_weights(const repack_cache::RepackCache& cache, const std::string& model_digest,
                                                const std::stop_token& stop) const {
    return parts_.keep_weights(cache, model_digest, stop);
  }

  // Looks on at every step from now on; null for nobody. It outlives the engine or is taken away first.
  void observe(InstructionObserver* observer) { observer_ = observer; }
  // Instructions run by the last step, on the first device.
  const plan::DispatchCounters& counters() const { return parts_[0].counters; }

 private:
  explicit Engine(const parallel::Devices& devices) : parts_(devices) {}
  static base::Result<std::unique_ptr<Engine>> load(LoadPlan load, const EngineOptions& options,
                                                    const LoadProgress& progress);
  void describe(const LoadPlan& load, const EngineOptions& options);
  void become_ready(LoadPlan& load);

  const models::CompiledModel& model() const { return parts_[0].model; }
  void admit(std::uint32_t slot, std::uint32_t tokens_max);
  std::uint32_t tokens_admitted(std::uint32_t tokens_max) const;
  base::Result<> reserve_pages(std::span<const SlotRows> requests);
  base::Result<> check_whole(std::span<const SlotRows> requests) const;
  void checkpoint(std::span<const SlotRows> requests);
  base::Result<> follow(PassKind kind);
  base::Result<vision::Frames> frames_of(std::span<const vision::Image> images,
                                         std::span<const float> patch_rows) const;
  base::Result<> run_encoder(std::uint32_t slot, const vision::Frames& frames, std::span<const float> patch_rows);

  plan::StepLimits limits_;
  EngineFacts facts_;
  std::uint32_t prefill_chunk_ = 0;
  ModelParts parts_;
  std::vector<SlotFill> slots_;
  OutputRows outputs_;
  std::vector<SlotRows> foreseen_;                        // of foresee()
  std::vector<speculation::HiddenStates::Place> places_;  // parallel to it
  InstructionObserver* observer_ = nullptr;
};

}  // namespace llorch::engine::inference
