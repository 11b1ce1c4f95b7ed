#include "images/message_images.h"

#include <gtest/gtest.h>

#include "images/image_tokens.h"

namespace llorch::images {
namespace {

std::string reason_of(const base::Error& error) {
  for (const auto& [key, value] : error.details)
    if (key == "reason") return std::get<std::string>(value);
  return "none";
}

TEST(MessageImages, EverySpellingIsTakenOut) {
  const auto taken = take_images(
      R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","image":"data:image/png;base64,QUJD"},)"
      R"({"type":"image_url","image_url":{"url":"data:image/jpeg;base64,REVG","detail":"low"}},)"
      R"({"type":"image_url","image_url":"data:image/jpg;base64,R0hJ"}]},{"role":"assistant","content":"b"}])",
      8);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->base64, (std::vector<std::string>{"QUJD", "REVG", "R0hJ"}));
  EXPECT_EQ(taken->messages,
            R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","image":"attached"},)"
            R"({"type":"image_url","image_url":{"url":"attached","detail":"low"}},)"
            R"({"type":"image_url","image_url":"attached"}]},{"role":"assistant","content":"b"}])");
}

TEST(MessageImages, TextStaysByteForByte) {
  for (const char* text :
       {R"([ {"role":"user","content":"image"} ])", R"([{"role":"user","content":[{"type":"text","text":"x"}]}])", "[]",
        "[1]", R"({"role":1})", "no json", R"([{"content":[1,"image",null]}])"}) {
    const auto taken = take_images(text, 8);
    ASSERT_TRUE(taken) << text;
    EXPECT_EQ(taken->messages, text);
    EXPECT_TRUE(taken->base64.empty());
  }
}

TEST(MessageImages, Refusals) {
  const auto refused = [](const std::string& part, std::size_t images_max = 8) {
    const auto taken = take_images(R"([{"role":"user","content":[)" + part + "]}]", images_max);
    return taken ? std::string("taken") : reason_of(taken.error());
  };
  EXPECT_EQ(refused(R"({"type":"image","image":"https://example.com/a.png"})"), "image_url");
  EXPECT_EQ(refused(R"({"type":"image_url","image_url":{"url":"http://127.0.0.1/a.png"}})"), "image_url");
  EXPECT_EQ(refused(R"({"type":"image","image":"file:///etc/passwd"})"), "image_url");
  EXPECT_EQ(refused(R"({"type":"image","image":"data:image/webp;base64,QUJD"})"), "image_url");
  EXPECT_EQ(refused(R"({"type":"image","image":"data:image/png,rawbytes"})"), "image_url");
  EXPECT_EQ(refused(R"({"type":"image"})"), "image_part");
  EXPECT_EQ(refused(R"({"type":"image_url","image_url":{"href":"x"}})"), "image_part");
  EXPECT_EQ(refused(R"({"type":"image","image":7})"), "image_part");
  EXPECT_EQ(refused(R"({"type":"video","video":"data:video/mp4;base64,QUJD"})"), "image_part");
  const std::string image = R"({"type":"image","image":"data:image/png;base64,QUJD"})";
  EXPECT_EQ(refused(image + "," + image, 1), "image_count");
  EXPECT_EQ(refused(image + "," + image, 2), "taken");
}

TEST(ImageTokens, OnePlaceBecomesTheRowsOfItsImage) {
  using base::TokenId;
  const std::vector<TokenId> prompt{TokenId{1}, TokenId{9}, TokenId{2}, TokenId{9}};
  const std::uint64_t rows[] = {3, 1};
  const std::vector<TokenId> wanted{TokenId{1}, TokenId{9}, TokenId{9}, TokenId{9}, TokenId{2}, TokenId{9}};
  EXPECT_EQ(expand_image_tokens(prompt, TokenId{9}, rows).value(), wanted);
  EXPECT_EQ(reason_of(expand_image_tokens(prompt, TokenId{9}, std::span(rows).first(1)).error()), "image_count");
  EXPECT_EQ(expand_image_tokens(prompt, TokenId{7}, {}).value(), prompt);
}

}  // namespace
}  // namespace llorch::images
