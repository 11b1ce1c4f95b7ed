#include "engine/compute/reference/mixers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::reference {

float log1p_exact(float x) {
  const float u = 1.0f + x;
  const auto bits = std::bit_cast<std::uint32_t>(u);
  const std::int32_t k = static_cast<std::int32_t>(bits - std::bit_cast<std::uint32_t>(0x1.6a09e6p-1f)) >> 23;
  const float m = std::bit_cast<float>(bits - (static_cast<std::uint32_t>(k) << 23));
  const float f = m - 1.0f, t = f * f, kf = static_cast<float>(k);
  float q = 0x1.1d8ea6p-4f;
  for (float c : {-0x1.d635bcp-4f, 0x1.dea282p-4f, -0x1.fcf4c6p-4f, 0x1.23d21ap-3f, -0x1.555b4ap-3f, 0x1.999d5ap-3f,
                  -0x1.fffffcp-3f, 0x1.555554p-2f})
    q = std::fma(q, f, c);
  const float lost = (x - (u - 1.0f)) / u;
  const float r = std::fma(f * t, q, -0.5f * t) + lost;
  return std::fma(kf, 0x1.62e43p-1f, f + std::fma(kf, -0x1.05c61p-29f, r));
}

float softplus_exact(float x) { return x > 20.0f ? x : log1p_exact(exp_exact(x)); }

void ConvChannel::push(double v) {
  std::rotate(window_.begin(), window_.begin() + 1, window_.end());
  window_.back() = v;
}

float ConvChannel::next_exact(float v) {
  push(v);
  float w = bias_;
  for (std::size_t k = 0; k < window_.size(); ++k) w = std::fma(weight_[k], static_cast<float>(window_[k]), w);
  return w;
}

double ConvChannel::next_reference(double v) {
  push(v);
  double w = bias_;
  for (std::size_t k = 0; k < window_.size(); ++k) w += weight_[k] * window_[k];
  return w;
}

SsmStep ssm_step_exact(const SsmStepOptions& o) {
  const float delta = std::min(std::max(softplus_exact(o.dt + o.bias), o.dt_min), o.dt_max);
  return {delta, exp_exact(delta * o.a)};
}

std::vector<float> SsmHead::next_exact(std::span<const float> x, std::span<const float> b, std::span<const float> c,
                                       const SsmStep& step, float skip) {
  std::vector<float> y;
  for (std::size_t p = 0; p < x.size(); ++p) {
    const float dx = step.delta * x[p];
    std::array<float, 16> lanes{};
    for (std::size_t n = 0; n < b.size(); ++n) {
      float& s = exact_[p * b.size() + n];
      s = std::fma(step.decay, s, dx * b[n]);
      lanes[n % 16] = std::fma(s, c[n], lanes[n % 16]);
    }
    y.push_back(std::fma(skip, x[p], tree_sum(lanes)));
  }
  return y;
}

std::vector<double> SsmHead::next_reference(std::span<const double> x, std::span<const double> b,
                                            std::span<const double> c, const SsmStepOptions& o, double skip) {
  const double dt = static_cast<double>(o.dt) + o.bias;
  const double delta = std::clamp(std::log1p(std::exp(dt)), double{o.dt_min}, double{o.dt_max});
  std::vector<double> y;
  for (std::size_t p = 0; p < x.size(); ++p) {
    double sum = skip * x[p];
    for (std::size_t n = 0; n < b.size(); ++n) {
      double& s = double_[p * b.size() + n];
      s = std::exp(delta * o.a) * s + delta * x[p] * b[n];
      sum += s * c[n];
    }
    y.push_back(sum);
  }
  return y;
}

std::vector<float> DeltaHead::next_exact(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                         Step step) {
  std::vector<float> y;
  for (std::size_t p = 0; p < v.size(); ++p) {
    float* const s = exact_.data() + p * k.size();
    std::array<float, 16> seen{}, lanes{};
    for (std::size_t n = 0; n < k.size(); ++n) {
      s[n] = step.decay(n) * s[n];
      seen[n % 16] = std::fma(s[n], k[n], seen[n % 16]);
    }
    const float rest = step.beta * (v[p] - tree_sum(seen));
    for (std::size_t n = 0; n < k.size(); ++n) {
      s[n] = s[n] + rest * k[n];
      lanes[n % 16] = std::fma(s[n], q[n], lanes[n % 16]);
    }
    y.push_back(tree_sum(lanes));
  }
  return y;
}

std::vector<double> DeltaHead::next_reference(std::span<const float> q, std::span<const float> k,
                                              std::span<const float> v, Step step) {
  std::vector<double> y;
  for (std::size_t p = 0; p < v.size(); ++p) {
    double* const s = double_.data() + p * k.size();
    double seen = 0, sum = 0;
    for (std::size_t n = 0; n < k.size(); ++n) {
      s[n] *= double{step.decay(n)};
      seen += s[n] * double{k[n]};
    }
    for (std::size_t n = 0; n < k.size(); ++n) {
      s[n] += double{step.beta} * (double{v[p]} - seen) * double{k[n]};
      sum += s[n] * double{q[n]};
    }
    y.push_back(sum);
  }
  return y;
}

}  // namespace llorch::engine::compute::reference
