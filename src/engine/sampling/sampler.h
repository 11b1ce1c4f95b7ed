#pragma once
// Logits to one token id, as a pure function of (logits, history, position, parameters): no state crosses a draw, so
// batching, eviction, replay and restart cannot change it.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"

namespace llorch::engine::sampling {

using base::TokenId;

// Names the exact arithmetic below; in every receipt. Change it with any change that can change a draw.
inline constexpr std::string_view kSamplerVersion = "s1";

// Ranges and defaults: control-plane §8.4.
struct SamplingParams {
  float temperature = 1.0f;         // 0..2; 0 takes the largest logit
  std::uint32_t top_k = 0;          // 0..vocab; 0 is off
  float top_p = 1.0f;               // 0..1; 1 is off
  float min_p = 0.0f;               // 0..1; 0 is off
  float repetition_penalty = 1.0f;  // 0..2; 1 is off
  std::uint64_t seed = 0;
  std::uint32_t choice = 0;  // index of the choice when one request asks for several
};

// INVALID_PARAMS with the field and its range.
base::Result<> validate(const SamplingParams& params, std::size_t vocab_size);

// One per sequence, not thread-safe. Allocates in the constructor only: 16 bytes per vocabulary entry.
//
// s1, in order (DECISIONS §6), all f32:
//   penalty       of each id in history, once: l > 0 ? l / r : l * r, clamped to the finite range
//   temperature   0: the largest l, lowest id on ties. Else x = (l - l_max) / temperature, w = exp_s1(x)
//   order         candidates by (x desc, id asc); sums below run in this order, one addition per candidate
//   top_k         the first k
//   top_p         the shortest prefix whose sum of w reaches top_p * (sum of all w left)
//   min_p         up to the first w < min_p (w of the best candidate is 1)
//   draw          u = philox_uniform(seed, {position, draw 0, choice}); the first candidate whose sum exceeds u * total
class Sampler {
 public:
  // REQUIRES validate(params, vocab_size), vocab_size > 0.
  Sampler(const SamplingParams& params, std::size_t vocab_size);

  // logits [V] f32. `history`: the ids the repetition penalty counts as seen (prompt and output). `position`: of the
  // token being drawn. REQUIRES logits.size() == vocab_size and every id of history < vocab_size.
  // INTERNAL when a logit is NaN or infinite: the model is at fault, and no draw from it would mean anything.
  base::Result<TokenId> sample(std::span<const float> logits, std::span<const TokenId> history, std::uint32_t position);

 private:
  void apply_repetition_penalty(std::span<const TokenId> history);
  TokenId draw(float logit_max, std::uint32_t position);
  std::size_t collect_candidates(float logit_max);

  SamplingParams params_;
  std::vector<float> values_;           // [V] logits after the penalty; in draw, running sums of weights
  std::vector<std::uint64_t> keys_;     // [V] candidates, ascending key = (x desc, id asc)
  std::vector<std::uint32_t> seen_at_;  // [V] number of the sample call that last penalised the id
  std::uint32_t call_ = 0;
};

}  // namespace llorch::engine::sampling
