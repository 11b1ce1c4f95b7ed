#include "engine/text/model/special_tokens.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::text::model {

SpecialTokens::SpecialTokens(std::span<const SpelledToken> tokens) {
  for (const SpelledToken& token : tokens) {
    ASSERT(!token.text.empty());
    starts_[static_cast<unsigned char>(token.text[0])] = true;
    std::uint32_t node = 0;
    for (const char byte : token.text) {
      std::uint32_t next = child_of(node, byte);
      if (next == kNone) {
        next = static_cast<std::uint32_t>(nodes_.size());
        nodes_.push_back({.sibling = nodes_[node].child, .depth = nodes_[node].depth + 1, .byte = byte});
        nodes_[node].child = next;
      }
      node = next;
    }
    if (!nodes_[node].token) {
      nodes_[node].token = token.id;
      nodes_[node].trusted_only = token.trusted_only;
    }
  }
  // Parents precede their children, so one pass carries the nearest shorter token down.
  for (std::uint32_t parent = 0; parent < nodes_.size(); ++parent) {
    const std::uint32_t shorter = nodes_[parent].token ? parent : nodes_[parent].shorter;
    for (std::uint32_t c = nodes_[parent].child; c != kNone; c = nodes_[c].sibling) nodes_[c].shorter = shorter;
  }
}

std::uint32_t SpecialTokens::child_of(std::uint32_t node, char byte) const {
  std::uint32_t c = nodes_[node].child;
  while (c != kNone && nodes_[c].byte != byte) c = nodes_[c].sibling;
  return c;
}

std::uint32_t SpecialTokens::longest_at(std::string_view text, std::size_t trusted_bytes) const {
  std::uint32_t node = 0, longest = kNone;
  for (const char byte : text) {
    node = child_of(node, byte);
    if (node == kNone) break;
    if (nodes_[node].token && (!nodes_[node].trusted_only || nodes_[node].depth <= trusted_bytes)) longest = node;
  }
  return longest;
}

std::uint32_t SpecialTokens::shorter_than(std::uint32_t node, std::size_t trusted_bytes) const {
  do {
    node = nodes_[node].shorter;
  } while (node != kNone && nodes_[node].trusted_only && nodes_[node].depth > trusted_bytes);
  return node;
}

std::vector<SpecialMatch> SpecialTokens::find(std::string_view text, std::span<const TrustedSpan> trusted) const {
  struct Candidate {
    std::size_t begin;
    std::uint32_t node;
    std::size_t trusted_bytes;
  };
  std::vector<Candidate> heap;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (!starts_[static_cast<unsigned char>(text[i])]) continue;
    while (!trusted.empty() && trusted.front().end <= i) trusted = trusted.subspan(1);
    const std::size_t trusted_bytes = !trusted.empty() && trusted.front().begin <= i ? trusted.front().end - i : 0;
    const std::uint32_t node = longest_at(text.substr(i), trusted_bytes);
    if (node != kNone) heap.push_back({i, node, trusted_bytes});
  }
  if (heap.empty()) return {};

  const auto comes_later = [this](const Candidate& a, const Candidate& b) {
    const std::uint32_t a_bytes = nodes_[a.node].depth, b_bytes = nodes_[b.node].depth;
    return a_bytes != b_bytes ? a_bytes < b_bytes : a.begin > b.begin;
  };
  std::make_heap(heap.begin(), heap.end(), comes_later);
  std::vector<bool> taken(text.size());
  std::vector<SpecialMatch> matches;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    Candidate candidate = heap.back();
    heap.pop_back();
    const Node& node = nodes_[candidate.node];
    if (taken[candidate.begin]) continue;
    // Whatever was taken before is at least as long, so an overlap shows at one of the two ends.
    if (taken[candidate.begin + node.depth - 1]) {
      candidate.node = shorter_than(candidate.node, candidate.trusted_bytes);
      if (candidate.node == kNone) continue;
      heap.push_back(candidate);
      std::push_heap(heap.begin(), heap.end(), comes_later);
      continue;
    }
    std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(candidate.begin), node.depth, true);
    matches.push_back({candidate.begin, node.depth, *node.token});
  }
  std::sort(matches.begin(), matches.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  return matches;
}

}  // namespace llorch::engine::text::model
