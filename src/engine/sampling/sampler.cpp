#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "base/assert.h"
#include "base/philox.h"
#include "engine/sampling/cuts/cuts.h"
#include "engine/sampling/logits/row.h"
#include "engine/sampling/math/dense_sums.h"

namespace llorch::engine::sampling {
namespace {

// e^-17 = 0.69 * 2^-24: added to a sum of at least 1, the weight of the best candidate, it is less than half its last
// place. So without XTC and typical, tokens below could neither be drawn nor change a sum: leaving them out is exact.
constexpr float kTailX = -17.0f;

constexpr std::uint32_t kTokenDraw = 0;
constexpr std::uint32_t kXtcDraw = 1;

bool all_finite(std::span<const float> values) {
  constexpr std::uint32_t kExponent = 0x7F800000;
  bool finite = true;
  for (const float v : values) finite &= (std::bit_cast<std::uint32_t>(v) & kExponent) != kExponent;
  return finite;
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, const SamplerSizes& sizes)
    : params_(params),
      values_(sizes.vocab),
      penalties_(params, sizes.vocab),
      dry_(params, {.vocab = sizes.vocab, .history_max = sizes.history_max}),
      candidates_(sizes.vocab) {
  ASSERT(sizes.vocab > 0 && validate(params, sizes.vocab).has_value(), "vocab={}", sizes.vocab);
  if (params.mirostat != 0) mirostat_.emplace(params, sizes.vocab);
}

base::Result<TokenId> Sampler::sample(const SampleInput& input) {
  ASSERT(input.logits.size() == values_.size(), "logits={} vocab={}", input.logits.size(), values_.size());
  if (!all_finite(input.logits)) {
    return base::fail(base::ErrorCode::kInternal,
                      fmt::format("the model gave a logit that is not a finite number at position {}; check the model "
                                  "file's digest, then report it with the model's name",
                                  input.position));
  }
  edit_row(input);
  const auto best = std::max_element(values_.begin(), values_.end());  // the first of equals
  if (*best == logits::kMasked) {
    return base::fail(base::Error{
        base::ErrorCode::kInternal,
        fmt::format("the output constraint allows no token at position {}", input.position),
        {}}.with("reason", "NO_TOKEN_ALLOWED"));
  }
  const float temperature = params_.temperature == 0.0f ? 0.0f : choose_temperature(*best);
  if (temperature == 0.0f) return TokenId{static_cast<std::uint32_t>(best - values_.begin())};
  divisor_ = temperature;
  return draw(*best, input.position);
}

void Sampler::edit_row(const SampleInput& input) {
  std::copy(input.logits.begin(), input.logits.end(), values_.begin());
  logits::add_bias(values_, params_.logit_bias);
  logits::apply_mask(values_, input.mask);
  penalties_.apply(values_, input.history);
  dry_.apply(values_, input.history);
}

// What x is divided by before the cuts.
float Sampler::choose_temperature(float l_max) const {
  if (params_.order == SamplerOrder::kTemperatureLast) return 1.0f;
  if (params_.dynatemp_range == 0.0f) return params_.temperature;
  const math::ExpMoments moments = math::exp_moments(values_, l_max);
  const auto allowed = std::count_if(values_.begin(), values_.end(), [](float l) { return l != logits::kMasked; });
  return cuts::dynamic_temperature(
      {.temperature = params_.temperature, .range = params_.dynatemp_range, .exponent = params_.dynatemp_exponent},
      {.sum_w = moments.sum_w, .sum_wx = moments.sum_wx, .count = static_cast<std::size_t>(allowed)});
}

TokenId Sampler::draw(float l_max, std::uint32_t position) {
  const bool temperature_last = params_.order == SamplerOrder::kTemperatureLast;
  const float reach = temperature_last ? std::max(1.0f, params_.temperature + params_.dynatemp_range) : 1.0f;
  candidates_.collect(values_, {.l_max = l_max, .divisor = divisor_, .x_min = kTailX * reach});
  if (mirostat_) {
    mirostat_->cut(candidates_);
  } else {
    cut(position);
  }
  if (temperature_last) {
    float temperature = params_.temperature;
    if (params_.dynatemp_range != 0.0f) {
      candidates_.rescale(1.0f);  // weights relative to the best one left
      const float sum_w = candidates_.total();
      temperature = cuts::dynamic_temperature(
          {.temperature = temperature, .range = params_.dynatemp_range, .exponent = params_.dynatemp_exponent},
          {.sum_w = sum_w, .sum_wx = candidates_.total_wx(), .count = candidates_.count()});
      if (temperature == 0.0f) return candidates_.id(0);
    }
    candidates_.rescale(temperature);
  }
  // u <= 1 - 2^-24, so the rounded product stays below the total.
  const std::size_t chosen = candidates_.first_exceeding(uniform(position, kTokenDraw) * candidates_.total());
  if (mirostat_) mirostat_->drawn(candidates_.x(chosen));
  return candidates_.id(chosen);
}

void Sampler::cut(std::uint32_t position) {
  const std::size_t min_keep = params_.min_keep;
  if (params_.top_n_sigma > 0.0f) {
    const float x_min = -params_.top_n_sigma * math::spread(values_).deviation / divisor_;
    if (x_min <= 0.0f) cuts::top_n_sigma(candidates_, x_min, min_keep);  // not when the deviation left the finite range
  }
  if (params_.top_k > 0) cuts::top_k(candidates_, params_.top_k);
  if (params_.typical_p < 1.0f) cuts::typical(candidates_, params_.typical_p, min_keep);
  if (params_.top_p < 1.0f) cuts::top_p(candidates_, params_.top_p, min_keep);
  if (params_.min_p > 0.0f) cuts::min_p(candidates_, params_.min_p, min_keep);
  if (params_.xtc_probability > 0.0f && uniform(position, kXtcDraw) < params_.xtc_probability) {
    cuts::xtc(candidates_, params_.xtc_threshold, min_keep);
  }
}

float Sampler::uniform(std::uint32_t position, std::uint32_t draw) const {
  return base::philox_uniform(params_.seed, {.position = position, .draw = draw, .choice = params_.choice});
}

}  // namespace llorch::engine::sampling
