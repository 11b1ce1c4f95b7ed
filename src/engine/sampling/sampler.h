#pragma once
// Logits to one token id. A draw is a pure function of (logits, history, position, mask, parameters), so batching,
// eviction, replay and restart cannot change it; mirostat alone also looks back at the draws of its own sequence.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/plan/draw.h"
#include "engine/sampling/logits/dry.h"
#include "engine/sampling/logits/history.h"
#include "engine/sampling/logits/penalties.h"
#include "engine/sampling/params.h"
#include "engine/sampling/truncation/candidates.h"
#include "engine/sampling/truncation/mirostat.h"

namespace llorch::engine::sampling {

struct SamplerSizes {
  std::size_t vocab = 0;        // at least 1
  std::size_t history_max = 0;  // tokens of the longest history; DRY needs it, penalties reserve by it
};

struct SampleInput {
  std::span<const float> logits;  // [V]; of a draft model perhaps of fewer tokens: those behind them are not drawn
  logits::History history{};
  std::uint32_t position = 0;  // of the token being drawn
  // Tokens a constraint allows: bit i % 32 of word i / 32, ceil(V / 32) words. Empty: all.
  std::span<const std::uint32_t> mask{};
};

// One per sequence, not thread-safe. Allocates in the constructor only: 16 bytes per vocabulary entry, 4 to 12 more for
// penalties and DRY, for DRY 8 per token of its window, 16 per token for each kind of edit.
//
// The chain, all f32; each step's formula stands at its function:
//   logit_bias · mask · repetition, frequency, presence · DRY                                    logits/
//     (the mask comes last in the code: an edit changes one entry by itself alone, and a masked one stays masked)
//   temperature (or dynamic)   0: the largest l, lowest id on ties. Else x = (l - l_max) / t, w = exp_s1(x).
//                              Candidates are the tokens with x >= -17: less than 2^-24 of the best one's weight is none.
//   top_n_sigma · top_k · typical · top_p · min_p · XTC                                          cuts/
//   draw                       u = philox_uniform(seed, {position, draw 0, choice}); the first candidate whose running
//                              sum exceeds u * total. XTC's coin is draw 1, thrown if < xtc_probability.
// SamplerOrder::kTemperatureLast: the cuts see x = l - l_max (candidates from -17 max(1, highest temperature)), the draw
// sees (x - x of the first candidate left) / t. mirostat replaces the cuts.
class Sampler {
 public:
  // REQUIRES validate(params, sizes.vocab).
  Sampler(const SamplingParams& params, const SamplerSizes& sizes);

  // REQUIRES 0 < logits.size() <= vocab, every id of the history < vocab, its sizes as said; with mirostat one call per
  // position, in order.
  // INTERNAL when a logit is NaN or infinite (the model is at fault, and no draw from it would mean anything), and when
  // the mask allows no token (details.reason NO_TOKEN_ALLOWED). Nothing is drawn then.
  base::Result<TokenId> sample(const SampleInput& input);

  // The same draw as a device makes it (input.logits is not read), valid until the next call here; its row is 0. Null when
  // only sample() can do it, which is a matter of the parameters, and of more than `edits_max` edits: a device knows the
  // chain with the temperature first and of the cuts top_k, top_p and min_p.
  const plan::RowDraw* device_draw(const SampleInput& input, std::uint32_t edits_max);
  // What sample() returns when the device has drawn this at this position.
  static base::Result<TokenId> drawn(const plan::RowDrawn& drawn, std::uint32_t position);

 private:
  void collect_edits(const logits::History& history);
  void edit_row(const SampleInput& input);
  float choose_temperature(float l_max) const;
  TokenId draw(float l_max, std::uint32_t position);
  void cut(std::uint32_t position);
  float uniform(std::uint32_t position, std::uint32_t draw) const;

  SamplingParams params_;
  std::vector<float> values_;  // [V] logits after the edits
  std::vector<plan::RowEdit> edits_, sorted_edits_;
  std::vector<std::uint64_t> edit_order_;  // index << 32 | place in edits_
  plan::RowDraw device_draw_;
  logits::Penalties penalties_;
  logits::Dry dry_;
  truncation::Candidates candidates_;
  std::optional<truncation::Mirostat> mirostat_;
  float divisor_ = 1;  // of x, in this draw
};

}  // namespace llorch::engine::sampling
