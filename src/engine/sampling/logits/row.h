#pragma once
// Edits of a row: those that need nothing but the request, logit bias and the grammar's mask, and how any are applied.
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/assert.h"
#include "engine/plan/draw_math.h"
#include "engine/sampling/params.h"

namespace llorch::engine::sampling::logits {

// A token the mask forbids. Every later step leaves it as it is.
inline constexpr float kMasked = -std::numeric_limits<float>::infinity();

// l + bias, clamped to the finite range, bias after bias.
void bias_edits(std::span<const LogitBias> biases, std::vector<plan::RowEdit>& out);

// REQUIRES every index < l.size(), l finite.
inline void apply_edits(std::span<float> l, std::span<const plan::RowEdit> edits) {
  for (const plan::RowEdit& edit : edits) {
    ASSERT(edit.index < l.size(), "index={} row={}", edit.index, l.size());
    l[edit.index] = plan::edited(l[edit.index], edit);
  }
}

// Bit i % 32 of word i / 32 is 1 where token i is allowed. An empty mask allows everything; bits beyond the row are
// ignored. REQUIRES mask.size() == 0 or ceil(l.size() / 32).
void apply_mask(std::span<float> l, std::span<const std::uint32_t> mask);

}  // namespace llorch::engine::sampling::logits
