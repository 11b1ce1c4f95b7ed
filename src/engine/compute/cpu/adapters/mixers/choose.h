#pragma once
// The choice of an index among scores.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <span>

namespace llorch::engine::compute::cpu::adapters::mixers {

// Whole numbers in the order of the scores; -0 is 0.
inline std::int32_t order_of(float score) {
  const auto bits = std::bit_cast<std::int32_t>(score + 0.0f);
  return bits < 0 ? bits ^ INT32_MAX : bits;
}

// Sets the bits of the top_k highest of `count` scores, of equal ones the first, and clears the others. While there are no more than
// top_k, all are set and scores are not read. `keys` [count] is scratch.
inline void choose_highest(const float* scores, std::int32_t* keys, std::size_t count, std::size_t top_k,
                           std::span<std::uint32_t> bits) {
  std::ranges::fill(bits, 0U);
  const auto set = [&](std::size_t position) { bits[position / 32] |= 1U << position % 32; };
  if (count <= top_k) {
    for (std::size_t p = 0; p < count; ++p) set(p);
    return;
  }
  for (std::size_t p = 0; p < count; ++p) keys[p] = order_of(scores[p]);
  std::nth_element(keys, keys + (top_k - 1), keys + count, std::greater<>());
  const std::int32_t least = keys[top_k - 1];
  std::size_t equal = top_k;  // how many of those equal to the least are chosen
  for (std::size_t p = 0; p < count; ++p) equal -= order_of(scores[p]) > least ? 1 : 0;
  for (std::size_t p = 0; p < count; ++p) {
    const std::int32_t order = order_of(scores[p]);
    if (order < least || (order == least && equal == 0)) continue;
    if (order == least) --equal;
    set(p);
  }
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers
