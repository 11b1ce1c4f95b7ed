#pragma once
// Sums over a whole row of logits. One written order: sixteen partial sums, entry i in number i mod 16, ids increasing;
// then they are added i with i+8, i+4, i+2, i+1. Entries of -infinity (tokens a mask forbids) add nothing.
// Pure. Same bits with and without FMA hardware.
#include <cstddef>
#include <span>

namespace llorch::engine::sampling::math {

// w = exp_s1(l - l_max). REQUIRES l_max = max(l), finite.
struct ExpMoments {
  float sum_w = 0;   // of w: at least 1
  float sum_wx = 0;  // of w * (l - l_max): at most 0
};
ExpMoments exp_moments(std::span<const float> l, float l_max);
float exp_sum(std::span<const float> l, float l_max);  // ExpMoments::sum_w alone

// Of the finite entries: mean = sum / n, then sqrt(sum of (l - mean)^2 / n). NaN or infinite when a sum leaves the
// finite range.
struct Spread {
  std::size_t count = 0;  // finite entries
  float deviation = 0;
};
Spread spread(std::span<const float> l);

}  // namespace llorch::engine::sampling::math
