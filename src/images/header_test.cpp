#include "images/header.h"

#include <gtest/gtest.h>

namespace llorch::images {
namespace {

std::string text(std::initializer_list<int> bytes) {
  std::string out;
  for (const int b : bytes) out += static_cast<char>(b);
  return out;
}
base::Result<Header> read(const std::string& file, const FileLimits& limits = {}) {
  return read_header(std::as_bytes(std::span(file)), limits);
}
std::string header_reason(const base::Result<Header>& result) {
  if (result) return "none";
  for (const auto& [key, value] : result.error().details)
    if (key == "reason") return std::get<std::string>(value);
  return "no reason";
}

const std::string kPng = text({0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n', 0, 0, 0, 13, 'I', 'H', 'D', 'R'});
std::string png(int width, int height) {
  return kPng + text({0, 0, width >> 8, width & 255, 0, 0, height >> 8, height & 255});
}

const std::string kJpegStart = text({0xFF, 0xD8});
std::string segment(int marker, const std::string& body) {
  const int length = static_cast<int>(body.size()) + 2;
  return text({0xFF, marker, length >> 8, length & 255}) + body;
}
std::string frame(int marker, int width, int height, int components = 3, int bits = 8) {
  return segment(marker, text({bits, height >> 8, height & 255, width >> 8, width & 255, components}));
}
std::string exif(int orientation, bool little) {
  const std::string head = std::string("Exif\0\0", 6);
  if (little) return head + text({'I', 'I', 42, 0, 8, 0, 0, 0, 1, 0, 0x12, 1, 3, 0, 1, 0, 0, 0, orientation, 0, 0, 0});
  return head + text({'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1, 1, 0x12, 0, 3, 0, 0, 0, 1, 0, orientation, 0, 0});
}

TEST(Header, PngAndItsLimits) {
  const Header header = read(png(1000, 300)).value();
  EXPECT_EQ(header.kind, FileKind::kPng);
  EXPECT_EQ(header.shown(), (Size{1000, 300}));
  EXPECT_EQ(header_reason(read(png(1000, 0))), "image_corrupt");
  EXPECT_EQ(header_reason(read(png(1000, 300), {.side_max = 999})), "image_size");
  EXPECT_EQ(header_reason(read(png(1000, 300), {.pixels_max = 299'999})), "image_size");
  EXPECT_TRUE(read(png(1000, 300), {.side_max = 1000, .pixels_max = 300'000}));
  EXPECT_EQ(header_reason(read(png(1000, 300).substr(0, 23))), "image_corrupt");
  std::string other = png(8, 8);
  other[12] = 'i';
  EXPECT_EQ(header_reason(read(other)), "image_corrupt");
}

TEST(Header, JpegFramesAndVarieties) {
  const std::string before = kJpegStart + segment(0xE0, "JFIF") + text({0xFF}) + segment(0xDB, std::string(65, 'q'));
  for (const int marker : {0xC0, 0xC1, 0xC2}) {
    const Header header = read(before + frame(marker, 640, 480)).value();
    EXPECT_EQ(header.kind, FileKind::kJpeg);
    EXPECT_EQ(header.shown(), (Size{640, 480}));
  }
  EXPECT_TRUE(read(before + frame(0xC0, 5, 5, 1)));
  EXPECT_EQ(header_reason(read(before + frame(0xC0, 5, 5, 4))), "image_format") << "four inks";
  EXPECT_EQ(header_reason(read(before + frame(0xC0, 5, 5, 3, 12))), "image_format");
  EXPECT_EQ(header_reason(read(before + frame(0xC9, 5, 5))), "image_format") << "arithmetic coding";
  EXPECT_EQ(header_reason(read(before + segment(0xDA, "scan"))), "image_corrupt");
  EXPECT_EQ(header_reason(read(before + "x" + frame(0xC0, 5, 5))), "image_corrupt");
  const std::string whole = before + frame(0xC0, 640, 480);
  for (std::size_t length = 0; length < whole.size(); ++length) EXPECT_FALSE(read(whole.substr(0, length))) << length;
}

TEST(Header, OrientationTurnsTheSize) {
  for (const bool little : {false, true}) {
    for (int orientation = 0; orientation <= 9; ++orientation) {
      const Header header = read(kJpegStart + segment(0xE1, exif(orientation, little)) + frame(0xC0, 40, 30)).value();
      const bool known = orientation >= 1 && orientation <= 8;
      EXPECT_EQ(header.orientation, known ? orientation : 1);
      EXPECT_EQ(header.shown(), (orientation >= 5 && known ? Size{30, 40} : Size{40, 30}));
    }
  }
  const std::string cut = exif(6, true);
  for (std::size_t length = 0; length < cut.size() - 4; ++length)
    EXPECT_EQ(read(kJpegStart + segment(0xE1, cut.substr(0, length)) + frame(0xC0, 40, 30)).value().orientation, 1);
}

TEST(Header, OtherFilesAreNamedAsSuch) {
  for (const char* other : {"", "GIF89a", "RIFF____WEBP", "\xFF\xD8", "<svg>"})
    EXPECT_EQ(header_reason(read(other)), "image_format");
}

}  // namespace
}  // namespace llorch::images
