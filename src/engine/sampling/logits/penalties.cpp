#include "engine/sampling/logits/penalties.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::engine::sampling::logits {

Penalties::Penalties(const SamplingParams& params, std::size_t vocab_size)
    : repetition_(params.repetition_penalty),
      frequency_(params.frequency_penalty),
      presence_(params.presence_penalty),
      repetition_scope_(params.repetition_scope),
      frequency_scope_(params.frequency_scope),
      last_n_(params.penalty_last_n) {
  if (repetition_ != 1.0f) seen_at_.resize(vocab_size);
  if (frequency_ != 0.0f || presence_ != 0.0f) counts_.resize(vocab_size);
}

void Penalties::edits(const History& history, std::vector<plan::RowEdit>& out) {
  if (!seen_at_.empty()) repetition_edits(window(history, repetition_scope_), out);
  if (!counts_.empty()) count_edits(window(history, frequency_scope_), out);
}

std::span<const TokenId> Penalties::window(const History& history, PenaltyScope scope) const {
  const std::size_t size = history.tokens.size();
  std::size_t begin = scope == PenaltyScope::kOutput ? std::min(history.prompt_tokens, size) : 0;
  if (last_n_ != 0 && last_n_ < size) begin = std::max(begin, size - last_n_);
  return history.tokens.subspan(begin);
}

void Penalties::repetition_edits(std::span<const TokenId> tokens, std::vector<plan::RowEdit>& out) {
  ++pass_;
  for (const TokenId id : tokens) {
    ASSERT(index(id) < seen_at_.size(), "id={} vocab={}", index(id), seen_at_.size());
    if (seen_at_[index(id)] == pass_) continue;
    seen_at_[index(id)] = pass_;
    out.push_back({index(id), plan::EditKind::kScale, repetition_, 0.0f});
  }
}

void Penalties::count_edits(std::span<const TokenId> tokens, std::vector<plan::RowEdit>& out) {
  for (const TokenId id : tokens) {
    ASSERT(index(id) < counts_.size(), "id={} vocab={}", index(id), counts_.size());
    ++counts_[index(id)];
  }
  for (const TokenId id : tokens) {
    const std::uint32_t count = std::exchange(counts_[index(id)], 0);
    if (count == 0) continue;
    out.push_back({index(id), plan::EditKind::kLower, static_cast<float>(count) * frequency_, presence_});
  }
}

}  // namespace llorch::engine::sampling::logits
