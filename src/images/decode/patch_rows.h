#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/plan/image_rules.h"
#include "images/decode/decode.h"
#include "images/target_size.h"

namespace llorch::images::decode {

// An image as the vision tower takes it.
struct PatchRows {
  std::uint32_t height = 0;   // of the grid, in patches
  std::uint32_t width = 0;    // in patches
  std::vector<float> values;  // [height * width][3][temporal][patch][patch]; patches by blocks of merge x merge
};

// Of an image's values, and of all of a request: 16,384 rows of the largest towers in use have 0.4 GB.
inline constexpr std::uint64_t kPatchBytesMax = std::uint64_t{2} << 30;

// Of the values of an image of this size.
std::uint64_t patch_bytes(const Size& size, const engine::plan::ImageRules& rules);

// What a size must obey for a model whose images may take `rows_max` rows.
SizeRules size_rules(const engine::plan::ImageRules& rules, std::uint64_t rows_max);

// A still image: every frame of a patch shows it. (v / 255 - mean) / deviation is computed as
// (v - mean * 255) / (deviation * 255) in f32. REQUIRES: sides are multiples of rules.unit().
PatchRows cut_into_patches(const RgbImage& image, const engine::plan::ImageRules& rules);

// File to patches, at `target` or, where there is none, at target_size(). Errors: those of decode_image and target_size;
// INVALID_PARAMS (a size that does not suit the rules, or of more than kPatchBytesMax), before the file is decoded.
base::Result<PatchRows> patch_rows_of(std::span<const std::byte> file, const engine::plan::ImageRules& rules,
                                      std::uint64_t rows_max, const std::optional<Size>& target = {});

}  // namespace llorch::images::decode
