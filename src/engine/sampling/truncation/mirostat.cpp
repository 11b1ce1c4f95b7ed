#include "engine/sampling/truncation/mirostat.h"

#include <algorithm>
#include <cmath>

#include "engine/sampling/math/exp.h"
#include "engine/sampling/math/log.h"

namespace llorch::engine::sampling::truncation {

using math::exp_s1;
using math::kLn2;
using math::ln_s1;

namespace {

constexpr std::size_t kEstimateFrom = 100;  // m of the paper

// ln(e / (1 - V^-e)), which is even but for the term e ln V of negative e; towards -ln ln V at 0.
float ln_of_ratio(float e, float ln_vocab) {
  const float y = std::fabs(e) * ln_vocab;
  const float shift = e < 0.0f ? y : 0.0f;
  // 1 - exp(-y) loses its digits for small y; y - y^2/2 is then within y^2/6 < 2e-7 of it.
  if (y < 1e-3f) return (0.5f * y - ln_s1(ln_vocab)) - shift;
  return (ln_s1(std::fabs(e)) - ln_s1(1.0f - exp_s1(-y))) - shift;
}

}  // namespace

Mirostat::Mirostat(const SamplingParams& params, std::size_t vocab_size)
    : version_(static_cast<int>(params.mirostat)),
      tau_(params.mirostat_tau),
      eta_(params.mirostat_eta),
      mu_(2.0f * params.mirostat_tau),
      ln_vocab_(ln_s1(static_cast<float>(std::max<std::size_t>(vocab_size, 2)))) {}

void Mirostat::cut(Candidates& c) {
  ln_total_ = ln_s1(c.total());
  if (version_ == 1) return cut_v1(c);
  // -log2 p > mu is (ln total - x) / ln 2 > mu.
  const float reach = mu_ * kLn2;
  std::size_t n = 1;
  while (n < c.count() && ln_total_ - c.x(n) <= reach) ++n;
  c.keep_first(n);
}

void Mirostat::cut_v1(Candidates& c) const {
  const std::size_t pairs = std::min(c.count(), kEstimateFrom) - 1;
  float tb = 0.0f, tt = 0.0f;
  for (std::size_t i = 0; i < pairs; ++i) {
    const float t = ln_s1(static_cast<float>(i + 2) / static_cast<float>(i + 1));
    const float b = c.x(i) - c.x(i + 1);
    tb += t * b;
    tt += t * t;
  }
  if (pairs == 0) return;
  const float s = tb / tt;
  const float ln_k = (ln_of_ratio(s - 1.0f, ln_vocab_) + mu_ * kLn2) / s;  // s 0: plus or minus infinity
  if (ln_k >= ln_vocab_) return;
  const float k = ln_k > 0.0f ? 1.0f / exp_s1(-ln_k) : 1.0f;
  c.keep_first(std::clamp(static_cast<std::size_t>(k), std::size_t{1}, c.count()));
}

void Mirostat::drawn(float x) { mu_ -= eta_ * ((ln_total_ - x) / kLn2 - tau_); }

}  // namespace llorch::engine::sampling::truncation
