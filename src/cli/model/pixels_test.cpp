#include "cli/model/pixels.h"

#include <gtest/gtest.h>

namespace llorch::cli::model {
namespace {

// One image of 1 x 2 x 1 patches of two values, with something behind.
const std::vector<std::uint32_t> kWords{0x31564C47, 1,          1,          2,          1,          2,
                                        2,          0x3F800000, 0x40000000, 0x40400000, 0x40800000, 7};

base::Result<Pixels> parse(std::span<const std::uint32_t> words) {
  return parse_pixels(std::as_bytes(words), "pixels");
}

TEST(Pixels, GridsAndPatches) {
  const auto pixels = parse(kWords);
  ASSERT_TRUE(pixels) << pixels.error().message;
  ASSERT_EQ(pixels->images.size(), 1U);
  EXPECT_EQ(pixels->images[0].height, 2U);
  EXPECT_EQ(pixels->frame_patches_max, 2U);
  EXPECT_EQ(pixels->patch_rows, (std::vector<float>{1, 2, 3, 4}));
}

TEST(Pixels, EveryCutIsRefused) {
  for (std::size_t words = 0; words + 1 < kWords.size(); ++words)
    EXPECT_EQ(parse(std::span(kWords).first(words)).error().code, base::ErrorCode::kCorruptFile) << words;
}

TEST(Pixels, NumbersThatDisagreeAreRefused) {
  for (const auto& [word, value] : std::vector<std::pair<std::size_t, std::uint32_t>>{
           {0, 0}, {1, 0xFFFFFFFF}, {1, 2}, {2, 2}, {3, 0xFFFFFFFF}, {5, 3}, {6, 0xFFFFFFFF}}) {
    std::vector<std::uint32_t> words = kWords;
    words[word] = value;
    EXPECT_EQ(parse(words).error().code, base::ErrorCode::kCorruptFile) << word;
  }
}

}  // namespace
}  // namespace llorch::cli::model
