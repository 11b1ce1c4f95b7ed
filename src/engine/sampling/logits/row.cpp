#include "engine/sampling/logits/row.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::engine::sampling::logits {

void bias_edits(std::span<const LogitBias> biases, std::vector<plan::RowEdit>& out) {
  for (const LogitBias& b : biases) out.push_back({index(b.token), plan::EditKind::kAdd, b.bias, 0.0f});
}

void apply_mask(std::span<float> l, std::span<const std::uint32_t> mask) {
  if (mask.empty()) return;
  ASSERT(mask.size() == (l.size() + 31) / 32, "words={} vocab={}", mask.size(), l.size());
  for (std::size_t word = 0; word < mask.size(); ++word) {
    if (mask[word] == ~std::uint32_t{0}) continue;
    const std::size_t begin = word * 32, end = std::min(begin + 32, l.size());
    for (std::size_t i = begin; i < end; ++i) {
      if ((mask[word] >> (i - begin) & 1u) == 0) l[i] = kMasked;
    }
  }
}

}  // namespace llorch::engine::sampling::logits
