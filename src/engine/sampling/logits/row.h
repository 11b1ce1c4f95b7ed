#pragma once
// The two edits of a row that need nothing but the request: logit bias and the grammar's mask.
#include <cstdint>
#include <limits>
#include <span>

#include "engine/sampling/params.h"

namespace llorch::engine::sampling::logits {

// A token the mask forbids. Every later step leaves it as it is.
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// Results of arithmetic on logits stay finite.
inline float clamp_finite(float l) {
  constexpr float kMax = std::numeric_limits<float>::max();
  return l < -kMax ? -kMax : l > kMax ? kMax : l;
}

// l + bias. REQUIRES every token < l.size(), l finite.
inline void add_bias(std::span<float> l, std::span<const LogitBias> biases) {
  for (const LogitBias& b : biases) {
    float& v = l[index(b.token)];
    v = clamp_finite(v + b.bias);
  }
}

// Bit i % 32 of word i / 32 is 1 where token i is allowed. An empty mask allows everything; bits beyond the row are
// ignored. REQUIRES mask.size() == 0 or ceil(l.size() / 32).
void apply_mask(std::span<float> l, std::span<const std::uint32_t> mask);

}  // namespace llorch::engine::sampling::logits
