#pragma once
// Which sequences run in the next step, with which rows, in which slots; who waits, and who gives up its pages. A pure core:
// step(event) -> plan, no engine, no clock, no threads. Nothing it decides changes a sequence's tokens.
//
// Policy. Sequences are served in the order they came. Every running sequence that has one position to compute gives one
// row (decode first); prompts share what is left of the row budget, oldest first, in chunks. When pages run out the
// youngest running sequence (a paused one before all others) gives up its slot and pages and is computed again later from
// its tokens. One that waits gets a slot strictly in order of arrival, once the pages for all it knows fit, and a page more
// for everybody who runs, so that it is not preempted at once; for that it takes slots and pages of paused sequences, and
// of no others.
//
// Bound. The oldest running sequence that is not paused is never preempted, and gives rows in every step unless it awaits its
// token. So, when tokens are appended before the next plan and no step fails, a sequence that is not paused has run after at
// most as many steps as there are tokens, in the end, in it and in those before it: the ones that came earlier, and the ones
// that ran already when it was last unpaused.
//
// Proposals. A plan may be widened by proposals of the tokens to come: rows behind a sequence's last known one, in what rows
// and pages the plan left over. The tokens are drawn as ever, row by row; behind a draw that equals the proposal the next logits
// are there already, the first that does not ends it, and what was computed behind is as if it had never been.
//
// Logits of a prompt. A sequence may want those after every token of its prompt, each once. Its rows are then computed, not found in
// the cache, as many in a step as there is room for outputs beside one of each slot; in order, and what was handed out stays so
// when it is preempted.
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"
#include "engine/inference/paging/page_tables.h"

namespace llorch::engine::inference::scheduling {

enum class SequenceId : std::uint64_t {};

struct SchedulerOptions {
  std::uint32_t slots = 1;
  std::uint32_t rows_max = 1;        // of one step, at least `slots`
  std::uint32_t outputs_max = 0;     // of them, whose logits can be had; at least `slots`, or 0: all
  std::uint32_t prefill_chunk = 64;  // most rows one sequence gets in a step
  std::uint32_t context_tokens = 0;
  // A sequence gets all rows it has in one step or none. REQUIRES then: context_tokens <= prefill_chunk <= rows_max, and no
  // sequence shares pages, is appended to or forked.
  bool whole_sequences = false;
  bool cache_prefixes = true;  // off for models with state that pages do not hold
  std::int64_t cache_ttl_ms = 600'000;
  // A slot cannot go back by a few positions, only to where the step began: what was accepted of the proposals is computed again.
  bool rewinds_whole_steps = false;
};

struct SequenceInput {
  SequenceId id{};
  std::span<const base::TokenId> prompt;  // copied; at least one token
  std::uint32_t tokens_max = 0;           // positions it may ever hold, prompt included
  // Begins the keys of its pages: two sequences share cached pages only when it is equal. It stands for everything but
  // tokens that shapes their content: whose they are, images, the choice of rotation. Empty: shares nothing.
  std::span<const std::byte> cache_salt;
  bool wants_prompt = false;  // the logits after every token of the prompt. REQUIRES: not whole sequences
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
  std::span<const base::TokenId> tokens;  // valid until the sequence is appended to or removed
  bool wants_logits = false;              // of the last known row; append() or remove() answers
  std::uint32_t proposals = 0;            // rows behind it, whose logits are wanted too
  bool wants_all = false;                 // the logits of every row of `tokens`; no proposals then
};

// In this order: forks in theirs, page copies in theirs, starts, rows. A slot may be forked into and then started for another
// sequence, when pages ran out after the fork. Valid until the next plan(), but for the tokens of a sequence that changes.
struct StepPlan {
  std::span<const SlotFork> forks;
  std::span<const paging::PageCopy> page_copies;
  std::span<const SlotStart> starts;
  std::span<const PlannedRows> rows;  // in slot order; each started slot is among them

  // Nothing to do until something is added, appended or unpaused.
  bool empty() const { return forks.empty() && rows.empty(); }
};

struct ProposalCounts {
  std::uint64_t proposed = 0;  // whose rows ran
  std::uint64_t accepted = 0;  // of them, that were drawn
};

struct SchedulerCounts {
  std::uint64_t preemptions = 0;
  std::uint64_t prefix_tokens_hit = 0;     // known positions found in the cache when a slot began
  std::uint64_t prefix_tokens_missed = 0;  // those that were not
  std::uint64_t steps = 0;                 // that were done, with rows
  std::uint64_t rows = 0;
  std::uint64_t sequence_steps = 0;  // sum over steps of the sequences in it; / steps = mean batch
  ProposalCounts proposals;
};

class Scheduler {
 public:
  // `pages` outlives the scheduler, which alone changes it. REQUIRES: every group has what one sequence of the whole context
  // holds at once (PageGroup::pages_at_once).
  Scheduler(const SchedulerOptions& options, paging::PageTables& pages);
  ~Scheduler();

  // REQUIRES: an unknown id; prompt.size() <= tokens_max <= context_tokens.
  void add(const SequenceInput& input);
  // The token drawn from the logits that plan() said would come. If it is the next proposal of the step that was done last, the
  // sequence awaits its next token at once. REQUIRES: awaits_token(id); fewer than tokens_max tokens.
  void append(SequenceId id, base::TokenId token);
  // Over, for whatever reason: its slot and pages are free for the next plan. Unknown ids are ignored.
  void remove(SequenceId id);
  // A paused sequence gets no rows. REQUIRES: knows(id).
  void set_paused(SequenceId id, bool paused);
  // `child` is a new sequence with the parent's tokens so far; it comes last, and awaits its token from the same logits.
  // At the next plan it takes over the parent's pages and state, if the parent still runs, nobody waits before it and there
  // are a slot and pages for that; otherwise it is computed from its tokens.
  // REQUIRES: awaits_token(parent), child is not known.
  void fork(SequenceId parent, SequenceId child);

  // Steps have at most so many rows from the next plan on, but never fewer than slots. Not of whole sequences.
  void limit_rows(std::uint32_t rows);
  // What to run next, and forgets keys nobody used for cache_ttl_ms. The caller runs it whole and then calls done() or
  // failed(); for an empty plan it need not. What happens between (append, remove, ...) counts for the next plan.
  const StepPlan& plan(std::int64_t now_ms);
  // Adds rows for the tokens that may come next to those of a sequence in the plan under way, as far as rows, pages that
  // nobody holds and its own tokens_max allow. Returns how many. REQUIRES: its logits are wanted; once per plan.
  std::uint32_t propose(SequenceId id, std::span<const base::TokenId> tokens);
  // The last plan has run. A sequence with proposals awaits its token as others do, and after append() of the next one again.
  void done();
  // No more logits come from the proposals of the last step: those that are left are dropped. Returns the positions the slot
  // is to stand at. REQUIRES: is_running(id).
  std::uint32_t settle(SequenceId id);
  // It has not, and what its slots hold is unknown: every sequence of the plan goes back to waiting, to be computed again.
  // Pages with a key stay: no step writes them.
  void failed();

  bool knows(SequenceId id) const;
  // Of a sequence that is known: its tokens so far, valid until it changes, how many it may have, and what was proposed of them.
  std::span<const base::TokenId> tokens(SequenceId id) const;
  std::uint32_t tokens_max(SequenceId id) const;
  ProposalCounts proposals(SequenceId id) const;
  bool awaits_token(SequenceId id) const;
  bool is_running(SequenceId id) const;                                                        // has a slot
  std::uint32_t running_count() const { return static_cast<std::uint32_t>(running_.size()); }  // have a slot
  std::uint32_t waiting_count() const { return static_cast<std::uint32_t>(waiting_.size()); }  // the others
  // At most this many sequences run at once from the next plan on (1 .. slots); for when memory is short.
  void limit_running(std::uint32_t sequences_max);
  const SchedulerCounts& counts() const { return counts_; }

 private:
  struct Sequence;
  using PerGroup = std::array<std::uint32_t, paging::kPageGroupsMax>;
  struct PendingFork {
    std::uint64_t child = 0, parent = 0;  // orders
  };
  struct Turn {
    Sequence* sequence = nullptr;
    bool decodes = false;
  };

  Sequence& at(SequenceId id) const;
  void wait(Sequence& sequence);
  void run(Sequence& sequence, std::uint32_t held);
  void give_up_slot(Sequence& sequence);
  void preempt(Sequence& sequence);
  Sequence* youngest_paused() const;

  void advance(Sequence& sequence, std::uint32_t rows);
  void drop_proposals(Sequence& sequence);

  void plan_forks();
  bool try_fork(Sequence& child, const Sequence& parent);
  void plan_running();
  void plan_waiting();
  bool make_room(Sequence& sequence, std::uint32_t rows);
  std::uint32_t cut(const Sequence& sequence, std::uint32_t rows) const;
  void give_rows(Sequence& sequence, std::uint32_t rows);
  std::uint32_t pages_needed(std::uint32_t group, const Sequence& sequence, std::uint32_t held,
                             std::uint32_t holds) const;
  bool fits(const Sequence& sequence, std::uint32_t held, const PerGroup& holds, const PerGroup& unheld) const;
  bool has_place() const { return !free_slots_.empty() && running_.size() < running_max_; }

  SchedulerOptions options_;
  paging::PageTables* pages_;
  std::uint32_t running_max_;
  std::uint64_t next_order_ = 0;
  std::unordered_map<SequenceId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_;              // in order of arrival
  std::map<std::uint64_t, Sequence*> waiting_;  // by order of arrival
  std::vector<std::uint32_t> free_slots_;       // the next to take last
  std::vector<PendingFork> pending_forks_;

  // The plan; everything is reserved, so that planning a step allocates nothing.
  StepPlan plan_;
  std::vector<SlotFork> forks_;
  std::vector<paging::PageCopy> page_copies_;
  std::vector<SlotStart> starts_;
  std::vector<PlannedRows> rows_;
  std::vector<Turn> turns_;
  std::uint32_t rows_limit_ = 0;    // of a step
  std::uint32_t rows_left_ = 0;     // of the step that is planned
  std::uint32_t outputs_left_ = 0;  // of it, beside one of each slot
  std::int64_t now_ms_ = 0;         // of the plan
  bool answered_ = true;
  SchedulerCounts counts_;
};

}  // namespace llorch::engine::inference::scheduling
