#include "engine/sampling/math/dense_sums.h"

#include <algorithm>
#include <array>
#include <limits>

#include "engine/sampling/math/exp.h"

namespace llorch::engine::sampling::math {
namespace {

constexpr std::size_t kLanes = 16;
using Lanes = std::array<float, kLanes>;

float tree(Lanes lanes) {
  for (std::size_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  return lanes[0];
}

template <bool kWithX>
[[gnu::always_inline]] inline ExpMoments moments_body(std::span<const float> l, float l_max) {
  Lanes w_sums{}, wx_sums{};
  const auto add = [&](std::size_t i, std::size_t lane) {
    const float x = l[i] - l_max;
    const float w = exp_s1(x);
    w_sums[lane] += w;
    if constexpr (kWithX) wx_sums[lane] += w > 0.0f ? w * x : 0.0f;  // not 0 * -inf
  };
  const std::size_t whole = l.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) add(i + lane, lane);
  }
  for (std::size_t i = whole; i < l.size(); ++i) add(i, i - whole);
  return {tree(w_sums), tree(wx_sums)};
}

// std::fma is one instruction here and a call of many in a build for every x86-64; the bits are the same.
template <bool kWithX>
[[gnu::target("avx2,fma")]] ExpMoments moments_fma(std::span<const float> l, float l_max) {
  return moments_body<kWithX>(l, l_max);
}

template <bool kWithX>
ExpMoments moments(std::span<const float> l, float l_max) {
  static const bool has_fma = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  return has_fma ? moments_fma<kWithX>(l, l_max) : moments_body<kWithX>(l, l_max);
}

}  // namespace

ExpMoments exp_moments(std::span<const float> l, float l_max) { return moments<true>(l, l_max); }
float exp_sum(std::span<const float> l, float l_max) { return moments<false>(l, l_max).sum_w; }

Spread spread(std::span<const float> l) {
  constexpr float kMasked = -std::numeric_limits<float>::infinity();
  Spread out;
  Lanes sums{};
  for (std::size_t i = 0; i < l.size(); ++i) {
    if (l[i] == kMasked) continue;
    ++out.count;
    sums[i % kLanes] += l[i];
  }
  if (out.count == 0) return out;
  const auto n = static_cast<float>(out.count);
  const float mean = tree(sums) / n;
  sums = {};
  for (std::size_t i = 0; i < l.size(); ++i) {
    if (l[i] == kMasked) continue;
    const float d = l[i] - mean;
    sums[i % kLanes] += d * d;
  }
  out.deviation = std::sqrt(tree(sums) / n);
  return out;
}

}  // namespace llorch::engine::sampling::math
