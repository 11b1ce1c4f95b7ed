#pragma once
// Kernels that carry a state along a sequence, one row after the other. Rows of a sequence are consecutive; the block whose
// row is the first of one works through all of it, the others have nothing to do.
#include "engine/compute/cuda/kernels/rows.h"

namespace llorch::engine::compute::cuda::kernels {

struct Sequences {
  const std::uint32_t* sequence_of_row = nullptr;  // [rows]
  std::uint32_t rows = 0;
  std::byte* state = nullptr;  // sequence s at state + s * state_stride
  std::uint64_t state_stride = 0;
  bool operator==(const Sequences&) const = default;

  LLORCH_KERNEL bool begins(std::uint32_t row) const {
    return row == 0 || sequence_of_row[row - 1] != sequence_of_row[row];
  }
  LLORCH_KERNEL bool goes_on(std::uint32_t row, std::uint32_t first) const {
    return row < rows && sequence_of_row[row] == sequence_of_row[first];
  }
  LLORCH_KERNEL float* state_of(std::uint32_t row) const {
    return reinterpret_cast<float*>(state + sequence_of_row[row] * state_stride);
  }
};

inline constexpr std::uint32_t kTapsMax = 8;

// Causal depthwise convolution. v = x, or gate_in * x; w = bias + sum_k weight[c][k] v[k - taps + 1 rows away]; y = w,
// silu(w), or gate_out * w. State: the last taps - 1 rows of v, oldest first, [taps - 1][channels]. Grid: channels /
// kThreads, rows.
struct CausalConvArgs {
  Sequences sequences;
  const float* x = nullptr;  // row stride x_stride, as the gates
  const float* gate_in = nullptr;
  const float* gate_out = nullptr;
  std::uint64_t x_stride = 0;
  float* y = nullptr;  // row stride y_stride; may be x
  std::uint64_t y_stride = 0;
  std::uint32_t channels = 0;
  std::uint32_t taps = 0;         // 1 .. kTapsMax
  const float* weight = nullptr;  // [channels, taps], the last tap meets the row itself
  const float* bias = nullptr;    // [channels] or null
  bool silu = false;
  bool operator==(const CausalConvArgs&) const = default;
};
struct CausalConv {
  using Args = CausalConvArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 128;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    if (!args.sequences.begins(block.y())) return;
    block.each([&](std::uint32_t thread) {
      const std::uint32_t channel = block.x() * kThreads + thread;
      if (channel < args.channels) run_channel(args, block.y(), channel);
    });
  }

 private:
  static LLORCH_KERNEL void run_channel(const Args& args, std::uint32_t first, std::uint32_t channel) {
    float* state = args.sequences.state_of(first) + channel;
    const std::uint32_t past = args.taps - 1;
    float window[kTapsMax], weight[kTapsMax];  // tap k of `taps` stands at kTapsMax - taps + k
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kTapsMax; ++i) {
      const bool used = i + args.taps >= kTapsMax;
      const std::uint32_t k = i + args.taps - kTapsMax;
      weight[i] = used ? args.weight[channel * args.taps + k] : 0.0f;
      window[i] = used && k < past ? state[std::uint64_t{k} * args.channels] : 0.0f;
    }
    for (std::uint32_t row = first; args.sequences.goes_on(row, first); ++row) {
      const std::uint64_t at = row * args.x_stride + channel;
      window[kTapsMax - 1] = args.gate_in != nullptr ? args.gate_in[at] * args.x[at] : args.x[at];
      float w = args.bias != nullptr ? args.bias[channel] : 0.0f;
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < kTapsMax; ++i)
        if (i + args.taps >= kTapsMax) w = fma(weight[i], window[i], w);
      if (args.silu) w = activated(plan::Activation::kSilu, w);
      args.y[row * args.y_stride + channel] = args.gate_out != nullptr ? args.gate_out[at] * w : w;
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i + 1 < kTapsMax; ++i) window[i] = window[i + 1];
    }
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i + 1 < kTapsMax; ++i)
      if (i + args.taps >= kTapsMax) state[std::uint64_t{i + args.taps - kTapsMax} * args.channels] = window[i];
  }
};

// Selective state space. delta = clamp(softplus(dt + dt_bias), dt_min, dt_max), decay = e^(delta * a);
// S = decay * S + (delta * x) b^T; y = S c + skip * x. State: S, [heads][head_dim][state_dim]. Grid: heads, rows.
struct SsmScanArgs {
  Sequences sequences;
  const float* x = nullptr;  // [rows, heads * head_dim], row stride `stride`, as b, c and dt
  const float* b = nullptr;  // [rows, groups * state_dim]; head h reads group h / (heads / groups)
  const float* c = nullptr;
  const float* dt = nullptr;       // [rows, heads]
  const float* dt_bias = nullptr;  // [heads]
  const float* a = nullptr;        // [heads]
  const float* skip = nullptr;     // [heads]
  std::uint64_t stride = 0;
  float* y = nullptr;  // row stride `stride`; may be x
  float dt_min = 0;
  float dt_max = 0;
  std::uint32_t heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t state_dim = 0;
  std::uint32_t groups = 0;
  bool operator==(const SsmScanArgs&) const = default;
};
struct SsmScan {
  using Args = SsmScanArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kDims = kThreads / 16;  // sixteen lanes to a dimension of the head
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    const std::uint32_t first = block.y(), head = block.x();
    if (!args.sequences.begins(first)) return;
    float* state = args.sequences.state_of(first) + std::uint64_t{head} * args.head_dim * args.state_dim;
    for (std::uint32_t row = first; args.sequences.goes_on(row, first); ++row) {
      const float step = softplus(args.dt[row * args.stride + head] + args.dt_bias[head]);
      const float low = step < args.dt_min ? args.dt_min : step, delta = args.dt_max < low ? args.dt_max : low;
      const float decay = exponential(delta * args.a[head]);
      for (std::uint32_t dim = 0; dim < args.head_dim; dim += kDims)
        step_dims(block, args, state, row, dim, delta, decay);
    }
  }

 private:
  template <class Block>
  static LLORCH_KERNEL void step_dims(Block& block, const Args& args, float* state, std::uint32_t row,
                                      std::uint32_t first_dim, float delta, float decay) {
    const std::uint32_t head = block.x();
    const std::uint64_t group = std::uint64_t{head / (args.heads / args.groups)} * args.state_dim;
    const float* x = args.x + row * args.stride + std::uint64_t{head} * args.head_dim;
    const float* b = args.b + row * args.stride + group;
    const float* c = args.c + row * args.stride + group;
    typename Block::template PerThread<float> sums;
    block.each([&](std::uint32_t thread) {
      const std::uint32_t dim = first_dim + thread / 16;
      if (dim >= args.head_dim) return;
      const float dx = delta * x[dim];
      float* s = state + std::uint64_t{dim} * args.state_dim;
      for (std::uint32_t n = thread % 16; n < args.state_dim; n += 16) {
        s[n] = fma(decay, s[n], dx * b[n]);
        sums[thread] = fma(s[n], c[n], sums[thread]);
      }
    });
    block.template sum_tree<16>(sums, [](float& sum) -> float& { return sum; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t dim = first_dim + thread / 16;
      if (dim >= args.head_dim || thread % 16 != 0) return;
      args.y[row * args.stride + std::uint64_t{head} * args.head_dim + dim] =
          fma(args.skip[head], x[dim], sums[thread]);
    });
  }
};

// The gated delta rule over q and k that become unit vectors, q / sqrt(key_dim) of one. beta = sigmoid(beta), decay =
// e^(a softplus(dt + dt_bias)); S = decay S; r = beta (v - S k); S = S + r k^T; y = S q. State: S, [heads][value_dim][key_dim].
// Grid: heads, rows.
struct DeltaScanArgs {
  Sequences sequences;
  const float* q =
      nullptr;  // [rows, key_heads * key_dim], row stride `stride`, as all; head h reads h / (heads / key_heads)
  const float* k = nullptr;
  float* v = nullptr;              // [rows, heads * value_dim]; becomes y
  const float* beta = nullptr;     // [rows, heads]
  const float* dt = nullptr;       // [rows, heads], or [rows, heads * key_dim] with one for each column of S
  const float* dt_bias = nullptr;  // [heads] or [heads * key_dim]
  const float* a = nullptr;        // [heads]
  std::uint64_t stride = 0;
  std::uint32_t heads = 0;
  std::uint32_t key_heads = 0;
  std::uint32_t key_dim = 0;  // at most kDeltaKeyMax
  std::uint32_t value_dim = 0;
  float unit_eps = 0;
  bool keys_take_turns = false;  // head h reads key head h mod key_heads
  bool channel_decay = false;
  bool operator==(const DeltaScanArgs&) const = default;
};
inline constexpr std::uint32_t kDeltaKeyMax = 512;
struct DeltaScan {
  using Args = DeltaScanArgs;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kDims = kThreads / 16;  // sixteen lanes to a dimension of the value
  struct Shared {
    LaneSum sum;
    float q[kDeltaKeyMax];
    float k[kDeltaKeyMax];
    float decay[kDeltaKeyMax];
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t first = block.y(), head = block.x();
    if (!args.sequences.begins(first)) return;
    const std::uint32_t key_head = args.keys_take_turns ? head % args.key_heads : head / (args.heads / args.key_heads);
    const std::uint64_t key = std::uint64_t{key_head} * args.key_dim;
    float* state = args.sequences.state_of(first) + std::uint64_t{head} * args.value_dim * args.key_dim;
    const float root = square_root(static_cast<float>(args.key_dim));
    for (std::uint32_t row = first; args.sequences.goes_on(row, first); ++row) {
      unit(block, shared, args.q + row * args.stride + key, args, divide(1.0f, root), shared.q);
      unit(block, shared, args.k + row * args.stride + key, args, 1.0f, shared.k);
      decays(block, shared, args, row, head);
      for (std::uint32_t dim = 0; dim < args.value_dim; dim += kDims) step_dims(block, shared, args, state, row, dim);
    }
  }

 private:
  template <class Block>
  static LLORCH_KERNEL void unit(Block& block, Shared& shared, const float* x, const Args& args, float length,
                                 float* out) {
    lane_sum(
        block, shared.sum, args.key_dim, [&](std::uint32_t i) { return x[i]; }, AddSquare());
    block.each([&](std::uint32_t thread) {
      const float scale = divide(length, square_root(shared.sum.total + args.unit_eps));
      for (std::uint32_t i = thread; i < args.key_dim; i += kThreads) out[i] = x[i] * scale;
    });
  }
  template <class Block>
  static LLORCH_KERNEL void decays(Block& block, Shared& shared, const Args& args, std::uint32_t row,
                                   std::uint32_t head) {
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t n = thread; n < args.key_dim; n += kThreads) {
        const std::uint64_t at = args.channel_decay ? std::uint64_t{head} * args.key_dim + n : head;
        shared.decay[n] = exponential(softplus(args.dt[row * args.stride + at] + args.dt_bias[at]) * args.a[head]);
      }
    });
  }
  template <class Block>
  static LLORCH_KERNEL void step_dims(Block& block, const Shared& shared, const Args& args, float* state,
                                      std::uint32_t row, std::uint32_t first_dim) {
    const std::uint32_t head = block.x();
    const std::uint64_t at = row * args.stride + head;
    const float beta = sigmoid(args.beta[at]);
    float* v = args.v + row * args.stride + std::uint64_t{head} * args.value_dim;
    typename Block::template PerThread<float> seen, sums;
    block.each([&](std::uint32_t thread) {
      const std::uint32_t dim = first_dim + thread / 16;
      if (dim >= args.value_dim) return;
      float* s = state + std::uint64_t{dim} * args.key_dim;
      for (std::uint32_t n = thread % 16; n < args.key_dim; n += 16) {
        s[n] = shared.decay[n] * s[n];
        seen[thread] = fma(s[n], shared.k[n], seen[thread]);
      }
    });
    block.template sum_tree<16>(seen, [](float& sum) -> float& { return sum; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t dim = first_dim + thread / 16;
      if (dim >= args.value_dim) return;
      const float rest = beta * (v[dim] - seen[thread]);
      float* s = state + std::uint64_t{dim} * args.key_dim;
      for (std::uint32_t n = thread % 16; n < args.key_dim; n += 16) {
        s[n] = s[n] + rest * shared.k[n];
        sums[thread] = fma(s[n], shared.q[n], sums[thread]);
      }
    });
    block.template sum_tree<16>(sums, [](float& sum) -> float& { return sum; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t dim = first_dim + thread / 16;
      if (dim < args.value_dim && thread % 16 == 0) v[dim] = sums[thread];
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
