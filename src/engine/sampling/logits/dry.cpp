#include "engine/sampling/logits/dry.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::sampling::logits {
namespace {

float power(float base, std::uint32_t exponent) {
  float result = 1.0f;
  for (; exponent > 0; exponent >>= 1, base *= base) {
    if ((exponent & 1) != 0) result *= base;
  }
  return result;
}

}  // namespace

Dry::Dry(const SamplingParams& params, const Sizes& sizes)
    : multiplier_(params.dry_multiplier),
      base_(params.dry_base),
      allowed_length_(params.dry_allowed_length),
      last_n_(params.dry_last_n) {
  if (multiplier_ == 0.0f) return;
  const std::size_t window = last_n_ == 0 ? sizes.history_max : std::min<std::size_t>(last_n_, sizes.history_max);
  matches_.resize(window);
  lengths_.resize(sizes.vocab);
  noted_.reserve(window);
}

// matches_[k] = length of the longest common end of `tokens` and `tokens` without its last k.
void Dry::match_suffixes(std::span<const TokenId> tokens) {
  const std::size_t size = tokens.size();
  const auto at = [&](std::size_t k) { return tokens[size - 1 - k]; };
  std::size_t left = 0, right = 0;  // the match that reaches furthest, [left, right)
  for (std::size_t k = 1; k < size; ++k) {
    std::size_t n = k < right ? std::min<std::size_t>(right - k, matches_[k - left]) : 0;
    while (k + n < size && at(n) == at(k + n)) ++n;
    matches_[k] = static_cast<std::uint32_t>(n);
    if (k + n > right) {
      left = k;
      right = k + n;
    }
  }
}

void Dry::note(TokenId id, std::uint32_t length) {
  ASSERT(index(id) < lengths_.size(), "id={} vocab={}", index(id), lengths_.size());
  std::uint32_t& longest = lengths_[index(id)];
  if (longest == 0) noted_.push_back(id);
  longest = std::max(longest, length);
}

void Dry::edits(const History& history, std::vector<plan::RowEdit>& out) {
  if (multiplier_ == 0.0f) return;
  ASSERT(history.breaks.empty() || history.breaks.size() == history.tokens.size(), "breaks={} tokens={}",
         history.breaks.size(), history.tokens.size());
  const std::size_t size = last_n_ == 0 ? history.tokens.size() : std::min<std::size_t>(last_n_, history.tokens.size());
  if (size < 2) return;
  ASSERT(size <= matches_.size(), "window={} history_max={}", size, matches_.size());
  const auto tokens = history.tokens.last(size);
  const auto breaks = history.breaks.empty() ? history.breaks : history.breaks.last(size);
  const auto is_break = [&](std::size_t i) { return !breaks.empty() && breaks[i] != 0; };

  std::uint32_t end_run = 0;  // tokens after the newest break
  while (end_run < size && !is_break(size - 1 - end_run)) ++end_run;
  if (end_run < allowed_length_) return;
  match_suffixes(tokens);
  std::uint32_t run = 0;  // tokens before i since the last break
  for (std::size_t i = 1; i < size; ++i) {
    run = is_break(i - 1) ? 0 : run + 1;
    if (is_break(i)) continue;
    const std::uint32_t length = std::min({matches_[size - i], run, end_run});
    if (length >= allowed_length_) note(tokens[i], length);
  }
  for (const TokenId id : noted_) {
    const std::uint32_t length = std::exchange(lengths_[index(id)], 0);
    out.push_back({index(id), plan::EditKind::kLower, multiplier_ * power(base_, length - allowed_length_), 0.0f});
  }
  noted_.clear();
}

}  // namespace llorch::engine::sampling::logits
