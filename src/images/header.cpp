#include "images/header.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace llorch::images {
namespace {

using Bytes = std::span<const std::byte>;

// Marker codes of T.81, table B.1.
constexpr unsigned kStartOfImage = 0xD8, kEndOfImage = 0xD9, kStartOfScan = 0xDA, kApp1 = 0xE1;
constexpr unsigned kOrientationTag = 0x0112, kShortType = 3;
constexpr std::array<unsigned, 8> kPngSignature{0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
constexpr std::array<unsigned, 8> kHeaderChunk{0, 0, 0, 13, 'I', 'H', 'D', 'R'};
constexpr std::array<unsigned, 3> kJpegSignature{0xFF, kStartOfImage, 0xFF};
constexpr std::array<unsigned, 6> kExif{'E', 'x', 'i', 'f', 0, 0};

unsigned byte(Bytes bytes, std::size_t at) { return std::to_integer<unsigned>(bytes[at]); }

template <std::size_t N>
bool starts_with(Bytes bytes, const std::array<unsigned, N>& wanted) {
  return bytes.size() >= N && std::ranges::equal(bytes.first(N), wanted, [](std::byte b, unsigned w) {
           return std::to_integer<unsigned>(b) == w;
         });
}

std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t count) {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | byte(bytes, at + i);
  return value;
}

tl::unexpected<base::Error> cut_short() { return image_error("image_corrupt", "the image file ends in its header"); }

base::Result<Header> png_header(Bytes file) {
  constexpr std::size_t kAt = kPngSignature.size() + kHeaderChunk.size();
  if (file.size() < kAt + 8) return cut_short();
  if (!starts_with(file.subspan(kPngSignature.size()), kHeaderChunk))
    return image_error("image_corrupt", "the PNG image does not begin with its header");
  return Header{.kind = FileKind::kPng, .stored = {big_endian(file, kAt, 4), big_endian(file, kAt + 4, 4)}};
}

// The integers of a TIFF structure, in the byte order it names.
class Tiff {
 public:
  explicit Tiff(Bytes bytes) : bytes_(bytes) {}
  std::optional<std::uint32_t> read(std::size_t at, std::size_t count) const {
    if (at > bytes_.size() || bytes_.size() - at < count) return std::nullopt;
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < count; ++i) value = value << 8 | byte(bytes_, little() ? at + count - 1 - i : at + i);
    return value;
  }

 private:
  bool little() const { return byte(bytes_, 0) == 'I'; }
  Bytes bytes_;
};

// 1 when there is none, or none that means anything.
std::uint8_t exif_orientation(Bytes segment) {
  if (!starts_with(segment, kExif) || segment.size() == kExif.size()) return 1;
  const Tiff tiff(segment.subspan(kExif.size()));
  const auto directory = tiff.read(4, 4);
  const auto entries = directory ? tiff.read(*directory, 2) : std::nullopt;
  for (std::uint32_t i = 0; i < entries.value_or(0); ++i) {
    const std::size_t entry = std::size_t{*directory} + 2 + std::size_t{12} * i;
    const auto tag = tiff.read(entry, 2);
    if (!tag) return 1;
    if (*tag != kOrientationTag || tiff.read(entry + 2, 2) != kShortType) continue;
    const std::uint32_t value = tiff.read(entry + 8, 2).value_or(1);
    return value >= 1 && value <= 8 ? static_cast<std::uint8_t>(value) : 1;
  }
  return 1;
}

bool is_frame_header(unsigned marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}
bool stands_alone(unsigned marker) { return marker == 0x01 || (marker >= 0xD0 && marker <= kStartOfImage); }

base::Result<Header> frame_header(Bytes segment, unsigned marker, std::uint8_t orientation) {
  if (segment.size() < 6) return cut_short();
  const unsigned components = byte(segment, 5);
  const bool huffman = marker <= 0xC2;
  if (!huffman || byte(segment, 0) != 8 || (components != 1 && components != 3)) {
    return image_error("image_format",
                       "the JPEG image is of a variety that is not read; send it as 8-bit grey or colour, baseline or "
                       "progressive, or as PNG");
  }
  return Header{.kind = FileKind::kJpeg,
                .stored = {big_endian(segment, 3, 2), big_endian(segment, 1, 2)},
                .orientation = orientation};
}

base::Result<Header> jpeg_header(Bytes file) {
  std::uint8_t orientation = 1;
  bool exif_seen = false;
  for (std::size_t at = 2; at + 2 <= file.size();) {
    if (byte(file, at) != 0xFF) return image_error("image_corrupt", "the JPEG image has no marker where one must be");
    const unsigned marker = byte(file, at + 1);
    if (marker == 0xFF || stands_alone(marker)) {
      at += marker == 0xFF ? 1 : 2;
      continue;
    }
    if (marker == kStartOfScan || marker == kEndOfImage) break;
    if (file.size() - at < 4) return cut_short();
    const std::size_t length = big_endian(file, at + 2, 2);  // counts itself
    if (length < 2 || file.size() - at - 2 < length) return cut_short();
    const Bytes segment = file.subspan(at + 4, length - 2);
    if (is_frame_header(marker)) return frame_header(segment, marker, orientation);
    if (marker == kApp1 && !exif_seen && starts_with(segment, kExif)) {
      exif_seen = true;
      orientation = exif_orientation(segment);
    }
    at += 2 + length;
  }
  return image_error("image_corrupt", "the JPEG image has no frame header");
}

}  // namespace

tl::unexpected<base::Error> image_error(std::string_view reason, std::string message) {
  return base::fail(
      base::Error{base::ErrorCode::kInvalidParams, std::move(message), {}}.with("reason", std::string(reason)));
}

base::Result<Header> read_header(Bytes file, const FileLimits& limits) {
  const bool png = starts_with(file, kPngSignature);
  if (!png && !starts_with(file, kJpegSignature))
    return image_error("image_format", "the image is neither PNG nor JPEG; convert it to one of them");
  const Header header = TRY(png ? png_header(file) : jpeg_header(file));
  const auto [width, height] = header.stored;
  if (width == 0 || height == 0) return image_error("image_corrupt", "the image has no pixels");
  if (width > limits.side_max || height > limits.side_max || header.stored.area() > limits.pixels_max) {
    return image_error("image_size",
                       fmt::format("the image has {} x {} pixels; a side may have {}, all together {}: make it smaller",
                                   width, height, limits.side_max, limits.pixels_max));
  }
  return header;
}

}  // namespace llorch::images
