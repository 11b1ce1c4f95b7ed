#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "base/result.h"

namespace llorch::worker::embedding {

// The first `dimensions` elements of `row`, all without, divided by their Euclidean length: base64 of f32, little-endian. The
// sum of squares and the quotients are f64, in order, so its bits follow from those of `row`. A row of zeros stays one.
// Errors: INTERNAL (an element is not finite). REQUIRES: dimensions <= row.size().
base::Result<std::string> vector_text(std::span<const float> row, std::optional<std::int64_t> dimensions);

// How well a document answers a query, from 0 to 1: the sigmoid of a row's one logit, or of that of yes less that of no; a decimal
// that reads back as the same f32. In f64, so its bits follow from those of `row`. Errors: INTERNAL (a logit is not finite).
// REQUIRES: one element, or two.
base::Result<std::string> score_text(std::span<const float> row);

}  // namespace llorch::worker::embedding
