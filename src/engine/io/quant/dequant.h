#pragma once
// Exact f32 values of stored elements: the scalar reference of every kernel that reads weights.
#include <cstddef>
#include <span>

#include "engine/plan/dtype.h"

namespace llorch::engine::io {

// The formulas of wire/quant_blocks.h in f32. At most one rounding per value: products of scales and quants are exact
// in f32 (Q6_K and Q8_0 round theirs), a min is subtracted or added last. A scale that is infinite or NaN gives what
// IEEE arithmetic gives. `row` needs no alignment.
// REQUIRES: dtype is a float or quantized type; values.size() is a multiple of the block and row.size() is exactly its
// blocks' bytes.
void dequantize_row(plan::DType dtype, std::span<const std::byte> row, std::span<float> values);

}  // namespace llorch::engine::io
