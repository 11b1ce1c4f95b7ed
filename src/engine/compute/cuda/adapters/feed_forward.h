#pragma once
// A dense feed-forward over rows: down(act(gate(x)) * up(x)), or down(act(up(x))).
#include "engine/compute/cuda/adapters/support.h"

namespace llorch::engine::compute::cuda::adapters {

struct FeedForward {
  std::uint32_t width = 0;           // D
  std::uint32_t ffn = 0;             // F
  const CudaWeight* gate = nullptr;  // null = not gated
  const CudaWeight* up = nullptr;
  const CudaWeight* down = nullptr;
  const float* gate_bias = nullptr;  // each null = none
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
  contract::Activation act = contract::Activation::kSilu;
  float alpha = 0;
  float limit = 0;
};

// Scratch of `rows` rows.
struct FeedForwardScratch {
  FeedForwardScratch(Carver& carver, std::uint32_t width, std::uint32_t ffn, bool gated, std::uint64_t rows)
      : stride((gated ? 2 : 1) * std::uint64_t{ffn}),
        up_gate(carver.take<float>(rows * stride)),
        x(carver.take_quantised(rows, width)),
        hidden(carver.take_quantised(rows, ffn)) {}
  std::uint64_t stride;
  float* up_gate;  // [rows, F or 2F]: up, then gate
  kernels::QuantisedRows x, hidden;
};

// What the rows are, and which expert of stacked weights each of them goes to.
struct FeedForwardRows {
  const float* x = nullptr;  // [rows / rows_per_x, D]
  float* y = nullptr;        // [rows, D]
  std::uint32_t rows = 0;
  std::uint32_t rows_per_x = 1;
  const std::uint32_t* matrix_of_row = nullptr;
};
void feed_forward(const CudaStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows);

}  // namespace llorch::engine::compute::cuda::adapters
