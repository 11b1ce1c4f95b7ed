#pragma once
// Finds tokens that stand in a text as they are spelled, before the model sees it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "text/text_budget.h"
#include "text/tokenizer_models/token_trie.h"

namespace llorch::text::partition {

using base::TokenId;
using model::TokenTrie;

struct SpelledToken {
  std::string_view text;  // not empty
  TokenId id;
  bool trusted_only = false;  // found only in trusted parts of a text
};

// A part of a text that may spell every token. Elsewhere trusted-only tokens do not exist.
struct TrustedSpan {
  std::size_t begin, end;
};

struct SpecialMatch {
  std::size_t begin, bytes;
  TokenId id;
};

// A set of spelled tokens in a trie. Immutable; safe from any thread.
class SpecialTokens {
 public:
  explicit SpecialTokens(std::span<const SpelledToken> tokens);

  // Non-overlapping matches in text order. A trusted-only token matches inside one span only; `trusted`: ascending,
  // without overlap. The budget's error where long tokens are looked for at too many places.
  // The longest token wins wherever it stands; of equal ones the leftmost. As GGUF's users do it.
  base::Result<std::vector<SpecialMatch>> find(std::string_view text, std::span<const TrustedSpan> trusted,
                                               TextBudget& budget) const;
  // The leftmost token wins; of those the longest. As users of a tokenizer.json do it.
  base::Result<std::vector<SpecialMatch>> find_leftmost(std::string_view text, std::span<const TrustedSpan> trusted,
                                                        TextBudget& budget) const;

 private:
  struct Candidate {
    std::size_t begin;
    std::uint32_t node;
    std::size_t trusted_bytes;  // from `begin` to the end of its span
  };
  struct Found {
    std::uint32_t node;   // kNone if there is none
    std::size_t visited;  // how many nodes it took
  };
  // The longest token at every place.
  base::Result<std::vector<Candidate>> candidates(std::string_view text, std::span<const TrustedSpan> trusted,
                                                  TextBudget& budget) const;
  bool is_allowed(std::uint32_t node, std::size_t trusted_bytes) const;
  // The longest token at the start of `text`.
  Found longest_at(std::string_view text, std::size_t trusted_bytes) const;
  // The longest shorter token at the same place.
  Found shorter_than(std::uint32_t node, std::size_t trusted_bytes) const;

  TokenTrie trie_;
  // By node of the trie.
  std::vector<std::uint32_t> shorter_;  // nearest ancestor that ends a token
  std::vector<bool> trusted_only_;
};

}  // namespace llorch::text::partition
