#pragma once
// The size a model sees an image at: whole blocks of patches, the aspect ratio nearly kept, the area between two bounds.
#include <cstdint>

#include "base/result.h"
#include "images/header.h"

namespace llorch::images {

struct SizeRules {
  std::uint32_t unit = 0;        // pixels per side of the square that becomes one row: patch x merge
  std::uint64_t pixels_min = 0;  // of an image
  std::uint64_t pixels_max = 0;
  std::uint64_t rows_max = 0;  // of an image; never more than this, whatever pixels_max allows
};

// Rows of an image of this size. REQUIRES: sides are multiples of `unit`.
std::uint64_t rows_of(const Size& target, const SizeRules& rules);

// Both sides to the nearest multiple of `unit` (ties to even multiples); when that is more than pixels_max, or fewer than
// pixels_min, both are scaled by the root of the ratio instead, rounded down or up (Qwen2-VL, arXiv 2409.12191, section
// 2.1; the figures are those of the processors that ship with the models). In IEEE doubles, one rounding per operation.
// Errors: INVALID_PARAMS with details reason = image_size: a side more than 200 times the other, or an image so long that
// even one row wide it has more than rows_max. REQUIRES: image has pixels; unit, pixels_max and rows_max > 0.
base::Result<Size> target_size(const Size& image, const SizeRules& rules);

}  // namespace llorch::images
