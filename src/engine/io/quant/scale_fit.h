#pragma once
// Scales (and mins) that quantize a group of values with a small squared error. Plain f32 arithmetic in a fixed order: the
// same values give the same bits on every machine.
//
// For given levels l the best scale has a closed form, d = sum(x l) / sum(l l), and leaves sum(x x) - sum(x l)^2 / sum(l l).
// So a fit tries some starting scales, takes the nearest levels of each, and keeps the ones that leave least.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine/io/quant/half.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::io::fit {

// Below this the f16 scale of every type is zero, and so are the values.
inline constexpr float kVanishing = 1e-20f;

// The f16 nearest to `value` whose magnitude is no smaller: among subnormal steps the nearest one may be so much smaller
// that the largest integer scale cannot make up for it.
inline std::uint16_t half_at_least(float value) {
  const std::uint16_t bits = f32_to_f16(value);
  return std::fabs(f16_to_f32(bits)) < std::fabs(value) ? static_cast<std::uint16_t>(bits + 1) : bits;
}

// Whole numbers from kLow to kHigh.
template <int kLow, int kHigh>
struct LinearLevels {
  static float nearest(float value) {
    constexpr float kRounder = 12582912.0f;  // 1.5 * 2^23: a sum with it has no fraction
    const float inside = std::min(std::max(value, static_cast<float>(kLow)), static_cast<float>(kHigh));
    return (inside + kRounder) - kRounder;
  }
};

// The values of kTable, ascending.
template <const auto& kTable>
struct TableLevels {
  static float nearest(float value) {
    float level = kTable[0];
    for (std::size_t i = 1; i < kTable.size(); ++i) {
      level = value > 0.5f * static_cast<float>(kTable[i - 1] + kTable[i]) ? static_cast<float>(kTable[i]) : level;
    }
    return level;
  }
};
using Iq4Levels = TableLevels<plan::kIq4Values>;

// Sum of term(i) for i < N, in eight interleaved partial sums.
template <std::size_t N, class Term>
float sum(Term&& term) {
  static_assert(N % 8 == 0);
  std::array<float, 8> lanes{};
  for (std::size_t i = 0; i < N; i += 8) {
    for (std::size_t lane = 0; lane < 8; ++lane) lanes[lane] += term(i + lane);
  }
  return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) + ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

// The value of largest magnitude, the first of several.
inline float peak_of(std::span<const float> values) {
  return *std::max_element(values.begin(), values.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
}

// levels[i] = nearest level of (x[i] - offset) / scale; those of zero for a scale of zero.
template <class Levels, std::size_t N>
void assign(const float* x, float scale, float offset, float* levels) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  for (std::size_t i = 0; i < N; ++i) levels[i] = Levels::nearest((x[i] - offset) * inverse);
}

// Squared error of x[i] as scale * level + offset with the nearest levels.
template <class Levels, std::size_t N>
float error_of(const float* x, float scale, float offset) {
  const float inverse = scale == 0 ? 0 : 1 / scale;
  return sum<N>([&](std::size_t i) {
    const float rest = x[i] - offset - scale * Levels::nearest((x[i] - offset) * inverse);
    return rest * rest;
  });
}

// A scale for x. `targets`: levels that the value of largest magnitude is made to meet, one start each.
template <class Levels, std::size_t N>
float fit_scale(const float* x, std::span<const float> targets) {
  const float peak = peak_of({x, N});
  if (std::fabs(peak) < kVanishing) return 0;
  std::array<float, N> levels;
  float best = 0, best_score = 0;
  for (const float target : targets) {
    assign<Levels, N>(x, peak / target, 0, levels.data());
    const float xl = sum<N>([&](std::size_t i) { return x[i] * levels[i]; });
    const float ll = sum<N>([&](std::size_t i) { return levels[i] * levels[i]; });
    if (ll == 0 || xl * xl <= best_score * ll) continue;
    best_score = xl * xl / ll;
    best = xl / ll;
  }
  return best;
}

struct ScaleMin {
  float scale = 0, min = 0;  // x = scale * level + min
};

// The best scale and min for given levels; with kMinNotPositive the best of those whose min is at most 0.
template <std::size_t N, bool kMinNotPositive>
ScaleMin solve(const float* x, const float* levels) {
  const float x1 = sum<N>([&](std::size_t i) { return x[i]; });
  const float l1 = sum<N>([&](std::size_t i) { return levels[i]; });
  const float xl = sum<N>([&](std::size_t i) { return x[i] * levels[i]; });
  const float ll = sum<N>([&](std::size_t i) { return levels[i] * levels[i]; });
  constexpr auto kCount = static_cast<float>(N);
  const float determinant = kCount * ll - l1 * l1;  // an integer: exact
  ScaleMin fit{.scale = 0, .min = x1 / kCount};
  if (determinant > 0) {
    fit.scale = (kCount * xl - x1 * l1) / determinant;
    fit.min = (x1 - fit.scale * l1) / kCount;
  }
  if (kMinNotPositive && fit.min > 0) fit = {.scale = ll > 0 ? xl / ll : 0, .min = 0};
  return fit;
}

// A scale of at least 0 and a min for x with the levels 0..kTop.
template <int kTop, std::size_t N, bool kMinNotPositive>
ScaleMin fit_scale_min(const float* x) {
  using Levels = LinearLevels<0, kTop>;
  // How many levels the whole range is made to span: fewer than there are widens the steps, more cuts off the ends.
  constexpr auto kStarts = [] {
    std::array<float, 12> starts{};
    const float step = kTop <= 3 ? 0.125f : 0.02f * kTop;
    for (int i = 0; i < 12; ++i) starts[i] = static_cast<float>(kTop) + static_cast<float>(i - 4) * step;
    return starts;
  }();
  float low = *std::min_element(x, x + N);
  const float high = *std::max_element(x, x + N);
  if (kMinNotPositive) low = std::min(low, 0.f);
  ScaleMin best{.scale = 0, .min = low};
  if (high - low < kVanishing) return best;
  std::array<float, N> levels;
  float best_error = 0;
  bool first = true;
  const float middle = 0.5f * (low + high);
  for (const float start : kStarts) {
    ScaleMin fit{.scale = (high - low) / start, .min = 0};
    fit.min = middle - 0.5f * static_cast<float>(kTop) * fit.scale;
    if (kMinNotPositive) fit.min = std::min(fit.min, 0.f);
    for (int pass = 0; pass < 2; ++pass) {
      assign<Levels, N>(x, fit.scale, fit.min, levels.data());
      fit = solve<N, kMinNotPositive>(x, levels.data());
      const float error = sum<N>([&](std::size_t i) {
        const float rest = x[i] - fit.scale * levels[i] - fit.min;
        return rest * rest;
      });
      if (fit.scale < 0 || (!first && error >= best_error)) continue;
      first = false;
      best_error = error;
      best = fit;
    }
  }
  return best;
}

}  // namespace llorch::engine::io::fit
