#pragma once
// DRY ("don't repeat yourself"): lowers tokens that would lengthen a repeat of what the text already holds. A pure
// function of the history.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/draw.h"
#include "engine/sampling/logits/history.h"
#include "engine/sampling/params.h"

namespace llorch::engine::sampling::logits {

// For each earlier position i of the newest dry_last_n tokens (0: all) that is no break: n(i) = length of the longest
// stretch that ends before i, equals the end of the history and holds no break on either side. The token at i gets
// n = max of its n(i); where n >= dry_allowed_length:
//   l - dry_multiplier * dry_base^(n - dry_allowed_length), clamped to the finite range.
// (p-e-w, "DRY: A modern repetition penalty", 2024.) The power is taken by squaring, lowest bit of the exponent first.
// All n(i) together take O(window): the Z function of the reversed window (Gusfield, 1997, ch. 1).
// Not thread-safe; allocates in the constructor, and where `out` must grow.
class Dry {
 public:
  struct Sizes {
    std::size_t vocab = 0;
    std::size_t history_max = 0;
  };
  Dry(const SamplingParams& params, const Sizes& sizes);

  // What it does to a row. REQUIRES every id of the history below vocab, history.tokens.size() <= history_max,
  // history.breaks empty or one per token.
  void edits(const History& history, std::vector<plan::RowEdit>& out);

 private:
  void match_suffixes(std::span<const TokenId> tokens);
  void note(TokenId id, std::uint32_t length);

  float multiplier_, base_;
  std::uint32_t allowed_length_, last_n_;
  std::vector<std::uint32_t> matches_;  // [window] Z function of the reversed window
  std::vector<std::uint32_t> lengths_;  // [V] longest repeat an id would lengthen; 0 between calls
  std::vector<TokenId> noted_;          // ids with a length; capacity is the window
};

}  // namespace llorch::engine::sampling::logits
