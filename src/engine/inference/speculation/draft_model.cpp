#include "engine/inference/speculation/draft_model.h"

#include <fmt/format.h>

#include <algorithm>

namespace llorch::engine::inference::speculation {

using base::Result;
using base::TokenId;
using scheduling::SequenceId;

namespace {
// Tokens that a sequence may be behind and still be in a step with the others: what was accepted of the proposals before.
constexpr std::uint32_t kBehindMax = 16;
// Tokens that it is behind where it drafted in the step before: the last proposal, which it never computed, and the token that
// was drawn behind it. Where it is behind more, what proposing costs is not what it costs.
constexpr std::size_t kBehindSteady = 2;
}  // namespace

Result<> DraftModel::check(const Engine& engine) {
  const auto refuse = [&](std::string_view why) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} cannot draft: {}; name a draft model whose layers all attend to every position",
                                  engine.facts().architecture, why));
  };
  if (engine.facts().pooling != plan::Pooling::kNone || engine.facts().whole_sequences)
    return refuse("it makes vectors, not tokens");
  if (!engine.facts().paged) return refuse("it has recurrent state, which cannot take tokens back");
  if (engine.facts().has_windows)
    return refuse("it attends to a window, which it has left behind when it takes tokens back");
  return {};
}

DraftModel::DraftModel(Engine& engine, std::uint32_t vocab, ProposalDraw draw)
    : engine_(engine),
      vocab_(std::min(vocab, engine.facts().vocab)),
      draw_(std::move(draw)),
      behind_max_(std::min(kBehindMax, engine.facts().rows_max / engine.facts().slots)),
      held_(engine.facts().slots) {
  for (std::uint32_t slot = engine.facts().slots; slot > 0; --slot) free_.push_back(slot - 1);
  for (Slot& slot : held_) slot.tokens.reserve(engine.facts().context_tokens);
  turns_.reserve(held_.size());
  rows_.reserve(held_.size());
}

void DraftModel::remove(SequenceId id) {
  const auto found = slots_.find(id);
  if (found == slots_.end()) return;
  engine_.pages().release(found->second);
  free_.push_back(found->second);
  slots_.erase(found);
}

DraftModel::Slot* DraftModel::slot_of(SequenceId id) {
  const auto found = slots_.find(id);
  if (found != slots_.end()) return &held_[found->second];
  if (free_.empty() || !engine_.reset(free_.back())) return nullptr;
  const std::uint32_t slot = free_.back();
  free_.pop_back();
  slots_.emplace(id, slot);
  held_[slot].tokens.clear();
  return &held_[slot];
}

// The slot goes back to where it agrees with the sequence. Returns how many tokens it is behind, one at least: the one whose
// logits are wanted.
std::size_t DraftModel::go_back(std::uint32_t slot, std::span<const TokenId> tokens) {
  std::vector<TokenId>& held = held_[slot].tokens;
  const auto same = static_cast<std::size_t>(std::ranges::mismatch(held, tokens).in1 - held.begin());
  held.resize(std::min(same, tokens.size() - 1));
  engine_.rewind(slot, static_cast<std::uint32_t>(held.size()));
  return tokens.size() - held.size();
}

// A prompt is computed chunk by chunk, one in a step.
bool DraftModel::catch_up(std::uint32_t slot, std::span<const TokenId> tokens) {
  std::vector<TokenId>& held = held_[slot].tokens;
  const std::size_t behind = tokens.size() - held.size();
  const std::size_t count = std::min<std::size_t>(behind - 1, engine_.facts().rows_max);
  const SlotRows chunk{.slot = slot, .tokens = tokens.subspan(held.size(), count), .wanted = RowsWanted::kNone};
  if (!engine_.step({&chunk, 1})) return false;
  held.insert(held.end(), chunk.tokens.begin(), chunk.tokens.end());
  return behind - count <= behind_max_;
}

std::uint32_t DraftModel::behind(SequenceId id, std::uint32_t known) const {
  const auto found = slots_.find(id);
  const std::size_t held = found == slots_.end() ? 0 : held_[found->second].tokens.size();
  return held + kBehindSteady >= known ? 0 : known - static_cast<std::uint32_t>(held);
}

bool DraftModel::propose(std::span<Request> requests) {
  bool steady = true;
  std::uint32_t rounds = 0;
  turns_.clear();
  for (Request& request : requests) {
    request.count = 0;
    const std::size_t room = engine_.facts().context_tokens;
    if (request.tokens.size() + request.proposals.size() > room) continue;
    if (slot_of(request.id) == nullptr) continue;
    const std::uint32_t slot = slots_.at(request.id);
    const std::size_t behind = go_back(slot, request.tokens);
    // Its table may be smaller: what is behind it is no token of the draft model, and its step is one for everybody.
    const auto is_foreign = [&](TokenId token) { return base::index(token) >= engine_.facts().vocab; };
    if (std::ranges::any_of(request.tokens.last(behind), is_foreign)) continue;
    steady = steady && behind <= kBehindSteady;
    if (behind > behind_max_ && !catch_up(slot, request.tokens)) continue;
    turns_.push_back({.request = &request, .slot = slot, .last = {}});
    rounds = std::max(rounds, static_cast<std::uint32_t>(request.proposals.size()));
  }
  std::ranges::sort(turns_, {}, &Turn::slot);
  for (std::uint32_t round = 0; round < rounds; ++round)
    if (!step(round)) return false;
  return steady;
}

// The next proposal of everybody who wants one more.
Result<> DraftModel::step(std::uint32_t round) {
  rows_.clear();
  for (Turn& turn : turns_) {
    const Request& request = *turn.request;
    if (round >= request.proposals.size()) continue;
    const std::vector<TokenId>& held = held_[turn.slot].tokens;
    if (round > 0) turn.last = request.proposals[round - 1];
    rows_.push_back(
        {.slot = turn.slot,
         .tokens = round == 0 ? request.tokens.subspan(held.size()) : std::span<const TokenId>(&turn.last, 1)});
  }
  const StepOutput output = TRY(engine_.step(rows_));
  std::size_t row = 0;
  for (const Turn& turn : turns_) {
    Request& request = *turn.request;
    if (round >= request.proposals.size()) continue;
    std::vector<TokenId>& held = held_[turn.slot].tokens;
    held.insert(held.end(), rows_[row].tokens.begin(), rows_[row].tokens.end());
    request.proposals[round] = draw_(request.id, request.proposals.first(round), output.row(row).first(vocab_));
    request.count = round + 1;
    ++row;
  }
  return {};
}

}  // namespace llorch::engine::inference::speculation
