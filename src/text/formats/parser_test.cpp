#include "text/formats/parser.h"

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "text/formats/testing/outputs.h"

namespace llorch::text::formats {

// For messages of failed expectations.
void PrintTo(const Delta& delta, std::ostream* out) {
  *out << static_cast<int>(delta.kind) << " " << delta.index << " " << delta.text << " " << delta.id;
}

namespace testing {
void PrintTo(const Output& output, std::ostream* out) {
  *out << "content [" << output.content << "] reasoning [" << output.reasoning << "]";
  for (const Call& call : output.calls)
    *out << " call [" << call.name << " " << call.id << " " << call.arguments << "]";
}
}  // namespace testing

namespace {

using testing::Output;

constexpr std::string_view kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}, "required": ["city"]}}},
  {"type": "function", "function": {"name": "now"}}])";

Parser::Options options_of(Format format, bool in_thought = false) {
  return {.format = format, .tools = Tools::parse(kTools).value(), .in_thought = in_thought};
}

// The output, which is the same however the text is cut in two and when it comes byte by byte.
Output read(const Parser::Options& options, std::string_view text) {
  const std::vector<Delta> whole = testing::parse(options, {text});
  std::vector<std::string_view> bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    bytes.push_back(text.substr(i, 1));
    EXPECT_EQ(testing::parse(options, {text.substr(0, i), text.substr(i)}), whole) << text << " at " << i;
  }
  EXPECT_EQ(testing::parse(options, bytes), whole) << text;
  return testing::output_of(whole);
}

Output read(Format format, std::string_view text) { return read(options_of(format), text); }

const testing::Call kOslo{"get_weather", "", R"({"city": "Oslo", "days": 2})"};

// What models of each format write, with everything around it.
TEST(Parser, KnownOutputs) {
  struct Case {
    Format format;
    std::string text;
    Output expected;
  };
  const testing::Call bare{"now", "", "{}"};
  const auto with_id = [](std::string id) { return testing::Call{"get_weather", std::move(id), kOslo.arguments}; };
  const std::vector<Case> cases{
      {Format::kHermes,
       "<think>\nIt wants\nweather.\n</think>\n\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
       "\"Oslo\", \"days\": 2}}\n</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>",
       {"", "It wants\nweather.", {kOslo, bare}}},
      {Format::kHermes,
       "Let me look.\n<tool_call>{\"arguments\": {}, \"name\": \"now\"}",
       {"Let me look.", "", {bare}}},
      {Format::kHermes, "<tool_call>{\"name\": \"now\"}</tool_call> Done.", {"Done.", "", {bare}}},
      {Format::kHermes,
       "<tool_call>{\"name\": \"now\", \"arguments\": \"{\\\"a\\\": 1}\"}</tool_call>",
       {"", "", {{"now", "", "{\"a\": 1}"}}}},
      {Format::kLlama3, R"({"name": "get_weather", "parameters": {"city": "Oslo", "days": 2}})", {"", "", {kOslo}}},
      {Format::kLlama3,
       R"(<|python_tag|>{"type": "function", "name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}; {"name": "now", "parameters": {}})",
       {"", "", {kOslo, bare}}},
      {Format::kMistral,
       R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}, "id": "abcdef123"}, {"name": "now", "arguments": {}}])",
       {"", "", {with_id("abcdef123"), bare}}},
      {Format::kMistralV11,
       R"([THINK]Hm.[/THINK]Yes. [TOOL_CALLS]get_weather[ARGS]{"city": "Oslo", "days": 2}[TOOL_CALLS]now[ARGS]{})",
       {"Yes.", "Hm.", {kOslo, bare}}},
      {Format::kMistralV11,
       R"([TOOL_CALLS]get_weather[CALL_ID]abcdef123[ARGS]{"city": "Oslo", "days": 2})",
       {"", "", {with_id("abcdef123")}}},
      {Format::kGptOss,
       R"(<|channel|>analysis<|message|>Need weather.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Oslo", "days": 2}<|call|>)",
       {"", "Need weather.", {kOslo}}},
      {Format::kGptOss,
       R"(<|channel|>analysis<|message|>Easy.<|end|><|start|>assistant<|channel|>commentary<|message|>I look.<|end|><|start|>assistant to=functions.now<|channel|>commentary json<|message|>{})",
       {"I look.", "Easy.", {bare}}},
      {Format::kGptOss, R"( to=functions.now<|channel|>commentary<|message|>{}<|call|>)", {"", "", {bare}}},
      {Format::kGptOss, "<|channel|>final<|message|>Hello <b>\n", {"Hello <b>\n", "", {}}},
      {Format::kDeepseek,
       "<think>Hm</think>\n\n<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
       "{\"city\": \"Oslo\", \"days\": 2}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n"
       "```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "Hm", {kOslo, bare}}},
      {Format::kDeepseekV31,
       "Sure.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Oslo\", \"days\": 2}"
       "<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"Sure.", "", {kOslo, bare}}},
      {Format::kGranite,
       R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}, {"name": "now", "arguments": {}}])",
       {"", "", {kOslo, bare}}},
      {Format::kGranite, "<think>Hm.</think>\n<response>It is.</response>", {"It is.", "Hm.", {}}},
      {Format::kLfm2,
       R"(<|tool_call_start|>[get_weather(city="Oslo", days=2), now()]<|tool_call_end|>Wait.)",
       {"Wait.", "", {kOslo, bare}}},
      {Format::kLfm2, R"(<|tool_call_start|>[get_weather('Oslo', days=2)]<|tool_call_end|>)", {"", "", {kOslo}}},
      {Format::kPhi,
       R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}}]<|/tool_call|>)",
       {"", "", {kOslo}}},
      {Format::kGemma3, "Sure:\n```tool_code\nget_weather(city='Oslo', days=2)\n```", {"Sure:", "", {kOslo}}},
      {Format::kFunctionGemma,
       "<start_function_call>call:get_weather{city:<escape>Oslo<escape>,days:2}<end_function_call>",
       {"", "", {kOslo}}},
      {Format::kGemma4,
       "<|channel>thought\nHm.\n<channel|><|tool_call>call:get_weather{city:<|\"|>Oslo<|\"|>,days:2}<tool_call|>",
       {"", "Hm.", {kOslo}}},
      {Format::kQwen3Coder,
       "I look.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n<parameter=days>\n2\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       {"I look.", "", {kOslo, bare}}},
      {Format::kQwen3Coder, "<function=now>\n</function>\n</tool_call>", {"", "", {bare}}},
      {Format::kCommand,
       R"(<|START_THINKING|>I look.<|END_THINKING|><|START_ACTION|>[
    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Oslo", "days": 2}}
]<|END_ACTION|>)",
       {"", "I look.", {with_id("0")}}},
      {Format::kCommand, "<|START_RESPONSE|>Hi.<|END_RESPONSE|>", {"Hi.", "", {}}},
      {Format::kKimi,
       R"(<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Oslo", "days": 2}<|tool_call_end|><|tool_calls_section_end|>)",
       {"", "", {with_id("functions.get_weather:0")}}},
      {Format::kGeneric, R"({"name": "get_weather", "arguments": {"city": "Oslo", "days": 2}})", {"", "", {kOslo}}},
  };
  for (const Case& each : cases) EXPECT_EQ(read(each.format, each.text), each.expected) << name_of(each.format);
}

// What is no call is content, byte by byte as the model wrote it.
TEST(Parser, WhatIsNoCallIsContent) {
  const std::vector<std::pair<Format, std::string>> cases{
      {Format::kHermes, "\n <tool_call>\n{\"name\": \"now\", \"arguments\": {\"a\": }}\n</tool_call>"},
      {Format::kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"<tool_call>"},
      {Format::kHermes, "<tool_call>{\"name\": \"now\", \"arguments\": [1]}"},
      {Format::kHermes, "<tool_call>{\"name\": \"now\", \"name\": \"now\"}"},
      {Format::kHermes, "<tool_call>{\"name\": 3, \"arguments\": {}}"},
      {Format::kHermes, "a <tool_ca"},
      {Format::kHermes, "a </tool_call> </think> b\n\n"},
      {Format::kHermes, "Tags are written <think>."},
      {Format::kLlama3, "<|python_tag|>print(1)"},
      {Format::kLlama3, R"({"name": "Ada", "parameters": {}})"},
      {Format::kLlama3, R"({"name": "now", "born": 1815})"},
      {Format::kLlama3, R"(It is {"name": "now", "parameters": {}})"},
      {Format::kMistral, "[TOOL_CALLS] none"},
      {Format::kMistralV11, "[TOOL_CALLS]two words[ARGS]{}"},
      {Format::kGptOss, "Hello\nworld"},
      {Format::kGptOss, "<|channel|>commentary to=python code<|message|>print(1)"},
      {Format::kDeepseek, "<｜tool▁call▁begin｜>now{}"},
      {Format::kLfm2, "<|tool_call_start|>[now(]<|tool_call_end|>"},
      {Format::kLfm2, "<|tool_call_start|>[now(a=open('x'))]<|tool_call_end|>"},
      {Format::kLfm2, "<|tool_call_start|>[now(a=1, a=2)]<|tool_call_end|>"},
      {Format::kGemma3, "```tool_code\nprint(now())\n```"},
      {Format::kFunctionGemma, "<start_function_call>recall:now{}<end_function_call>"},
      {Format::kFunctionGemma, "<start_function_call>call:now{a:<escape>b}<end_function_call>"},
      {Format::kQwen3Coder, "<tool_call>\n<function=now>\n<parameter=a>\n1\n</parameter>\n"},
      {Format::kQwen3Coder, "<tool_call>\n{\"name\": \"now\"}"},
      {Format::kKimi, "<|tool_call_begin|>now<|tool_call_argument_begin|>{}"},
      {Format::kGeneric, R"({"answer": 42})"},
      {Format::kGeneric, R"({"name": "now"})"},
  };
  for (const auto& [format, text] : cases) {
    EXPECT_EQ(read(format, text), (Output{text, "", {}})) << name_of(format);
  }
}

// A model may write its notation although nothing was offered to it.
TEST(Parser, WithoutToolsNothingIsACall) {
  const std::vector<std::pair<Format, std::string>> cases{
      {Format::kHermes, R"(<tool_call>{"name": "now", "arguments": {}}</tool_call>)"},
      {Format::kMistral, R"([TOOL_CALLS][{"name": "now", "arguments": {}}])"},
      {Format::kMistralV11, "[TOOL_CALLS]now[ARGS]{}"},
      {Format::kDeepseekV31, "<｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜>"},
      {Format::kLlama3, R"(<|python_tag|>{"name": "now", "parameters": {}})"},
      {Format::kLfm2, "<|tool_call_start|>[now()]<|tool_call_end|>"},
      {Format::kGemma3, "```tool_code\nnow()\n```"},
      {Format::kQwen3Coder, "<tool_call>\n<function=now>\n</function>\n</tool_call>"},
      {Format::kGeneric, R"({"name": "now", "arguments": {}})"},
  };
  for (const auto& [format, text] : cases) {
    EXPECT_EQ(read({.format = format}, text), (Output{text, "", {}})) << name_of(format);
  }
  // A header of a channel is a marker, wherever the message goes.
  EXPECT_EQ(read({.format = Format::kGptOss},
                 "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.now "
                 "<|constrain|>json<|message|>{}<|call|>"),
            (Output{"{}", "Hm.", {}}));
  EXPECT_EQ(read({.format = Format::kGptOss}, " to=functions.now<|channel|>commentary<|message|>{}<|call|>"),
            (Output{"{}", "", {}}));
}

TEST(Parser, CallsBeforeABrokenOneStand) {
  const Output output = read(Format::kGranite, R"(<|tool_call|>[{"name": "now", "arguments": {}}, {"name": }])");
  EXPECT_EQ(output, (Output{R"(, {"name": }])", "", {{"now", "", "{}"}}}));
}

TEST(Parser, OutputThatBeginsInsideAThought) {
  const std::string text = "\nI think <think>.\n</think>\n\nYes <tool_call>{\"name\": \"now\"}</tool_call>";
  EXPECT_EQ(read(options_of(Format::kHermes, true), text), (Output{"Yes", "I think <think>.", {{"now", "", "{}"}}}));
  EXPECT_EQ(read(options_of(Format::kHermes, true), "never ends\n"), (Output{"", "never ends\n", {}}));
}

TEST(Parser, AnAnswerInThePlaceOfCallsIsContentAsItIs) {
  Parser::Options options = options_of(Format::kLfm2, true);
  options.calls_or_answer = true;
  const std::string call = "<|tool_call_start|>[now()]<|tool_call_end|>", answer = R"({"said": ")" + call + "\"}";
  EXPECT_EQ(read(options, "why</think>\n" + answer), (Output{answer, "why", {}}));
  EXPECT_EQ(read(options, "why</think>\n" + call), (Output{"", "why", {{"now", "", "{}"}}}));
}

// A call is announced with its first byte of arguments, and each further byte is there at once.
TEST(Parser, ArgumentsStream) {
  const std::string head = "<tool_call>{\"name\": \"now\", \"arguments\": ";
  Parser parser(options_of(Format::kHermes));
  std::vector<Delta> out;
  parser.feed(head, out);
  EXPECT_TRUE(out.empty());
  parser.feed("{\"a", out);
  EXPECT_EQ(out, (std::vector<Delta>{{Delta::Kind::kCallBegin, 0, "now"}, {Delta::Kind::kArguments, 0, "{\"a"}}));
  out.clear();
  parser.feed("\": oops", out);
  EXPECT_EQ(out, (std::vector<Delta>{{Delta::Kind::kArguments, 0, "\": "},
                                     {Delta::Kind::kCallBroken, 0},
                                     {Delta::Kind::kContent, 0, head + "{\"a\": oops"}}));
}

TEST(Parser, HoldsBackNoMoreThanAMarker) {
  Parser parser(options_of(Format::kHermes));
  std::vector<Delta> out;
  parser.feed("a <b> c <tool_", out);
  EXPECT_EQ(out, (std::vector<Delta>{{Delta::Kind::kContent, 0, "a <b> c"}}));
  out.clear();
  parser.feed(" " + std::string(kSpaceBytesMax + 1, ' '), out);
  EXPECT_EQ(testing::output_of(out).content.substr(0, 8), " <tool_ ");
  parser.finish(out);
  EXPECT_EQ(testing::output_of(out).content, " <tool_ " + std::string(kSpaceBytesMax + 1, ' '));
}

TEST(Parser, ACallHasALimit) {
  const std::string text =
      "<tool_call>{\"name\": \"now\", \"arguments\": {\"a\": \"" + std::string(kCallBytesMax, 'x') + "\"}}</tool_call>";
  const auto deltas = testing::parse(options_of(Format::kHermes), {text});
  EXPECT_EQ(testing::output_of(deltas), (Output{text, "", {}}));
}

// Types of notations that write none come from the tool's schema.
TEST(Parser, SchemasDecideTypes) {
  const Tools tools = Tools::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {"properties": {
      "s": {"type": "string"}, "e": {"enum": ["1", "2"]}, "i": {"type": "integer"}, "b": {"type": "boolean"},
      "o": {"type": "object"}, "m": {"type": ["string", "null"]}}}}}])")
                          .value();
  const std::string text =
      "<function=f>\n<parameter=s>\n12\n</parameter>\n<parameter=e>\n1\n</parameter>\n<parameter=i>\n12\n</parameter>\n"
      "<parameter=b>\nTrue\n</parameter>\n<parameter=o>\n{\"a\": "
      "[1]}\n</parameter>\n<parameter=m>\nnull\n</parameter>\n"
      "<parameter=unknown>\n3\n</parameter>\n</function>";
  const Output output = read({.format = Format::kQwen3Coder, .tools = tools}, text);
  ASSERT_EQ(output.calls.size(), 1U);
  EXPECT_EQ(output.calls[0].arguments,
            R"({"s": "12", "e": "1", "i": 12, "b": true, "o": {"a": [1]}, "m": null, "unknown": "3"})");
}

TEST(Parser, PythonValues) {
  const std::string text =
      R"(<|tool_call_start|>[f(a='it\'s "x"\n', b=[1, -2.5e3, (True,False)], c={"k": None, 'l': {}}, d="\u00e9\ud83d\ude00")]<|tool_call_end|>)";
  const Output output = read(Format::kLfm2, text);
  ASSERT_EQ(output.calls.size(), 1U) << output.content;
  EXPECT_EQ(output.calls[0].arguments,
            R"({"a": "it's \"x\"\n", "b": [1, -2.5e3, [true, false]], "c": {"k": null, "l": {}}, "d": "é😀"})");
}

}  // namespace
}  // namespace llorch::text::formats
