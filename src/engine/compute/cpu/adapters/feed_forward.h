#pragma once
// A dense feed-forward over rows: down(act(gate(x)) * up(x)), or down(act(up(x))).
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

struct FeedForwardShape {
  std::size_t width = 0;
  std::size_t ffn = 0;
  bool gated = true;
};

struct FeedForwardScratch {
  FeedForwardScratch(Arena& arena, const FeedForwardShape& shape, std::size_t rows)
      : stride((shape.gated ? 2 : 1) * shape.ffn),
        up_gate(arena.take<float>(rows * stride)),
        x(arena.take_quantized(rows, shape.width)),
        hidden(arena.take_quantized(rows, shape.ffn)) {}
  std::size_t stride;
  float* up_gate;  // [rows, F or 2F]: up, then gate
  QuantizedRows x, hidden;
};

struct FeedForwardRows {
  const float* x = nullptr;  // [rows, D]
  float* y = nullptr;        // [rows, D]
  std::size_t rows = 0;
};
void feed_forward(const CpuStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows);

}  // namespace llorch::engine::compute::cpu::adapters
