#include "orchestratord/models/chat_format.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::models {
namespace {

using base::TokenId;
using text::TokenKind;
using text::formats::Format;

TEST(ChatFormat, SpellsTheControlTokensThatAreMarkers) {
  text::TokenizerData data;
  data.tokens = {"<tool_call>", "a", "</tool_call>", "<|im_end|>", "<think>", "<tool_call>"};
  data.kinds = {TokenKind::kControl, TokenKind::kNormal,  TokenKind::kUserDefined,
                TokenKind::kControl, TokenKind::kControl, TokenKind::kNormal};
  data.eos = TokenId{4};
  const ChatFormat hermes = ChatFormat::of("{{ '<tool_call>' }}{{ '</tool_call>' }}", data);
  EXPECT_EQ(hermes.format, Format::kHermes);
  EXPECT_EQ(hermes.marker(TokenId{0}), "<tool_call>");
  EXPECT_EQ(hermes.marker(TokenId{2}), "") << "a user-defined token has text";
  EXPECT_EQ(hermes.marker(TokenId{3}), "") << "no marker";
  EXPECT_EQ(hermes.marker(TokenId{4}), "") << "it ends the generation";
  EXPECT_EQ(hermes.marker(TokenId{5}), "");
  EXPECT_TRUE(ChatFormat::of("{{ messages }}", data).markers.empty());
}

}  // namespace
}  // namespace llorch::orchestratord::models
