#include "engine/inference/speculation/speculator.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

using base::TokenId;
using scheduling::SequenceId;

namespace {
// What a source proposes is as likely as what follows a match of a few tokens, until it is known better.
constexpr std::uint32_t kSourceStrength = 3;
// Steps after which a source that was not worth it is tried once, and four times as many after each try in vain: it has to catch
// up with all that was written meanwhile.
constexpr std::uint32_t kFirstTry = 256;
constexpr std::uint64_t kMeasureEvery = 16;
// Tokens that an answer is taken to have still, whatever its request allows: most are as long.
constexpr std::uint32_t kForeseen = 128;
// What catching up with a sequence may take of what the answer costs, where the source has not shown that it is right.
constexpr double kTryShare = 1.0 / 50;
// What a token read costs until it is known, in steps of one row, and how slowly it comes to be thought of as dearer: a first reading
// is slow, and a slow minute is no reason to stop.
constexpr double kFirstReadShare = StepCosts::kRowShare / 4;
constexpr double kReadSlowly = 1.0 / 8;
// One sequence of so many is offered proposals of the source whatever became of those for the others.
constexpr std::uint64_t kUnbiasedEvery = 16;
}  // namespace

Speculator::Speculator(const SpeculationOptions& options, std::uint32_t sequences_max) : options_(options) {
  ASSERT(options.proposals_max > 0);
  texts_.reserve(sequences_max);
  offers_.reserve(sequences_max);
  offered_.reserve(sequences_max);
  requests_.reserve(sequences_max);
}

void Speculator::begin() {
  offers_.clear();
  offered_.clear();
  steady_ = true;
}

// The clock is read while a cost is not known, and now and then: the time of a process takes the kernel some microseconds, and
// its answer comes while the device waits.
void Speculator::begin_measure(std::uint32_t rows) {
  is_measured_ = options_.spent && (steps_++ % kMeasureEvery == 0 || !costs_.knows(rows));
  if (is_measured_) began_ = options_.spent();
}

void Speculator::remove(SequenceId id) {
  texts_.erase(id);
  if (options_.source != nullptr) options_.source->remove(id);
}

void Speculator::offer(SequenceId id, std::uint32_t slot, std::span<const TokenId> tokens, std::uint32_t tokens_max) {
  const bool looks_up = options_.source == nullptr;
  std::unique_ptr<Text>& text = texts_[id];
  if (text == nullptr) {
    text = std::make_unique<Text>(Text{.id = id,
                                       .lookup = NgramLookup(looks_up ? tokens_max : 0),
                                       .record = first_record(),
                                       .proposals = std::vector<TokenId>(options_.proposals_max),
                                       .first_known = static_cast<std::uint32_t>(tokens.size()),
                                       .next_try = kFirstTry});
  }
  learn(*text, tokens);
  text->known = static_cast<std::uint32_t>(tokens.size());
  text->tokens = tokens;
  text->slot = slot;
  text->strength = looks_up ? text->lookup.propose(tokens, text->proposals) : kSourceStrength;
  text->made = looks_up && text->strength > 0 ? options_.proposals_max : 0;
  if (text->strength == 0) return;
  offers_.push_back({.record = &text->record, .strength = text->strength, .most = options_.proposals_max});
  offered_.push_back(text.get());
}

// A source has to catch up with a sequence's prompt before its first proposal, which a short answer never earns back. So a sequence
// begins with what became of the proposals to others.
AcceptanceRecord Speculator::first_record() {
  if (options_.source == nullptr || texts_begun_++ % kUnbiasedEvery == 0) return {};
  return source_record_.inherited();
}

// Every proposal is judged by what came, whether a row was computed for it or not.
void Speculator::learn(Text& text, std::span<const TokenId> tokens) {
  for (std::uint32_t i = 0; i < text.made && text.known + i < tokens.size(); ++i) {
    const bool accepted = text.proposals[i] == tokens[text.known + i];
    text.record.add(text.strength + i, accepted);
    if (options_.source != nullptr) source_record_.add(text.strength + i, accepted);
    if (!accepted) return;
  }
}

void Speculator::decide(const StepShape& step) {
  double gain = 0;
  if (options_.always) {
    std::uint32_t left = step.proposals_max;
    for (ProposalOffer& offer : offers_) {
      offer.take = std::min(offer.most, left);
      left -= offer.take;
    }
  } else if (!options_.spent || costs_.has_seen(step.rows)) {
    gain = speculation::choose(offers_, step, costs_);
  }  // else the step shows what one without proposals costs: gains are against that
  std::uint32_t rows = step.rows;
  for (const ProposalOffer& offer : offers_) rows += offer.take;
  begin_measure(rows);
  if (options_.source != nullptr) ask_source(step, gain);
}

// What reading has cost and will cost is no more than what proposals save in an answer of this length; a fiftieth of the answer
// where that is not known. So a draft that is never right costs little even in the first answer of a worker.
bool Speculator::may_catch_up(const Text& text, double step_cost, double gain) const {
  const double share = text.record.is_proven(kSourceStrength) ? std::max(gain, kTryShare) : kTryShare;
  const double read_cost = read_cost_ > 0 ? read_cost_ : kFirstReadShare * costs_.of(1);
  return (text.read + text.behind) * read_cost <= share * (text.known - text.first_known + kForeseen) * step_cost;
}

void Speculator::ask_source(const StepShape& step, double gain) {
  requests_.clear();
  bool reads = false;
  std::uint32_t left = step.proposals_max;  // rows for tries
  for (const ProposalOffer& offer : offers_) left -= offer.take;
  for (std::size_t i = 0; i < offers_.size(); ++i) {
    Text& text = *offered_[i];
    // What is not asked for cannot show that it is worth it again.
    const bool wanted = offers_[i].take > 0;
    if (!wanted && (++text.passed_over < text.next_try || step.rows > kCostRowsMax || left == 0)) continue;
    text.behind = options_.source->behind(text.id, text.known);
    if (text.behind > 0 && !options_.always && !may_catch_up(text, costs_.of(step.rows) / step.tokens, gain)) {
      offers_[i].take = 0;
      continue;
    }
    if (wanted) {
      text.passed_over = 0;
    } else {
      offers_[i].take = 1;
      --left;
      text.next_try *= 4;
    }
    reads = reads || text.behind > 0;
    requests_.push_back({.id = text.id,
                         .slot = text.slot,
                         .tokens = text.tokens,
                         .proposals = std::span(text.proposals).first(offers_[i].take)});
  }
  if (requests_.empty()) return;
  const double began = reads && options_.spent ? options_.spent() : 0;
  steady_ = options_.source->propose(requests_);
  std::uint32_t read = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < offers_.size(); ++i) {
    if (offers_[i].take == 0) continue;
    Text& text = *offered_[i];
    offers_[i].take = text.made = requests_[next++].count;
    if (text.behind == 0) continue;
    const std::uint32_t now = text.behind - std::min(text.behind, options_.source->behind(text.id, text.known));
    text.read += now;
    read += now;
  }
  if (reads && options_.spent && read > 0) learn_read_cost((options_.spent() - began) / read);
}

void Speculator::learn_read_cost(double cost) {
  read_cost_ = read_cost_ == 0 || cost < read_cost_ ? cost : read_cost_ + kReadSlowly * (cost - read_cost_);
}

}  // namespace llorch::engine::inference::speculation
