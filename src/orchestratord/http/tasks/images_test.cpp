#include "orchestratord/http/tasks/images.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "base/file.h"
#include "base/sha256.h"

namespace llorch::orchestratord::http::tasks {
namespace {

using base::TokenId;

constexpr TokenId kImage{9};

std::string file(const std::string& name) {
  return base::read_file(std::string(LLORCH_SOURCE_DIR) + "/tests/golden/images/" + name, 1 << 20).value();
}
template <class T>
std::string reason_of(const base::Result<T>& result) {
  if (result) return "none";
  std::string reason, field;
  for (const auto& [key, value] : result.error().details) {
    if (key == "reason") reason = std::get<std::string>(value);
    if (key == "field") field = std::get<std::string>(value);
  }
  EXPECT_EQ(field, "messages");
  EXPECT_EQ(result.error().code, base::ErrorCode::kInvalidParams);
  return reason;
}

wire::ModelFacts seeing(std::int64_t tokens_max) {
  wire::ModelFacts facts;
  facts.images = wire::ModelImages{
      .image_token = 9, .pixels_per_side = 16, .pixels_min = 256, .pixels_max = 1 << 20, .tokens_max = tokens_max};
  return facts;
}
text::ChatPrompt prompt(std::vector<std::uint32_t> ids) {
  text::ChatPrompt out{.tokens = {}, .text = "text"};
  for (const std::uint32_t id : ids) out.tokens.push_back(TokenId{id});
  return out;
}

TEST(Images, TokensAreCountedFromTheHeadersAlone) {
  // 61 x 43 and, turned by its Exif data, 16 x 24: 4 x 3 and 1 x 2 tokens (24 / 16 is as near to 1 as to 2: the even one).
  const std::vector<std::string> files{base::base64_encode(file("photo.jpg")),
                                       base::base64_encode(file("orientation_6.jpg"))};
  const auto measured = measure_images(files, seeing(100));
  ASSERT_TRUE(measured) << measured.error().message;
  EXPECT_EQ(measured->rows, (std::vector<std::uint64_t>{12, 2}));
  EXPECT_EQ(measured->images[0].width, 64);
  EXPECT_EQ(measured->images[0].height, 48);
  EXPECT_EQ(measured->images[1].width, 16);
  EXPECT_EQ(measured->images[1].height, 32);
  EXPECT_EQ(measured->images[0].file, files[0]);
  const auto placed = place_images(*measured, seeing(100), prompt({1, 9, 2, 9, 3}));
  ASSERT_TRUE(placed) << placed.error().message;
  EXPECT_EQ(placed->tokens.size(), 3U + 12 + 2);
  EXPECT_EQ(std::count(placed->tokens.begin(), placed->tokens.end(), kImage), 14);
  EXPECT_EQ(placed->tokens[13], TokenId{2});
  EXPECT_NE(prompt_digest(*placed, *measured), base::to_hex(base::sha256("text"))) << "other images are another prompt";
}

TEST(Images, WithoutAnyNothingChanges) {
  const auto measured = measure_images({}, {});
  ASSERT_TRUE(measured);
  const auto placed = place_images(*measured, {}, prompt({1, 9, 2}));
  ASSERT_TRUE(placed);
  EXPECT_EQ(placed->tokens.size(), 3U);
  EXPECT_EQ(prompt_digest(*placed, *measured), base::to_hex(base::sha256("text")));
}

TEST(Images, Refusals) {
  const std::string photo = base::base64_encode(file("photo.jpg"));
  EXPECT_EQ(reason_of(measure_images({photo}, {})), "images_unsupported");
  EXPECT_EQ(reason_of(measure_images({"@@@@"}, seeing(100))), "image_base64");
  EXPECT_EQ(reason_of(measure_images({base::base64_encode("no image")}, seeing(100))), "image_format");
  EXPECT_EQ(reason_of(measure_images({base::base64_encode(file("rgb.png").substr(0, 20))}, seeing(100))),
            "image_corrupt");
  EXPECT_EQ(reason_of(measure_images({photo, photo}, seeing(23))), "image_size") << "12 tokens each";
  const auto two = measure_images({photo, photo}, seeing(24));
  ASSERT_TRUE(two);
  EXPECT_EQ(reason_of(place_images(*two, seeing(24), prompt({9, 9}))), "none");
  EXPECT_EQ(reason_of(place_images(*two, seeing(24), prompt({9, 2}))), "image_count");
  EXPECT_EQ(reason_of(place_images(*two, seeing(24), prompt({9, 9, 9}))), "image_count");
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
