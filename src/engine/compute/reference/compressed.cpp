#include "engine/compute/reference/compressed.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/compute/reference/exact.h"

namespace llorch::engine::compute::reference {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

float lanes_sum(std::span<const float> values) {
  std::array<float, 16> lanes{};
  for (std::size_t i = 0; i < values.size(); ++i) lanes[i % 16] = lanes[i % 16] + values[i];
  return tree_sum(lanes);
}

void divide_columns(std::vector<float>& mix, std::size_t n, float eps) {
  for (std::size_t k = 0; k < n; ++k) {
    float sum = 0;
    for (std::size_t j = 0; j < n; ++j) sum += mix[j * n + k];
    for (std::size_t j = 0; j < n; ++j) mix[j * n + k] /= sum + eps;
  }
}

// Which rows an entry is made of, oldest first, and from which column on.
struct Member {
  std::size_t row, column;
};
std::vector<Member> members(std::size_t window, const CompressOptions& o) {
  std::vector<Member> all;
  if (o.overlaps && window > 0)
    for (std::size_t i = 0; i < o.rate; ++i) all.push_back({(window - 1) * o.rate + i, 0});
  for (std::size_t i = 0; i < o.rate; ++i) all.push_back({window * o.rate + i, o.overlaps ? o.dim : 0});
  return all;
}

}  // namespace

HyperWeights hyper_weights_exact(std::span<const float> mixes, std::span<const float> base,
                                 std::span<const float> scale, const HyperOptions& o) {
  const std::size_t n = o.streams;
  const auto scaled = [&](std::size_t i, float by) { return std::fma(mixes[i], by, base[i]); };
  HyperWeights w;
  for (std::size_t i = 0; i < n; ++i) w.pre.push_back(sigmoid_exact(scaled(i, scale[0])) + o.floor_eps);
  if (mixes.size() == n) return w;
  for (std::size_t i = 0; i < n; ++i) w.post.push_back(2.0f * sigmoid_exact(scaled(n + i, scale[1])));
  for (std::size_t j = 0; j < n; ++j) {
    std::vector<float> row;
    for (std::size_t k = 0; k < n; ++k) row.push_back(scaled((2 + j) * n + k, scale[2]));
    const float largest = *std::ranges::max_element(row);
    for (float& v : row) v = exp_exact(v - largest);
    const float sum = lanes_sum(row);
    for (const float v : row) w.mix.push_back(v / sum + o.floor_eps);
  }
  divide_columns(w.mix, n, o.floor_eps);
  for (std::size_t i = 1; i < o.iterations; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      const std::span<float> row = std::span(w.mix).subspan(j * n, n);
      const float sum = lanes_sum(row) + o.floor_eps;
      for (float& v : row) v /= sum;
    }
    divide_columns(w.mix, n, o.floor_eps);
  }
  return w;
}

std::vector<float> hyper_collapse_exact(std::span<const float> streams, const HyperWeights& w) {
  const std::size_t width = streams.size() / w.pre.size();
  std::vector<float> y(width);
  for (std::size_t i = 0; i < width; ++i)
    for (std::size_t j = 0; j < w.pre.size(); ++j) y[i] = std::fma(w.pre[j], streams[j * width + i], y[i]);
  return y;
}

std::vector<float> hyper_add_exact(std::span<const float> streams, std::span<const float> branch,
                                   const HyperWeights& w) {
  const std::size_t n = w.post.size(), width = branch.size();
  std::vector<float> y;
  for (std::size_t k = 0; k < n; ++k)
    for (std::size_t i = 0; i < width; ++i) {
      float sum = w.post[k] * branch[i];
      for (std::size_t j = 0; j < n; ++j) sum = std::fma(w.mix[j * n + k], streams[j * width + i], sum);
      y.push_back(sum);
    }
  return y;
}

HyperWeightsReference hyper_weights_reference(std::span<const double> mixes, std::span<const float> base,
                                              std::span<const float> scale, const HyperOptions& o) {
  const std::size_t n = o.streams;
  const double eps = o.floor_eps;
  const auto scaled = [&](std::size_t i, float by) { return mixes[i] * by + base[i]; };
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  HyperWeightsReference w;
  for (std::size_t i = 0; i < n; ++i) w.pre.push_back(sigmoid(scaled(i, scale[0])) + eps);
  if (mixes.size() == n) return w;
  for (std::size_t i = 0; i < n; ++i) w.post.push_back(2 * sigmoid(scaled(n + i, scale[1])));
  for (std::size_t j = 0; j < n; ++j) {
    double sum = 0;
    for (std::size_t k = 0; k < n; ++k) sum += std::exp(scaled((2 + j) * n + k, scale[2]));
    for (std::size_t k = 0; k < n; ++k) w.mix.push_back(std::exp(scaled((2 + j) * n + k, scale[2])) / sum + eps);
  }
  for (std::size_t i = 0; i < 2 * o.iterations - 1; ++i)  // columns, rows, columns, ...
    for (std::size_t a = 0; a < n; ++a) {
      const auto at = [&](std::size_t b) -> double& { return i % 2 == 0 ? w.mix[b * n + a] : w.mix[a * n + b]; };
      double sum = eps;
      for (std::size_t b = 0; b < n; ++b) sum += at(b);
      for (std::size_t b = 0; b < n; ++b) at(b) /= sum;
    }
  return w;
}

std::vector<float> compress_exact(std::span<const float> kv, std::span<const float> gate, std::span<const float> bias,
                                  const CompressOptions& o) {
  const std::size_t columns = o.dim * (o.overlaps ? 2 : 1), windows = kv.size() / columns / o.rate;
  std::vector<float> y;
  for (std::size_t w = 0; w < windows; ++w)
    for (std::size_t c = 0; c < o.dim; ++c) {
      float largest = kNothing, sum = 0, weighed = 0;
      for (const Member& m : members(w, o)) {
        const std::size_t at = m.row * columns + m.column + c;
        const float logit = gate[at] + bias[m.row % o.rate * columns + m.column + c];
        const float now = std::max(largest, logit), kept = sum > 0 ? exp_exact(largest - now) : 0.0f,
                    weight = exp_exact(logit - now);
        sum = std::fma(sum, kept, weight);
        weighed = std::fma(weighed, kept, weight * kv[at]);
        largest = now;
      }
      y.push_back(weighed / sum);
    }
  return y;
}

std::vector<double> compress_reference(std::span<const double> kv, std::span<const double> gate,
                                       std::span<const float> bias, const CompressOptions& o) {
  const std::size_t columns = o.dim * (o.overlaps ? 2 : 1), windows = kv.size() / columns / o.rate;
  std::vector<double> y;
  for (std::size_t w = 0; w < windows; ++w)
    for (std::size_t c = 0; c < o.dim; ++c) {
      double sum = 0, weighed = 0;
      for (const Member& m : members(w, o)) {
        const std::size_t at = m.row * columns + m.column + c;
        const double weight = std::exp(gate[at] + bias[m.row % o.rate * columns + m.column + c]);
        sum += weight, weighed += weight * kv[at];
      }
      y.push_back(weighed / sum);
    }
  return y;
}

float lanes_dot_exact(std::span<const float> a, std::span<const float> b) {
  std::array<float, 16> lanes{};
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 16] = std::fma(a[i], b[i], lanes[i % 16]);
  return tree_sum(lanes);
}

std::vector<float> attend_keys_exact(std::span<const float> q, std::span<const float> keys, const KeysOptions& o) {
  const std::size_t dim = q.size(), count = keys.size() / dim;
  std::vector<float> scores;
  for (std::size_t l = 0; l < count; ++l) scores.push_back(lanes_dot_exact(q, keys.subspan(l * dim, dim)) * o.scale);
  const float largest = std::max(*std::ranges::max_element(scores), o.sink);
  for (float& s : scores) s = exp_exact(s - largest);
  const float total = lanes_sum(scores) + exp_exact(o.sink - largest);
  std::vector<float> y(dim);
  for (std::size_t l = 0; l < count; ++l)
    for (std::size_t i = 0; i < dim; ++i) y[i] = std::fma(scores[l], keys[l * dim + i], y[i]);
  for (float& v : y) v /= total;
  return y;
}

std::vector<double> attend_keys_reference(std::span<const double> q, std::span<const double> keys,
                                          const KeysOptions& o) {
  const std::size_t dim = q.size(), count = keys.size() / dim;
  double total = std::exp(static_cast<double>(o.sink));
  std::vector<double> y(dim);
  for (std::size_t l = 0; l < count; ++l) {
    double score = 0;
    for (std::size_t i = 0; i < dim; ++i) score += q[i] * keys[l * dim + i];
    const double weight = std::exp(score * o.scale);
    total += weight;
    for (std::size_t i = 0; i < dim; ++i) y[i] += weight * keys[l * dim + i];
  }
  for (double& v : y) v /= total;
  return y;
}

}  // namespace llorch::engine::compute::reference
