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
  const ControlTokens tokens = control_tokens(data);
  const ChatFormat hermes = ChatFormat::of("{{ '<tool_call>' }}{{ '</tool_call>' }}", tokens);
  EXPECT_EQ(hermes.format, Format::kHermes);
  EXPECT_EQ(hermes.marker(TokenId{0}), "<tool_call>");
  EXPECT_EQ(hermes.marker(TokenId{2}), "") << "a user-defined token has text";
  EXPECT_EQ(hermes.marker(TokenId{3}), "") << "no marker";
  EXPECT_EQ(hermes.marker(TokenId{4}), "") << "it ends the generation";
  EXPECT_EQ(hermes.marker(TokenId{5}), "");
  EXPECT_TRUE(ChatFormat::of("{{ messages }}", tokens).markers.empty());
}

// A vocabulary of a million tokens may have as many that control, that end a generation, or that are spelled alike.
TEST(ChatFormat, AnyNumberOfControlTokensIsLookedThroughOnce) {
  constexpr std::size_t kEach = 400'000;
  text::TokenizerData data;
  data.tokens.resize(2 * kEach, "<tool_call>");
  data.kinds.resize(2 * kEach, TokenKind::kControl);
  for (std::uint32_t i = kEach; i < 2 * kEach; ++i) data.more_end_of_generation.push_back(TokenId{i});
  data.eos = TokenId{0};
  const ControlTokens tokens = control_tokens(data);
  ASSERT_EQ(tokens.size(), kEach - 1);
  EXPECT_EQ(tokens.front().first, TokenId{1});
  const ChatFormat hermes = ChatFormat::of("{{ '<tool_call>' }}{{ '</tool_call>' }}", tokens);
  ASSERT_EQ(hermes.markers.size(), 1u) << "whoever spells or reads a marker goes through all of them";
  EXPECT_EQ(hermes.marker(TokenId{1}), "<tool_call>");
}

TEST(ChatFormat, TheConfigurationHasTheLastWord) {
  const ControlTokens tokens = {{TokenId{1}, "<tool_call>"}, {TokenId{2}, "<|tool_call|>"}};
  const ChatFormat detected = ChatFormat::of("{{ '<tool_call>' }}{{ m.arguments | items }}", tokens);
  const ChatFormat configured = detected.in(Format::kPhi, tokens);
  EXPECT_EQ(configured.format, Format::kPhi);
  EXPECT_EQ(configured.turn, detected.turn) << "the template is the same";
  EXPECT_EQ(configured.marker(TokenId{1}), "");
  EXPECT_EQ(configured.marker(TokenId{2}), "<|tool_call|>");

  const auto facts = chat_format_facts(detected, detected);
  EXPECT_EQ(facts.name, "hermes");
  EXPECT_EQ(facts.source, wire::ChatFormatSource::kTemplate);
  EXPECT_EQ(facts.reason, "the chat template spells <tool_call>");
  EXPECT_EQ(facts.control_tokens, std::vector<std::string>{"<tool_call>"});
  EXPECT_FALSE(facts.without_tools);
  EXPECT_EQ(chat_format_facts(configured, detected).source, wire::ChatFormatSource::kConfiguration);
  EXPECT_EQ(chat_format_facts(configured, detected).without_tools, "hermes");
  EXPECT_EQ(chat_format_facts(ChatFormat::of("", tokens), detected).source, wire::ChatFormatSource::kDefault);
}

TEST(ChatFormat, OfTheConfigurationIsOneThatThereIs) {
  config::ModelsConfig config;
  config.chat_format = {{"a", "hermes"}, {"b", "qwen3_coder"}};
  EXPECT_TRUE(check_chat_formats(config));
  config.chat_format["c"] = "chatml";
  const auto refused = check_chat_formats(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kConfigInvalid);
  EXPECT_EQ(refused.error().message.find("models.chat_format.c is no chat format; there are generic, hermes"), 0U);
}

}  // namespace
}  // namespace llorch::orchestratord::models
