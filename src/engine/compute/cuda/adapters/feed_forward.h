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
  plan::Activation act = plan::Activation::kSilu;
  float alpha = 0;
  float limit = 0;
  float alpha_negative = 0;
  float beta = 0;
  float eps = 0;
};

struct FeedForwardScratch {
  struct Size {
    std::uint32_t width = 0;
    std::uint32_t ffn = 0;
    bool gated = true;
    std::uint64_t rows = 0;
    std::uint32_t rows_per_x = 1;
  };
  FeedForwardScratch(Arena& arena, const Size& size)
      : stride((size.gated ? 2 : 1) * std::uint64_t{size.ffn}),
        up_gate(arena.take<float>(size.rows * stride)),
        x(arena.take_narrowed(size.rows / size.rows_per_x, size.width)),
        hidden(arena.take_narrowed(size.rows, size.ffn)) {}
  std::uint64_t stride;
  float* up_gate;  // [rows, F or 2F]: up, then gate
  Arena::Narrowed x, hidden;
};

// What the rows are, and which expert of stacked weights each of them goes to.
struct FeedForwardRows {
  const float* x = nullptr;  // [rows / rows_per_x, D]
  float* y = nullptr;        // [rows, D]
  std::uint32_t rows = 0;
  std::uint32_t rows_per_x = 1;
  const RowMatrices* own = nullptr;
  Arena::Staged staged;  // x as it was staged
};
void feed_forward(const CudaStream& stream, const FeedForward& ffn, const FeedForwardScratch& scratch,
                  const FeedForwardRows& rows);

}  // namespace llorch::engine::compute::cuda::adapters
