#pragma once
// Which tokens are guessed in a step, and how many of them are worth their rows.
//
// Thread rule: one thread at a time, the engine's. Allocates when a sequence is offered for the first time and not again.
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

struct SpeculationOptions {
  std::uint32_t guesses_max = 0;  // of one sequence in a step; 0: nothing is guessed
  bool always = false;            // whether it pays or not; for tests and measurements
  // What has been spent so far, in any unit that a step takes much of: CPU time, or time. Empty: costs stay a guess too.
  std::function<double()> spent{};
};

class Speculator {
 public:
  // REQUIRES: options.guesses_max > 0. At most `sequences_max` are offered in a step.
  Speculator(const SpeculationOptions& options, std::uint32_t sequences_max);

  // A step begins: what was offered before is forgotten.
  void begin();
  // A sequence that the step draws a token of; `tokens` are what it knows, at most `tokens_max` in the end. They begin with
  // those of its offer before.
  void offer(scheduling::SequenceId id, std::span<const base::TokenId> tokens, std::uint32_t tokens_max);
  // Calls guess(id, tokens) for every sequence of which guesses are worth it.
  template <class Guess>
  void choose(const StepShape& step, const Guess& guess) {
    decide(step);
    for (std::size_t i = 0; i < offers_.size(); ++i)
      if (offers_[i].take > 0) guess(offered_[i]->id, std::span(offered_[i]->guesses).first(offers_[i].take));
  }
  void remove(scheduling::SequenceId id) { texts_.erase(id); }

  // Around the work of a step of so many rows.
  void step_begins() { began_ = options_.spent ? options_.spent() : 0; }
  void step_ended(std::uint32_t rows) {
    if (options_.spent) costs_.observe(rows, options_.spent() - began_);
  }
  const StepCosts& costs() const { return costs_; }

 private:
  // One sequence.
  struct Text {
    scheduling::SequenceId id{};
    NgramLookup lookup;
    GuessRecord record;
    std::vector<base::TokenId> guesses;  // [guesses_max], made when it had `known` tokens
    std::uint32_t strength = 0;          // 0: there are none
    std::uint32_t known = 0;
  };
  static void learn(Text& text, std::span<const base::TokenId> tokens);
  void decide(const StepShape& step);

  SpeculationOptions options_;
  StepCosts costs_;
  double began_ = 0;
  std::unordered_map<scheduling::SequenceId, std::unique_ptr<Text>> texts_;
  std::vector<GuessOffer> offers_;
  std::vector<Text*> offered_;  // parallel to offers_
};

}  // namespace llorch::engine::inference::speculation
