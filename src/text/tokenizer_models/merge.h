#pragma once
// The one merge loop of SPM and byte-level BPE: neighbours join in order of rank, lowest first, leftmost on ties.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace llorch::text::model {

using base::TokenId;

struct Symbol {
  std::uint32_t begin = 0, bytes = 0;  // its part of the text; bytes 0: absorbed by a left neighbour
  std::uint32_t previous = 0, next = 0;
  std::optional<TokenId> token;
};

struct Joined {
  std::uint32_t rank;
  TokenId token;
};

// Buffers are kept between calls; one per encode. Not thread-safe.
class MergeLoop {
 public:
  void clear() { symbols_.clear(); }
  // The next symbol of the text, left to right, without gaps.
  void add(std::uint32_t begin, std::uint32_t bytes, std::optional<TokenId> token) {
    const auto i = static_cast<std::uint32_t>(symbols_.size());
    symbols_.push_back({begin, bytes, i - 1, i + 1, token});
  }

  // Joins until no neighbours do, then passes the symbols left, in order. O(n log n) calls and heap steps.
  // join(left, right) -> optional<Joined>.
  template <class Join, class Emit>
  void run(const Join& join, const Emit& emit) {
    heap_.clear();
    for (std::uint32_t i = 0; i + 1 < symbols_.size(); ++i) offer(join, i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), comes_later);
      const Candidate best = heap_.back();
      heap_.pop_back();
      Symbol& left = symbols_[best.left];
      // A symbol only ever grows to the right, so one total length at one place names one pair.
      if (left.bytes == 0 || left.next >= symbols_.size()) continue;
      Symbol& right = symbols_[left.next];
      if (left.bytes + right.bytes != best.bytes) continue;
      left.bytes = best.bytes;
      left.token = best.token;
      left.next = right.next;
      right.bytes = 0;
      if (left.next < symbols_.size()) {
        symbols_[left.next].previous = best.left;
        offer(join, best.left);
      }
      if (left.previous < symbols_.size()) offer(join, left.previous);
    }
    for (std::uint32_t i = 0; i < symbols_.size(); i = symbols_[i].next) emit(symbols_[i]);
  }

 private:
  struct Candidate {
    std::uint32_t rank, left, bytes;
    TokenId token;
  };
  static bool comes_later(const Candidate& a, const Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
  }

  template <class Join>
  void offer(const Join& join, std::uint32_t left_index) {
    const Symbol& left = symbols_[left_index];
    const Symbol& right = symbols_[left.next];
    const std::optional<Joined> joined = join(left, right);
    if (!joined) return;
    heap_.push_back({joined->rank, left_index, left.bytes + right.bytes, joined->token});
    std::push_heap(heap_.begin(), heap_.end(), comes_later);
  }

  std::vector<Symbol> symbols_;
  std::vector<Candidate> heap_;
};

}  // namespace llorch::text::model
