#include "text/formats/turn.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "text/formats/format.h"
#include "text/formats/testing/outputs.h"
#include "text/jinja/chat_template.h"

namespace llorch::text::formats {
namespace {

namespace bj = boost::json;
namespace fs = std::filesystem;

constexpr std::string_view kConversation = R"([
  {"role": "user", "content": "Weather?"},
  {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"}},
    {"id": "call_2", "type": "function", "function": {"name": "now", "arguments": ""}}]},
  {"role": "tool", "tool_call_id": "call_2", "content": "noon"},
  {"role": "tool", "tool_call_id": "call_1", "content": "cold"}])";

bj::array applied(const Turn& turn, std::string_view messages = kConversation) {
  const auto out = turn.apply(messages);
  EXPECT_TRUE(out) << out.error().message;
  return bj::parse(*out).as_array();
}

const bj::value& arguments_of(const bj::array& messages, std::size_t message, std::size_t call) {
  return messages[message].at("tool_calls").at(call).at("function").at("arguments");
}

TEST(Turn, ArgumentsAreObjectsOrTexts) {
  EXPECT_EQ(arguments_of(applied({}), 1, 0), (bj::value{{"city", "Oslo"}}));
  EXPECT_EQ(arguments_of(applied({}), 1, 1), bj::value(bj::object()));
  const Turn texts{.arguments_are_objects = false};
  EXPECT_EQ(arguments_of(applied(texts), 1, 0), R"({"city":"Oslo"})");
  const std::string objects = bj::serialize(applied({}));
  EXPECT_EQ(arguments_of(applied(texts, objects), 1, 0), R"({"city":"Oslo"})");
  EXPECT_EQ(bj::serialize(applied({}, objects)), objects) << "applied twice";
}

TEST(Turn, ShortIdsStayPairs) {
  const bj::array messages = applied({.ids_have_nine_characters = true});
  const bj::string first = messages[1].at("tool_calls").at(0).at("id").as_string();
  EXPECT_EQ(first.size(), 9U);
  EXPECT_EQ(messages[3].at("tool_call_id"), first);
  EXPECT_NE(messages[2].at("tool_call_id"), first);
  const std::string kept = R"([{"role": "tool", "tool_call_id": "abcdef123", "content": ""}])";
  EXPECT_EQ(applied({.ids_have_nine_characters = true}, kept)[0].at("tool_call_id"), "abcdef123");
}

TEST(Turn, NamesOfResultsAndContents) {
  const bj::array messages = applied({.results_have_names = true});
  EXPECT_EQ(messages[2].at("name"), "now");
  EXPECT_EQ(messages[3].at("name"), "get_weather");
  EXPECT_EQ(messages[1].at("content"), "");
  EXPECT_TRUE(applied({.content_may_be_null = true})[1].at("content").is_null());
  EXPECT_FALSE(applied({}, R"([{"role": "assistant", "content": "x", "tool_calls": []}])")[0].as_object().contains(
      "tool_calls"));
}

TEST(Turn, OneCallAMessage) {
  const bj::array messages = applied({.has_one_call = true});
  ASSERT_EQ(messages.size(), 5U);
  EXPECT_EQ(messages[1].at("tool_calls").as_array().size(), 1U);
  EXPECT_EQ(messages[2].at("tool_call_id"), "call_1");
  EXPECT_EQ(messages[3].at("tool_calls").at(0).at("id"), "call_2");
  EXPECT_EQ(messages[4].at("tool_call_id"), "call_2");
}

// A message of n calls becomes n messages, not n copies of itself.
TEST(Turn, ManyCallsAMessageCopyNothing) {
  constexpr std::size_t kCalls = 2000;
  std::string calls;
  for (std::size_t i = 0; i < kCalls; ++i) calls += (i == 0 ? "" : ",") + std::string(R"({"id": "a", "function": {}})");
  const std::string rest(100'000, 'x');
  const std::string messages = R"([{"role": "assistant", "note": ")" + rest + R"(", "tool_calls": [)" + calls + "]}]";
  const Turn turn{.has_one_call = true};
  const auto out = turn.apply(messages);
  ASSERT_TRUE(out) << out.error().message;
  EXPECT_LT(out->size(), messages.size() + kCalls * 120);
  const bj::value parsed = bj::parse(*out);
  ASSERT_EQ(parsed.as_array().size(), kCalls);
  EXPECT_EQ(parsed.at(0).at("note").as_string().size(), rest.size());
  EXPECT_EQ(parsed.at(kCalls - 1).at("role"), "assistant");
  const bj::array nameless =
      applied({.has_one_call = true}, R"([{"tool_calls": [{"function": {}}, {"function": {}}]}])");
  for (const bj::value& message : nameless) EXPECT_FALSE(message.as_object().contains("role")) << "nobody said one";
}

// Their keys may be chosen to collide, and each text of arguments is parsed by itself.
TEST(Turn, ArgumentsOfAllCallsHaveABound) {
  const auto message_of = [](std::size_t members, std::size_t calls) {
    std::string arguments;
    for (std::size_t i = 0; i < members; ++i)
      arguments += (i == 0 ? "" : ",") + bj::serialize(std::to_string(i)) + ":1";
    const std::string call = R"({"function": {"arguments": )" + bj::serialize("{" + arguments + "}") + "}}";
    std::string list = call;
    for (std::size_t i = 1; i < calls; ++i) list += "," + call;
    const auto out = Turn{}.apply(R"([{"role": "assistant", "tool_calls": [)" + list + "]}]");
    return out ? "accepted" : out.error().message;
  };
  EXPECT_EQ(message_of(5000, 5), "accepted");
  EXPECT_EQ(message_of(5000, 6),
            "messages[0].tool_calls[5].function.arguments have too many members, with those of earlier calls");
}

TEST(Turn, Refusals) {
  const auto message_of = [](std::string_view messages) {
    const auto out = Turn{}.apply(messages);
    return out ? "accepted" : out.error().message;
  };
  const auto with_call = [](const std::string& call) {
    return R"([{"role": "assistant", "tool_calls": [)" + call + "]}]";
  };
  EXPECT_EQ(message_of("{}"), "messages must be an array");
  EXPECT_EQ(message_of("[1]"), "messages[0] must be an object");
  EXPECT_EQ(message_of(with_call("1")), "messages[0].tool_calls[0] must be an object");
  EXPECT_EQ(message_of(with_call("{}")), "messages[0].tool_calls[0].function must be an object");
  for (const std::string arguments : {"\"[]\"", "\"{\"", "[1]", "3"}) {
    EXPECT_EQ(message_of(with_call(R"({"function": {"name": "f", "arguments": )" + arguments + "}}")),
              "messages[0].tool_calls[0].function.arguments must be the text of a JSON object");
  }
}

// They lie within the messages, which are read again as one text.
TEST(Turn, ArgumentsMayBeNestedAsDeeplyAsTheMessagesCanBeRead) {
  const auto conversation = [](std::size_t depth) {
    bj::object arguments;
    for (std::size_t i = 1; i < depth; ++i) arguments = bj::object{{"a", std::move(arguments)}};
    bj::array messages = bj::parse(kConversation).as_array();
    messages[1].at("tool_calls").at(0).at("function").at("arguments") = bj::serialize(arguments);
    return bj::serialize(messages);
  };
  const Turn texts{.arguments_are_objects = false};
  std::size_t deepest = 0;
  for (std::size_t depth = 1; depth < 40; ++depth) {
    const auto out = Turn().apply(conversation(depth));
    bj::error_code error;
    if (out) {
      (void)bj::parse(*out, error);
      EXPECT_FALSE(error) << depth;
      deepest = depth;
      continue;
    }
    std::string details;
    for (const auto& [name, value] : out.error().details) details += name + "=" + std::get<std::string>(value) + " ";
    EXPECT_EQ(details, "field=messages[1].tool_calls[0].function.arguments reason=depth ") << depth;
  }
  EXPECT_EQ(deepest, 27U);
  EXPECT_TRUE(texts.apply(conversation(32))) << "a text in a text";
}

TEST(Turn, ToldByTheTemplate) {
  const Turn joins = Turn::of("{{ '```json\\n' + tool['function']['arguments'] + '\\n```' }}");
  EXPECT_FALSE(joins.arguments_are_objects);
  EXPECT_TRUE(Turn::of("{{ call.arguments | tojson }}").arguments_are_objects);
  EXPECT_TRUE(Turn::of("{% if call['arguments'] is mapping %}").arguments_are_objects);
  EXPECT_TRUE(Turn::of("{% if message['content'] is none %}").content_may_be_null);
}

std::string file_text(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string rendered(const std::string& source, const bj::array& messages, bool add_generation_prompt) {
  const auto parsed = jinja::ChatTemplate::parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message;
  jinja::RenderInput input;
  input.variables = {{"messages", messages}, {"add_generation_prompt", add_generation_prompt}};
  input.variables["tools"] = bj::parse(
      R"([{"type": "function", "function": {"name": "get_weather", "description": "d", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "c"}}}}}])");
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  const auto text = parsed->render(input);
  EXPECT_TRUE(text) << text.error().message;
  return text ? text->text() : "";
}

// A call in OpenAI's shape, through a model's own template, is a call that the format's parser reads.
TEST(Turn, TemplatesOfRealModelsWriteCallsThatParse) {
  const fs::path directory = fs::path(LLORCH_SOURCE_DIR) / "../shared/data/templates";
  if (!fs::is_directory(directory)) GTEST_SKIP() << directory << " is not there";
  for (const std::string name : {"CohereForAI-c4ai-command-r7b-12-2024-tool_use", "Kimi-K2-Instruct",
                                 "NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "Qwen-Qwen2.5-7B-Instruct",
                                 "Qwen-Qwen3-0.6B", "deepseek-ai-DeepSeek-V3.1", "meta-llama-Llama-3.1-8B-Instruct",
                                 "mistralai-Mistral-Nemo-Instruct-2407", "openai-gpt-oss-120b"}) {
    const std::string source = file_text(directory / (name + ".jinja"));
    const Format format = detect(source);
    const bj::array messages = applied(Turn::of(source), R"([
      {"role": "user", "content": "Weather?"},
      {"role": "assistant", "content": null, "reasoning_content": "Hm", "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"city\":\"Oslo\"}"}}]}])");
    const std::string prompt = rendered(source, {messages[0]}, true), all = rendered(source, messages, false);
    const auto differs = std::mismatch(prompt.begin(), prompt.end(), all.begin(), all.end()).second;
    const std::string before(all.begin(), differs), output(differs, all.end());
    const Parser::Options options{.format = format,
                                  .tools = Tools::parse(R"([{"function": {"name": "get_weather"}}])").value(),
                                  .in_thought = prompt_opens_thought(format, before)};
    const testing::Output read = testing::output_of(testing::parse(options, {output}));
    ASSERT_EQ(read.calls.size(), 1U) << name << ": " << output;
    EXPECT_EQ(read.calls[0].name, "get_weather") << name;
    EXPECT_EQ(bj::parse(read.calls[0].arguments), (bj::value{{"city", "Oslo"}})) << name;
  }
}

}  // namespace
}  // namespace llorch::text::formats
