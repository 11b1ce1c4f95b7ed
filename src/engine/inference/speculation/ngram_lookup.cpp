#include "engine/inference/speculation/ngram_lookup.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace llorch::engine::inference::speculation {

using base::TokenId;

namespace {

// Occurrences looked at per call: bounds the time where a pair of tokens is everywhere.
constexpr int kOccurrencesMax = 32;

// Tokens that agree, going back from `end` and from the end of the text.
std::uint32_t match_length(std::span<const TokenId> tokens, std::uint32_t end) {
  const auto last = static_cast<std::uint32_t>(tokens.size() - 1);
  std::uint32_t length = 0;
  while (length < kMatchTokensMax && length <= end && tokens[end - length] == tokens[last - length]) ++length;
  return length;
}

}  // namespace

NgramLookup::NgramLookup(std::uint32_t tokens_max)
    : latest_(std::bit_ceil(std::max(tokens_max, 2u))),
      before_(tokens_max),
      shift_(static_cast<std::uint32_t>(64 - std::countr_zero(latest_.size()))) {}

std::uint32_t NgramLookup::bucket(std::span<const TokenId> tokens, std::uint32_t last) const {
  const std::uint64_t pair = std::uint64_t{base::index(tokens[last - 1])} << 32 | base::index(tokens[last]);
  return static_cast<std::uint32_t>(pair * 0x9E3779B97F4A7C15u >> shift_);
}

void NgramLookup::index(std::span<const TokenId> tokens) {
  for (; indexed_ < tokens.size(); ++indexed_) {
    std::uint32_t& latest = latest_[bucket(tokens, indexed_)];
    before_[indexed_] = latest;
    latest = indexed_ + 1;
  }
}

std::uint32_t NgramLookup::propose(std::span<const TokenId> tokens, std::span<TokenId> proposals) {
  ASSERT(tokens.size() <= before_.size(), "{} tokens of {}", tokens.size(), before_.size());
  if (tokens.size() <= kMatchTokensMin) return 0;
  index(tokens);
  const auto length = static_cast<std::uint32_t>(tokens.size());
  std::uint32_t longest = 0, from = 0;
  std::uint32_t next = before_[length - 1];
  for (int looked = 0; next != 0 && longest < kMatchTokensMax && looked < kOccurrencesMax; ++looked) {
    const std::uint32_t end = next - 1;
    if (const std::uint32_t matched = match_length(tokens, end); matched > longest) longest = matched, from = end + 1;
    next = before_[end];
  }
  if (longest < kMatchTokensMin) return 0;
  for (std::size_t i = 0; i < proposals.size(); ++i)
    proposals[i] = from + i < length ? tokens[from + i] : proposals[from + i - length];
  return longest;
}

}  // namespace llorch::engine::inference::speculation
