#pragma once
// The cuts of the chain, in its order. Each leaves a range of the candidates' order, never fewer than min_keep (as far
// as there are so many). p of a candidate is its weight over the sum of the weights of what the cuts before it left.
#include <cstddef>

#include "engine/sampling/truncation/candidates.h"

namespace llorch::engine::sampling::truncation {

// x >= x_min. (Tang et al., "Top-nσ: not all logits are you need", 2024; x_min = -n sigma / temperature)
void top_n_sigma(Candidates& c, float x_min, std::size_t min_keep);
// The first k.
void top_k(Candidates& c, std::size_t k);
// Candidates by |-ln p - H|, H = -sum p ln p, the shortest such list whose p sum to at least `mass`. On a tie the
// likelier side of H comes first, and on one side the order is outward from H. (Meister et al., "Locally typical
// sampling", TACL 2023.) Sum in that order: one f32 addition per candidate, compared with mass * total(); all candidates
// where rounding keeps it below.
void typical(Candidates& c, float mass, std::size_t min_keep);
// The shortest prefix whose p sum to at least `mass`. (Holtzman et al., "The curious case of neural text degeneration",
// ICLR 2020)
void top_p(Candidates& c, float mass, std::size_t min_keep);
// Up to the first whose weight is below ratio * weight of the first. (Nguyen et al., "Turning up the heat: min-p
// sampling", 2024)
void min_p(Candidates& c, float ratio, std::size_t min_keep);
// Drops all candidates with p >= threshold but the least likely of them. The caller has thrown the coin. Nothing
// happens when fewer than min_keep would be left. (p-e-w, "Exclude top choices", 2024)
void xtc(Candidates& c, float threshold, std::size_t min_keep);

// T = (t - range, not below 0) + (the width of the whole interval) * (H / ln n)^exponent; H = ln sum_w - sum_wx / sum_w,
// clamped to 0..ln n; n = 1 gives H / ln n = 0. (Entropy-based dynamic temperature as in koboldcpp, 2023)
struct DynamicTemperature {
  float temperature = 1, range = 0, exponent = 1;
};
struct Entropy {
  float sum_w = 1, sum_wx = 0;
  std::size_t count = 1;
};
float dynamic_temperature(const DynamicTemperature& t, const Entropy& of);

}  // namespace llorch::engine::sampling::truncation
