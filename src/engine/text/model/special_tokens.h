#pragma once
// Finds tokens that stand in a text as they are spelled, before the model sees it.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace llorch::engine::text::model {

using base::TokenId;

struct SpelledToken {
  std::string_view text;  // not empty
  TokenId id;
};

struct SpecialMatch {
  std::size_t begin, bytes;
  TokenId id;
};

// A set of spelled tokens in a trie. Immutable; safe from any thread.
class SpecialTokens {
 public:
  explicit SpecialTokens(std::span<const SpelledToken> tokens);

  // Non-overlapping matches in text order. The longest token wins wherever it stands; of equal ones the leftmost.
  std::vector<SpecialMatch> find(std::string_view text) const;

 private:
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child, sibling or shorter token
  struct Node {
    std::uint32_t child = kNone, sibling = kNone;
    std::uint32_t shorter = kNone;  // nearest ancestor that ends a token
    std::uint32_t depth = 0;        // bytes of the token that ends here
    std::optional<TokenId> token;
    char byte = 0;
  };
  std::uint32_t child_of(std::uint32_t node, char byte) const;
  // The node of the longest token at the start of `text`, kNone if there is none.
  std::uint32_t longest_at(std::string_view text) const;

  std::vector<Node> nodes_{Node{}};
  std::array<bool, 256> starts_{};  // bytes some token begins with
};

}  // namespace llorch::engine::text::model
