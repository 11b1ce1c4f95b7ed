#include "engine/sampling/truncation/truncation.h"

#include <algorithm>
#include <cmath>

#include "engine/sampling/math/exp.h"
#include "engine/sampling/math/log.h"

namespace llorch::engine::sampling::truncation {

using math::exp_s1;
using math::ln_s1;

namespace {

void keep_at_least(Candidates& c, std::size_t n, std::size_t min_keep) {
  c.keep_first(std::min(c.count(), std::max({n, min_keep, std::size_t{1}})));
}

}  // namespace

void top_n_sigma(Candidates& c, float x_min, std::size_t min_keep) { keep_at_least(c, c.count_from(x_min), min_keep); }

void top_k(Candidates& c, std::size_t k) { keep_at_least(c, k, 1); }

// -ln p grows along the order, so its distance to H falls, then grows: what is nearest to H is a range that widens.
void typical(Candidates& c, float mass, std::size_t min_keep) {
  const float total = c.total();
  const float ln_total = ln_s1(total);
  const float entropy = ln_total - c.total_wx() / total;
  const auto distance = [&](std::size_t i) { return std::fabs((ln_total - c.x(i)) - entropy); };
  std::size_t right = 0;
  while (right < c.count() && ln_total - c.x(right) <= entropy) ++right;
  std::size_t left = right;
  const float enough = mass * total;
  float sum = 0.0f;
  while (right - left < c.count() && (right - left < min_keep || sum < enough)) {
    const bool leftwards = left > 0 && (right == c.count() || distance(left - 1) <= distance(right));
    const float next = sum + c.weight(leftwards ? left - 1 : right);
    if (next == sum && left == 0 && right - left >= min_keep) {
      right = c.count();  // no later one adds anything, so none completes the mass
      break;
    }
    sum = next;
    leftwards ? --left : ++right;
  }
  c.keep_first(right);
  c.drop_first(left);
}

void top_p(Candidates& c, float mass, std::size_t min_keep) {
  keep_at_least(c, c.prefix_reaching(mass * c.total()), min_keep);
}

void min_p(Candidates& c, float ratio, std::size_t min_keep) {
  const float least = ratio * c.weight(0);
  std::size_t n = 1;
  while (n < c.count() && c.weight(n) >= least) ++n;
  keep_at_least(c, n, min_keep);
}

void xtc(Candidates& c, float threshold, std::size_t min_keep) {
  const float least = threshold * c.total();
  std::size_t n = 0;
  while (n < c.count() && c.weight(n) >= least) ++n;
  if (n >= 2 && c.count() - (n - 1) >= min_keep) c.drop_first(n - 1);
}

float dynamic_temperature(const DynamicTemperature& t, const Entropy& of) {
  const float low = std::max(0.0f, t.temperature - t.range);
  const float width = (t.temperature + t.range) - low;
  if (t.exponent == 0.0f) return low + width;
  if (of.count < 2) return low;
  const float highest = ln_s1(static_cast<float>(of.count));
  const float entropy = ln_s1(of.sum_w) - of.sum_wx / of.sum_w;
  const float ratio = std::clamp(entropy / highest, 0.0f, 1.0f);
  if (ratio < 0x1p-100f) return low;
  return low + width * exp_s1(t.exponent * ln_s1(ratio));
}

}  // namespace llorch::engine::sampling::truncation
