#pragma once
// The numerics of docs/internals/numerics.md, one scalar step after the other. Slow, plain, independent of the SIMD
// kernels and of the packed layouts: it reads weights and caches as stored or as plain f32. The kernels must give these
// bits.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/plan/dtype.h"

namespace llorch::engine::compute::reference {

// Adds sixteen lanes: 16 -> 8 -> 4 -> 2 -> 1.
float tree_sum(std::span<const float, 16> lanes);

float exp_exact(float x);
float tanh_exact(float x);
float erf_exact(float x);
void sincos_exact(float x, float& sine, float& cosine);

struct NormOptions {
  float eps = 0;
  float weight_offset = 0;
};
std::vector<float> rms_norm_exact(std::span<const float> x, std::span<const float> weight, const NormOptions& options);

// `bias` may be empty.
std::vector<float> layer_norm_exact(std::span<const float> x, std::span<const float> weight,
                                    std::span<const float> bias, float eps);

// The mean of rows of x, [., width].
std::vector<float> mean_exact(std::span<const float> x, std::size_t width);

// Stored rows of any matrix type as f32, [rows, cols].
std::vector<float> dequantize(plan::DType dtype, std::span<const std::byte> stored, std::size_t rows, std::size_t cols);

// One activation row as int8 blocks of 32.
struct QuantizedRow {
  std::vector<std::int8_t> q;
  std::vector<float> scales;
};
QuantizedRow quantize_exact(std::span<const float> x);

// y[n] = sum_k w[n, k] x[k] over stored weights of any type.
std::vector<float> matmul_exact(plan::DType dtype, std::span<const std::byte> stored, std::size_t rows,
                                std::span<const float> x);

// Rotates `x` (one head) in place.
struct RopeOptions {
  std::span<const float> inv_freq;  // [R/2]
  float attn_factor = 1;
  bool interleaved = false;
  std::uint32_t position = 0;
  std::span<const std::uint32_t> position_of_pair = {};  // [R/2] instead of `position`, when pairs turn by several axes
};
void rope_exact(std::span<float> x, const RopeOptions& options);

float silu_exact(float x);
float gelu_tanh_exact(float x);
float gelu_erf_exact(float x);
float relu2_exact(float x);
struct XieluOptions {
  float alpha = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
};
float xielu_exact(float x, const XieluOptions& options);
struct SwigluOaiOptions {
  float alpha = 0;
  float limit = 0;
};
float swiglu_oai_exact(float gate, float up, const SwigluOaiOptions& options);
// silu(min(gate, limit)) * clamp(up, -limit, limit).
float silu_clamped_exact(float gate, float up, float limit);
std::vector<float> softmax_exact(std::span<const float> x);
float sigmoid_exact(float x);
float softcap_exact(float x, float cap);

// One query head over the keys and values of positions 0 .. position, already as the cache returns them.
struct AttentionOptions {
  std::uint32_t position = 0;
  std::uint32_t window = 0;
  float scale = 1;
  float softcap = 0;
  std::optional<float> sink = {};
};
std::vector<float> attention_exact(std::span<const float> q, std::span<const float> keys, std::span<const float> values,
                                   const AttentionOptions& options);

// One head over cache rows [latent | rest] of positions 0 .. position; latent_dim values.
struct LatentAttentionOptions {
  std::uint32_t position = 0;
  std::size_t latent_dim = 0;
  float scale = 1;
  std::span<const std::uint32_t> chosen = {};  // bits of the positions that count; empty: all do
};
std::vector<float> latent_attention_exact(std::span<const float> q, std::span<const float> rows,
                                          const LatentAttentionOptions& options);

// scale * sum over heads of w_h relu(q_h . k) for every key; q is [heads, dims], keys [positions, dims].
std::vector<float> index_scores_exact(std::span<const float> q, std::span<const float> weights,
                                      std::span<const float> keys, float scale);

}  // namespace llorch::engine::compute::reference
