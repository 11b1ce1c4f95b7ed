#include "engine/compute/reference/oracle.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace llorch::engine::compute::reference {

std::vector<double> rms_norm_reference(std::span<const float> x, std::span<const float> weight,
                                       const RmsNormReferenceOptions& options) {
  double squares = 0;
  for (double v : x) squares += v * v;
  const double r = 1 / std::sqrt(squares / static_cast<double>(x.size()) + options.eps);
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * r * (weight[i] + options.weight_offset);
  return y;
}

std::vector<double> layer_norm_reference(std::span<const float> x, std::span<const float> weight,
                                         std::span<const float> bias, double eps) {
  const auto n = static_cast<double>(x.size());
  double mean = 0, variance = 0;
  for (double v : x) mean += v / n;
  for (double v : x) variance += (v - mean) * (v - mean) / n;
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = (x[i] - mean) / std::sqrt(variance + eps) * weight[i] + (bias.empty() ? 0.0 : bias[i]);
  return y;
}

double gelu_tanh_reference(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}
double gelu_erf_reference(double x) { return 0.5 * x * std::erfc(-x * std::numbers::sqrt2 / 2); }

std::vector<double> matmul_reference(std::span<const float> w, std::span<const float> x) {
  std::vector<double> y(w.size() / x.size());
  for (std::size_t n = 0; n < y.size(); ++n)
    for (std::size_t k = 0; k < x.size(); ++k) y[n] += static_cast<double>(w[n * x.size() + k]) * x[k];
  return y;
}

std::vector<double> attention_reference(std::span<const float> q, std::span<const float> keys,
                                        std::span<const float> values, const AttentionReferenceOptions& options) {
  const std::size_t end = options.position + 1;
  const std::size_t begin = options.window != 0 && end > options.window ? end - options.window : 0;
  const std::size_t value_dim = values.size() / (keys.size() / q.size());
  std::vector<double> scores(end);
  double largest = options.sink.value_or(-std::numeric_limits<double>::infinity());
  for (std::size_t p = begin; p < end; ++p) {
    for (std::size_t i = 0; i < q.size(); ++i) scores[p] += static_cast<double>(q[i]) * keys[p * q.size() + i];
    scores[p] *= options.scale;
    if (options.softcap > 0) scores[p] = options.softcap * std::tanh(scores[p] / options.softcap);
    largest = std::max(largest, scores[p]);
  }
  double total = options.sink ? std::exp(*options.sink - largest) : 0;
  std::vector<double> out(value_dim);
  for (std::size_t p = begin; p < end; ++p) {
    const double weight = std::exp(scores[p] - largest);
    total += weight;
    for (std::size_t i = 0; i < value_dim; ++i) out[i] += weight * values[p * value_dim + i];
  }
  for (double& o : out) o /= total;
  return out;
}

std::vector<double> index_scores_reference(std::span<const float> q, std::span<const float> weights,
                                           std::span<const float> keys, double scale) {
  const std::size_t dims = q.size() / weights.size();
  std::vector<double> scores(keys.size() / dims);
  for (std::size_t p = 0; p < scores.size(); ++p) {
    for (std::size_t h = 0; h < weights.size(); ++h) {
      double dot = 0;
      for (std::size_t i = 0; i < dims; ++i) dot += static_cast<double>(q[h * dims + i]) * keys[p * dims + i];
      scores[p] += weights[h] * std::max(0.0, dot) * scale;
    }
  }
  return scores;
}

}  // namespace llorch::engine::compute::reference
