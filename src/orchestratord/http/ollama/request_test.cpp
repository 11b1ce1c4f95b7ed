#include "orchestratord/http/ollama/request.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "wire/json.h"
#include "wire/ollama.h"

namespace llorch::orchestratord::http::ollama {
namespace {

std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

Request chat(const std::string& members, const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  auto request = decode_chat(R"({"model":"m","messages":)" + messages + (members.empty() ? "" : "," + members) + "}");
  EXPECT_TRUE(request) << members << messages << ": " << request.error().message;
  return request ? *request : Request{};
}
Request generate(const std::string& members) {
  auto request = decode_generate(R"({"model":"m",)" + members + "}");
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
std::string messages_of(const std::string& messages) {
  const Request request = chat("", messages);
  return request.submission.messages ? request.submission.messages->text : "";
}

TEST(OllamaChat, LeavesTheDefaultsOfThatApi) {
  const Request request = chat("");
  const wire::SubmitRequest& s = request.submission;
  EXPECT_EQ(s.model, "m");
  EXPECT_EQ(s.messages->text, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(s.temperature, 0.8);
  EXPECT_EQ(s.sampling.top_k, 40);
  EXPECT_EQ(s.sampling.top_p, 0.9);
  EXPECT_EQ(s.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(s.sampling.penalty_last_n, 64);
  EXPECT_EQ(s.max_tokens, std::nullopt);
  EXPECT_EQ(s.seed, std::nullopt);
  EXPECT_FALSE(s.chat_template_kwargs);
  EXPECT_TRUE(request.answer.stream);
  EXPECT_EQ(request.tool_use, chat::ToolUse{});
  EXPECT_FALSE(request.only_finds_model);
}

TEST(OllamaChat, OptionsReachTheSubmission) {
  Request request = chat(
      R"("stream":false,"keep_alive":"5m","format":"json","think":"high","logprobs":true,"top_logprobs":2,"unknown":1,
         "options":{"temperature":0.5,"top_k":5,"top_p":0.5,"min_p":0.1,"typical_p":0.9,"seed":7,"num_predict":9,
         "stop":["END"],"repeat_penalty":1.2,"repeat_last_n":-1,"presence_penalty":1,"frequency_penalty":-1,
         "num_ctx":4096,"num_gpu":1,"nonsense":"x"})");
  const wire::SubmitRequest& s = request.submission;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.sampling.top_k, 5);
  EXPECT_EQ(s.sampling.min_p, 0.1);
  EXPECT_EQ(s.sampling.typical_p, 0.9);
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(s.sampling.repetition_penalty, 1.2);
  EXPECT_EQ(s.sampling.penalty_last_n, 0);
  EXPECT_EQ(s.sampling.presence_penalty, 1);
  EXPECT_EQ(s.sampling.frequency_penalty, -1);
  EXPECT_EQ(s.sampling.json_schema->text, R"({"type":"object"})");
  EXPECT_EQ(s.sampling.top_logprobs, 2);
  EXPECT_EQ(s.chat_template_kwargs->text, R"({"enable_thinking":true,"reasoning_effort":"high"})");
  EXPECT_FALSE(request.answer.stream);
  request = chat(R"("think":false,"format":{"type":"array"},"options":{"seed":-1,"num_predict":-1,"stop":"x"})");
  EXPECT_EQ(request.submission.chat_template_kwargs->text, R"({"enable_thinking":false})");
  EXPECT_EQ(request.submission.sampling.json_schema->text, R"({"type":"array"})");
  EXPECT_EQ(request.submission.seed, std::nullopt);
  EXPECT_EQ(request.submission.max_tokens, std::nullopt);
  EXPECT_FALSE(chat(R"("format":"")").submission.sampling.json_schema);
}

TEST(OllamaChat, NullOfAnyFieldMeansLeftOut) {
  const std::string plain = wire::encode(chat("").submission);
  const auto described = boost::json::parse(wire::json_schema<wire::OllamaChatRequest>());
  const auto check = [&](const boost::json::value& schema, auto members) {
    for (const auto& field : schema.at("properties").as_object()) {
      const std::string name(field.key());
      if (name == "model" || name == "messages") continue;
      EXPECT_EQ(wire::encode(chat(members(name)).submission), plain) << name;
    }
  };
  check(described, [](const std::string& name) { return '"' + name + "\":null"; });
  check(described.at("properties").at("options"),
        [](const std::string& name) { return "\"options\":{\"" + name + "\":null}"; });
}

// As Go reads a number into an integer.
TEST(OllamaChat, IntegersMayHaveAFraction) {
  const auto request =
      chat(R"("options":{"top_k":40.0,"num_predict":128.9,"repeat_last_n":-0.5,"seed":3.0})").submission;
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.max_tokens, 128);
  EXPECT_EQ(request.sampling.penalty_last_n, 0);
  EXPECT_EQ(request.seed, 3u);
  const auto beyond = decode_chat(R"({"model":"m","messages":[],"options":{"top_k":1e300}})");
  ASSERT_FALSE(beyond);
  EXPECT_EQ(detail(beyond.error(), "field") + " " + detail(beyond.error(), "reason"), "options.top_k range");
}

TEST(OllamaChat, TheHardestThinkingIsTheHighestEffortOfTemplates) {
  EXPECT_EQ(chat(R"("think":"max")").submission.chat_template_kwargs->text,
            R"({"enable_thinking":true,"reasoning_effort":"high"})");
}

TEST(OllamaChat, ATopKBelow0IsOff) { EXPECT_EQ(chat(R"("options":{"top_k":-1})").submission.sampling.top_k, 0); }

// A client puts frequency_penalty of the OpenAI API there, whose 0 is off.
TEST(OllamaChat, RepeatPenaltiesOf0AndBelowAreOff) {
  for (const char* value : {"0", "-0.5", "-2"}) {
    EXPECT_EQ(chat(std::string(R"("options":{"repeat_penalty":)") + value + "}").submission.sampling.repetition_penalty,
              1)
        << value;
  }
}

// An engine that does not know one of them goes without it, and one that the client sent is refused.
TEST(OllamaChat, SaysWhichValuesAreItsOwn) {
  using Names = std::vector<std::string_view>;
  EXPECT_EQ(chat("").api_defaults, (Names{"top_k", "top_p", "repetition_penalty", "penalty_last_n"}));
  EXPECT_EQ(chat(R"("options":{"top_k":40,"repeat_penalty":1.1,"top_p":null})").api_defaults,
            (Names{"top_p", "penalty_last_n"}));
  EXPECT_EQ(generate(R"("prompt":"a")").api_defaults.size(), 4u);
}

// That API's defaults stand beside what a client says; none of them makes a request of its own a contradiction.
TEST(OllamaChat, CutsGiveWayToAGreedyJobAndToMirostat) {
  const auto greedy = chat(R"("options":{"temperature":0,"top_k":20,"mirostat":2})").submission;
  EXPECT_EQ(greedy.sampling.top_k, 0);
  EXPECT_EQ(greedy.sampling.mirostat, 0);
  EXPECT_EQ(greedy.sampling.repetition_penalty, 1.1) << "which changes the likeliest token too";
  const auto mirostat = chat(R"("options":{"mirostat":2,"mirostat_tau":4})").submission;
  EXPECT_EQ(mirostat.sampling.top_k, 0);
  EXPECT_EQ(mirostat.sampling.top_p, 1);
  EXPECT_EQ(mirostat.sampling.mirostat_tau, 4);
  const auto free = chat(R"("options":{"repeat_last_n":0,"presence_penalty":1})").submission;
  EXPECT_EQ(free.sampling.repetition_penalty, 1);
  EXPECT_EQ(free.sampling.presence_penalty, 0);
}

TEST(OllamaChat, ImagesCallsAndResultsAreToldAsTemplatesWantThem) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"what?","images":["AAAA"]}])"),
            R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}},)"
            R"({"type":"text","text":"what?"}]}])");
  EXPECT_EQ(messages_of(R"([{"role":"system","content":"s"},{"role":"user","content":"add"},
      {"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"add","arguments":{"a":1}}},
      {"id":"mine","function":{"name":"add"}}]},
      {"role":"tool","content":"2","tool_name":"add"},{"role":"tool","content":"3"},{"role":"tool","content":"4"}])"),
            R"([{"role":"system","content":"s"},{"role":"user","content":"add"},)"
            R"({"role":"assistant","content":"","reasoning_content":"hm","tool_calls":[)"
            R"({"id":"call_2_0","type":"function","function":{"name":"add","arguments":"{\"a\":1}"}},)"
            R"({"id":"mine","type":"function","function":{"name":"add","arguments":"{}"}}]},)"
            R"({"role":"tool","content":"2","name":"add","tool_call_id":"call_2_0"},)"
            R"({"role":"tool","content":"3","tool_call_id":"mine"},{"role":"tool","content":"4"}])");
  const auto tools = chat(R"("tools":[{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])");
  EXPECT_EQ(tools.submission.tools->text,
            R"([{"type":"function","function":{"name":"add","parameters":{"type":"object"}}}])");
}

// A client tells its thoughts as messages before the assistant's.
TEST(OllamaChat, AThoughtIsOfTheNextAnswer) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"thinking","content":"x"},
      {"role":"thinking","content":"y"},{"role":"assistant","content":"b","thinking":"z"},
      {"role":"user","content":"c"}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b","reasoning_content":"x\ny\nz"},)"
            R"({"role":"user","content":"c"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"thinking","content":"x"},
      {"role":"user","content":"b"},{"role":"thinking","content":"y"}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"","reasoning_content":"x"},)"
            R"({"role":"user","content":"b"}])")
      << "one that was broken off, and one that has no answer yet";
  EXPECT_EQ(messages_of(R"([{"role":"thinking","content":"x"},{"role":"tool","content":"1"},
      {"role":"assistant","content":"b"}])"),
            R"([{"role":"tool","content":"1"},{"role":"assistant","content":"b","reasoning_content":"x"}])")
      << "nothing stands between a call and its result";
  EXPECT_TRUE(chat("", R"([{"role":"thinking","content":"x"}])").only_finds_model);
}

TEST(OllamaChat, FunctionsHaveTheNamesThatThatApiTakes) {
  const auto tools = [](const std::string& name) {
    return R"("tools":[{"type":"function","function":{"name":")" + name + R"("}}])";
  };
  for (const std::string& name : {std::string("mcp.files/read: all"), std::string("größe"), std::string(256, 'a')}) {
    EXPECT_NE(chat(tools(name)).submission.tools->text.find('"' + name + '"'), std::string::npos) << name;
  }
  for (const std::string& name : {std::string(), std::string("a\\nb"), std::string("a\x7f"), std::string(257, 'a')}) {
    const auto refused = decode_chat(R"({"model":"m","messages":[{"role":"user","content":"a"}],)" + tools(name) + "}");
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(detail(refused.error(), "field") + " " + detail(refused.error(), "reason"),
              "tools[0].function.name charset");
  }
}

TEST(OllamaChat, NullOfACallOrAFunctionMeansLeftOut) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[]}])"), R"([{"role":"user","content":""}])");
  const auto tools = chat(R"("tools":[{"type":"function","function":{"name":"f","parameters":null}}])");
  EXPECT_EQ(tools.submission.tools->text, R"([{"type":"function","function":{"name":"f"}}])");
  EXPECT_EQ(messages_of(R"([{"role":"assistant","content":null,"thinking":null,
      "tool_calls":[{"id":"i","function":{"name":"f","arguments":null}}]}])"),
            R"([{"role":"assistant","content":"","tool_calls":[{"id":"i","type":"function",)"
            R"("function":{"name":"f","arguments":"{}"}}]}])");
}

TEST(OllamaGenerate, APromptIsATurnUnlessItIsRaw) {
  Request request = generate(R"("prompt":"p")");
  EXPECT_EQ(request.submission.messages->text, R"([{"role":"user","content":"p"}])");
  EXPECT_EQ(request.plain_prompt, "p");
  request = generate(R"("prompt":"p","system":"s")");
  EXPECT_EQ(request.submission.messages->text, R"([{"role":"system","content":"s"},{"role":"user","content":"p"}])");
  EXPECT_EQ(request.plain_prompt, std::nullopt) << "a model without a template cannot be told a system message";
  request = generate(R"("prompt":"p","raw":true,"context":[],"suffix":"")");
  EXPECT_EQ(request.submission.prompt->text, "p");
  EXPECT_EQ(request.submission.parse_special, true) << "the client writes all of it";
  EXPECT_FALSE(request.submission.messages);
  EXPECT_EQ(request.tool_use, std::nullopt);
  EXPECT_EQ(generate(R"("prompt":"p","images":["AA"])").plain_prompt, std::nullopt);
}

TEST(OllamaGenerate, TheOutputStandsBetweenPromptAndSuffix) {
  for (const char* raw : {"false", "true"}) {
    const Request request = generate(std::string(R"("prompt":"p","suffix":"s","raw":)") + raw);
    EXPECT_EQ(request.submission.prompt->text, "p");
    EXPECT_EQ(request.submission.suffix, "s");
    EXPECT_FALSE(request.submission.messages || request.plain_prompt || request.only_finds_model);
  }
  EXPECT_EQ(generate(R"("suffix":"s")").submission.prompt->text, "");
}

TEST(OllamaRequests, WithoutAQuestionOnlyTheModelIsLookedFor) {
  EXPECT_TRUE(generate(R"("prompt":"")").only_finds_model);
  EXPECT_TRUE(decode_chat(R"({"model":"m"})")->only_finds_model);
  EXPECT_TRUE(chat("", "[]").only_finds_model);
  EXPECT_EQ(decode_show(R"({"name":"n"})"), "n");
  EXPECT_EQ(decode_show(R"({"name":"n","model":"m"})"), "m");
}

TEST(OllamaRequests, WithoutAQuestionAndATimeTheWorkersStop) {
  for (const char* zero : {"0", "0.0", "\"0\"", "\"0s\"", "\"-0h0.0ms\""}) {
    const Request request = generate(std::string(R"("keep_alive":)") + zero);
    EXPECT_TRUE(request.only_finds_model && request.stops_workers) << zero;
    EXPECT_TRUE(decode_chat(std::string(R"({"model":"m","keep_alive":)") + zero + "}")->stops_workers) << zero;
    EXPECT_FALSE(generate(std::string(R"("prompt":"p","keep_alive":)") + zero).stops_workers) << zero;
  }
  for (const char* time : {"null", "-1", "300", "\"5m\"", "\"1h30m0.5s\"", "\"-1ns\""}) {
    EXPECT_FALSE(generate(std::string(R"("keep_alive":)") + time).stops_workers) << time;
  }
}

TEST(OllamaRequests, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    base::Result<Request> (*decode)(std::string_view);
    const char* body;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {decode_chat, R"({"messages":[]})", "model", "missing"},
      {decode_chat, R"({"model":"m","messages":[{"role":"developer","content":"a"}]})", "messages[0].role", "enum"},
      {decode_chat, R"({"model":"m","messages":[5]})", "messages[0]", "type"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"}]}]})",
       "messages[0].content", "type"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","images":5}]})", "messages[0].images", "type"},
      {decode_chat, R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{}]}]})",
       "messages[0].tool_calls[0].function", "type"},
      {decode_chat,
       R"({"model":"m","messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"x"}}]}]})",
       "messages[0].tool_calls[0].function.arguments", "type"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a\u0000"}]})", "messages", "nul"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],"options":{"temperature":9}})",
       "options.temperature", "range"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],"options":{"stop":["","b"]}})", "stop",
       "length"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],"format":"yaml"})", "format", "enum"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],"think":"often"})", "think", "enum"},
      {decode_chat, R"({"model":"m","keep_alive":"5"})", "keep_alive", "format"},
      {decode_generate, R"({"model":"m","keep_alive":"soon"})", "keep_alive", "format"},
      {decode_generate, R"({"model":"m","keep_alive":"-"})", "keep_alive", "format"},
      {decode_generate, R"({"model":"m","keep_alive":"1..5s"})", "keep_alive", "format"},
      {decode_generate, R"({"model":"m","keep_alive":".s"})", "keep_alive", "format"},
      {decode_generate, R"({"model":"m","keep_alive":true})", "keep_alive", "format"},
      {decode_chat, R"({"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"x"}]})",
       "tools[0].type", "unsupported"},
      {decode_generate, R"({"model":"m","prompt":"p","suffix":"s","system":"t"})", "suffix", "combination"},
      {decode_generate, R"({"model":"m","suffix":"s","images":["AA"]})", "suffix", "combination"},
      {decode_generate, R"({"model":"m","prompt":"p","template":"t"})", "template", "unsupported"},
      {decode_generate, R"({"model":"m","prompt":"p","context":[1]})", "context", "unsupported"},
      {decode_generate, R"({"model":"m","prompt":"p","raw":true,"system":"s"})", "raw", "combination"},
      {decode_generate, R"({"model":"m","prompt":5})", "prompt", "type"},
      {decode_generate, "[", "", "json"},
      {decode_generate, "\xff", "", "utf8"},
  };
  for (const Case& c : cases) {
    const auto request = c.decode(c.body);
    ASSERT_FALSE(request) << c.body;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
  }
  EXPECT_EQ(detail(decode_show("{}").error(), "field"), "model");
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
