#include "text/tokenizer_models/token_trie.h"

#include "base/assert.h"

namespace llorch::text::model {

std::uint32_t TokenTrie::add(std::string_view text, TokenId token) {
  ASSERT(!text.empty());
  std::uint32_t at = kRoot;
  for (const char byte : text) {
    std::uint32_t next = child_of(at, byte);
    if (next == kNone) {
      next = static_cast<std::uint32_t>(nodes_.size());
      nodes_.push_back({.sibling = nodes_[at].child, .depth = nodes_[at].depth + 1, .byte = byte});
      nodes_[at].child = next;
      if (at == kRoot) first_[static_cast<unsigned char>(byte)] = next;
    }
    at = next;
  }
  if (!nodes_[at].token) nodes_[at].token = token;
  return at;
}

std::uint32_t TokenTrie::child_of(std::uint32_t node, char byte) const {
  if (node == kRoot) return first_[static_cast<unsigned char>(byte)];
  std::uint32_t c = nodes_[node].child;
  while (c != kNone && nodes_[c].byte != byte) c = nodes_[c].sibling;
  return c;
}

}  // namespace llorch::text::model
