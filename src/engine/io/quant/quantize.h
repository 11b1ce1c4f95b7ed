#pragma once
// f32 rows -> stored rows of any type that models are quantized to. Deterministic: the same values give the same bytes on
// every machine and for every split into rows. Rounding is to nearest; scales (and mins) come from a search for a small
// squared error (scale_fit.h). tests/golden/quant and docs/internals/formats.md have the errors that result.
#include <cstddef>
#include <span>

#include "base/result.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::io {

// Every type but I32.
bool is_quantize_target(plan::DType dtype);

// Errors: WEIGHT_VALUE_UNSUPPORTED (a NaN or an infinity, or a magnitude the type cannot hold: names the element).
// REQUIRES: is_quantize_target(dtype); values.size() is a multiple of the block, row.size() exactly its blocks' bytes.
base::Result<> quantize_row(plan::DType dtype, std::span<const float> values, std::span<std::byte> row);

}  // namespace llorch::engine::io
