// The blocks of 256: groups with a small integer scale (and min) of their own over one f16 scale (and min) of the block.
#include <cstring>

#include "engine/io/quant/encode.h"
#include "engine/io/quant/scale_fit.h"

namespace llorch::engine::io {

using namespace plan;
using namespace fit;

namespace {

constexpr std::size_t kSuperBlock = kSuperBlockElements;
constexpr int kRefinements = 2;  // a third changes the error of random rows by less than 0.1 %

// Groups of kGroup elements, x = d * scales[g] * level.
template <class Levels, std::size_t kGroup, int kScaleLow, int kScaleHigh>
struct ScaledGroups {
  static constexpr std::size_t kGroups = kSuperBlock / kGroup;

  std::uint16_t d = 0;
  std::array<int, kGroups> scales{};
  std::array<float, kSuperBlock> levels{};

  ScaledGroups(const float* x, std::span<const float> targets) {
    std::array<float, kGroups> wanted;
    for (std::size_t g = 0; g < kGroups; ++g) wanted[g] = fit_scale<Levels, kGroup>(x + g * kGroup, targets);
    d = half_at_least(peak_of(wanted) / kScaleLow);
    const float start = f16_to_f32(d);
    for (std::size_t g = 0; g < kGroups; ++g) {
      scales[g] = start == 0 ? 0 : static_cast<int>(LinearLevels<kScaleLow, kScaleHigh>::nearest(wanted[g] / start));
    }
    float error = choose_scales(x);
    for (int pass = 0; pass < kRefinements && start != 0; ++pass) {
      ScaledGroups next = *this;
      next.d = refit(x);
      const float next_error = next.choose_scales(x);
      if (!(next_error < error)) break;
      *this = next;
      error = next_error;
    }
  }

 private:
  // The best of each group's scale and its two neighbours, and the levels that go with it. Returns the squared error.
  float choose_scales(const float* x) {
    const float step = f16_to_f32(d);
    float total = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const float* group = x + g * kGroup;
      const int middle = scales[g];
      float best = error_of<Levels, kGroup>(group, step * static_cast<float>(middle), 0);
      for (const int scale : {std::max(middle - 1, kScaleLow), std::min(middle + 1, kScaleHigh)}) {
        const float error = error_of<Levels, kGroup>(group, step * static_cast<float>(scale), 0);
        if (!(error < best)) continue;
        best = error;
        scales[g] = scale;
      }
      assign<Levels, kGroup>(group, step * static_cast<float>(scales[g]), 0, levels.data() + g * kGroup);
      total += best;
    }
    return total;
  }

  // The best d for the scales and levels as they are.
  std::uint16_t refit(const float* x) const {
    float xl = 0, ll = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const auto scale = static_cast<float>(scales[g]);
      const float *group = x + g * kGroup, *level = levels.data() + g * kGroup;
      xl += scale * sum<kGroup>([&](std::size_t i) { return group[i] * level[i]; });
      ll += scale * scale * sum<kGroup>([&](std::size_t i) { return level[i] * level[i]; });
    }
    return ll > 0 ? f32_to_f16(xl / ll) : d;
  }
};

// Groups of kGroup elements, x = d * scales[g] * level - dmin * mins[g], levels 0..kTop, scales and mins 0..kScaleTop.
template <int kTop, std::size_t kGroup, int kScaleTop>
struct ScaledGroupsWithMin {
  static constexpr std::size_t kGroups = kSuperBlock / kGroup;
  using Levels = LinearLevels<0, kTop>;

  std::uint16_t d = 0, dmin = 0;
  std::array<int, kGroups> scales{}, mins{};
  std::array<float, kSuperBlock> levels{};

  explicit ScaledGroupsWithMin(const float* x) {
    std::array<ScaleMin, kGroups> wanted;
    float scale_max = 0, min_max = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      wanted[g] = fit_scale_min<kTop, kGroup, true>(x + g * kGroup);
      scale_max = std::max(scale_max, wanted[g].scale);
      min_max = std::max(min_max, -wanted[g].min);
    }
    d = half_at_least(scale_max / kScaleTop);
    dmin = half_at_least(min_max / kScaleTop);
    const auto nearest = [](float value, std::uint16_t step) {
      const float unit = f16_to_f32(step);
      return unit == 0 ? 0 : static_cast<int>(LinearLevels<0, kScaleTop>::nearest(value / unit));
    };
    for (std::size_t g = 0; g < kGroups; ++g) {
      scales[g] = nearest(wanted[g].scale, d);
      mins[g] = nearest(-wanted[g].min, dmin);
    }
    float error = choose_scales(x);
    for (int pass = 0; pass < kRefinements; ++pass) {
      ScaledGroupsWithMin next = *this;
      if (!next.refit(x)) break;
      const float next_error = next.choose_scales(x);
      if (!(next_error < error)) break;
      *this = next;
      error = next_error;
    }
  }

 private:
  // The best of each group's scale and min and their neighbours, and the levels that go with them. Returns the squared
  // error.
  float choose_scales(const float* x) {
    const float step = f16_to_f32(d), min_step = f16_to_f32(dmin);
    float total = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const float* group = x + g * kGroup;
      const auto error_with = [&](int scale, int min) {
        return error_of<Levels, kGroup>(group, step * static_cast<float>(scale), -min_step * static_cast<float>(min));
      };
      const int scale_middle = scales[g], min_middle = mins[g];
      float best = error_with(scale_middle, min_middle);
      for (int scale = std::max(scale_middle - 1, 0); scale <= std::min(scale_middle + 1, kScaleTop); ++scale) {
        for (int min = std::max(min_middle - 1, 0); min <= std::min(min_middle + 1, kScaleTop); ++min) {
          const float error = error_with(scale, min);
          if (!(error < best)) continue;
          best = error;
          scales[g] = scale;
          mins[g] = min;
        }
      }
      assign<Levels, kGroup>(group, step * static_cast<float>(scales[g]), -min_step * static_cast<float>(mins[g]),
                             levels.data() + g * kGroup);
      total += best;
    }
    return total;
  }

  // The best d and dmin for scales, mins and levels as they are, from the normal equations of x = d a - dmin b. False when
  // these have no solution of positive steps.
  bool refit(const float* x) {
    double aa = 0, ab = 0, bb = 0, xa = 0, xb = 0;
    for (std::size_t g = 0; g < kGroups; ++g) {
      const double scale = scales[g], min = mins[g];
      const float *group = x + g * kGroup, *level = levels.data() + g * kGroup;
      const double l1 = sum<kGroup>([&](std::size_t i) { return level[i]; });
      aa += scale * scale * static_cast<double>(sum<kGroup>([&](std::size_t i) { return level[i] * level[i]; }));
      ab += scale * min * l1;
      bb += min * min * static_cast<double>(kGroup);
      xa += scale * static_cast<double>(sum<kGroup>([&](std::size_t i) { return group[i] * level[i]; }));
      xb += min * static_cast<double>(sum<kGroup>([&](std::size_t i) { return group[i]; }));
    }
    if (bb == 0 && aa > 0) {
      d = f32_to_f16(static_cast<float>(xa / aa));
      return xa > 0;
    }
    const double determinant = aa * bb - ab * ab;
    if (!(determinant > 1e-9 * aa * bb)) return false;
    const double step = (xa * bb - xb * ab) / determinant, min_step = (xa * ab - xb * aa) / determinant;
    d = f32_to_f16(static_cast<float>(step));
    dmin = f32_to_f16(static_cast<float>(min_step));
    return step > 0 && min_step > 0;
  }
};

// Starts around the level that the largest value usually meets.
template <int kEnd>
constexpr auto targets_around() {
  std::array<float, 9> targets{};
  for (int i = 0; i < 9; ++i) targets[i] = static_cast<float>(kEnd) * (0.82f + 0.05f * static_cast<float>(i));
  return targets;
}

// Two bits of each level into qs as Q2_K and Q3_K place them.
template <class Code>
void pack_pairs(std::uint8_t (&qs)[64], Code&& code) {
  std::memset(qs, 0, sizeof qs);
  for (unsigned e = 0; e < kSuperBlock; ++e) {
    const unsigned n = e / 128, t = e % 128 / 32, l = e % 32;
    qs[32 * n + l] = static_cast<std::uint8_t>(qs[32 * n + l] | (code(e) & 3) << 2 * t);
  }
}

// Low nibbles of each level into qs as Q4_K and Q5_K place them.
template <class Code>
void pack_low_nibbles(std::uint8_t (&qs)[128], Code&& code) {
  for (unsigned i = 0; i < 128; ++i) {
    const unsigned e = 64 * (i / 32) + i % 32;
    qs[i] = static_cast<std::uint8_t>((code(e) & 15) | (code(e + 32) & 15) << 4);
  }
}

// Inverse of k4_scale and k4_min.
void pack_k4(std::uint8_t (&packed)[12], const std::array<int, 8>& scales, const std::array<int, 8>& mins) {
  for (unsigned g = 0; g < 4; ++g) {
    packed[g] = static_cast<std::uint8_t>(scales[g] | (scales[g + 4] >> 4) << 6);
    packed[g + 4] = static_cast<std::uint8_t>(mins[g] | (mins[g + 4] >> 4) << 6);
    packed[g + 8] = static_cast<std::uint8_t>((scales[g + 4] & 15) | (mins[g + 4] & 15) << 4);
  }
}

// Inverse of q3_k_scale.
void pack_q3_k(std::uint8_t (&packed)[12], const std::array<int, 16>& scales) {
  std::memset(packed, 0, sizeof packed);
  for (unsigned i = 0; i < 16; ++i) {
    const int bits = scales[i] + 32;
    packed[i % 8] = static_cast<std::uint8_t>(packed[i % 8] | (bits & 15) << 4 * (i / 8));
    packed[8 + i % 4] = static_cast<std::uint8_t>(packed[8 + i % 4] | (bits >> 4) << 2 * (i / 4));
  }
}

}  // namespace

bool encode(const float* x, BlockQ2_K& out) {
  const ScaledGroupsWithMin<3, 16, 15> fit(x);
  out.d = fit.d;
  out.dmin = fit.dmin;
  for (std::size_t g = 0; g < 16; ++g) out.scales[g] = static_cast<std::uint8_t>(fit.scales[g] | fit.mins[g] << 4);
  pack_pairs(out.qs, [&](unsigned e) { return static_cast<int>(fit.levels[e]); });
  return is_finite_f16(out.d) && is_finite_f16(out.dmin);
}

bool encode(const float* x, BlockQ3_K& out) {
  static constexpr auto kTargets = targets_around<-4>();
  const ScaledGroups<LinearLevels<-4, 3>, 16, -32, 31> fit(x, kTargets);
  const auto code = [&](unsigned e) { return static_cast<int>(fit.levels[e]) + 4; };
  out.d = fit.d;
  pack_q3_k(out.scales, fit.scales);
  pack_pairs(out.qs, code);
  std::memset(out.hmask, 0, sizeof out.hmask);
  for (unsigned e = 0; e < kSuperBlock; ++e) {
    out.hmask[e % 32] = static_cast<std::uint8_t>(out.hmask[e % 32] | code(e) >> 2 << e / 32);
  }
  return is_finite_f16(out.d);
}

bool encode(const float* x, BlockQ4_K& out) {
  const ScaledGroupsWithMin<15, 32, 63> fit(x);
  out.d = fit.d;
  out.dmin = fit.dmin;
  pack_k4(out.scales, fit.scales, fit.mins);
  pack_low_nibbles(out.qs, [&](unsigned e) { return static_cast<int>(fit.levels[e]); });
  return is_finite_f16(out.d) && is_finite_f16(out.dmin);
}

bool encode(const float* x, BlockQ5_K& out) {
  const ScaledGroupsWithMin<31, 32, 63> fit(x);
  const auto code = [&](unsigned e) { return static_cast<int>(fit.levels[e]); };
  out.d = fit.d;
  out.dmin = fit.dmin;
  pack_k4(out.scales, fit.scales, fit.mins);
  pack_low_nibbles(out.qs, code);
  std::memset(out.qh, 0, sizeof out.qh);
  for (unsigned e = 0; e < kSuperBlock; ++e) {
    out.qh[e % 32] = static_cast<std::uint8_t>(out.qh[e % 32] | code(e) >> 4 << e / 32);
  }
  return is_finite_f16(out.d) && is_finite_f16(out.dmin);
}

bool encode(const float* x, BlockQ6_K& out) {
  static constexpr auto kTargets = targets_around<-32>();
  const ScaledGroups<LinearLevels<-32, 31>, 16, -128, 127> fit(x, kTargets);
  out.d = fit.d;
  for (std::size_t g = 0; g < 16; ++g) out.scales[g] = static_cast<std::int8_t>(fit.scales[g]);
  std::memset(out.ql, 0, sizeof out.ql);
  std::memset(out.qh, 0, sizeof out.qh);
  for (unsigned e = 0; e < kSuperBlock; ++e) {
    const unsigned n = e / 128, t = e % 128 / 32, l = e % 32;
    const int code = static_cast<int>(fit.levels[e]) + 32;
    std::uint8_t &low = out.ql[64 * n + l + 32 * (t & 1)], &high = out.qh[32 * n + l];
    low = static_cast<std::uint8_t>(low | (code & 15) << 4 * (t >> 1));
    high = static_cast<std::uint8_t>(high | code >> 4 << 2 * t);
  }
  return is_finite_f16(out.d);
}

bool encode(const float* x, BlockIQ4_XS& out) {
  static constexpr auto kTargets = targets_around<-127>();
  const ScaledGroups<Iq4Levels, 32, -32, 31> fit(x, kTargets);
  out.d = fit.d;
  out.scales_h = 0;
  std::memset(out.scales_l, 0, sizeof out.scales_l);
  for (unsigned g = 0; g < 8; ++g) {
    const int bits = fit.scales[g] + 32;
    out.scales_l[g / 2] = static_cast<std::uint8_t>(out.scales_l[g / 2] | (bits & 15) << 4 * (g % 2));
    out.scales_h = static_cast<std::uint16_t>(out.scales_h | (bits >> 4) << 2 * g);
  }
  const auto code = [&](unsigned e) {
    const auto at = std::find(kIq4Values.begin(), kIq4Values.end(), static_cast<int>(fit.levels[e]));
    return static_cast<int>(at - kIq4Values.begin());
  };
  for (unsigned i = 0; i < 128; ++i) {
    const unsigned e = 32 * (i / 16) + i % 16;
    out.qs[i] = static_cast<std::uint8_t>(code(e) | code(e + 16) << 4);
  }
  return is_finite_f16(out.d);
}

}  // namespace llorch::engine::io
