#include "images/decode/decode.h"

#include <gtest/gtest.h>

#include "images/decode/vectors.h"

namespace llorch::images::decode {
namespace {

std::string reason_of(const base::Error& error) {
  for (const auto& [key, value] : error.details)
    if (key == "reason") return std::get<std::string>(value);
  return "none";
}

// Every kind of file, byte for byte what Pillow makes of it.
TEST(Decode, GivesTheReferencesBytes) {
  const auto vectors = vectors_of("decode");
  ASSERT_EQ(vectors.size(), 20U);
  for (const Vector& v : vectors) {
    const auto image = decode_image(bytes_of(image_file(v.file)));
    ASSERT_TRUE(image) << v.file << ": " << image.error().message;
    EXPECT_EQ(image->size, v.size) << v.file;
    EXPECT_EQ(sha256_of(image->pixels), v.sha256) << v.file;
  }
}

// A file that is cut anywhere is refused, or (past its last pixel) gives the same pixels.
TEST(Decode, CutFilesAreRefused) {
  for (const char* name : {"photo.jpg", "progressive.jpg", "rgb.png", "palette.png"}) {
    const std::string file = image_file(name);
    const auto whole = decode_image(bytes_of(file));
    ASSERT_TRUE(whole);
    std::size_t refused = 0;
    for (std::size_t length = 0; length < file.size(); length += 13) {
      const auto image = decode_image(bytes_of(file.substr(0, length)));
      if (image) {
        EXPECT_EQ(image->pixels, whole->pixels) << name << " cut at " << length;
      } else {
        EXPECT_EQ(image.error().code, base::ErrorCode::kInvalidParams);
        ++refused;
      }
    }
    EXPECT_GT(refused * 13, file.size() * 8 / 10) << name;
  }
}

TEST(Decode, LimitsHoldBeforeDecoding) {
  const std::string file = image_file("photo.jpg");
  const auto refused = decode_image(bytes_of(file), {.side_max = 60});
  ASSERT_FALSE(refused);
  EXPECT_EQ(reason_of(refused.error()), "image_size");
  EXPECT_EQ(reason_of(decode_image(bytes_of(file), {.pixels_max = 61 * 43 - 1}).error()), "image_size");
  EXPECT_TRUE(decode_image(bytes_of(file), {.pixels_max = 61 * 43}));
}

// A header that promises a larger picture than the library reads.
TEST(Decode, HeadersThatLie) {
  std::string file = image_file("rgb.png");
  file[19] = 62;  // the width; its checksum is wrong now
  EXPECT_EQ(reason_of(decode_image(bytes_of(file)).error()), "image_corrupt");
  std::string noise = image_file("photo.jpg");
  for (std::size_t i = noise.size() / 2; i < noise.size(); ++i) noise[i] = '\0';
  EXPECT_EQ(reason_of(decode_image(bytes_of(noise)).error()), "image_corrupt");
}

}  // namespace
}  // namespace llorch::images::decode
