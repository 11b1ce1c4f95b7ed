#pragma once
// The mixers that carry a state along a sequence: their numerics (docs/internals/numerics.md) one scalar step after the
// other, and plain double oracles of the same formulas. Independent of the SIMD kernels.
#include <cstddef>
#include <span>
#include <vector>

namespace llorch::engine::compute::reference {

float log1p_exact(float x);  // x >= 0
float softplus_exact(float x);

// One channel of a causal depthwise convolution with its last taps - 1 inputs, oldest first.
class ConvChannel {
 public:
  ConvChannel(std::span<const float> weight, float bias)
      : weight_(weight.begin(), weight.end()), bias_(bias), window_(weight.size(), 0.0f) {}
  float next_exact(float v);
  double next_reference(double v);

 private:
  void push(double v);
  std::vector<float> weight_;
  float bias_;
  std::vector<double> window_;  // holds floats exactly
};

struct SsmStep {
  float delta, decay;
};
struct SsmStepOptions {
  float dt = 0, bias = 0, a = 0, dt_min = 0, dt_max = 0;
};
SsmStep ssm_step_exact(const SsmStepOptions& options);

// One head of a selective state space, S [head_dim, state_dim], from zero.
class SsmHead {
 public:
  SsmHead(std::size_t head_dim, std::size_t state_dim) : exact_(head_dim * state_dim), double_(head_dim * state_dim) {}
  // y [head_dim]; x is as long.
  std::vector<float> next_exact(std::span<const float> x, std::span<const float> b, std::span<const float> c,
                                const SsmStep& step, float skip);
  // delta and the decay from dt, in double throughout.
  std::vector<double> next_reference(std::span<const double> x, std::span<const double> b, std::span<const double> c,
                                     const SsmStepOptions& step, double skip);

 private:
  std::vector<float> exact_;
  std::vector<double> double_;
};

// One value head of the gated delta rule, S [value_dim, key_dim], from zero.
class DeltaHead {
 public:
  DeltaHead(std::size_t value_dim, std::size_t key_dim) : exact_(value_dim * key_dim), double_(value_dim * key_dim) {}
  struct Step {
    float beta;
    std::span<const float> decays;  // one for all columns of S, or one for each
    float decay(std::size_t n) const { return decays[decays.size() == 1 ? 0 : n]; }
  };
  // y [value_dim]; v is as long, q and k are as long as a key.
  std::vector<float> next_exact(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                Step step);
  std::vector<double> next_reference(std::span<const float> q, std::span<const float> k, std::span<const float> v,
                                     Step step);

 private:
  std::vector<float> exact_;
  std::vector<double> double_;
};

}  // namespace llorch::engine::compute::reference
