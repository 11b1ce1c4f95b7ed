#include "engine/models/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/models/portable_math.h"

namespace llorch::engine::models {
namespace {

// Waves much shorter than the original context keep their frequency, much longer ones are slowed by the factor.
double llama3_frequency(const RopeConfig& rope, double f) {
  const double wavelength = 2 * std::numbers::pi / f;
  const double original = rope.original_context;
  if (wavelength > original / rope.low_freq_factor) return f / rope.factor;
  if (wavelength < original / rope.high_freq_factor) return f;
  const double s = (original / wavelength - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return f * ((1 - s) / rope.factor + s);
}

// YaRN (arXiv 2309.00071): the entry whose wave turns `turns` times within the original context.
double yarn_entry(const RopeConfig& rope, double turns) {
  return rope.dims * portable_log(rope.original_context / (2 * std::numbers::pi * turns)) /
         (2 * portable_log(rope.base));
}

struct YarnRamp {
  double low = 0;
  double high = 0;
};
YarnRamp yarn_ramp(const RopeConfig& rope) {
  YarnRamp ramp{yarn_entry(rope, rope.beta_fast), yarn_entry(rope, rope.beta_slow)};
  if (rope.truncate) ramp = {std::floor(ramp.low), std::ceil(ramp.high)};
  ramp.low = std::max(ramp.low, 0.0);
  ramp.high = std::min(ramp.high, rope.dims - 1.0);
  if (ramp.low == ramp.high) ramp.high += 0.001;
  return ramp;
}

}  // namespace

base::Result<RopeTableData> make_rope_table(const RopeConfig& rope, const std::vector<float>& divisors) {
  const std::uint32_t half = rope.dims / 2;
  if (!divisors.empty() && divisors.size() != half) {
    return base::fail(base::ErrorCode::kWeightShapeMismatch,
                      fmt::format("the rotation has {} frequencies and {} divisors (rope_freqs, rope_factors or "
                                  "short_factor and long_factor)",
                                  half, divisors.size()));
  }
  const YarnRamp ramp = rope.kind == RopeKind::kYarn ? yarn_ramp(rope) : YarnRamp{};
  RopeTableData table{.inv_freq = {}, .attn_factor = rope.attn_factor};
  table.inv_freq.reserve(half);
  for (std::uint32_t i = 0; i < half; ++i) {
    const double divisor = divisors.empty() ? 1.0 : divisors[i];
    if (!(divisor > 0) || std::isinf(divisor)) {
      return base::fail(base::ErrorCode::kConfigKeyInvalid,
                        fmt::format("rope_freqs[{}] = {}: a rotation's divisor must be positive", i, divisor));
    }
    const bool axial = rope.kind == RopeKind::kAxial;
    double f = axial ? portable_pow(rope.base, -4.0 * (i % (half / 2)) / rope.dims)
                     : portable_pow(rope.base, -2.0 * i / rope.dims);
    switch (rope.kind) {
      case RopeKind::kPlain:
      case RopeKind::kAxial: break;
      case RopeKind::kLinear: f /= rope.factor; break;
      case RopeKind::kLlama3: f = llama3_frequency(rope, f); break;
      case RopeKind::kYarn: {
        const double slowed = std::clamp((i - ramp.low) / (ramp.high - ramp.low), 0.0, 1.0);
        f = f / rope.factor * slowed + f * (1 - slowed);
        break;
      }
    }
    if (rope.turning != 0 && i >= rope.turning) f = 0;
    table.inv_freq.push_back(static_cast<float>(f / divisor));
  }
  return table;
}

base::Result<std::vector<RopeTableData>> make_rope_tables(const std::vector<RopeConfig>& ropes) {
  std::vector<RopeTableData> tables;
  for (const RopeConfig& rope : ropes) {
    tables.push_back(TRY(make_rope_table(rope, rope.divisors)));
    if (!rope.divisors_long.empty()) tables.push_back(TRY(make_rope_table(rope, rope.divisors_long)));
  }
  return tables;
}

RopeTableIds rope_table_ids(const std::vector<RopeConfig>& ropes, std::uint8_t rope) {
  if (rope == kNoRope) return {};
  std::uint32_t at = 0;
  for (std::uint8_t i = 0; i < rope; ++i) at += ropes[i].divisors_long.empty() ? 1 : 2;
  return {.table = at, .long_table = ropes[rope].divisors_long.empty() ? plan::kNoRopeTable : at + 1};
}

std::uint32_t long_rope_context(const std::vector<RopeConfig>& ropes) {
  for (const RopeConfig& rope : ropes) {
    if (!rope.divisors_long.empty()) return rope.original_context;
  }
  return 0;
}

}  // namespace llorch::engine::models
