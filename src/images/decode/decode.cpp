#include "images/decode/decode.h"

#include "images/decode/libraries.h"

namespace llorch::images::decode {
namespace {

// Where pixel (x, y) of the shown image lies in the stored one.
struct StoredPixel {
  std::uint32_t x = 0, y = 0;
};
StoredPixel stored_pixel_of(std::uint8_t orientation, const Size& stored, std::uint32_t x, std::uint32_t y) {
  const std::uint32_t right = stored.width - 1, bottom = stored.height - 1;
  switch (orientation) {
    case 2: return {right - x, y};
    case 3: return {right - x, bottom - y};
    case 4: return {x, bottom - y};
    case 5: return {y, x};
    case 6: return {y, bottom - x};
    case 7: return {right - y, bottom - x};
    case 8: return {right - y, x};
    default: return {x, y};
  }
}

std::vector<std::uint8_t> oriented(const Header& header, const std::vector<std::uint8_t>& stored) {
  const Size shown = header.shown();
  std::vector<std::uint8_t> pixels(stored.size());
  std::size_t at = 0;
  for (std::uint32_t y = 0; y < shown.height; ++y) {
    for (std::uint32_t x = 0; x < shown.width; ++x) {
      const StoredPixel from = stored_pixel_of(header.orientation, header.stored, x, y);
      const std::size_t source = 3 * (std::size_t{from.y} * header.stored.width + from.x);
      for (std::size_t channel = 0; channel < 3; ++channel) pixels[at++] = stored[source + channel];
    }
  }
  return pixels;
}

}  // namespace

base::Result<RgbImage> decode_image(std::span<const std::byte> file, const FileLimits& limits) {
  const Header header = TRY(read_header(file, limits));
  RgbImage image{.size = header.shown(), .pixels = std::vector<std::uint8_t>(3 * header.stored.area())};
  const bool png = header.kind == FileKind::kPng;
  if (!(png ? decode_png : decode_jpeg)(file, header, image.pixels)) {
    return image_error("image_corrupt", png ? "the PNG image is damaged or cut short; save it again"
                                            : "the JPEG image is damaged or cut short; save it again");
  }
  if (header.orientation != 1) image.pixels = oriented(header, image.pixels);
  return image;
}

}  // namespace llorch::images::decode
