#include "images/decode/resize.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include "images/decode/vectors.h"

namespace llorch::images::decode {
namespace {

TEST(Resize, GivesTheReferencesBytes) {
  const auto vectors = vectors_of("resize");
  ASSERT_EQ(vectors.size(), 28U);
  for (const Vector& v : vectors) {
    const RgbImage image = resize(decode_image(bytes_of(image_file(v.file))).value(), v.size);
    EXPECT_EQ(image.size, v.size);
    EXPECT_EQ(sha256_of(image.pixels), v.sha256) << fmt::format("{} to {} x {}", v.file, v.size.width, v.size.height);
  }
}

// Weights add up: one colour stays that colour at any size.
TEST(Resize, OneColourStays) {
  RgbImage plain{.size = {37, 23}, .pixels = {}};
  for (std::uint64_t i = 0; i < plain.size.area(); ++i) plain.pixels.insert(plain.pixels.end(), {0, 255, 131});
  for (const Size size : {Size{1, 1}, Size{8, 64}, Size{96, 32}, Size{37, 23}, Size{200, 1}}) {
    const RgbImage out = resize(plain, size);
    ASSERT_EQ(out.pixels.size(), 3 * size.area());
    for (std::size_t i = 0; i < out.pixels.size(); i += 3) {
      EXPECT_EQ(out.pixels[i], 0);
      EXPECT_EQ(out.pixels[i + 1], 255);
      EXPECT_EQ(out.pixels[i + 2], 131);
    }
  }
}

}  // namespace
}  // namespace llorch::images::decode
