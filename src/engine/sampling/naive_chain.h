#pragma once
// The chain of docs/internals/sampling.md word for word: everything sorted, nothing skipped, nothing kept between calls.
// Test oracle.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <tuple>
#include <vector>

#include "base/philox.h"
#include "engine/sampling/math/exp.h"
#include "engine/sampling/math/log.h"
#include "engine/sampling/params.h"

namespace llorch::engine::sampling::testing {

struct Request {
  SamplingParams params;
  std::vector<float> logits;
  std::vector<TokenId> history{};
  std::uint32_t position = 0;
  std::size_t prompt_tokens = 0;
  std::vector<std::uint8_t> breaks{};
  std::vector<std::uint32_t> mask{};
};

class NaiveChain {
 public:
  explicit NaiveChain(const SamplingParams& params) : p_(params), mu_(2 * params.mirostat_tau) {}

  TokenId sample(const Request& r) {
    std::vector<float> l = edited(r);
    const float l_max = *std::max_element(l.begin(), l.end());
    const auto greedy = TokenId{static_cast<std::uint32_t>(std::max_element(l.begin(), l.end()) - l.begin())};
    if (p_.temperature == 0) return greedy;
    const bool last = p_.order == SamplerOrder::kTemperatureLast;
    const float divisor = last ? 1.0f : temperature_over_all(l, l_max);
    if (divisor == 0) return greedy;
    ids_.clear();
    shift_ = 0;
    divisor_ = 1;
    x_.assign(l.size(), 0);
    const float reach = last ? std::max(1.0f, p_.temperature + p_.dynatemp_range) : 1.0f;
    for (std::uint32_t id = 0; id < l.size(); ++id) {
      x_[id] = (l[id] - l_max) / divisor;
      if (x_[id] >= -17.0f * reach) ids_.push_back(id);
    }
    std::sort(ids_.begin(), ids_.end(), [&](auto a, auto b) { return x_[a] != x_[b] ? x_[a] > x_[b] : a < b; });
    const float ln_total = math::ln_s1(total());
    if (p_.mirostat != 0) {
      mirostat_cut(ln_total, l.size());
    } else {
      cut(l, divisor, r.position);
    }
    if (last) {
      rescale(1.0f);
      const float t = p_.dynatemp_range == 0 ? p_.temperature : dynamic(total(), total_wx(), ids_.size());
      if (t == 0) return TokenId{ids_[0]};
      rescale(t);
    }
    const float target = base::philox_uniform(p_.seed, {r.position, 0, p_.choice}) * total();
    float sum = 0;
    for (const auto id : ids_) {
      sum += w(id);
      if (sum <= target) continue;
      if (p_.mirostat != 0) mu_ -= p_.mirostat_eta * ((ln_total - x_[id]) / math::kLn2 - p_.mirostat_tau);
      return TokenId{id};
    }
    ADD_FAILURE() << "no sum exceeds the target";
    return TokenId{0};
  }

  // The row after bias, mask, penalties and DRY.
  std::vector<float> edited(const Request& r) const {
    std::vector<float> l = r.logits;
    for (const LogitBias& b : p_.logit_bias) l[index(b.token)] = finite(l[index(b.token)] + b.bias);
    const auto allowed = [&](std::size_t id) { return r.mask.empty() || (r.mask[id / 32] >> id % 32 & 1) != 0; };
    for (std::size_t id = 0; id < l.size(); ++id) {
      if (!allowed(id)) l[id] = -std::numeric_limits<float>::infinity();
    }
    const auto counts = [&](PenaltyScope scope) {
      std::map<std::uint32_t, int> out;
      for (std::size_t i = 0; i < r.history.size(); ++i) {
        const bool in_window = p_.penalty_last_n == 0 || i + p_.penalty_last_n >= r.history.size();
        if (in_window && (scope == PenaltyScope::kAll || i >= r.prompt_tokens)) ++out[index(r.history[i])];
      }
      return out;
    };
    if (p_.repetition_penalty != 1) {
      for (const auto& [id, n] : counts(p_.repetition_scope)) {
        if (allowed(id)) l[id] = finite(l[id] > 0 ? l[id] / p_.repetition_penalty : l[id] * p_.repetition_penalty);
      }
    }
    for (const auto& [id, n] : counts(p_.frequency_scope)) {
      const float count = static_cast<float>(n);
      if (allowed(id)) l[id] = finite((l[id] - count * p_.frequency_penalty) - p_.presence_penalty);
    }
    if (p_.dry_multiplier > 0) {
      for (const auto& [id, n] : dry_lengths(r)) {
        float power = 1, base = p_.dry_base;
        for (auto e = n - p_.dry_allowed_length; e > 0; e /= 2, base *= base) power *= e % 2 != 0 ? base : 1;
        if (allowed(id)) l[id] = finite(l[id] - p_.dry_multiplier * power);
      }
    }
    return l;
  }

 private:
  static float finite(float v) {
    constexpr float kMax = std::numeric_limits<float>::max();
    return std::min(std::max(v, -kMax), kMax);
  }
  std::map<std::uint32_t, std::uint32_t> dry_lengths(const Request& r) const {
    std::vector<TokenId> h = r.history;
    std::vector<std::uint8_t> breaks = r.breaks;
    breaks.resize(h.size());
    if (p_.dry_last_n != 0 && p_.dry_last_n < h.size()) {
      h.erase(h.begin(), h.end() - p_.dry_last_n);
      breaks.erase(breaks.begin(), breaks.end() - p_.dry_last_n);
    }
    std::map<std::uint32_t, std::uint32_t> out;
    for (std::size_t i = 0; i < h.size(); ++i) {
      if (breaks[i] != 0) continue;
      std::uint32_t n = 0;
      while (n < i && h[i - 1 - n] == h[h.size() - 1 - n] && breaks[i - 1 - n] == 0 && breaks[h.size() - 1 - n] == 0) {
        ++n;
      }
      if (n >= p_.dry_allowed_length) out[index(h[i])] = std::max(out[index(h[i])], n);
    }
    return out;
  }

  float w(std::uint32_t id) const { return math::exp_s1((x_[id] - shift_) / divisor_); }
  float total() const {
    float sum = 0;
    for (const auto id : ids_) sum += w(id);
    return sum;
  }
  float total_wx() const {
    float sum = 0, wx = 0;
    for (const auto id : ids_) {
      if (sum + w(id) == sum) break;
      sum += w(id);
      wx += w(id) > 0 ? w(id) * ((x_[id] - shift_) / divisor_) : 0;
    }
    return wx;
  }
  void rescale(float divisor) {
    shift_ = x_[ids_[0]];
    divisor_ = divisor;
  }
  void keep(std::size_t first, std::size_t last) { ids_ = {ids_.begin() + first, ids_.begin() + last}; }
  void keep_first(std::size_t n) { keep(0, std::min(ids_.size(), std::max<std::size_t>(n, p_.min_keep))); }

  float dynamic(float sum_w, float sum_wx, std::size_t count) const {
    const float low = std::max(0.0f, p_.temperature - p_.dynatemp_range);
    const float width = (p_.temperature + p_.dynatemp_range) - low;
    if (p_.dynatemp_exponent == 0) return low + width;
    if (count < 2) return low;
    const float entropy = math::ln_s1(sum_w) - sum_wx / sum_w;
    const float ratio = std::clamp(entropy / math::ln_s1(static_cast<float>(count)), 0.0f, 1.0f);
    return ratio < 0x1p-100f ? low : low + width * math::exp_s1(p_.dynatemp_exponent * math::ln_s1(ratio));
  }
  float temperature_over_all(const std::vector<float>& l, float l_max) const {
    if (p_.dynatemp_range == 0) return p_.temperature;
    float w_lane[16] = {}, wx_lane[16] = {};
    std::size_t count = 0;
    for (std::size_t id = 0; id < l.size(); ++id) {
      if (std::isinf(l[id])) continue;
      ++count;
      const float weight = math::exp_s1(l[id] - l_max);
      w_lane[id % 16] += weight;
      wx_lane[id % 16] += weight > 0 ? weight * (l[id] - l_max) : 0;
    }
    for (const int half : {8, 4, 2, 1}) {
      for (int i = 0; i < half; ++i) {
        w_lane[i] += w_lane[i + half];
        wx_lane[i] += wx_lane[i + half];
      }
    }
    return dynamic(w_lane[0], wx_lane[0], count);
  }

  void cut(const std::vector<float>& l, float divisor, std::uint32_t position) {
    if (p_.top_n_sigma > 0) cut_top_n_sigma(l, divisor);
    if (p_.top_k > 0) keep(0, std::min<std::size_t>(ids_.size(), p_.top_k));
    if (p_.typical_p < 1) cut_typical();
    if (p_.top_p < 1) {
      const float enough = p_.top_p * total();
      float sum = 0;
      std::size_t n = 0;
      do {
        sum += w(ids_[n++]);
      } while (sum < enough);
      keep_first(n);
    }
    if (p_.min_p > 0) {
      const float least = p_.min_p * w(ids_[0]);
      std::size_t n = 1;
      while (n < ids_.size() && w(ids_[n]) >= least) ++n;
      keep_first(n);
    }
    if (p_.xtc_probability > 0 && base::philox_uniform(p_.seed, {position, 1, p_.choice}) < p_.xtc_probability) {
      const float least = p_.xtc_threshold * total();
      const auto above =
          static_cast<std::size_t>(std::count_if(ids_.begin(), ids_.end(), [&](auto id) { return w(id) >= least; }));
      if (above >= 2 && ids_.size() - (above - 1) >= p_.min_keep) keep(above - 1, ids_.size());
    }
  }
  void cut_top_n_sigma(const std::vector<float>& l, float divisor) {
    float sums[16] = {}, squares[16] = {}, n = 0;
    const auto tree = [](float* s) {
      for (const int half : {8, 4, 2, 1}) {
        for (int i = 0; i < half; ++i) s[i] += s[i + half];
      }
      return s[0];
    };
    for (std::size_t i = 0; i < l.size(); ++i) {
      if (!std::isinf(l[i])) sums[i % 16] += l[i], n += 1;
    }
    const float mean = tree(sums) / n;
    for (std::size_t i = 0; i < l.size(); ++i) {
      if (!std::isinf(l[i])) squares[i % 16] += (l[i] - mean) * (l[i] - mean);
    }
    const float x_min = -p_.top_n_sigma * std::sqrt(tree(squares) / n) / divisor;
    if (std::isnan(x_min)) return;
    keep_first(std::count_if(ids_.begin(), ids_.end(), [&](auto id) { return x_[id] >= x_min; }));
  }
  void cut_typical() {
    const float all = total(), ln_all = math::ln_s1(all), entropy = ln_all - total_wx() / all;
    struct Place {
      float distance;
      bool unlikely;
      std::size_t outward, at;
    };
    std::vector<Place> places;
    const auto pivot = static_cast<std::size_t>(
        std::count_if(ids_.begin(), ids_.end(), [&](auto id) { return ln_all - x_[id] <= entropy; }));
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const bool unlikely = i >= pivot;
      places.push_back(
          {std::fabs((ln_all - x_[ids_[i]]) - entropy), unlikely, unlikely ? i - pivot : pivot - 1 - i, i});
    }
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) {
      return std::tie(a.distance, a.unlikely, a.outward) < std::tie(b.distance, b.unlikely, b.outward);
    });
    const float enough = p_.typical_p * all;
    float sum = 0;
    std::size_t n = 0, first = ids_.size(), last = 0;
    while (n < places.size() && (n < p_.min_keep || sum < enough)) {
      const std::size_t at = places[n++].at;
      sum += w(ids_[at]);
      first = std::min(first, at);
      last = std::max(last, at + 1);
    }
    EXPECT_EQ(last - first, n) << "what is nearest to the entropy is one range";
    keep(first, last);
  }
  void mirostat_cut(float ln_total, std::size_t vocab) {
    if (p_.mirostat == 2) {
      std::size_t n = 1;
      while (n < ids_.size() && ln_total - x_[ids_[n]] <= mu_ * math::kLn2) ++n;
      return keep(0, n);
    }
    const std::size_t m = std::min<std::size_t>(100, ids_.size());
    float tb = 0, tt = 0;
    for (std::size_t i = 0; i + 1 < m; ++i) {
      const float t = math::ln_s1(static_cast<float>(i + 2) / static_cast<float>(i + 1));
      tb += t * (x_[ids_[i]] - x_[ids_[i + 1]]);
      tt += t * t;
    }
    if (m < 2) return;
    const float s = tb / tt, e = s - 1, ln_vocab = math::ln_s1(static_cast<float>(std::max<std::size_t>(vocab, 2)));
    const float y = std::fabs(e) * ln_vocab;
    float ratio =
        y < 1e-3f ? 0.5f * y - math::ln_s1(ln_vocab) : math::ln_s1(std::fabs(e)) - math::ln_s1(1 - math::exp_s1(-y));
    ratio -= e < 0 ? y : 0;
    const float ln_k = (ratio + mu_ * math::kLn2) / s;
    if (ln_k >= ln_vocab) return;
    const float k = ln_k > 0 ? 1 / math::exp_s1(-ln_k) : 1;
    keep(0, std::clamp<std::size_t>(static_cast<std::size_t>(k), 1, ids_.size()));
  }

  SamplingParams p_;
  float mu_;
  std::vector<std::uint32_t> ids_;
  std::vector<float> x_;
  float shift_ = 0, divisor_ = 1;
};

}  // namespace llorch::engine::sampling::testing
