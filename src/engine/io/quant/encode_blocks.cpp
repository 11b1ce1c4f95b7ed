// The blocks of 32.
#include <bit>
#include <cstring>

#include "engine/io/quant/encode.h"
#include "engine/io/quant/scale_fit.h"

namespace llorch::engine::io {

using namespace plan;
using namespace fit;

namespace {

constexpr std::size_t kBlock = kQuantBlockElements;

// Every whole level but 0, so that a block that is already quantized finds its own scale again, and some between around the
// end that the largest value usually meets.
template <int kLow, int kHigh>
constexpr auto linear_targets() {
  std::array<float, static_cast<std::size_t>(kHigh - kLow) + 8> targets{};
  std::size_t n = 0;
  for (int i = kLow; i <= kHigh; ++i) {
    if (i != 0) targets[n++] = static_cast<float>(i);
  }
  for (int i = -4; i <= 4; ++i) {
    if (i != 0) targets[n++] = static_cast<float>(kLow) * (1 + 0.025f * static_cast<float>(i));
  }
  return targets;
}

// Codes 0..15 of 32 elements, as Q4 blocks pair them.
template <class Code>
void pack_nibbles(std::uint8_t (&qs)[16], Code&& code) {
  for (std::size_t j = 0; j < 16; ++j) qs[j] = static_cast<std::uint8_t>((code(j) & 15) | (code(j + 16) & 15) << 4);
}

template <class Code>
void pack_fifth_bits(std::uint8_t (&qh)[4], Code&& code) {
  std::memset(qh, 0, sizeof qh);
  for (std::size_t e = 0; e < kBlock; ++e)
    qh[e / 8] = static_cast<std::uint8_t>(qh[e / 8] | (code(e) >> 4 & 1) << e % 8);
}

template <int kLow, int kHigh>
struct Symmetric {
  std::uint16_t d;
  std::array<float, kBlock> levels;

  explicit Symmetric(const float* x) {
    static constexpr auto kTargets = linear_targets<kLow, kHigh>();
    d = f32_to_f16(fit_scale<LinearLevels<kLow, kHigh>, kBlock>(x, kTargets));
    assign<LinearLevels<kLow, kHigh>, kBlock>(x, f16_to_f32(d), 0, levels.data());
  }
  int code(std::size_t e) const { return static_cast<int>(levels[e]) - kLow; }
};

template <int kTop>
struct WithMin {
  std::uint16_t d, m;
  std::array<float, kBlock> levels;

  explicit WithMin(const float* x) {
    const ScaleMin wanted = fit_scale_min<kTop, kBlock, false>(x);
    d = f32_to_f16(wanted.scale);
    m = f32_to_f16(wanted.min);
    assign<LinearLevels<0, kTop>, kBlock>(x, f16_to_f32(d), f16_to_f32(m), levels.data());
  }
  int code(std::size_t e) const { return static_cast<int>(levels[e]); }
};

int iq4_code(float level) {
  return static_cast<int>(std::find(kIq4Values.begin(), kIq4Values.end(), static_cast<int>(level)) -
                          kIq4Values.begin());
}

constexpr std::array<std::int8_t, 15> kMxfp4Levels{-12, -8, -6, -4, -3, -2, -1, 0, 1, 2, 3, 4, 6, 8, 12};

}  // namespace

// The largest magnitude becomes 127: with 255 levels there is nothing to gain from a search.
bool encode(const float* x, BlockQ8_0& out) {
  const float peak = std::fabs(peak_of({x, kBlock}));
  out.d = f32_to_f16(peak / 127);
  std::array<float, kBlock> levels;
  assign<LinearLevels<-127, 127>, kBlock>(x, f16_to_f32(out.d), 0, levels.data());
  for (std::size_t e = 0; e < kBlock; ++e) out.qs[e] = static_cast<std::int8_t>(levels[e]);
  return is_finite_f16(out.d);
}

bool encode(const float* x, BlockQ4_0& out) {
  const Symmetric<-8, 7> block(x);
  out.d = block.d;
  pack_nibbles(out.qs, [&](std::size_t e) { return block.code(e); });
  return is_finite_f16(out.d);
}

bool encode(const float* x, BlockQ5_0& out) {
  const Symmetric<-16, 15> block(x);
  out.d = block.d;
  pack_nibbles(out.qs, [&](std::size_t e) { return block.code(e); });
  pack_fifth_bits(out.qh, [&](std::size_t e) { return block.code(e); });
  return is_finite_f16(out.d);
}

bool encode(const float* x, BlockQ4_1& out) {
  const WithMin<15> block(x);
  out.d = block.d;
  out.m = block.m;
  pack_nibbles(out.qs, [&](std::size_t e) { return block.code(e); });
  return is_finite_f16(out.d) && is_finite_f16(out.m);
}

bool encode(const float* x, BlockQ5_1& out) {
  const WithMin<31> block(x);
  out.d = block.d;
  out.m = block.m;
  pack_nibbles(out.qs, [&](std::size_t e) { return block.code(e); });
  pack_fifth_bits(out.qh, [&](std::size_t e) { return block.code(e); });
  return is_finite_f16(out.d) && is_finite_f16(out.m);
}

bool encode(const float* x, BlockIQ4_NL& out) {
  static constexpr auto kTargets = [] {
    std::array<float, 24> targets{};
    for (std::size_t i = 0; i < 16; ++i) targets[i] = kIq4Values[i];
    for (std::size_t i = 0; i < 8; ++i) targets[16 + i] = -127 * (0.90f + 0.03f * static_cast<float>(i));
    return targets;
  }();
  std::array<float, kBlock> levels;
  out.d = f32_to_f16(fit_scale<Iq4Levels, kBlock>(x, kTargets));
  assign<Iq4Levels, kBlock>(x, f16_to_f32(out.d), 0, levels.data());
  pack_nibbles(out.qs, [&](std::size_t e) { return iq4_code(levels[e]); });
  return is_finite_f16(out.d);
}

// The exponent that puts the largest magnitude at 8..16 of the doubled levels, or a neighbour of it.
bool encode(const float* x, BlockMXFP4& out) {
  using Levels = TableLevels<kMxfp4Levels>;
  const float peak = std::fabs(peak_of({x, kBlock}));
  const int first = peak == 0 ? 0 : std::clamp(std::ilogb(peak) - 3 + 128, 0, 254);
  double best_error = 0;
  std::array<float, kBlock> levels{};
  for (int e = std::max(first - 1, 0); e <= std::min(first + 1, 254); ++e) {
    const double scale = mxfp4_scale(static_cast<std::uint8_t>(e));
    std::array<float, kBlock> candidate;
    double error = 0;
    for (std::size_t i = 0; i < kBlock; ++i) {
      candidate[i] = Levels::nearest(static_cast<float>(x[i] / scale));
      const double rest = x[i] - scale * candidate[i];
      error += rest * rest;
    }
    if (e > std::max(first - 1, 0) && error >= best_error) continue;
    best_error = error;
    levels = candidate;
    out.e = static_cast<std::uint8_t>(e);
  }
  pack_nibbles(out.qs, [&](std::size_t e) {
    const auto at = std::find(kMxfp4Doubled.begin(), kMxfp4Doubled.end(), static_cast<int>(levels[e]));
    return static_cast<int>(at - kMxfp4Doubled.begin());
  });
  return static_cast<double>(peak) <= 12 * static_cast<double>(mxfp4_scale(254));
}

}  // namespace llorch::engine::io
