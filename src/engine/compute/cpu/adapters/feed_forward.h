#pragma once
// A dense feed-forward over rows: down(act(gate(x)) * up(x)), or down(act(up(x))).
#include <algorithm>

#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters {

struct FeedForward {
  std::size_t width = 0;            // D
  std::size_t ffn = 0;              // F
  const CpuWeight* gate = nullptr;  // null = not gated
  const CpuWeight* up = nullptr;
  const CpuWeight* down = nullptr;
  const float* gate_bias = nullptr;  // each null = none
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  Activation act = Activation::kSilu;
  float alpha = 0;
  float limit = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
};

// A thread makes some hidden columns at a time, up and gate of them: these stay in its second-level cache, and only what `down`
// reads goes to memory.
struct FeedForwardScratch {
  FeedForwardScratch(Arena& arena, std::size_t width, std::size_t ffn, std::size_t rows, std::size_t threads)
      : x(arena.take_quantized(rows, width)),
        hidden(arena.take<float>(rows * ffn)),
        hidden_quantized(arena.take_quantized(rows, ffn)),
        thread_floats(std::min(kThreadFloats, 2 * rows * units_of(ffn) * kUnitColumns)),
        up_gate(arena.take<float>(threads * thread_floats)) {}

  // Columns are made in whole units: blocks, where they are quantized.
  static constexpr std::size_t kUnitColumns = 32;
  static std::size_t units_of(std::size_t columns) { return (columns + kUnitColumns - 1) / kUnitColumns; }
  // That a thread makes at a time for so many rows, at most.
  std::size_t units_most(std::size_t rows) const { return thread_floats / (2 * rows * kUnitColumns); }

  QuantizedRows x;
  float* hidden;                   // [rows, F], for float weights
  QuantizedRows hidden_quantized;  // [rows, F], for quantized ones
  std::size_t thread_floats;
  float* up_gate;  // [threads, thread_floats]: up of [rows, columns], gate of as many

 private:
  // 256 KiB, beside the activations of a panel. A thread reads activations that its cache does not keep once for as many columns.
  static constexpr std::size_t kThreadFloats = 64 << 10;
};

struct FeedForwardRows {
  const float* x = nullptr;  // [rows, D]
  float* y = nullptr;        // [rows, D]
  std::size_t rows = 0;
};
void feed_forward(const CpuStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows);

}  // namespace llorch::engine::compute::cpu::adapters
