#include "images/decode/patch_rows.h"

#include <gtest/gtest.h>

#include "images/decode/vectors.h"

namespace llorch::images::decode {
namespace {

constexpr engine::plan::ImageRules kRules{.patch = 2,
                                          .temporal = 2,
                                          .merge = 2,
                                          .pixels_min = 16,
                                          .pixels_max = 1 << 20,
                                          .mean = {0.5F, 0.25F, 0.0F},
                                          .deviation = {0.5F, 0.5F, 1.0F}};

// Every pixel tells its place, so that every value of every patch can be checked.
TEST(PatchRows, PatchesLieByBlocksOfMerge) {
  RgbImage image{.size = {8, 4}, .pixels = {}};
  for (std::uint8_t i = 0; i < 32; ++i)
    image.pixels.insert(image.pixels.end(), {i, static_cast<std::uint8_t>(i + 32), static_cast<std::uint8_t>(i + 64)});
  const PatchRows rows = cut_into_patches(image, kRules);
  EXPECT_EQ(rows.height, 2U);
  EXPECT_EQ(rows.width, 4U);
  // (row, column) in patches: the left block of 2 x 2 first.
  const std::pair<unsigned, unsigned> order[] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}};
  const float* at = rows.values.data();
  ASSERT_EQ(rows.values.size(), 8U * kRules.patch_row_width());
  for (const auto& [row, column] : order) {
    for (unsigned channel = 0; channel < 3; ++channel) {
      for (unsigned frame = 0; frame < 2; ++frame) {
        for (unsigned y = 0; y < 2; ++y) {
          for (unsigned x = 0; x < 2; ++x) {
            const unsigned value = (row * 2 + y) * 8 + column * 2 + x + 32 * channel;
            const float mean = kRules.mean[channel] * 255.0F, deviation = kRules.deviation[channel] * 255.0F;
            EXPECT_EQ(*at++, (static_cast<float>(value) - mean) / deviation);
          }
        }
      }
    }
  }
}

TEST(PatchRows, FromAFileAtTheSizeOfTheRulesOrAGivenOne) {
  const std::string file = image_file("photo.jpg");  // 61 x 43
  const PatchRows own = patch_rows_of(bytes_of(file), kRules, 1024).value();
  EXPECT_EQ(own.width, 60U / 2);
  EXPECT_EQ(own.height, 44U / 2);
  EXPECT_EQ(own.values.size(), 30U * 22 * kRules.patch_row_width());
  const PatchRows given = patch_rows_of(bytes_of(file), kRules, 1024, Size{8, 12}).value();
  EXPECT_EQ(given.width, 4U);
  EXPECT_EQ(given.height, 6U);
  for (const Size& size : {Size{0, 4}, Size{6, 4}, Size{4, 7}, Size{128, 132}}) {
    EXPECT_EQ(patch_rows_of(bytes_of(file), kRules, 1024, size).error().code, base::ErrorCode::kInvalidParams)
        << size.width << " x " << size.height;
  }
}

// What patches take follows from the model's files alone; here an image of one row has 12 GiB.
TEST(PatchRows, WhatTakesTooMuchMemoryIsRefusedUndecoded) {
  engine::plan::ImageRules rules = kRules;
  rules.patch = rules.temporal = rules.merge = 64;
  rules.pixels_min = 1;
  const auto error = patch_rows_of(bytes_of(image_file("photo.jpg").substr(0, 700)), rules, 1024).error();
  EXPECT_EQ(error.code, base::ErrorCode::kInvalidParams);
  EXPECT_NE(error.message.find("bytes as this model's patches"), std::string::npos) << error.message;
}

}  // namespace
}  // namespace llorch::images::decode
