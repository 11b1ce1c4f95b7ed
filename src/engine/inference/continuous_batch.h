#pragma once
// Many sequences through one engine: the scheduler decides, the engine computes, the caller draws the tokens.
//
// Thread rule: one thread at a time, the engine's. While this object lives, nobody else steps the engine or touches its pages.
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "engine/inference/engine.h"
#include "engine/inference/scheduling/pace.h"
#include "engine/inference/scheduling/scheduler.h"
#include "engine/inference/speculation/speculator.h"

namespace llorch::engine::inference {

using scheduling::SequenceId;

struct ContinuousBatchOptions {
  std::uint32_t prefill_chunk = 0;  // most rows a sequence gets in a step; 0 = all the engine's
  // What a step of prompts' rows may take, which is what a cancel and a job that comes wait for; steps get as many rows as
  // fit, by what earlier ones took on this clock. 0: no limit but prefill_chunk. Never changes a result.
  double step_seconds_max = 0;
  std::function<double()> seconds{};  // REQUIRES one with a limit
  // Begins the keys of cached pages, random per process: who reads memory dumps learns no prompt by guessing. Empty:
  // pages are not cached.
  std::vector<std::byte> cache_salt;
  std::int64_t cache_ttl_ms = 600'000;
  speculation::SpeculationOptions speculation;  // within the engine's proposal_rows_max; none for models of embeddings
};

// The images behind the image tokens of a prompt, as Engine::encode_images() takes them. Owned by the caller until the
// sequence is removed: they are encoded again when the sequence is computed again.
struct SequenceImages {
  std::span<const vision::Image> grids;
  std::span<const float> patch_rows;
};

// What a sequence asks for; see scheduling::SequenceInput.
struct SequenceRequest {
  SequenceId id{};
  std::span<const base::TokenId> prompt;   // copied
  std::uint32_t tokens_max = 0;            // positions it may ever hold; at most the engine's context
  std::optional<SequenceImages> images{};  // with images it neither takes cached pages nor leaves its own
  bool wants_prompt = false;               // the logits after every token of the prompt. REQUIRES: not whole sequences
};

// Logits after a sequence's last token, [vocab], valid during the call. Answer it with append(), remove() or fork(), in the
// call or before the next step. After an append() in the call that was proposed the next logits come in the same step.
using LogitsSink = std::function<void(SequenceId id, std::span<const float> logits)>;

// Logits after the token of a prompt at `position`, [vocab], valid during the call; in order, each once, of the last one to the
// LogitsSink instead. Nothing answers it. The sequence may be removed.
using PromptSink = std::function<void(SequenceId id, std::uint32_t position, std::span<const float> logits)>;

// How a device that draws is told what to draw, and what it drew. All are called in step().
struct DrawSinks {
  // How to draw the sequence's next token, or null: its logits are wanted. Asked while the device runs; it lives, and the
  // sequence's tokens stay as they are, until drawn() or the end of step().
  std::function<const plan::RowDraw*(SequenceId id)> draw;
  // Answered like logits.
  std::function<void(SequenceId id, const plan::RowDrawn& drawn)> drawn;
  // Host work that can be done while the device runs; sequences may be removed.
  std::function<void()> meanwhile;
};

struct BatchUsage {
  scheduling::SchedulerCounts counts;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint64_t pages_total = 0;  // of all groups
  std::uint64_t pages_used = 0;
  std::uint64_t pages_cached = 0;
  std::uint64_t memory_bytes = 0;  // that the engine holds, of all its devices
};

class ContinuousBatch {
 public:
  // The engine outlives this object.
  ContinuousBatch(Engine& engine, const ContinuousBatchOptions& options);

  // Errors: INVALID_PARAMS (a token outside the vocabulary), CONTEXT_EXHAUSTED (prompt or tokens_max past the context).
  base::Result<> add(const SequenceRequest& request);
  void append(SequenceId id, base::TokenId token) { scheduler_.append(id, token); }
  void remove(SequenceId id);
  void set_paused(SequenceId id, bool paused) { scheduler_.set_paused(id, paused); }
  // REQUIRES: as Scheduler::fork(); a parent without images.
  void fork(SequenceId parent, SequenceId child);
  bool knows(SequenceId id) const { return scheduler_.knows(id); }
  // Of the tokens of a sequence so far. REQUIRES: knows(id).
  scheduling::ProposalCounts proposals(SequenceId id) const { return scheduler_.proposals(id); }

  // Runs one step, or nothing when nobody has rows to run (false). An error is that of the sequences in `last_step()`: all of
  // the step, or the one that could not begin. Every sequence of the step that is not removed is computed again.
  // A sequence that was removed while the device ran is told nothing.
  // REQUIRES: a prompt sink if a sequence wants the logits of its prompt.
  base::Result<bool> step(std::int64_t now_ms, const LogitsSink& sink, const DrawSinks& draws = {},
                          const PromptSink& prompt_sink = {});
  std::span<const SequenceId> last_step() const { return in_step_; }

  // Forgets all cached pages. Those nobody used for their time to live go with the next step().
  void clear_cache() { engine_.pages().clear_cache(); }

  BatchUsage usage() const;

 private:
  void size_cache();
  void propose(const scheduling::StepPlan& plan);
  struct Sinks {
    const LogitsSink& logits;
    const DrawSinks& draws;
    const PromptSink& prompt;
  };
  void hand_out(const StepOutput& output, const Sinks& sinks);
  void hand_out_prompt(std::size_t request, const StepOutput& output, std::size_t row, const Sinks& sinks);
  base::Result<> start(const scheduling::SlotStart& start, SequenceId id);
  base::Result<StepOutput> run(const scheduling::StepPlan& plan, const DrawSinks& draws);

  Engine& engine_;
  ContinuousBatchOptions options_;
  scheduling::Scheduler scheduler_;
  std::map<SequenceId, SequenceImages> images_;          // of the sequences that have some
  bool may_grow_;                                        // the cache, as far as is known
  std::unique_ptr<speculation::Speculator> speculator_;  // null: nothing is proposed
  std::optional<scheduling::Pace> pace_;                 // none: steps have no limit of time
  std::vector<SlotRows> rows_;
  std::vector<SequenceId> in_step_;
  std::vector<bool> drawn_;  // of rows_: the device draws from it
};

}  // namespace llorch::engine::inference
