#include "engine/inference/speculation/speculator.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

using base::TokenId;
using scheduling::SequenceId;

Speculator::Speculator(const SpeculationOptions& options, std::uint32_t sequences_max) : options_(options) {
  ASSERT(options.guesses_max > 0);
  texts_.reserve(sequences_max);
  offers_.reserve(sequences_max);
  offered_.reserve(sequences_max);
}

void Speculator::begin() {
  offers_.clear();
  offered_.clear();
}

void Speculator::offer(SequenceId id, std::span<const TokenId> tokens, std::uint32_t tokens_max) {
  std::unique_ptr<Text>& text = texts_[id];
  if (text == nullptr) {
    text = std::make_unique<Text>(Text{.id = id,
                                       .lookup = NgramLookup(tokens_max),
                                       .record = {},
                                       .guesses = std::vector<TokenId>(options_.guesses_max)});
  }
  learn(*text, tokens);
  text->known = static_cast<std::uint32_t>(tokens.size());
  text->strength = text->lookup.guess(tokens, text->guesses);
  if (text->strength == 0) return;
  offers_.push_back({.record = &text->record, .strength = text->strength, .most = options_.guesses_max});
  offered_.push_back(text.get());
}

// Every guess is judged by what came, whether a row was computed for it or not.
void Speculator::learn(Text& text, std::span<const TokenId> tokens) {
  if (text.strength == 0) return;
  for (std::uint32_t i = 0; i < text.guesses.size() && text.known + i < tokens.size(); ++i) {
    const bool right = text.guesses[i] == tokens[text.known + i];
    text.record.add(text.strength + i, right);
    if (!right) return;
  }
}

void Speculator::decide(const StepShape& step) {
  if (!options_.always) return speculation::choose(offers_, step, costs_);
  std::uint32_t left = step.guesses_max;
  for (GuessOffer& offer : offers_) {
    offer.take = std::min(offer.most, left);
    left -= offer.take;
  }
}

}  // namespace llorch::engine::inference::speculation
