#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "images/header.h"

namespace llorch::images::decode {

struct RgbImage {
  Size size;
  std::vector<std::uint8_t> pixels;  // [height][width][3]
};

// The image as it is shown: a JPEG's Exif orientation applied. Grey becomes R = G = B, a palette its colours, 16 bits the
// high 8; transparency, gamma and colour profiles are left out. JPEG: the accurate integer inverse transform and
// triangle-filtered chroma, both exact in the library, so the bits are the file's.
// Any thread; holds at most 9 bytes per pixel and 64 MiB. Errors: those of read_header; INVALID_PARAMS with details
// reason = image_corrupt.
base::Result<RgbImage> decode_image(std::span<const std::byte> file, const FileLimits& limits = {});

}  // namespace llorch::images::decode
