#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/models/model.h"
#include "engine/plan/adapter.h"
#include "engine/plan/backend.h"
#include "engine/plan/context.h"

namespace llorch::engine::inference::vision {

// An image, or a video of several frames, as a grid of patches.
struct Image {
  std::uint32_t frames = 1;
  std::uint32_t height = 0;  // patches
  std::uint32_t width = 0;   // patches
};

// Frames in the order of their rows.
struct Frames {
  std::vector<plan::VisionGrid> patches;  // grids in patches
  std::vector<plan::VisionGrid> rows;     // the same in rows, after merging
  std::uint32_t rows_count = 0;
};

// Fills steps of a vision_encode plan. Not thread-safe.
class ImageEncoder {
 public:
  static std::uint64_t device_bytes(const models::VisionConfig& vision, const plan::StepLimits& limits);
  // `limits.rows_max` is in patches. Errors: OUT_OF_DEVICE_MEMORY.
  static base::Result<ImageEncoder> make(const models::VisionConfig& vision, const plan::StepLimits& limits,
                                         plan::Backend& backend);

  // The frames of a request's images. Errors: INVALID_PARAMS (a grid that is empty, does not merge or is larger than a step;
  // more rows than a request may have; patch rows that are not the grids').
  base::Result<Frames> frames_of(std::span<const Image> images, std::span<const float> patch_rows) const;

  // The next step.
  struct Progress {
    std::uint32_t slot = 0;
    std::size_t frame = 0;       // first that is not encoded
    std::uint32_t row = 0;       // first row of the vision state that is not
    std::size_t patch_rows = 0;  // rows of patches behind us
  };
  // Fills the batch part of `ctx` with as many frames as fit and moves on. REQUIRES: a frame is left.
  void fill(Progress& progress, const Frames& frames, std::span<const float> patch_rows, plan::ExecutionContext& ctx);

 private:
  void place_patches(const plan::VisionGrid& grid, std::uint32_t first, std::uint32_t total);

  models::VisionConfig vision_;
  plan::Backend* backend_ = nullptr;
  plan::StepLimits limits_;
  std::vector<std::uint32_t> active_slots_, row_offsets_;
  std::vector<plan::VisionGrid> grids_;
  std::vector<plan::ImageRows> image_rows_;
  std::vector<std::uint32_t> places_;  // [3][T]: unused, row, column
  plan::DeviceBuffer places_memory_, patches_memory_;
};

}  // namespace llorch::engine::inference::vision
