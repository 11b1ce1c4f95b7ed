#pragma once
// Vocabularies small enough to compare every mask with brute force.
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/assert.h"
#include "grammar/matcher.h"

namespace llorch::grammar::testing {

struct SmallVocabulary {
  std::vector<std::string> tokens;  // the last one ends
  std::shared_ptr<const TokenTrie> trie;

  TokenId end() const { return TokenId{static_cast<std::uint32_t>(tokens.size() - 1)}; }
};

inline SmallVocabulary vocabulary_of(std::vector<std::string> tokens) {
  tokens.emplace_back();
  const std::vector<std::string_view> views(tokens.begin(), tokens.end());
  const TokenId end{static_cast<std::uint32_t>(tokens.size() - 1)};
  auto trie = TokenTrie::build(views, {&end, 1});
  ASSERT(trie.has_value(), "{}", trie.error().message);
  return {std::move(tokens), std::move(*trie)};
}

inline std::vector<std::string> all_bytes() {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  return tokens;
}

// Every byte, then `more`.
inline SmallVocabulary bytes_and(std::vector<std::string> more) {
  std::vector<std::string> tokens = all_bytes();
  tokens.insert(tokens.end(), more.begin(), more.end());
  return vocabulary_of(std::move(tokens));
}

// Pieces that cross the borders of strings, code points and containers; equal ones, an empty one and long ones.
inline SmallVocabulary json_vocabulary() {
  return bytes_and({"{\"",
                    "\":",
                    "\": \"",
                    "\",",
                    "\"}",
                    "}}",
                    "]}",
                    "[\"",
                    "[[",
                    "{}",
                    "],",
                    ", \"",
                    "a\",\"b\":",
                    "null",
                    "nul",
                    "true",
                    "tru",
                    "10",
                    "-1",
                    "0.",
                    ".5",
                    "e1",
                    "\\\"",
                    "\\u00",
                    "\\n",
                    "d83d",
                    "the",
                    " of",
                    "ab",
                    "ab",
                    "",
                    "\xC3\xA9",
                    "\xE6\x97",
                    "\xA5\xE6",
                    "\xF0\x9F",
                    "\x98\x80\"",
                    "\n  ",
                    "0123456789abcdefghijklmnop",
                    "                                "});
}

inline bool is_allowed(std::span<const std::uint32_t> mask, TokenId id) {
  return (mask[base::index(id) / 32] >> base::index(id) % 32 & 1) != 0;
}

}  // namespace llorch::grammar::testing
