#pragma once
// Hyper-connections: residual streams that branches read from and give to. Weights of a row as engine/plan/params.h has them.
#include "engine/compute/cuda/kernels/rows.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kStreamsMax = 16;

// Rows of D elements `copies` times side by side. Grid: columns / kThreads, rows.
struct SpreadRowsArgs {
  const float* x = nullptr;  // [rows, width]
  float* y = nullptr;        // [rows, copies * width]
  std::uint32_t width = 0;
  std::uint32_t copies = 0;
  bool operator==(const SpreadRowsArgs&) const = default;
};
struct SpreadRows {
  using Args = SpreadRowsArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t i = block.x() * kThreads + thread;
      if (i >= args.width) return;
      const std::uint64_t row = block.y();
      for (std::uint32_t c = 0; c < args.copies; ++c)
        args.y[(row * args.copies + c) * args.width + i] = args.x[row * args.width + i];
    });
  }
};

// What both kernels are told.
struct HyperArgs {
  const float* mixes = nullptr;   // [rows, mix_rows], what fn gave
  const float* base = nullptr;    // [mix_rows]
  const float* scale = nullptr;   // [3], or [1]
  const float* x = nullptr;       // stream i of row r at x + r * x_stride + i * stream_stride
  const float* branch = nullptr;  // [rows, width]
  float* y = nullptr;             // [rows, width], or [rows, streams * width]
  std::uint64_t x_stride = 0;
  std::uint64_t stream_stride = 0;
  std::uint32_t width = 0;
  std::uint32_t streams = 0;  // at most kStreamsMax
  std::uint32_t mix_rows = 0;
  std::uint32_t iterations = 0;
  float floor_eps = 0;
  bool operator==(const HyperArgs&) const = default;

  LLORCH_KERNEL float scaled(std::uint32_t row, std::uint32_t i, float by) const {
    return fma(mixes[std::uint64_t{row} * mix_rows + i], by, base[i]);
  }
  LLORCH_KERNEL float stream(std::uint32_t row, std::uint32_t j, std::uint32_t i) const {
    return x[row * x_stride + j * stream_stride + i];
  }
};

// y = sum over i, increasing, of pre_i s_i. Grid: rows.
struct HyperCollapse {
  using Args = HyperArgs;
  static constexpr std::uint32_t kThreads = 256;
  struct Shared {
    float pre[kStreamsMax];
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t row = block.x();
    block.each([&](std::uint32_t thread) {
      if (thread < args.streams) shared.pre[thread] = sigmoid(args.scaled(row, thread, args.scale[0])) + args.floor_eps;
    });
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.width; i += kThreads) {
        float sum = 0.0f;
        for (std::uint32_t j = 0; j < args.streams; ++j) sum = fma(shared.pre[j], args.stream(row, j, i), sum);
        args.y[std::uint64_t{row} * args.width + i] = sum;
      }
    });
  }
};

// y_k = post_k b, then + mix_jk s_j, j increasing. Grid: rows.
struct HyperAdd {
  using Args = HyperArgs;
  static constexpr std::uint32_t kThreads = 256;
  struct Shared {
    float post[kStreamsMax];
    float mix[kStreamsMax][kStreamsMax];  // the columns behind the streams are 0
    float sums[kStreamsMax];
  };
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t row = block.x(), n = args.streams;
    block.each([&](std::uint32_t thread) {
      if (thread >= n) return;
      shared.post[thread] = 2.0f * sigmoid(args.scaled(row, n + thread, args.scale[1]));
      first_row(shared.mix[thread], args, row, thread);
    });
    divide_columns(block, shared, args);
    for (std::uint32_t i = 1; i < args.iterations; ++i) {
      block.each([&](std::uint32_t thread) {
        if (thread >= n) return;
        const float sum = lanes_sum(shared.mix[thread]) + args.floor_eps;
        for (std::uint32_t k = 0; k < n; ++k) shared.mix[thread][k] = divide(shared.mix[thread][k], sum);
      });
      divide_columns(block, shared, args);
    }
    block.each([&](std::uint32_t thread) {
      for (std::uint32_t i = thread; i < args.width; i += kThreads)
        for (std::uint32_t k = 0; k < n; ++k) {
          float sum = shared.post[k] * args.branch[std::uint64_t{row} * args.width + i];
          for (std::uint32_t j = 0; j < n; ++j) sum = fma(shared.mix[j][k], args.stream(row, j, i), sum);
          args.y[(std::uint64_t{row} * n + k) * args.width + i] = sum;
        }
    });
  }

 private:
  // Sixteen lanes: 16 -> 8 -> 4 -> 2 -> 1.
  static LLORCH_KERNEL float lanes_sum(const float* lanes) {
    float sums[kStreamsMax];
    for (std::uint32_t i = 0; i < kStreamsMax; ++i) sums[i] = lanes[i];
    for (std::uint32_t half = kStreamsMax / 2; half != 0; half /= 2)
      for (std::uint32_t i = 0; i < half; ++i) sums[i] = sums[i] + sums[i + half];
    return sums[0];
  }
  static LLORCH_KERNEL void first_row(float* mix, const Args& args, std::uint32_t row, std::uint32_t j) {
    const std::uint32_t n = args.streams;
    float largest = minus_infinity();
    for (std::uint32_t k = 0; k < kStreamsMax; ++k) {
      mix[k] = k < n ? args.scaled(row, (2 + j) * n + k, args.scale[2]) : minus_infinity();
      largest = mix[k] > largest ? mix[k] : largest;
    }
    for (std::uint32_t k = 0; k < kStreamsMax; ++k) mix[k] = exponential(mix[k] - largest);
    const float sum = lanes_sum(mix);
    for (std::uint32_t k = 0; k < kStreamsMax; ++k) mix[k] = k < n ? divide(mix[k], sum) + args.floor_eps : 0.0f;
  }
  template <class Block>
  static LLORCH_KERNEL void divide_columns(Block& block, Shared& shared, const Args& args) {
    block.each([&](std::uint32_t thread) {
      if (thread >= args.streams) return;
      float sum = 0.0f;
      for (std::uint32_t j = 0; j < args.streams; ++j) sum = sum + shared.mix[j][thread];
      sum = sum + args.floor_eps;
      for (std::uint32_t j = 0; j < args.streams; ++j) shared.mix[j][thread] = divide(shared.mix[j][thread], sum);
    });
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
