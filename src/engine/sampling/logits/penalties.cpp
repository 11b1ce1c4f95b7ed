#include "engine/sampling/logits/penalties.h"

#include <algorithm>

#include "base/assert.h"
#include "engine/sampling/logits/row.h"

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

void Penalties::apply(std::span<float> l, const History& history) {
  if (!seen_at_.empty()) apply_repetition(l, window(history, repetition_scope_));
  if (!counts_.empty()) apply_counts(l, window(history, frequency_scope_));
}

std::span<const TokenId> Penalties::window(const History& history, PenaltyScope scope) const {
  const std::size_t size = history.tokens.size();
  std::size_t begin = scope == PenaltyScope::kOutput ? std::min(history.prompt_tokens, size) : 0;
  if (last_n_ != 0 && last_n_ < size) begin = std::max(begin, size - last_n_);
  return history.tokens.subspan(begin);
}

void Penalties::apply_repetition(std::span<float> l, std::span<const TokenId> tokens) {
  ++pass_;
  for (const TokenId id : tokens) {
    ASSERT(index(id) < l.size(), "id={} vocab={}", index(id), l.size());
    if (seen_at_[index(id)] == pass_) continue;
    seen_at_[index(id)] = pass_;
    float& v = l[index(id)];
    if (v == kMasked) continue;
    v = clamp_finite(v > 0.0f ? v / repetition_ : v * repetition_);
  }
}

void Penalties::apply_counts(std::span<float> l, std::span<const TokenId> tokens) {
  for (const TokenId id : tokens) {
    ASSERT(index(id) < l.size(), "id={} vocab={}", index(id), l.size());
    ++counts_[index(id)];
  }
  for (const TokenId id : tokens) {
    const std::uint32_t count = std::exchange(counts_[index(id)], 0);
    float& v = l[index(id)];
    if (count == 0 || v == kMasked) continue;
    v = clamp_finite((v - static_cast<float>(count) * frequency_) - presence_);
  }
}

}  // namespace llorch::engine::sampling::logits
