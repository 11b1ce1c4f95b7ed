#pragma once
// Numbers of very different magnitudes: added in another order, a sum has other bits.
#include <cstdint>

namespace llorch::base::testing {

inline float uneven_number(std::uint32_t seed, std::uint64_t i) {
  std::uint32_t x = static_cast<std::uint32_t>(i) * 2654435761U + seed * 40503U + 1;
  x ^= x >> 15;
  x *= 2246822519U;
  x ^= x >> 13;
  return (static_cast<float>(x >> 8) / 16777216.0F - 0.5F) * (static_cast<float>(x % 7) * 1e6F + 1e-3F);
}

}  // namespace llorch::base::testing
