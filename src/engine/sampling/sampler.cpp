#include "engine/sampling/sampler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/assert.h"
#include "base/philox.h"
#include "engine/plan/draw_math.h"
#include "engine/sampling/logits/row.h"
#include "engine/sampling/math/dense_sums.h"
#include "engine/sampling/truncation/truncation.h"

namespace llorch::engine::sampling {
namespace {

constexpr std::uint32_t kTokenDraw = 0;
constexpr std::uint32_t kXtcDraw = 1;

bool all_finite(std::span<const float> values) {
  bool finite = true;
  for (const float v : values) finite &= plan::is_finite(v);
  return finite;
}

base::Error fault_error(plan::DrawFault fault, std::uint32_t position) {
  if (fault == plan::DrawFault::kNotFinite) {
    return {base::ErrorCode::kInternal,
            fmt::format("the model gave a logit that is not a finite number at position {}; check the model file's "
                        "digest, then report it with the model's name",
                        position),
            {}};
  }
  return base::Error{
      base::ErrorCode::kInternal, fmt::format("the output constraint allows no token at position {}", position), {}}
      .with("reason", "NO_TOKEN_ALLOWED");
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
  const std::size_t ids_max = std::min(sizes.vocab, sizes.history_max);
  std::size_t edits_max = params.logit_bias.size();
  if (params.repetition_penalty != 1.0f) edits_max += ids_max;
  if (params.frequency_penalty != 0.0f || params.presence_penalty != 0.0f) edits_max += ids_max;
  if (params.dry_multiplier != 0.0f) edits_max += ids_max;
  edits_.reserve(edits_max);
  sorted_edits_.reserve(edits_max);
  edit_order_.reserve(edits_max);
}

base::Result<TokenId> Sampler::sample(const SampleInput& input) {
  ASSERT(!input.logits.empty() && input.logits.size() <= values_.size(), "logits={} vocab={}", input.logits.size(),
         values_.size());
  if (!all_finite(input.logits)) return base::fail(fault_error(plan::DrawFault::kNotFinite, input.position));
  edit_row(input);
  const auto best = std::max_element(values_.begin(), values_.end());  // the first of equals
  if (*best == logits::kMasked) {
    return base::fail(fault_error(plan::DrawFault::kNothingAllowed, input.position));
  }
  const float temperature = params_.temperature == 0.0f ? 0.0f : choose_temperature(*best);
  if (temperature == 0.0f) return TokenId{static_cast<std::uint32_t>(best - values_.begin())};
  divisor_ = temperature;
  return draw(*best, input.position);
}

const plan::RowDraw* Sampler::device_draw(const SampleInput& input, std::uint32_t edits_max) {
  const SamplingParams& p = params_;
  const bool knows_cuts = p.dynatemp_range == 0.0f && p.order == SamplerOrder::kTemperatureFirst &&
                          p.top_n_sigma == 0.0f && p.typical_p == 1.0f && p.xtc_probability == 0.0f && p.mirostat == 0;
  if (p.temperature != 0.0f && !knows_cuts) return nullptr;
  collect_edits(input.history);
  if (edits_.size() > edits_max) return nullptr;
  edit_order_.clear();
  sorted_edits_.clear();
  for (std::size_t i = 0; i < edits_.size(); ++i) edit_order_.push_back(std::uint64_t{edits_[i].index} << 32 | i);
  std::ranges::sort(edit_order_);
  for (const std::uint64_t at : edit_order_) sorted_edits_.push_back(edits_[static_cast<std::uint32_t>(at)]);
  device_draw_ = {.edits = sorted_edits_,
                  .allowed = input.mask,
                  .temperature = p.temperature,
                  .top_k = p.top_k,
                  .top_p = p.top_p,
                  .min_p = p.min_p,
                  .min_keep = p.min_keep,
                  .uniform = uniform(input.position, kTokenDraw)};
  return &device_draw_;
}

base::Result<TokenId> Sampler::drawn(const plan::RowDrawn& drawn, std::uint32_t position) {
  if (drawn.fault != plan::DrawFault::kNone) return base::fail(fault_error(drawn.fault, position));
  return TokenId{drawn.index};
}

void Sampler::collect_edits(const logits::History& history) {
  edits_.clear();
  logits::bias_edits(params_.logit_bias, edits_);
  penalties_.edits(history, edits_);
  dry_.edits(history, edits_);
}

void Sampler::edit_row(const SampleInput& input) {
  const std::span<float> unknown = std::span(values_).subspan(input.logits.size());
  std::ranges::copy(input.logits, values_.begin());
  std::ranges::fill(unknown, 0.0f);  // edits are of finite numbers
  collect_edits(input.history);
  logits::apply_edits(values_, edits_);
  logits::apply_mask(values_, input.mask);
  std::ranges::fill(unknown, logits::kMasked);
}

// What x is divided by before the cuts.
float Sampler::choose_temperature(float l_max) const {
  if (params_.order == SamplerOrder::kTemperatureLast) return 1.0f;
  if (params_.dynatemp_range == 0.0f) return params_.temperature;
  const math::ExpMoments moments = math::exp_moments(values_, l_max);
  const auto allowed = std::count_if(values_.begin(), values_.end(), [](float l) { return l != logits::kMasked; });
  return truncation::dynamic_temperature(
      {.temperature = params_.temperature, .range = params_.dynatemp_range, .exponent = params_.dynatemp_exponent},
      {.sum_w = moments.sum_w, .sum_wx = moments.sum_wx, .count = static_cast<std::size_t>(allowed)});
}

TokenId Sampler::draw(float l_max, std::uint32_t position) {
  const bool temperature_last = params_.order == SamplerOrder::kTemperatureLast;
  const float reach = temperature_last ? std::max(1.0f, params_.temperature + params_.dynatemp_range) : 1.0f;
  candidates_.collect(values_, {.l_max = l_max, .divisor = divisor_, .x_min = plan::kDrawTailX * reach});
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
      temperature = truncation::dynamic_temperature(
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
    if (x_min <= 0.0f)
      truncation::top_n_sigma(candidates_, x_min, min_keep);  // not when the deviation left the finite range
  }
  if (params_.top_k > 0) truncation::top_k(candidates_, params_.top_k);
  if (params_.typical_p < 1.0f) truncation::typical(candidates_, params_.typical_p, min_keep);
  if (params_.top_p < 1.0f) truncation::top_p(candidates_, params_.top_p, min_keep);
  if (params_.min_p > 0.0f) truncation::min_p(candidates_, params_.min_p, min_keep);
  if (params_.xtc_probability > 0.0f && uniform(position, kXtcDraw) < params_.xtc_probability) {
    truncation::xtc(candidates_, params_.xtc_threshold, min_keep);
  }
}

float Sampler::uniform(std::uint32_t position, std::uint32_t draw) const {
  return base::philox_uniform(params_.seed, {.position = position, .draw = draw, .choice = params_.choice});
}

}  // namespace llorch::engine::sampling
