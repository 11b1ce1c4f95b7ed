#include "text/formats/required_call.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <random>
#include <string>

#include "grammar/testing/small_vocabulary.h"
#include "text/formats/parser.h"
#include "text/formats/testing/outputs.h"
#include "text/formats/testing/random_output.h"

namespace llorch::text::formats {
namespace {

using grammar::Matcher;
using grammar::TokenId;
using ::testing::HasSubstr;
using Thought = RequiredCall::Thought;

// Every byte, and control tokens for `markers`.
struct Vocabulary {
  explicit Vocabulary(const std::vector<std::string_view>& spellings)
      : small(grammar::testing::bytes_and(std::vector<std::string>(spellings.size()))) {
    for (const std::string_view spelling : spellings) {
      markers.emplace_back(TokenId{static_cast<std::uint32_t>(256 + markers.size())}, spelling);
    }
  }
  // What a parser is fed for the token.
  std::string text_of(TokenId id) const {
    const std::uint32_t i = index(id);
    return i >= 256 && i - 256 < markers.size() ? markers[i - 256].second : small.tokens[i];
  }
  grammar::testing::SmallVocabulary small;
  std::vector<Marker> markers;
};

const Vocabulary& all_bytes() {
  static const Vocabulary vocabulary({});
  return vocabulary;
}

Matcher matcher_of(const base::Result<std::shared_ptr<const grammar::Grammar>>& compiled,
                   const Vocabulary& vocabulary = all_bytes()) {
  EXPECT_TRUE(compiled) << compiled.error().message;
  return Matcher::create(*compiled, vocabulary.small.trie).value();
}

Matcher matcher_of(Format format, const Tools& tools, const RequiredCall& requirement,
                   const Vocabulary& vocabulary = all_bytes()) {
  const auto text = required_call(format, tools, requirement, vocabulary.markers);
  EXPECT_TRUE(text) << name_of(format) << ": " << text.error().message;
  return matcher_of(grammar::Grammar::from_gbnf(*text), vocabulary);
}

bool accepts(Matcher matcher, std::string_view text) {
  for (const char c : text) {
    if (!matcher.accept(TokenId{static_cast<std::uint8_t>(c)})) return false;
  }
  return matcher.is_complete();
}

// The tokens of `text`: a marker is its control token where the grammar takes that. Nothing if it does not take the text.
std::optional<std::vector<TokenId>> tokens_of(Matcher matcher, std::string_view text, const Vocabulary& vocabulary) {
  std::vector<TokenId> tokens;
  while (!text.empty()) {
    TokenId id{static_cast<std::uint8_t>(text[0])};
    for (const Marker& marker : vocabulary.markers) {
      if (text.starts_with(marker.second) && matcher.allows(marker.first).value()) id = marker.first;
    }
    if (!matcher.accept(id)) return std::nullopt;
    text.remove_prefix(vocabulary.text_of(id).size());
    tokens.push_back(id);
  }
  return matcher.is_complete() ? std::optional(tokens) : std::nullopt;
}

// A random string of the grammar; nothing when it grows too long. Chance alone would hardly leave a string, so what
// ends one is favoured.
std::optional<std::string> walk(Matcher matcher, const Syntax& syntax, std::mt19937_64& random,
                                const Vocabulary& vocabulary = all_bytes()) {
  std::vector<std::string> ends{"\"", "\n</parameter>\n"};
  if (!syntax.calls[0].quote.empty()) ends.emplace_back(syntax.calls[0].quote);
  if (!syntax.thought.close.empty()) ends.emplace_back(syntax.thought.close);
  std::string output;
  while (output.size() < 1500) {
    const auto mask = matcher.mask().value();
    std::vector<TokenId> allowed;
    for (std::uint32_t i = 0; i < vocabulary.small.tokens.size(); ++i) {
      if (grammar::testing::is_allowed(mask, TokenId{i})) allowed.push_back(TokenId{i});
    }
    TokenId id = allowed[random() % allowed.size()];
    for (const std::string& end : ends) {
      std::size_t written = end.size() - 1;
      while (written > 0 && !output.ends_with(end.substr(0, written))) --written;
      const TokenId next{static_cast<std::uint8_t>(end[written])};
      if (random() % 4 != 0 && grammar::testing::is_allowed(mask, next)) id = next;
    }
    for (const Marker& marker : vocabulary.markers) {
      if (random() % 4 != 0 && grammar::testing::is_allowed(mask, marker.first)) id = marker.first;
    }
    if (matcher.is_complete() && random() % 2 == 0) id = vocabulary.small.end();
    if (id == vocabulary.small.end()) return output;
    EXPECT_TRUE(matcher.accept(id));
    output += vocabulary.text_of(id);
  }
  return std::nullopt;
}

class RequiredCalls : public ::testing::TestWithParam<Format> {
 protected:
  const Tools tools_ = Tools::parse(testing::kRandomTools).value();

  void expect_valid(const testing::Output& output, const std::string& text) {
    EXPECT_EQ(output.content, "") << text;
    ASSERT_FALSE(output.calls.empty()) << text;
    for (const testing::Call& call : output.calls) {
      const Tool* tool = tools_.find(call.name);
      ASSERT_NE(tool, nullptr) << text;
      const std::string schema = tool->parameters.empty() ? R"({"type": "object", "properties": {}})"
                                                          : boost::json::serialize(tool->parameters);
      EXPECT_TRUE(accepts(matcher_of(grammar::Grammar::from_json_schema(schema)), call.arguments))
          << call.arguments << " in " << text;
    }
  }
};

// Whatever the grammar lets through, the parser reads as calls that are valid; also where the model has the markers as
// control tokens.
TEST_P(RequiredCalls, EveryStringIsValidCalls) {
  std::mt19937_64 random(7);
  std::size_t complete = 0;
  const Vocabulary with_markers(markers(GetParam()));
  const Thought thoughts[] = {Thought::kNone, Thought::kMayPrecede, Thought::kIsOpen};
  for (std::size_t i = 0; i < 24; ++i) {
    const Thought thought = thoughts[i % 3];
    const Vocabulary& vocabulary = i < 12 ? all_bytes() : with_markers;
    const auto text = walk(matcher_of(GetParam(), tools_, {.several = i % 2 == 0, .thought = thought}, vocabulary),
                           syntax_of(GetParam()), random, vocabulary);
    if (!text) continue;
    ++complete;
    const bool in_thought = thought == Thought::kIsOpen && !syntax_of(GetParam()).thought.close.empty();
    const auto deltas = testing::parse({.format = GetParam(), .tools = tools_, .in_thought = in_thought}, {*text});
    expect_valid(testing::output_of(deltas), *text);
  }
  EXPECT_GT(complete, 7U);
}

TEST_P(RequiredCalls, WhatModelsWriteIsAccepted) {
  const Matcher matcher = matcher_of(GetParam(), tools_, {.several = true});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomOutput output = testing::RandomOutputs(syntax_of(GetParam()), seed).next(true);
    EXPECT_TRUE(accepts(matcher, output.text)) << output.text;
  }
}

// The markers that a model has as control tokens are written as these, and cannot be spelled with other tokens; within a
// string they are text.
TEST_P(RequiredCalls, MarkersAreTheModelsOwnTokens) {
  const Vocabulary vocabulary(markers(GetParam()));
  const Matcher matcher = matcher_of(GetParam(), tools_, {.several = true}, vocabulary);
  const Matcher in_text = matcher_of(GetParam(), tools_, {.several = true});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomOutput output = testing::RandomOutputs(syntax_of(GetParam()), seed).next(true);
    const auto tokens = tokens_of(matcher, output.text, vocabulary);
    ASSERT_TRUE(tokens) << output.text;
    const bool has_markers = std::ranges::any_of(*tokens, [](TokenId id) { return index(id) >= 256; });
    EXPECT_EQ(accepts(matcher, output.text), !has_markers) << output.text;
    EXPECT_TRUE(accepts(in_text, output.text)) << output.text;
    const Spelling& spelling = syntax_of(GetParam()).spelling;
    const auto begins_with = [&](std::string_view marker) {
      return spelling.list_open.starts_with(marker) ||
             (spelling.list_open.empty() && spelling.open.starts_with(marker));
    };
    const bool begins_with_one = std::ranges::any_of(markers(GetParam()), begins_with);
    EXPECT_EQ(index(tokens->front()) >= 256U, begins_with_one) << output.text;
  }
}

constexpr std::string_view kAnswerSchema =
    R"({"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]})";

TEST_P(RequiredCalls, AnAnswerMayStandInsteadOfThem) {
  const Spelling& spelling = syntax_of(GetParam()).spelling;
  const auto answer = [&](std::string_view json) { return std::string(spelling.answer_open) + std::string(json); };
  const RequiredCall either{.several = true, .answer = std::string(kAnswerSchema)};
  const Matcher matcher = matcher_of(GetParam(), tools_, either);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomOutput output = testing::RandomOutputs(syntax_of(GetParam()), seed).next(true);
    EXPECT_TRUE(accepts(matcher, output.text)) << output.text;
  }
  const std::string json = R"({"said": "{\"name\": 1}"})";
  EXPECT_TRUE(accepts(matcher, answer(json)));
  EXPECT_FALSE(accepts(matcher, answer(R"({"other": 1})")));
  EXPECT_FALSE(accepts(matcher, answer(json + json)));
  EXPECT_FALSE(accepts(matcher_of(GetParam(), tools_, {.several = true}), answer(json)));
  const auto read = testing::output_of(testing::parse({.format = GetParam(), .tools = tools_}, {answer(json)}));
  EXPECT_EQ(read.content, json);
  EXPECT_TRUE(read.calls.empty());
}

// The reader knows that nothing stands behind an answer, and still reads the calls.
TEST_P(RequiredCalls, AnAnswerMayQuoteACall) {
  const Syntax& syntax = syntax_of(GetParam());
  const auto read = [&](bool calls_or_answer, const std::string& text) {
    return testing::output_of(
        testing::parse({.format = GetParam(), .tools = tools_, .calls_or_answer = calls_or_answer}, {text}));
  };
  const std::string quoted = testing::RandomOutputs(syntax, 0).written("now", {});
  const std::string json = boost::json::serialize(boost::json::object{{"said", quoted + quoted}});
  EXPECT_EQ(read(true, std::string(syntax.spelling.answer_open) + json), (testing::Output{json, "", {}}));
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::string calls = testing::RandomOutputs(syntax, seed).next(true).text;
    EXPECT_EQ(read(true, calls), read(false, calls)) << calls;
  }
}

// Then nobody has demanded the call, and it may break the schema.
TEST_P(RequiredCalls, AToolWithLooseArgumentsIsStillCalled) {
  const RequiredCall either{.several = true, .answer = std::string(kAnswerSchema), .loose = {"get_weather", "now"}};
  const Matcher matcher = matcher_of(GetParam(), tools_, either);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const testing::RandomOutput output = testing::RandomOutputs(syntax_of(GetParam()), seed).next(true);
    EXPECT_TRUE(accepts(matcher, output.text)) << output.text;
  }
  const std::string breaking = testing::RandomOutputs(syntax_of(GetParam()), 0)
                                   .written("get_weather", {{"text", "a"}, {"count", "many"}, {"of-a.name", "b"}});
  EXPECT_TRUE(accepts(matcher, breaking)) << breaking;
  EXPECT_FALSE(accepts(matcher_of(GetParam(), tools_, {.answer = std::string(kAnswerSchema)}), breaking)) << breaking;
  const auto read = testing::output_of(testing::parse({.format = GetParam(), .tools = tools_}, {breaking}));
  ASSERT_EQ(read.calls.size(), 1U) << breaking;
  EXPECT_THAT(read.calls[0].arguments, HasSubstr("of-a.name"));
}

TEST_P(RequiredCalls, ANamedCallIsOfThatTool) {
  const Matcher matcher = matcher_of(GetParam(), tools_, {.name = "now"});
  std::size_t accepted = 0, others = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const testing::RandomOutput output = testing::RandomOutputs(syntax_of(GetParam()), seed).next(true);
    const bool is_it = output.calls.size() == 1 && output.calls[0].first == "now";
    EXPECT_EQ(accepts(matcher, output.text), is_it) << output.text;
    (is_it ? accepted : others) += 1;
  }
  EXPECT_GT(accepted, 0U);
  EXPECT_GT(others, 0U);
}

INSTANTIATE_TEST_SUITE_P(, RequiredCalls, ::testing::ValuesIn(all_formats().begin(), all_formats().end()),
                         [](const auto& tested) { return std::string(name_of(tested.param)); });

// One tool, with that schema of its parameter `p`.
Tools tools_with(std::string_view parameter) {
  return Tools::parse(R"([{"function": {"name": "f", "parameters": {"properties": {"p": )" + std::string(parameter) +
                      "}}}}]")
      .value();
}

TEST(RequiredCall, Refusals) {
  const auto message_of = [](const base::Result<std::string>& result) {
    return result ? "accepted" : result.error().message;
  };
  EXPECT_THAT(message_of(required_call(Format::kHermes, {}, {})), HasSubstr("no tools"));
  EXPECT_THAT(message_of(required_call(Format::kHermes, tools_with("{}"), {.name = "g"})), HasSubstr("not in tools"));
  const Tools pattern = tools_with(R"({"type": "string", "pattern": "^a$"})");
  EXPECT_THAT(message_of(required_call(Format::kQwen3Coder, pattern, {})), HasSubstr("`pattern` of a string"));
  EXPECT_THAT(message_of(required_call(Format::kGemma4, pattern, {})), HasSubstr("`pattern` of a string"));
  for (const Format format : {Format::kHermes, Format::kLfm2}) {
    EXPECT_TRUE(required_call(format, pattern, {})) << name_of(format);
  }
}

TEST(RequiredCall, AnEnumThatIsNoListIsRefused) {
  for (const std::string_view values : {R"("x")", "null", "1", "{}", "true"}) {
    const std::string text = R"({"type": "string", "enum": )" + std::string(values) + "}";
    const std::string texts = R"({"type": "array", "items": )" + text + "}";
    for (const Format format : {Format::kQwen3Coder, Format::kFunctionGemma, Format::kGemma4}) {
      for (const std::string& parameter : {text, texts}) {
        if (format == Format::kQwen3Coder && parameter == texts) continue;  // is JSON there
        const Tools tools = tools_with(parameter);
        const auto refused = required_call(format, tools, {});
        ASSERT_FALSE(refused) << name_of(format) << parameter;
        EXPECT_THAT(refused.error().message, HasSubstr("an `enum` that is no list")) << name_of(format);
        EXPECT_TRUE(required_call(format, tools, {.answer = std::string(kAnswerSchema)})) << name_of(format);
      }
    }
  }
}

TEST(RequiredCall, AnAnswerBesideToolsIsNoDemand) {
  const Tools pattern = tools_with(R"({"type": "string", "pattern": "^a$"})");
  for (const Format format : {Format::kQwen3Coder, Format::kGemma4}) {
    EXPECT_FALSE(required_call(format, pattern, {})) << name_of(format);
    const auto text = required_call(format, pattern, {.answer = std::string(kAnswerSchema)});
    ASSERT_TRUE(text) << name_of(format) << text.error().message;
    EXPECT_TRUE(grammar::Grammar::from_gbnf(*text)) << name_of(format);
  }
}

TEST(RequiredCall, ACallHasArgumentsWhereTheirSchemaIsNullable) {
  const Tools tools = Tools::parse(R"([{"function": {"name": "f", "parameters": {
    "type": "object", "nullable": true, "properties": {"p": {"type": "integer", "nullable": true}}}}}])")
                          .value();
  const std::string text = required_call(Format::kHermes, tools, {}).value();
  EXPECT_EQ(text.find("nullable"), text.rfind("nullable")) << "the parameter's is left";
  EXPECT_THAT(text, HasSubstr("nullable"));
}

// One tool whose schema has 64 KiB of definitions, and `count` parameters.
Tools tools_with_definitions(int count, std::string_view parameter) {
  std::string properties;
  for (int i = 0; i < count; ++i) {
    properties += fmt::format("{}\"p{}\": {}", i > 0 ? ", " : "", i, parameter);
  }
  const std::string definitions = R"({"n": {"type": "integer", "title": ")" + std::string(1 << 16, 'x') + "\"}}";
  return Tools::parse(R"([{"function": {"name": "f", "parameters": {"$defs": )" + definitions + R"(, "properties": {)" +
                      properties + "}}}}]")
      .value();
}

TEST(RequiredCall, DefinitionsAreWrittenForThoseWhoReferToThem) {
  for (const Format format : {Format::kLfm2, Format::kQwen3Coder, Format::kGemma4}) {
    const auto plain = required_call(format, tools_with_definitions(100, R"({"type": "integer"})"), {});
    ASSERT_TRUE(plain) << name_of(format);
    EXPECT_LT(plain->size(), 1U << 16) << name_of(format);
  }
  const Tools referring = tools_with_definitions(3, R"({"$ref": "#/$defs/n"})");
  for (const Format format : {Format::kLfm2, Format::kQwen3Coder}) {
    const auto text = required_call(format, referring, {});
    ASSERT_TRUE(text) << name_of(format);
    EXPECT_GT(text->size(), 3U << 16) << name_of(format);
    EXPECT_LT(text->size(), 4U << 16) << name_of(format);
    EXPECT_TRUE(grammar::Grammar::from_gbnf(*text)) << name_of(format);
  }
}

// The grammar's compiler takes what is not refused here, as far as its length goes.
TEST(RequiredCall, AGrammarThatWouldBeTooLongIsRefused) {
  const std::size_t bytes_max = grammar::Limits{}.text_bytes_max;
  EXPECT_EQ(RequiredCall{}.text_bytes_max, bytes_max);
  // More than a gigabyte, were all of it written.
  const Tools tools = tools_with_definitions(10'000, R"({"$ref": "#/$defs/n"})");
  for (const Format format : {Format::kLfm2, Format::kQwen3Coder}) {
    const auto refused = required_call(format, tools, {});
    ASSERT_FALSE(refused) << name_of(format);
    EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(refused.error().message, HasSubstr("more than 1048576 bytes")) << name_of(format);
  }
  for (const Format format : all_formats()) {
    const Tools small = Tools::parse(testing::kRandomTools).value();
    const std::string whole = required_call(format, small, {}).value();
    EXPECT_TRUE(required_call(format, small, {.text_bytes_max = whole.size()})) << name_of(format);
    EXPECT_FALSE(required_call(format, small, {.text_bytes_max = whole.size() - 1})) << name_of(format);
  }
}

TEST(Tools, Refusals) {
  const auto message_of = [](std::string_view json) {
    const auto tools = Tools::parse(json);
    return tools ? "accepted" : tools.error().message;
  };
  EXPECT_EQ(message_of("{"), "tools must be an array");
  EXPECT_EQ(message_of("[1]"), "tools[0].function must be an object");
  EXPECT_EQ(message_of(R"([{"function": {}}])"), "tools[0].function.name must be a string");
  EXPECT_EQ(message_of(R"([{"function": {"name": ""}}])"), "tools[0].function.name must have 1 to 256 bytes");
  EXPECT_EQ(message_of(R"([{"function": {"name": "f", "parameters": []}}])"),
            "tools[0].function.parameters must be an object");
  EXPECT_EQ(message_of(R"([{"function": {"name": "f"}}, {"function": {"name": "f"}}])"),
            "tools[1].function.name is the name of two tools");
}

}  // namespace
}  // namespace llorch::text::formats
