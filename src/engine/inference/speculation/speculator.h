#pragma once
// Which tokens are proposed in a step, and how many of them are worth their rows.
//
// Thread rule: one thread at a time, the engine's. Allocates when a sequence is offered for the first time and not again.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/token_id.h"
#include "engine/inference/scheduling/scheduler.h"
#include "engine/inference/speculation/ngram_lookup.h"
#include "engine/inference/speculation/payoff.h"

namespace llorch::engine::inference::speculation {

// The token that the sequence would draw from `logits` behind its tokens and `ahead`. A guess: it may know less of the sequence
// than the draw itself, and has no effect.
using ProposalDraw = std::function<base::TokenId(scheduling::SequenceId id, std::span<const base::TokenId> ahead,
                                                 std::span<const float> logits)>;

// Another way to propose than by lookup, at a price: asked only for proposals that are worth it.
class ProposalSource {
 public:
  virtual ~ProposalSource() = default;
  struct Request {
    scheduling::SequenceId id{};
    std::uint32_t slot = 0;                 // where the engine that verifies has it; requests are in their order
    std::span<const base::TokenId> tokens;  // that it has
    std::span<base::TokenId> proposals;     // to be written
    std::uint32_t count = 0;                // how many were
  };
  // False: it had to catch up with some of the sequences first, which says nothing about what proposals cost.
  virtual bool propose(std::span<Request> requests) = 0;
  // Tokens that it has to read of a sequence of `known` before its first proposal. 0: no more than in every step.
  virtual std::uint32_t behind(scheduling::SequenceId, std::uint32_t /*known*/) const { return 0; }
  virtual void remove(scheduling::SequenceId id) = 0;
};

// Rows of a step for proposals: what a step of a few sequences can carry beside its own while it still costs little more.
inline constexpr std::uint32_t kProposalRowsMax = 16;
constexpr std::uint32_t proposal_rows_of(std::uint32_t slots, std::uint32_t proposals_max) {
  return std::min<std::uint32_t>(kProposalRowsMax, slots * proposals_max);
}

struct SpeculationOptions {
  ProposalSource* source = nullptr;  // null: lookup. It outlives the batch
  std::uint32_t proposals_max = 0;   // of one sequence in a step; 0: nothing is proposed
  bool always = false;               // whether it pays or not; for tests and measurements
  // What has been spent so far, in any unit that a step takes much of: CPU time, or time. Empty: costs stay a proposal too.
  std::function<double()> spent{};
};

class Speculator {
 public:
  // REQUIRES: options.proposals_max > 0. At most `sequences_max` are offered in a step.
  Speculator(const SpeculationOptions& options, std::uint32_t sequences_max);

  // A step begins: what was offered before is forgotten.
  void begin();
  // A sequence in a slot that the step draws a token of; `tokens` are what it knows, at most `tokens_max` in the end. They begin with
  // those of its offer before.
  void offer(scheduling::SequenceId id, std::uint32_t slot, std::span<const base::TokenId> tokens,
             std::uint32_t tokens_max);
  // Calls propose(id, tokens) for every sequence of which proposals are worth it; at most step.proposals_max tokens in all.
  template <class Propose>
  void choose(const StepShape& step, const Propose& propose) {
    decide(step);
    for (std::size_t i = 0; i < offers_.size(); ++i)
      if (offers_[i].take > 0) propose(offered_[i]->id, std::span(offered_[i]->proposals).first(offers_[i].take));
  }
  void remove(scheduling::SequenceId id);

  // The work of the step since choose() is done, in so many rows.
  void step_ended(std::uint32_t rows) {
    if (is_measured_ && steady_) costs_.observe(rows, options_.spent() - began_);
  }
  const StepCosts& costs() const { return costs_; }

 private:
  // One sequence.
  struct Text {
    scheduling::SequenceId id{};
    std::uint32_t slot = 0;  // of the offer
    NgramLookup lookup;
    AcceptanceRecord record;
    std::vector<base::TokenId> proposals;  // [proposals_max], of which `made` were made when it had `known` tokens
    std::uint32_t made = 0;
    std::uint32_t strength = 0;
    std::uint32_t known = 0;
    std::uint32_t first_known = 0;          // of the first offer: what is known beyond it was drawn
    std::uint32_t behind = 0;               // tokens that the source has to read, of the offer
    std::uint32_t read = 0;                 // that it has read to catch up
    std::span<const base::TokenId> tokens;  // of the offer, valid during the step's choice
    std::uint32_t passed_over = 0;          // steps since proposals of the source were last worth it
    std::uint32_t next_try = 0;             // of these, when it is asked all the same
  };
  void learn(Text& text, std::span<const base::TokenId> tokens);
  AcceptanceRecord first_record();
  void decide(const StepShape& step);
  void ask_source(const StepShape& step, double gain);
  bool may_catch_up(const Text& text, double step_cost, double gain) const;
  void learn_read_cost(double cost);
  void begin_measure(std::uint32_t rows);

  SpeculationOptions options_;
  StepCosts costs_;
  AcceptanceRecord source_record_;  // of all sequences that the source proposed to
  std::uint64_t texts_begun_ = 0;
  double read_cost_ = 0;  // of a token that the source catches up with; 0: not known
  double began_ = 0;
  bool is_measured_ = false;  // the step under way
  std::uint64_t steps_ = 0;
  bool steady_ = true;  // the step under way costs what such steps cost
  std::unordered_map<scheduling::SequenceId, std::unique_ptr<Text>> texts_;
  std::vector<ProposalOffer> offers_;
  std::vector<Text*> offered_;  // parallel to offers_
  std::vector<ProposalSource::Request> requests_;
};

}  // namespace llorch::engine::inference::speculation
