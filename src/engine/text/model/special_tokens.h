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

  // Non-overlapping matches in text order. The longest token wins wherever it stands; of equal ones the leftmost.
  // A trusted-only token matches inside one span only; `trusted`: ascending, without overlap.
  std::vector<SpecialMatch> find(std::string_view text, std::span<const TrustedSpan> trusted) const;

 private:
  static constexpr std::uint32_t kNone = 0;  // the root is nobody's child, sibling or shorter token
  struct Node {
    std::uint32_t child = kNone, sibling = kNone;
    std::uint32_t shorter = kNone;  // nearest ancestor that ends a token
    std::uint32_t depth = 0;        // bytes of the token that ends here
    std::optional<TokenId> token;
    bool trusted_only = false;
    char byte = 0;
  };
  std::uint32_t child_of(std::uint32_t node, char byte) const;
  // The node of the longest token at the start of `text`, kNone if there is none. Of trusted-only tokens those within
  // the first `trusted_bytes` count.
  std::uint32_t longest_at(std::string_view text, std::size_t trusted_bytes) const;
  // The longest shorter token at the same place, kNone if there is none.
  std::uint32_t shorter_than(std::uint32_t node, std::size_t trusted_bytes) const;

  std::vector<Node> nodes_{Node{}};
  std::array<bool, 256> starts_{};  // bytes some token begins with
};

}  // namespace llorch::engine::text::model
