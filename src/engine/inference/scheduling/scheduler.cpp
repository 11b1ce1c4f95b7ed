#include "engine/inference/scheduling/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/inference/paging/prefix_keys.h"

namespace llorch::engine::inference::scheduling {

using base::TokenId;
using plan::kPageTokens;

namespace {
constexpr std::uint32_t kNoSlot = 0xFFFFFFFF;
constexpr std::uint32_t kNoPosition = 0xFFFFFFFF;
}  // namespace

struct Scheduler::Sequence {
  SequenceId id{};
  std::uint64_t order = 0;       // of arrival; kept when it is preempted
  std::vector<TokenId> tokens;   // and behind them the proposals
  std::uint32_t proposals = 0;   // of the plan under way, or of the step done last
  std::uint32_t step_began = 0;  // positions held before it
  ProposalCounts proposal_counts;
  std::uint32_t tokens_max = 0;
  paging::PrefixKeys keys;
  bool paused = false;
  bool awaits = false;                      // the logits after its last token were handed out
  std::uint32_t logits_from = kNoPosition;  // of a prompt: from here on every row's are still wanted

  std::uint32_t slot = kNoSlot;
  std::uint32_t held = 0;       // positions computed, 0 without a slot
  std::uint32_t published = 0;  // pages of them
  std::uint32_t planned = 0;    // rows in the plan under way
  bool forked = false;          // by the plan under way

  std::uint32_t known() const { return static_cast<std::uint32_t>(tokens.size()) - proposals; }
  std::uint32_t remaining() const { return known() - held; }
  bool may_run() const { return !paused && !awaits; }
};

Scheduler::Scheduler(const SchedulerOptions& options, paging::PageTables& pages)
    : options_(options), pages_(&pages), running_max_(options.slots) {
  ASSERT(options.slots > 0 && options.rows_max >= options.slots && options.prefill_chunk > 0, "{} slots, {} rows, {}",
         options.slots, options.rows_max, options.prefill_chunk);
  options_.prefill_chunk = std::min(options.prefill_chunk, options.rows_max);
  if (options_.outputs_max == 0) options_.outputs_max = options.rows_max + options.slots;
  ASSERT(options_.outputs_max >= options.slots, "{} outputs of {} slots", options_.outputs_max, options.slots);
  rows_limit_ = options.rows_max;
  for (std::uint32_t g = 0; g < pages.groups_count(); ++g) {
    const paging::PageGroup& group = pages.group(g);
    ASSERT(group.pages_at_once({.tokens = options.context_tokens, .rows_max = options_.prefill_chunk}) <=
               group.pages_total,
           "group {}: {} pages do not hold one context", g, group.pages_total);
  }
  for (std::uint32_t slot = options.slots; slot > 0; --slot) free_slots_.push_back(slot - 1);
  running_.reserve(options.slots);
  forks_.reserve(options.slots);
  page_copies_.reserve(options.slots * pages.groups_count());
  starts_.reserve(options.slots);
  rows_.reserve(options.slots);
  turns_.reserve(options.slots);
}

Scheduler::~Scheduler() = default;

void Scheduler::add(const SequenceInput& input) {
  ASSERT(
      !input.prompt.empty() && input.prompt.size() <= input.tokens_max && input.tokens_max <= options_.context_tokens,
      "{} of {}, context {}", input.prompt.size(), input.tokens_max, options_.context_tokens);
  const auto salt = options_.cache_prefixes ? input.cache_salt : std::span<const std::byte>{};
  auto sequence = std::make_unique<Sequence>(Sequence{.id = input.id,
                                                      .order = next_order_++,
                                                      .tokens = {input.prompt.begin(), input.prompt.end()},
                                                      .tokens_max = input.tokens_max,
                                                      .keys = paging::PrefixKeys(salt)});
  ASSERT(!input.wants_prompt || !options_.whole_sequences);
  if (input.wants_prompt) sequence->logits_from = 0;
  wait(*sequence);
  ASSERT(sequences_.try_emplace(input.id, std::move(sequence)).second, "the id is taken");
}

void Scheduler::append(SequenceId id, TokenId token) {
  Sequence& sequence = at(id);
  ASSERT(sequence.awaits && sequence.known() < sequence.tokens_max, "{} of {} tokens", sequence.known(),
         sequence.tokens_max);
  if (sequence.proposals > 0 && sequence.tokens[sequence.known()] == token) {
    --sequence.proposals;
    ++counts_.proposals.accepted;
    ++sequence.proposal_counts.accepted;
    return advance(sequence, 1);  // its row has run
  }
  drop_proposals(sequence);
  sequence.tokens.push_back(token);
  sequence.awaits = false;
}

void Scheduler::remove(SequenceId id) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  Sequence& sequence = *found->second;
  if (sequence.slot == kNoSlot) {
    waiting_.erase(sequence.order);
  } else {
    give_up_slot(sequence);
  }
  sequences_.erase(found);
}

void Scheduler::set_paused(SequenceId id, bool paused) { at(id).paused = paused; }

void Scheduler::fork(SequenceId parent_id, SequenceId child_id) {
  Sequence& parent = at(parent_id);
  ASSERT(parent.awaits);
  drop_proposals(parent);  // the child goes on from where the parent stands
  auto child = std::make_unique<Sequence>(Sequence{.id = child_id,
                                                   .order = next_order_++,
                                                   .tokens = parent.tokens,
                                                   .tokens_max = parent.tokens_max,
                                                   .keys = parent.keys,
                                                   .awaits = true});
  pending_forks_.push_back({.child = child->order, .parent = parent.order});
  wait(*child);
  ASSERT(sequences_.try_emplace(child_id, std::move(child)).second, "the id is taken");
}

void Scheduler::limit_rows(std::uint32_t rows) {
  ASSERT(answered_ && !options_.whole_sequences, "a plan is under way, or sequences are not cut");
  rows_limit_ = std::clamp(rows, options_.slots, options_.rows_max);
}

const StepPlan& Scheduler::plan(std::int64_t now_ms) {
  ASSERT(answered_, "the last plan is under way");
  now_ms_ = now_ms;
  pages_->expire(now_ms - options_.cache_ttl_ms);
  forks_.clear();
  page_copies_.clear();
  starts_.clear();
  rows_.clear();
  rows_left_ = rows_limit_;
  outputs_left_ = options_.outputs_max - options_.slots;
  while (running_.size() > running_max_) {
    Sequence* paused = youngest_paused();
    preempt(paused != nullptr ? *paused : *running_.back());
  }
  plan_forks();
  plan_running();
  plan_waiting();
  std::ranges::sort(rows_, {}, &PlannedRows::slot);
  plan_ = {.forks = forks_, .page_copies = page_copies_, .starts = starts_, .rows = rows_};
  answered_ = plan_.empty();
  return plan_;
}

void Scheduler::done() {
  if (std::exchange(answered_, true)) return;
  counts_.steps += !rows_.empty();
  counts_.sequence_steps += rows_.size();
  counts_.rows += rows_limit_ - rows_left_;
  for (Sequence* sequence : running_) {
    sequence->forked = false;
    sequence->step_began = sequence->held;
    counts_.proposals.proposed += sequence->proposals;
    sequence->proposal_counts.proposed += sequence->proposals;
    if (sequence->planned > 0) advance(*sequence, std::exchange(sequence->planned, 0));
  }
}

// Rows of known tokens have run.
void Scheduler::advance(Sequence& sequence, std::uint32_t rows) {
  sequence.held += rows;
  sequence.awaits = sequence.remaining() == 0;
  if (sequence.logits_from < sequence.held) sequence.logits_from = sequence.awaits ? kNoPosition : sequence.held;
  sequence.keys.extend(std::span(sequence.tokens).first(sequence.held));
  // None with an empty salt.
  const std::span<const paging::PageKey> keys = sequence.keys.keys();
  for (; sequence.published < keys.size() && sequence.published < sequence.held / kPageTokens; ++sequence.published) {
    pages_->publish(sequence.slot, sequence.published, keys[sequence.published], now_ms_);
  }
}

void Scheduler::failed() {
  if (std::exchange(answered_, true)) return;
  turns_.clear();
  for (Sequence* sequence : running_) {
    if (sequence->planned > 0 || sequence->forked) turns_.push_back({.sequence = sequence});
  }
  for (const Turn& turn : turns_) {
    give_up_slot(*turn.sequence);
    wait(*turn.sequence);
  }
}

std::uint32_t Scheduler::propose(SequenceId id, std::span<const TokenId> tokens) {
  Sequence& sequence = at(id);
  const auto planned = std::ranges::find(rows_, id, &PlannedRows::id);
  ASSERT(!answered_ && planned != rows_.end() && planned->wants_logits && sequence.proposals == 0,
         "no time for proposals");
  ASSERT(!planned->wants_all);
  const std::uint32_t known = sequence.known();
  if (known == sequence.tokens_max) return 0;
  // No proposal for the last token: nobody wants the logits behind it.
  auto count = static_cast<std::uint32_t>(
      std::min<std::size_t>({tokens.size(), rows_left_, outputs_left_, sequence.tokens_max - known - 1,
                             options_.prefill_chunk - sequence.planned}));
  if (!pages_->reserve(sequence.slot, sequence.held, known + count)) {
    count = std::min<std::uint32_t>(count, static_cast<std::uint32_t>(plan::pages_of(known)) * kPageTokens - known);
    ASSERT(pages_->reserve(sequence.slot, sequence.held, known + count));
  }
  sequence.tokens.insert(sequence.tokens.end(), tokens.begin(), tokens.begin() + count);
  sequence.proposals = count;
  rows_left_ -= count;
  outputs_left_ -= count;
  planned->tokens = std::span(sequence.tokens).subspan(sequence.held, sequence.planned + count);
  planned->proposals = count;
  return count;
}

std::uint32_t Scheduler::settle(SequenceId id) {
  Sequence& sequence = at(id);
  ASSERT(answered_ && sequence.slot != kNoSlot);
  drop_proposals(sequence);
  return sequence.held;
}

void Scheduler::drop_proposals(Sequence& sequence) {
  if (sequence.proposals == 0) return;
  sequence.tokens.resize(sequence.known());
  sequence.proposals = 0;
  if (sequence.slot == kNoSlot) return;
  if (options_.rewinds_whole_steps) sequence.held = sequence.step_began;
  pages_->trim(sequence.slot, sequence.held);
}

bool Scheduler::knows(SequenceId id) const { return sequences_.contains(id); }

std::span<const TokenId> Scheduler::tokens(SequenceId id) const {
  const Sequence& sequence = at(id);
  return std::span(sequence.tokens).first(sequence.known());
}

std::uint32_t Scheduler::tokens_max(SequenceId id) const { return at(id).tokens_max; }

ProposalCounts Scheduler::proposals(SequenceId id) const { return at(id).proposal_counts; }

bool Scheduler::awaits_token(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second->awaits;
}

bool Scheduler::is_running(SequenceId id) const {
  const auto found = sequences_.find(id);
  return found != sequences_.end() && found->second->slot != kNoSlot;
}

void Scheduler::limit_running(std::uint32_t sequences_max) {
  ASSERT(sequences_max > 0 && sequences_max <= options_.slots, "{} of {}", sequences_max, options_.slots);
  running_max_ = sequences_max;
}

Scheduler::Sequence& Scheduler::at(SequenceId id) const {
  const auto found = sequences_.find(id);
  ASSERT(found != sequences_.end());
  return *found->second;
}

void Scheduler::wait(Sequence& sequence) { waiting_.emplace(sequence.order, &sequence); }

// Takes it from those that wait and gives it a slot, which holds `held` positions by then.
void Scheduler::run(Sequence& sequence, std::uint32_t held) {
  waiting_.erase(sequence.order);
  running_.insert(std::ranges::upper_bound(running_, sequence.order, {}, &Sequence::order), &sequence);
  sequence.slot = free_slots_.back();
  free_slots_.pop_back();
  sequence.held = held;
  sequence.published = held / kPageTokens;
  // Only those that run take memory for what they may become.
  sequence.tokens.reserve(sequence.tokens_max);
}

void Scheduler::give_up_slot(Sequence& sequence) {
  drop_proposals(sequence);
  pages_->release(sequence.slot);
  free_slots_.push_back(sequence.slot);
  std::erase(running_, &sequence);
  sequence.slot = kNoSlot;
  sequence.held = sequence.published = sequence.planned = 0;
  sequence.forked = false;
}

// Full pages were published when they became full; the cache gives them back if it can.
void Scheduler::preempt(Sequence& sequence) {
  give_up_slot(sequence);
  wait(sequence);
  ++counts_.preemptions;
}

Scheduler::Sequence* Scheduler::youngest_paused() const {
  const auto found = std::find_if(running_.rbegin(), running_.rend(), [](const Sequence* s) { return s->paused; });
  return found == running_.rend() ? nullptr : *found;
}

void Scheduler::plan_forks() {
  for (const PendingFork& fork : pending_forks_) {
    const auto child = waiting_.find(fork.child);
    const auto parent = std::ranges::find(running_, fork.parent, &Sequence::order);
    if (child == waiting_.end() || parent == running_.end()) continue;
    const bool first = std::none_of(waiting_.begin(), child, [](const auto& entry) { return entry.second->may_run(); });
    if (first && has_place()) try_fork(*child->second, **parent);
  }
  pending_forks_.clear();
}

bool Scheduler::try_fork(Sequence& child, const Sequence& parent) {
  const std::uint32_t held = parent.held;
  PerGroup shared{};
  for (std::uint32_t g = 0; g < pages_->groups_count(); ++g) {
    shared[g] = held / kPageTokens - pages_->group(g).first_page_seen(held);
  }
  if (!fits(child, held, shared, {})) return false;
  const std::uint32_t to = free_slots_.back();
  ASSERT(pages_->fork(parent.slot, to, held, page_copies_));
  forks_.push_back({.from = parent.slot, .to = to, .tokens_max = child.tokens_max});
  run(child, held);
  child.forked = true;
  return true;
}

// In order of arrival, so that whoever is preempted on the way has no rows yet.
void Scheduler::plan_running() {
  turns_.clear();
  std::uint32_t decodes_left = 0;
  for (Sequence* sequence : running_) {
    if (!sequence->may_run()) continue;
    const bool decodes = sequence->remaining() == 1;
    turns_.push_back({.sequence = sequence, .decodes = decodes});
    decodes_left += decodes;
  }
  for (const auto& [sequence, decodes] : turns_) {
    if (decodes) --decodes_left;
    if (sequence->slot == kNoSlot) continue;  // preempted for one before it
    const std::uint32_t rows =
        cut(*sequence, std::min({sequence->remaining(), options_.prefill_chunk, rows_left_ - decodes_left}));
    if (rows > 0 && make_room(*sequence, rows)) give_rows(*sequence, rows);
  }
}

// Reserves pages for the next rows; others give theirs up for it, and when it is the youngest itself, it does: false.
bool Scheduler::make_room(Sequence& sequence, std::uint32_t rows) {
  while (!pages_->reserve(sequence.slot, sequence.held, sequence.held + rows)) {
    Sequence* paused = youngest_paused();
    Sequence* victim = paused != nullptr ? paused : running_.back();
    preempt(*victim);
    if (victim == &sequence) return false;
  }
  return true;
}

void Scheduler::plan_waiting() {
  for (auto next = waiting_.begin(); next != waiting_.end() && rows_left_ > 0;) {
    Sequence& sequence = *(next++)->second;
    if (!sequence.may_run()) continue;
    if (options_.whole_sequences && sequence.known() > rows_left_) return;  // nobody behind it goes first
    // A page less when all is known already: the logits come from computing the last token.
    sequence.keys.extend(sequence.tokens);
    const std::span<const paging::PageKey> all = sequence.keys.keys();
    const auto keys = all.first(
        std::min<std::size_t>(all.size(), std::min(sequence.known() - 1, sequence.logits_from) / kPageTokens));
    for (;;) {
      if (has_place()) {
        const paging::PrefixMatch match = pages_->match(keys);
        if (fits(sequence, match.tokens, match.pages, match.unheld)) break;
      }
      Sequence* paused = youngest_paused();
      if (paused == nullptr) return;  // nobody behind it goes first
      preempt(*paused);
    }
    const std::uint32_t slot = free_slots_.back();
    const std::uint32_t held = pages_->adopt(slot, keys, now_ms_);
    run(sequence, held);
    starts_.push_back({.slot = slot, .tokens_max = sequence.tokens_max, .held = held});
    counts_.prefix_tokens_hit += held;
    counts_.prefix_tokens_missed += sequence.remaining();
    const std::uint32_t rows = cut(sequence, std::min({sequence.remaining(), options_.prefill_chunk, rows_left_}));
    ASSERT(pages_->reserve(slot, held, held + rows));
    give_rows(sequence, rows);
  }
}

// As many of the rows as are of one kind, and as there are outputs for.
std::uint32_t Scheduler::cut(const Sequence& sequence, std::uint32_t rows) const {
  if (sequence.held < sequence.logits_from) return std::min(rows, sequence.logits_from - sequence.held);
  return std::min(rows, 1 + outputs_left_);
}

void Scheduler::give_rows(Sequence& sequence, std::uint32_t rows) {
  const bool wants_all = sequence.logits_from <= sequence.held;
  rows_left_ -= rows;
  if (wants_all) outputs_left_ -= rows - 1;
  sequence.planned = rows;
  rows_.push_back({.id = sequence.id,
                   .slot = sequence.slot,
                   .tokens = std::span(sequence.tokens).subspan(sequence.held, rows),
                   .wants_logits = rows == sequence.remaining(),
                   .wants_all = wants_all});
}

// Pages of the group that a sequence which stands at `held` and holds `holds` of them still takes to compute all it knows,
// and its next page.
std::uint32_t Scheduler::pages_needed(std::uint32_t group, const Sequence& sequence, std::uint32_t held,
                                      std::uint32_t holds) const {
  const std::uint32_t rows_max = std::clamp(sequence.known() - held, 1u, options_.prefill_chunk);
  const std::uint32_t all = pages_->group(group).pages_at_once(
      {.tokens = std::min(sequence.known() + kPageTokens, sequence.tokens_max), .rows_max = rows_max});
  return all > holds ? all - holds : 0;
}

// Whether one more sequence can run without somebody being preempted at once. It would hold `holds` pages to begin with, of
// which `unheld` could be taken before.
bool Scheduler::fits(const Sequence& sequence, std::uint32_t held, const PerGroup& holds,
                     const PerGroup& unheld) const {
  for (std::uint32_t g = 0; g < pages_->groups_count(); ++g) {
    std::uint64_t needed = std::uint64_t{unheld[g]} + pages_needed(g, sequence, held, holds[g]);
    for (const Sequence* s : running_) {
      if (!s->paused) needed += pages_needed(g, *s, s->held, pages_->pages_held(g, s->slot));
    }
    if (needed > pages_->counts(g).takeable()) return false;
  }
  return true;
}

}  // namespace llorch::engine::inference::scheduling
