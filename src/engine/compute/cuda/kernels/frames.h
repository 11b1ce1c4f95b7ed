#pragma once
// Runs of rows that belong together without being a sequence of the cache: frames of images, spans of a step. The list
// travels with the launch.
#include <cstdint>

#include "engine/compute/cuda/kernels/block.h"

namespace llorch::engine::compute::cuda::kernels {

struct Frame {
  std::uint32_t row_begin = 0;  // of the step
  std::uint32_t row_end = 0;
  std::uint32_t height = 0;  // patches
  std::uint32_t width = 0;
  std::uint32_t slot = 0;
  std::uint32_t image_begin = 0;  // rows of the slot's image state
  std::uint32_t image_end = 0;
  bool operator==(const Frame&) const = default;
};

struct Frames {
  static constexpr std::uint32_t kFramesMax = 64;
  std::uint32_t count = 0;
  Frame frame[kFramesMax];

  // REQUIRES: one of them has the row.
  LLORCH_KERNEL const Frame& of_row(std::uint32_t row) const {
    std::uint32_t i = 0;
    while (i + 1 < count && row >= frame[i].row_end) ++i;
    return frame[i];
  }
  bool operator==(const Frames&) const = default;
};

}  // namespace llorch::engine::compute::cuda::kernels
