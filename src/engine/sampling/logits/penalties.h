#pragma once
// Repetition, frequency and presence penalty. A pure function of the history: nothing is carried from draw to draw.
#include <cstdint>
#include <span>
#include <vector>

#include "engine/plan/draw.h"
#include "engine/sampling/logits/history.h"
#include "engine/sampling/params.h"

namespace llorch::engine::sampling::logits {

// Over the newest penalty_last_n tokens of the history (0: all), of these the ones each penalty's scope names:
//   repetition             of each id seen, once: l > 0 ? l / r : l * r        (Keskar et al., CTRL, 2019, with HF's sign)
//   frequency, presence    of each id seen c times: (l - c * frequency) - presence                 (OpenAI's definition)
// Every result is clamped to the finite range. Not thread-safe; allocates in the constructor, and where `out` must grow.
class Penalties {
 public:
  Penalties(const SamplingParams& params, std::size_t vocab_size);

  // What they do to a row, in the order in which it is done. REQUIRES every id of the history below vocab_size.
  void edits(const History& history, std::vector<plan::RowEdit>& out);

 private:
  std::span<const TokenId> window(const History& history, PenaltyScope scope) const;
  void repetition_edits(std::span<const TokenId> tokens, std::vector<plan::RowEdit>& out);
  void count_edits(std::span<const TokenId> tokens, std::vector<plan::RowEdit>& out);

  float repetition_, frequency_, presence_;
  PenaltyScope repetition_scope_, frequency_scope_;
  std::uint32_t last_n_;
  std::vector<std::uint32_t> seen_at_;  // [V] number of the pass that last met the id; empty when all is off
  std::vector<std::uint32_t> counts_;   // [V] between passes 0; empty when nothing counts
  std::uint32_t pass_ = 0;
};

}  // namespace llorch::engine::sampling::logits
