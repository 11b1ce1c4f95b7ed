#include "text/partition/special_tokens.h"

#include <algorithm>

namespace llorch::text::partition {

SpecialTokens::SpecialTokens(std::span<const SpelledToken> tokens) {
  for (const SpelledToken& token : tokens) {
    const std::uint32_t node = trie_.add(token.text, token.id);
    trusted_only_.resize(trie_.size());
    if (trie_.node(node).token == token.id) trusted_only_[node] = token.trusted_only;
  }
  shorter_.resize(trie_.size(), TokenTrie::kNone);
  // Parents precede their children, so one pass carries the nearest shorter token down.
  for (std::uint32_t parent = 0; parent < trie_.size(); ++parent) {
    const std::uint32_t shorter = trie_.node(parent).token ? parent : shorter_[parent];
    for (std::uint32_t c = trie_.node(parent).child; c != TokenTrie::kNone; c = trie_.node(c).sibling) {
      shorter_[c] = shorter;
    }
  }
  trie_.settle();
}

bool SpecialTokens::is_allowed(std::uint32_t node, std::size_t trusted_bytes) const {
  return !trusted_only_[node] || trie_.node(node).depth <= trusted_bytes;
}

SpecialTokens::Found SpecialTokens::longest_at(std::string_view text, std::size_t trusted_bytes) const {
  std::uint32_t node = TokenTrie::kRoot;
  Found longest{TokenTrie::kNone, 0};
  for (const char byte : text) {
    node = trie_.child_of(node, byte);
    if (node == TokenTrie::kNone) break;
    ++longest.visited;
    if (trie_.node(node).token && is_allowed(node, trusted_bytes)) longest.node = node;
  }
  return longest;
}

SpecialTokens::Found SpecialTokens::shorter_than(std::uint32_t node, std::size_t trusted_bytes) const {
  Found shorter{node, 0};
  do {
    shorter.node = shorter_[shorter.node];
    ++shorter.visited;
  } while (shorter.node != TokenTrie::kNone && !is_allowed(shorter.node, trusted_bytes));
  return shorter;
}

base::Result<std::vector<SpecialTokens::Candidate>> SpecialTokens::candidates(std::string_view text,
                                                                              std::span<const TrustedSpan> trusted,
                                                                              TextBudget& budget) const {
  std::vector<Candidate> found;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (trie_.child_of(TokenTrie::kRoot, text[i]) == TokenTrie::kNone) continue;
    while (!trusted.empty() && trusted.front().end <= i) trusted = trusted.subspan(1);
    const std::size_t trusted_bytes = !trusted.empty() && trusted.front().begin <= i ? trusted.front().end - i : 0;
    const Found longest = longest_at(text.substr(i), trusted_bytes);
    if (!budget.spend_walk(longest.visited)) return base::fail(budget.too_slow());
    if (longest.node != TokenTrie::kNone) found.push_back({i, longest.node, trusted_bytes});
  }
  return found;
}

base::Result<std::vector<SpecialMatch>> SpecialTokens::find_leftmost(std::string_view text,
                                                                     std::span<const TrustedSpan> trusted,
                                                                     TextBudget& budget) const {
  std::vector<SpecialMatch> matches;
  std::size_t free = 0;
  for (const Candidate& candidate : TRY(candidates(text, trusted, budget))) {
    if (candidate.begin < free) continue;
    const TokenTrie::Node& node = trie_.node(candidate.node);
    matches.push_back({candidate.begin, node.depth, *node.token});
    free = candidate.begin + node.depth;
  }
  return matches;
}

base::Result<std::vector<SpecialMatch>> SpecialTokens::find(std::string_view text, std::span<const TrustedSpan> trusted,
                                                            TextBudget& budget) const {
  constexpr std::size_t kStepsPerRetry = 8;  // a way through a heap of as many places as a text has bytes
  std::vector<Candidate> heap = TRY(candidates(text, trusted, budget));
  if (heap.empty()) return std::vector<SpecialMatch>();

  const auto comes_later = [this](const Candidate& a, const Candidate& b) {
    const std::uint32_t a_bytes = trie_.node(a.node).depth, b_bytes = trie_.node(b.node).depth;
    return a_bytes != b_bytes ? a_bytes < b_bytes : a.begin > b.begin;
  };
  std::make_heap(heap.begin(), heap.end(), comes_later);
  std::vector<bool> taken(text.size());
  std::vector<SpecialMatch> matches;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), comes_later);
    Candidate candidate = heap.back();
    heap.pop_back();
    const TokenTrie::Node& node = trie_.node(candidate.node);
    if (taken[candidate.begin]) continue;
    // Whatever was taken before is at least as long, so an overlap shows at one of the two ends.
    if (taken[candidate.begin + node.depth - 1]) {
      const Found shorter = shorter_than(candidate.node, candidate.trusted_bytes);
      if (!budget.spend_steps(kStepsPerRetry + shorter.visited)) return base::fail(budget.too_slow());
      candidate.node = shorter.node;
      if (candidate.node == TokenTrie::kNone) continue;
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

}  // namespace llorch::text::partition
