#pragma once
// Plain double-precision oracles: what the formulas say, with no thought for order. Accuracy tests measure kernels
// against them.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace llorch::engine::compute::reference {

struct RmsNormReferenceOptions {
  double eps = 0;
  double weight_offset = 0;
};
std::vector<double> rms_norm_reference(std::span<const float> x, std::span<const float> weight,
                                       const RmsNormReferenceOptions& options);

// (x - mean) / sqrt(variance + eps) * weight + bias; `bias` may be empty.
std::vector<double> layer_norm_reference(std::span<const float> x, std::span<const float> weight,
                                         std::span<const float> bias, double eps);

double gelu_tanh_reference(double x);
double gelu_erf_reference(double x);

// y[n] = sum_k w[n, k] x[k]; w is [x.size() * n] row-major.
std::vector<double> matmul_reference(std::span<const float> w, std::span<const float> x);

struct AttentionReferenceOptions {
  std::size_t position = 0;
  std::size_t window = 0;  // 0 = all
  double scale = 1;
  double softcap = 0;  // 0 = off
  std::optional<double> sink = {};
};
// One query head over keys and values of positions 0 .. position.
std::vector<double> attention_reference(std::span<const float> q, std::span<const float> keys,
                                        std::span<const float> values, const AttentionReferenceOptions& options);

// scale * sum over heads of w_h relu(q_h . k) for every key; q is [heads, dims], keys [positions, dims].
std::vector<double> index_scores_reference(std::span<const float> q, std::span<const float> weights,
                                           std::span<const float> keys, double scale);

}  // namespace llorch::engine::compute::reference
