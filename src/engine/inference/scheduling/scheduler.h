#pragma once
// Which sequences run in the next step, with which rows, in which slots; who waits, and who gives up its pages. A pure core:
// step(event) -> plan, no engine, no clock, no threads. Nothing it decides changes a sequence's tokens.
//
// Policy. Sequences are served in the order they came. Every running sequence that awaits its next token gives one row
// (decode first); prompts share what is left of the row budget, oldest first, in chunks. When pages run out the youngest
// running sequence (a paused one before all others) gives up its slot and pages and is computed again later from its
// tokens. The oldest sequence that is not paused is never preempted, so it always gets on: nobody waits for more than the
// work of those who came before.
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_id.h"
#include "engine/inference/paging/page_tables.h"

namespace llorch::engine::inference::scheduling {

enum class SequenceId : std::uint64_t {};

struct SchedulerOptions {
  std::uint32_t slots = 1;
  std::uint32_t rows_max = 1;        // of one step, at least `slots`
  std::uint32_t prefill_chunk = 64;  // most rows one sequence gets in a step
  std::uint32_t context_tokens = 0;
  bool cache_prefixes = true;  // off for models with state that pages do not hold
  std::int64_t cache_ttl_ms = 600'000;
};

struct SequenceInput {
  SequenceId id{};
  std::span<const base::TokenId> prompt;  // copied; at least one token
  std::uint32_t tokens_max = 0;           // positions it may ever hold, prompt included
  // Begins the keys of its pages: two sequences share cached pages only when it is equal. Empty: shares nothing.
  std::span<const std::byte> cache_salt;
};

// A slot that begins a sequence: it holds the first `held` positions already (cached pages), and no other state.
struct SlotStart {
  std::uint32_t slot = 0;
  std::uint32_t tokens_max = 0;
  std::uint32_t held = 0;
};

// `to` becomes what `from` is, its state included; `page_copies` are part of it.
struct SlotFork {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::uint32_t tokens_max = 0;
};

struct PlannedRows {
  SequenceId id{};
  std::uint32_t slot = 0;
  std::span<const base::TokenId> tokens;  // valid until the sequence changes
  bool wants_logits = false;              // of the last row; append() or remove() answers
};

// In this order: forks, starts, rows. Valid until the next call of plan(), fork() or add().
struct StepPlan {
  std::span<const SlotFork> forks;
  std::span<const paging::PageCopy> page_copies;
  std::span<const SlotStart> starts;
  std::span<const PlannedRows> rows;  // in slot order; empty: nothing to do until something is added or unpaused
};

struct SchedulerCounts {
  std::uint64_t preemptions = 0;
  std::uint64_t prefix_tokens_hit = 0;     // positions found in the cache
  std::uint64_t prefix_tokens_missed = 0;  // positions of prompts that were computed
  std::uint64_t steps = 0;
  std::uint64_t rows = 0;
  std::uint64_t sequence_steps = 0;  // sum over steps of the sequences in it; / steps = mean batch
};

class Scheduler {
 public:
  // `pages` outlives the scheduler, which alone changes it. REQUIRES: every group has pages for one whole context.
  Scheduler(const SchedulerOptions& options, paging::PageTables& pages);

  // REQUIRES: an unknown id; prompt.size() <= tokens_max <= context_tokens.
  void add(const SequenceInput& input);
  // The token drawn from the logits that plan() said would come. REQUIRES: awaits_token(id).
  void append(SequenceId id, base::TokenId token);
  // Over, for whatever reason: its slot and pages are free for the next plan. Unknown ids are ignored.
  void remove(SequenceId id);
  // A paused sequence gets no rows.
  void set_paused(SequenceId id, bool paused);
  // `child` is a new sequence with the parent's tokens so far; it comes last, and awaits its token from the same logits.
  // At the next plan it takes over the parent's pages and state, if the parent still runs and there is a slot and pages
  // for that; otherwise it is computed from its tokens. REQUIRES: awaits_token(parent), child is not known.
  void fork(SequenceId parent, SequenceId child);

  // What to run next. The caller runs it whole and then calls done() or failed().
  const StepPlan& plan(std::int64_t now_ms);
  // The rows of the last plan have run.
  void done();
  // They have not, and what the slots hold is unknown: every sequence of the plan goes back to waiting, to be computed again.
  void failed();

  bool knows(SequenceId id) const;
  bool awaits_token(SequenceId id) const;
  std::uint32_t running_count() const;
  std::uint32_t waiting_count() const;
  // At most this many sequences run at once from now on (1 .. slots); for when memory is short.
  void limit_running(std::uint32_t sequences_max);
  const SchedulerCounts& counts() const;
};

}  // namespace llorch::engine::inference::scheduling
