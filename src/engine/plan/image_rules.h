#pragma once
#include <array>
#include <cstdint>

namespace llorch::engine::plan {

// How a model wants images: cut into patches of `patch` x `patch` pixels and `temporal` frames, merge x merge of them to
// one row; values v of 0..255 become (v / 255 - mean) / deviation, per channel R, G, B.
struct ImageRules {
  std::uint32_t patch = 0;
  std::uint32_t temporal = 0;
  std::uint32_t merge = 0;
  std::uint64_t pixels_min = 0;
  std::uint64_t pixels_max = 0;
  std::array<float, 3> mean{};
  std::array<float, 3> deviation{};

  std::uint32_t unit() const { return patch * merge; }                            // pixels per side of a row
  std::uint32_t patch_row_width() const { return 3 * temporal * patch * patch; }  // values of a patch
};

}  // namespace llorch::engine::plan
