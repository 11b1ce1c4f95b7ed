#include "orchestratord/http/chat/output_reader.h"

#include <gtest/gtest.h>

namespace llorch::orchestratord::http::chat {
namespace {

using base::TokenId;
using streams::TokenView;
using text::formats::Format;
using Kind = Part::Kind;

constexpr TokenId kOpen{7}, kClose{8}, kOther{9};

std::shared_ptr<const Reading> reading(bool in_thought = false) {
  auto format = std::make_shared<models::ChatFormat>();
  format->format = Format::kHermes;
  format->markers = {{kOpen, "<tool_call>"}, {kClose, "</tool_call>"}};
  return std::make_shared<Reading>(
      Reading{format, *text::formats::Tools::parse(R"([{"type":"function","function":{"name":"add"}}])"), in_thought});
}

// Each text is a token; an id stands for a control token, which has no text.
struct Token {
  std::string_view text;
  std::optional<TokenId> id{};
};
std::vector<Part> read(const std::vector<Token>& tokens, bool in_thought = false) {
  OutputReader reader(reading(in_thought));
  std::vector<Part> parts;
  std::int64_t i = 0;
  for (const Token& token : tokens) reader.take(TokenView{.t = token.text, .i = i++, .id = token.id}, parts);
  reader.finish(parts);
  return parts;
}

TEST(OutputReader, ControlTokensMarkCallsByTheirSpelling) {
  const auto parts = read({{"Wait. "},
                           {"", kOpen},
                           {R"({"name": "add", "argum)"},
                           {R"(ents": {"a": 1}})"},
                           {"", kClose},
                           {"", kOpen},
                           {R"({"name": "add", "arguments": {}})"},
                           {"", kClose},
                           {"", kOther}});
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_EQ(parts[0], (Part{.kind = Kind::kContent, .text = "Wait."}));
  EXPECT_EQ(parts[1], (Part{.kind = Kind::kCall, .text = R"({"a": 1})", .name = "add", .index = 0}));
  EXPECT_EQ(parts[2], (Part{.kind = Kind::kCall, .text = "{}", .name = "add", .index = 1}));
}

TEST(OutputReader, TheMarkerBehindAnAnswerIsNoPartOfIt) {
  auto either = std::make_shared<Reading>(*reading());
  either->calls_or_answer = true;
  OutputReader reader(either);
  std::vector<Part> parts;
  reader.take({.t = R"({"a": "<tool_call>"})"}, parts);
  reader.take({.t = "", .id = kClose}, parts);
  reader.finish(parts);
  EXPECT_EQ(parts, (std::vector<Part>{{.kind = Kind::kContent, .text = R"({"a": "<tool_call>"})"}}));
}

TEST(OutputReader, ACallIsWholeOrNone) {
  OutputReader reader(reading());
  std::vector<Part> parts;
  reader.take({.t = R"(<tool_call>{"name": "add", "arguments": {"a": )"}, parts);
  EXPECT_TRUE(parts.empty()) << "nothing is said of a call that may break off";
  reader.take({.t = "nonsense"}, parts);
  reader.finish(parts);
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0],
            (Part{.kind = Kind::kContent, .text = R"(<tool_call>{"name": "add", "arguments": {"a": nonsense)"}));
  EXPECT_EQ(reader.calls(), 0u);
}

// Renderers put it into answers of which each is a line.
TEST(OutputReader, ArgumentsAreOneLine) {
  const auto parts =
      read({{"<tool_call>{\"name\": \"add\", \"arguments\": {\r\n \"a\": \"x\\ny\",\n"}, {" \"b\": [\n1]\n}}"}});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].kind, Kind::kCall);
  EXPECT_EQ(parts[0].text, R"({   "a": "x\ny",  "b": [ 1] })");
  const auto quoted = read({{R"(<tool_call>{"name": "add", "arguments": "{\n\"a\": 1}"}</tool_call>)"}});
  ASSERT_EQ(quoted.size(), 1u);
  EXPECT_EQ(quoted[0].text, R"({ "a": 1})");
  // A raw line break within a string is no JSON.
  const auto broken = read({{"<tool_call>{\"name\": \"add\", \"arguments\": {\"a\": \"x\ny\"}}"}});
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].kind, Kind::kContent);
}

TEST(OutputReader, AThoughtThatThePromptOpenedEndsInTheOutput) {
  const auto parts = read({{"let me see"}, {"</think>"}, {"\n\nyes"}}, true);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[0], (Part{.kind = Kind::kReasoning, .text = "let me see"}));
  EXPECT_EQ(parts[1], (Part{.kind = Kind::kContent, .text = "yes"}));
}

}  // namespace
}  // namespace llorch::orchestratord::http::chat
