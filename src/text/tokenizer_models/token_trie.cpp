#include "text/tokenizer_models/token_trie.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::text::model {

std::uint32_t TokenTrie::child_or_new(std::uint32_t parent, char byte) {
  const auto group = [](char b) { return static_cast<unsigned char>(b) >> 4; };
  std::uint32_t first = nodes_[parent].child;
  while (first != kNone && group(nodes_[first].byte) != group(byte)) first = nodes_[first].next_group;
  for (std::uint32_t c = first; c != kNone && group(nodes_[c].byte) == group(byte); c = nodes_[c].sibling) {
    if (nodes_[c].byte == byte) return c;
  }
  const auto made = static_cast<std::uint32_t>(nodes_.size());
  Node node{.depth = nodes_[parent].depth + 1, .byte = byte};
  if (first == kNone)
    node.sibling = node.next_group = std::exchange(nodes_[parent].child, made);
  else
    node.sibling = std::exchange(nodes_[first].sibling, made);
  nodes_.push_back(node);
  return made;
}

std::uint32_t TokenTrie::add(std::string_view text, TokenId token) {
  ASSERT(!text.empty());
  std::uint32_t at = kRoot;
  for (const char byte : text) {
    const std::uint32_t next = child_or_new(at, byte);
    if (at == kRoot) first_[static_cast<unsigned char>(byte)] = next;
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
