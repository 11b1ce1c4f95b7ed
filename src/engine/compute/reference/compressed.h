#pragma once
// Hyper-connections and attention to entries of windows: their numerics (docs/internals/numerics.md) one scalar step after the other, and
// plain double oracles of the same formulas. Independent of the SIMD kernels.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace llorch::engine::compute::reference {

// How a row of residual streams is read from and given to (plan/params.h). `mixes` are what fn gave.
struct HyperOptions {
  std::size_t streams = 0;
  std::size_t iterations = 1;
  float floor_eps = 0;
};
struct HyperWeights {
  std::vector<float> pre;   // [streams]
  std::vector<float> post;  // [streams]; empty where nothing is put back, as mix
  std::vector<float> mix;   // [streams, streams]
};
HyperWeights hyper_weights_exact(std::span<const float> mixes, std::span<const float> base,
                                 std::span<const float> scale, const HyperOptions& options);
// streams is [streams, width].
std::vector<float> hyper_collapse_exact(std::span<const float> streams, const HyperWeights& weights);
std::vector<float> hyper_add_exact(std::span<const float> streams, std::span<const float> branch,
                                   const HyperWeights& weights);
struct HyperWeightsReference {
  std::vector<double> pre, post, mix;
};
HyperWeightsReference hyper_weights_reference(std::span<const double> mixes, std::span<const float> base,
                                              std::span<const float> scale, const HyperOptions& options);

// Entries of a sequence, from its first row on.
struct CompressOptions {
  std::size_t dim = 0;
  std::size_t rate = 1;
  bool overlaps = false;
};
// Rows of kv and gate are [dim], or [next | own] where windows overlap; bias has `rate` of them. One entry per whole window.
std::vector<float> compress_exact(std::span<const float> kv, std::span<const float> gate, std::span<const float> bias,
                                  const CompressOptions& options);
std::vector<double> compress_reference(std::span<const double> kv, std::span<const double> gate,
                                       std::span<const float> bias, const CompressOptions& options);

// The dot product of compressed attention: sixteen sums, lane i mod 16, i increasing, then the tree.
float lanes_dot_exact(std::span<const float> a, std::span<const float> b);

// softmax(scale * q . k) k of one head over `keys`, in order, with a sink.
struct KeysOptions {
  float scale = 1;
  float sink = 0;
};
std::vector<float> attend_keys_exact(std::span<const float> q, std::span<const float> keys, const KeysOptions& options);
std::vector<double> attend_keys_reference(std::span<const double> q, std::span<const double> keys,
                                          const KeysOptions& options);

}  // namespace llorch::engine::compute::reference
