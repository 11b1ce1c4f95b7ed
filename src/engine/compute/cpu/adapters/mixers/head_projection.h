#pragma once
// Products of a stack of matrices with the heads of rows, each head with its own matrix.
#include <algorithm>

#include "engine/compute/cpu/adapters/support.h"

namespace llorch::engine::compute::cpu::adapters::mixers {

// Multiply-adds below which a region stays on the caller.
inline constexpr std::size_t kHeadGrainProducts = 1u << 15;

// y[row, h] = stack[h] x[row, h] for every head.
struct HeadProjection {
  const CpuWeight* stack = nullptr;
  const float* x = nullptr;  // [rows, heads, ...]: row stride x_stride, from head to head x_head_stride
  std::size_t x_stride = 0;
  std::size_t x_head_stride = 0;
  QuantizedRows quantized;  // scratch, [heads * rows, columns of a matrix]
  float* y = nullptr;       // [rows, heads, ...]: row stride y_stride, from head to head y_head_stride
  std::size_t y_stride = 0;
  std::size_t y_head_stride = 0;
  std::size_t rows = 0;
};
inline QuantizedRows quantized_of_head(const HeadProjection& h, std::size_t head) {
  return plan::is_quantized(h.stack->matrix.dtype) ? h.quantized.from(head * h.rows) : QuantizedRows{};
}
inline void project_heads(const CpuStream& stream, const HeadProjection& h) {
  const std::size_t heads = h.stack->stack_count, groups = h.stack->matrix.groups(), width = h.stack->matrix.cols;
  if (plan::is_quantized(h.stack->matrix.dtype))
    stream.pool.run(heads, kHeadGrainProducts / 4 / (width * h.rows) + 1, [&](Range range, std::size_t) {
      for (std::size_t head = range.begin; head < range.end; ++head)
        stream.kernels.quantize(
            {.x = h.x + head * h.x_head_stride, .x_stride = h.x_stride, .out = quantized_of_head(h, head)},
            {0, h.rows});
    });
  stream.pool.run(heads * groups, grain_of_groups(stream, heads * groups, width, h.rows),
                  [&](Range range, std::size_t) {
                    split_range(range, groups, [&](std::size_t head, Range of_head) {
                      stream.kernels.matmul({.w = h.stack->matrix_at(head),
                                             .x = h.x + head * h.x_head_stride,
                                             .x_stride = h.x_stride,
                                             .xq = quantized_of_head(h, head),
                                             .y = h.y + head * h.y_head_stride,
                                             .y_stride = h.y_stride,
                                             .rows = h.rows},
                                            of_head);
                    });
                  });
}

}  // namespace llorch::engine::compute::cpu::adapters::mixers
