#pragma once
// Images already cut into patches, as `--pixels` takes them.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/inference/vision/image_encoder.h"

namespace llorch::cli::model {

struct Pixels {
  std::vector<engine::inference::vision::Image> images;
  std::vector<float> patch_rows;  // Engine::encode_images says in which order
  std::uint32_t frame_patches_max = 0;
  std::uint32_t patches_count = 0;
};

// Little-endian: `GLV1`, u32 images, per image u32 frames, height, width in patches; u32 patches, u32 values of each, f32
// values. What follows is not read (fixtures keep the rows' positions there). Errors: CORRUPT_FILE.
base::Result<Pixels> parse_pixels(std::span<const std::byte> bytes, const std::string& source);
// The same from a file. Errors: IO_ERROR.
base::Result<Pixels> read_pixels(const std::string& path);

}  // namespace llorch::cli::model
