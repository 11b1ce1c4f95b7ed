#include "worker/images/prompt_images.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/base64.h"
#include "base/file.h"

namespace llorch::worker::images {
namespace {

using base::TokenId;

std::string reason_of(const base::Error& error) {
  for (const auto& [key, value] : error.details)
    if (key == "reason") return std::get<std::string>(value);
  return "none";
}

class PromptImagesTest : public testing::Test {
 protected:
  PromptImagesTest() {
    vision_.depth = 1;
    vision_.patch = 4;
    vision_.temporal = 2;
    vision_.merge = 2;
    vision_.image_row_ids[0] = 9;
    vision_.image_rows_max = 20;
    vision_.pixels_min = 64;
    vision_.pixels_max = 1 << 20;
    vision_.deviation = {1, 1, 1};
    const auto bytes = base::read_file(std::string(LLORCH_SOURCE_DIR) + "/tests/golden/images/photo.jpg", 1 << 20);
    photo_ = base::base64_encode(bytes.value());
  }
  std::string outcome(std::size_t image_tokens, const wire::ExecuteImage& image) {
    wire::ExecuteRequest request;
    request.images = {image};
    std::vector<TokenId> prompt(image_tokens, TokenId{9});
    prompt.push_back(TokenId{1});
    const auto images = prepare_images(request, prompt, vision_);
    return images ? "fine" : reason_of(images.error());
  }

  engine::models::VisionConfig vision_;
  std::string photo_;
};

TEST_F(PromptImagesTest, ImagesAreCutAtTheSizeTheRequestNames) {
  wire::ExecuteRequest request;
  request.images = {{.file = photo_, .width = 24, .height = 16}, {.file = photo_, .width = 8, .height = 8}};
  const std::vector<TokenId> prompt(7, TokenId{9});
  const auto images = prepare_images(request, prompt, vision_);
  ASSERT_TRUE(images) << images.error().message;
  ASSERT_EQ((*images)->grids.size(), 2U);
  EXPECT_EQ((*images)->grids[0].width, 6U);
  EXPECT_EQ((*images)->grids[0].height, 4U);
  EXPECT_EQ((*images)->patch_rows.size(), (24U + 4) * vision_.patch_row_width());
}

// The counts come first: with them wrong, what the file holds does not matter.
TEST_F(PromptImagesTest, Refusals) {
  EXPECT_EQ(outcome(6, {.file = photo_, .width = 24, .height = 16}), "fine");
  EXPECT_EQ(outcome(5, {.file = "@@", .width = 24, .height = 16}), "image_count");
  EXPECT_EQ(outcome(7, {.file = "@@", .width = 24, .height = 16}), "image_count");
  EXPECT_EQ(outcome(6, {.file = "@@", .width = 25, .height = 16}), "image_size");
  EXPECT_EQ(outcome(24, {.file = "@@", .width = 48, .height = 32}), "image_size") << "24 rows of 20";
  EXPECT_EQ(outcome(6, {.file = "@@", .width = 24, .height = 16}), "image_base64");
  EXPECT_EQ(outcome(6, {.file = "QUJD", .width = 24, .height = 16}), "image_format");
  const std::string cut = base::base64_encode(base::base64_decode(photo_)->substr(0, 700));
  EXPECT_EQ(outcome(6, {.file = cut, .width = 24, .height = 16}), "image_corrupt");
  vision_.image_rows_max = 0;
  EXPECT_EQ(outcome(6, {.file = photo_, .width = 24, .height = 16}), "image_count");
}

// Of a model whose every row has gigabytes of values.
TEST_F(PromptImagesTest, WhatTakesTooMuchMemoryIsRefusedUndecoded) {
  vision_.patch = vision_.temporal = 64;
  vision_.merge = 16;
  EXPECT_EQ(outcome(12, {.file = "@@", .width = 4096, .height = 3072}), "image_size");
  EXPECT_EQ(outcome(2, {.file = "@@", .width = 2048, .height = 1024}), "image_base64");
}

}  // namespace
}  // namespace llorch::worker::images
