#pragma once
// Exact f32 values of stored elements: the plain twin of every kernel that reads weights.
#include <cstddef>
#include <span>

#include "engine/contract/dtype.h"

namespace llorch::engine::io {

// Q8_0: d * q; Q4_0: d * (nibble - 8), with d the block's f16 scale and one f32 rounding (the product); F16 and BF16
// widen exactly. `row` needs no alignment. REQUIRES: dtype is a float or quantised type; values.size() is a multiple of
// the block and row.size() is exactly its blocks' bytes.
void dequantize_row(contract::DType dtype, std::span<const std::byte> row, std::span<float> values);

}  // namespace llorch::engine::io
