#pragma once
// What the queries of a position are multiplied with where a model sharpens attention over long contexts.
#include <bit>
#include <cstdint>

#include "engine/plan/params.h"

namespace llorch::engine::compute {

// ln(x) for whole x >= 1: x = 2^e m with m in [1, 2), and ln m = 2 atanh((m - 1) / (m + 1)), whose series in s <= 1/3 is cut
// behind s^33: 1e-17. No function of a library, whose last bit a release may change.
inline double natural_log(std::uint32_t x) {
  const int exponent = std::bit_width(x) - 1;
  const double m = static_cast<double>(x) / static_cast<double>(1U << exponent);
  const double s = (m - 1) / (m + 1);
  const double t = s * s;
  double sum = 0;
  for (int n = 33; n >= 1; n -= 2) sum = sum * t + 1.0 / n;
  return exponent * 0x1.62e42fefa39efp-1 + 2 * s * sum;
}

// REQUIRES: p.temperature_length != 0.
inline float query_temperature(const plan::AttentionParams& p, std::uint32_t position) {
  const std::uint32_t times = (position + p.temperature_offset) / p.temperature_length;
  return static_cast<float>(1 + double{p.temperature} * natural_log(times + 1));
}

}  // namespace llorch::engine::compute
