#include "text/tokenizer_models/token_trie.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::text::model {

std::uint32_t TokenTrie::add(std::string_view text, TokenId token) {
  ASSERT(!text.empty());
  std::uint32_t at = kRoot;
  for (const char byte : text) {
    std::uint32_t next = at == kRoot ? first_[static_cast<unsigned char>(byte)] : nodes_[at].child;
    while (next != kNone && nodes_[next].byte != byte) next = nodes_[next].sibling;
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

void TokenTrie::settle() {
  children_.reserve(nodes_.size() - 1);
  children_begin_.reserve(nodes_.size() + 1);
  for (const Node& node : nodes_) {
    const std::size_t begin = children_.size();
    children_begin_.push_back(static_cast<std::uint32_t>(begin));
    for (std::uint32_t c = node.child; c != kNone; c = nodes_[c].sibling) children_.push_back({nodes_[c].byte, c});
    std::sort(children_.begin() + static_cast<std::ptrdiff_t>(begin), children_.end(),
              [](const Child& a, const Child& b) { return a.byte < b.byte; });
  }
  children_begin_.push_back(static_cast<std::uint32_t>(children_.size()));
}

std::uint32_t TokenTrie::child_of(std::uint32_t node, char byte) const {
  if (node == kRoot) return first_[static_cast<unsigned char>(byte)];
  const Child* end = children_.data() + children_begin_[node + 1];
  const Child* child = std::lower_bound(children_.data() + children_begin_[node], end, byte,
                                        [](const Child& c, char wanted) { return c.byte < wanted; });
  return child != end && child->byte == byte ? child->node : kNone;
}

}  // namespace llorch::text::model
