#pragma once
// Kind and size of an image file from its first bytes. No pixel is decoded.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace llorch::images {

enum class FileKind : std::uint8_t { kPng, kJpeg };

struct Size {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::uint64_t area() const { return std::uint64_t{width} * height; }
  bool operator==(const Size&) const = default;
};

// What is refused unseen. Decoding takes 3 bytes per pixel, a progressive JPEG 6 more.
struct FileLimits {
  std::uint32_t side_max = 1U << 15;
  std::uint64_t pixels_max = 1U << 25;
};

struct Header {
  FileKind kind = FileKind::kPng;
  Size stored;                   // as the file's rows lie
  std::uint8_t orientation = 1;  // of a JPEG's Exif data, 1..8 (Exif 2.3, 4.6.4 A, tag 274); 1: as stored
  bool turned() const { return orientation >= 5; }
  Size shown() const { return turned() ? Size{stored.height, stored.width} : stored; }
};

// PNG (RFC 2083): the IHDR chunk. JPEG (ITU-T T.81): the segments up to the frame header; 8 bits, one or three components.
// Errors: INVALID_PARAMS with details reason = image_format (neither kind, or a variety of it that is not read),
// image_corrupt, image_size.
base::Result<Header> read_header(std::span<const std::byte> file, const FileLimits& limits = {});

// INVALID_PARAMS with details {reason}.
tl::unexpected<base::Error> image_error(std::string_view reason, std::string message);

}  // namespace llorch::images
