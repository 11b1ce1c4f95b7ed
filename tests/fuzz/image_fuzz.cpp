// Any bytes as an image file: the header first, then the decoder, then patches.
#include <cstdint>

#include "base/assert.h"
#include "images/decode/patch_rows.h"

using namespace llorch;
using namespace llorch::engine;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  constexpr images::FileLimits kLimits{.side_max = 512, .pixels_max = 1 << 14};
  const auto header = images::read_header(file, kLimits);
  const auto image = images::decode::decode_image(file, kLimits);
  if (!header) {
    ASSERT(!image);
    return 0;
  }
  if (!image) return 0;
  ASSERT(image->size == header->shown());
  ASSERT(image->pixels.size() == 3 * image->size.area());
  constexpr plan::ImageRules kRules{.patch = 4,
                                    .temporal = 2,
                                    .merge = 2,
                                    .pixels_min = 64,
                                    .pixels_max = 1 << 13,
                                    .mean = {0.5F, 0.5F, 0.5F},
                                    .deviation = {0.5F, 0.5F, 0.5F}};
  const auto rows = images::decode::patch_rows_of(file, kRules, 128);
  if (rows) ASSERT(rows->values.size() == std::size_t{rows->height} * rows->width * kRules.patch_row_width());
  return 0;
}
