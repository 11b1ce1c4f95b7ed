// Requests of /v1/responses.
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "orchestratord/http/openai/testing/requests.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

std::string response_messages(const std::string& input) {
  auto request = decode_response(R"({"model":"m","input":)" + input + "}");
  EXPECT_TRUE(request) << input << ": " << request.error().message;
  return request ? request->submission.messages->text : "";
}

TEST(OpenAiResponse, ItemsAreMessages) {
  EXPECT_EQ(response_messages(R"("hi")"), R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(response_messages(R"("hi","instructions":"be brief")"),
            R"([{"role":"system","content":"be brief"},{"role":"user","content":"hi"}])");
  EXPECT_EQ(response_messages(R"([{"role":"developer","content":"d"},
                                  {"type":"message","role":"user","content":[{"type":"input_text","text":"a"}]},
                                  {"type":"reasoning","id":"r","summary":[]},
                                  {"type":"message","id":"x","status":"completed","role":"assistant",
                                   "content":[{"type":"output_text","text":"b","annotations":[]}]}])"),
            R"([{"role":"system","content":"d"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  // Both calls are the assistant's one turn.
  EXPECT_EQ(response_messages(R"([{"role":"user","content":"a"},
                                  {"type":"function_call","call_id":"1","name":"f","arguments":"{}"},
                                  {"type":"function_call","call_id":"2","name":"g","arguments":"{}"},
                                  {"type":"function_call_output","call_id":"1","output":"42"}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[)"
            R"({"id":"1","type":"function","function":{"name":"f","arguments":"{}"}},)"
            R"({"id":"2","type":"function","function":{"name":"g","arguments":"{}"}}]},)"
            R"({"role":"tool","tool_call_id":"1","content":"42"}])");
  EXPECT_EQ(response_messages(R"([{"role":"user","content":[{"type":"input_image","detail":"auto",
                                   "image_url":"data:image/png;base64,AA=="}]}])"),
            R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}])");
}

TEST(OpenAiResponse, IsKeptWhereItAsksForThat) {
  const auto answer = [](const std::string& members) {
    auto request = decode_response(R"({"model":"m","input":"a")" + members + "}");
    EXPECT_TRUE(request) << request.error().message;
    return request->answer;
  };
  EXPECT_FALSE(answer("").kept);
  EXPECT_FALSE(answer(R"(,"store":false)").kept);
  EXPECT_TRUE(answer(R"(,"store":true)").kept);
  EXPECT_TRUE(answer(R"(,"background":true,"store":false)").kept);
  EXPECT_EQ(answer(R"(,"previous_response_id":"resp_1")").previous_response_id, "resp_1");
}

// Coding agents always offer this tool; a model is not told of it.
TEST(OpenAiResponse, SearchesOfTheWebAreLeftOut) {
  const auto request = decode_response(
      R"({"model":"m","input":"a","tools":[{"type":"web_search","external_web_access":false},
          {"type":"function","name":"f","strict":false,"parameters":{"type":"object"}}]})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->submission.tools->text.find("web_search"), std::string::npos);
  EXPECT_NE(request->submission.tools->text.find(R"("name":"f")"), std::string::npos);
  EXPECT_EQ(request->answer.asked.find("web_search"), std::string::npos);
  EXPECT_NE(request->answer.asked.find(R"("name":"f")"), std::string::npos);
  EXPECT_FALSE(decode_response(R"({"model":"m","input":"a","tools":[{"type":"web_search"}]})")->submission.tools);
}

TEST(OpenAiResponse, ToolsThatNoModelHereCouldCallAreLeftOut) {
  const std::string left_out =
      R"({"type":"custom","name":"apply_patch","description":"d","format":{"type":"grammar","syntax":"lark","definition":"start: /a/"}},
         {"type":"tool_search","execution":"client"},{"type":"local_shell"},{"type":"image_generation"},{"type":"web_search_preview"})";
  const std::string body = R"({"model":"m","input":"a","tools":[)" + left_out;
  const auto request = decode_response(body + R"(,{"type":"function","name":"f"}]})");
  ASSERT_TRUE(request) << request.error().message;
  const auto plain = decode_response(R"({"model":"m","input":"a","tools":[{"type":"function","name":"f"}]})");
  EXPECT_EQ(wire::encode(request->submission), wire::encode(plain->submission));
  EXPECT_EQ(request->answer.asked, plain->answer.asked);
  const auto refusal = [&](const std::string& choice) {
    const auto refused = decode_response(body + R"(],"tool_choice":)" + choice + "}");
    return refused ? "accepted" : detail(refused.error(), "field") + " " + detail(refused.error(), "reason");
  };
  EXPECT_EQ(refusal(R"({"type":"custom","name":"apply_patch"})"), "tool_choice unknown");
  EXPECT_EQ(refusal(R"({"type":"function","name":"apply_patch"})"), "tool_choice combination");
  EXPECT_EQ(refusal(R"("required")"), "tool_choice combination");
  EXPECT_FALSE(decode_response(R"({"model":"m","input":"a","tools":[{"type":"file_search"}]})"));
}

TEST(OpenAiResponse, CallsOfCustomToolsAreCallsWithOneText) {
  EXPECT_EQ(
      response_messages(R"([{"role":"user","content":"a"},
                                  {"type":"custom_tool_call","call_id":"1","name":"apply_patch","input":"*** \"x\"\n"},
                                  {"type":"custom_tool_call_output","call_id":"1","output":"done"}])"),
      R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":[)"
      R"({"id":"1","type":"function","function":{"name":"apply_patch","arguments":"{\"input\":\"*** \\\"x\\\"\\n\"}"}}]},)"
      R"({"role":"tool","tool_call_id":"1","content":"done"}])");
}

TEST(OpenAiResponse, WhatOpenAisOwnToolsDidIsLeftOut) {
  for (const char* type : {"web_search_call", "local_shell_call", "local_shell_call_output", "tool_search_call",
                           "tool_search_output", "image_generation_call", "reasoning"}) {
    EXPECT_EQ(response_messages(R"([{"role":"user","content":"a"},{"type":")" + std::string(type) +
                                R"(","id":"i","status":"completed"},{"role":"user","content":"b"}])"),
              R"([{"role":"user","content":"a"},{"role":"user","content":"b"}])")
        << type;
  }
  const auto refused = decode_response(R"({"model":"m","input":[{"type":"compaction","encrypted_content":"x"}]})");
  ASSERT_FALSE(refused) << "nobody here can read what it stands for";
  EXPECT_EQ(detail(refused.error(), "field"), "input[0].type");
}

TEST(OpenAiResponse, WhatOneClientNotesForItselfChangesNothing) {
  const auto plain = decode_response(R"({"model":"m","input":"a","stream":true})");
  const auto request = decode_response(
      R"({"model":"m","input":"a","stream":true,"stream_options":{"reasoning_summary_delivery":"sequential"},
          "client_metadata":{"session_id":"s","thread_id":"t"},"background_options":{"completion_window":"2h"},
          "personality":"friendly"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(wire::encode(request->submission), wire::encode(plain->submission));
}

Request response_with(const std::string& members) {
  auto request = decode_response(R"({"model":"m","input":"a",)" + members + "}");
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
// The names that the model is told.
std::vector<std::string> told_names(const Request& request) {
  std::vector<std::string> out;
  if (!request.submission.tools) return out;
  const auto tools = boost::json::parse(request.submission.tools->text);
  for (const auto& tool : tools.as_array()) {
    out.emplace_back(tool.at("function").at("name").as_string());
  }
  return out;
}

TEST(OpenAiResponse, CustomToolsAreFunctionsWithOneText) {
  const Request request = response_with(
      R"("tools":[{"type":"custom","name":"run","description":"Runs.","format":{"type":"text"}},{"type":"custom","name":"plain"},
          {"type":"custom","name":"day","format":{"type":"grammar","syntax":"regex","definition":"[0-9]+|x"}},
          {"type":"function","name":"f"},{"type":"namespace","name":"run","tools":[{"type":"function","name":"run"}]}],
          "tool_choice":{"type":"custom","name":"run"})");
  EXPECT_EQ(told_names(request), (std::vector<std::string>{"run", "plain", "day", "f", "run__run"}));
  const auto tools = boost::json::parse(request.submission.tools->text);
  EXPECT_EQ(boost::json::serialize(tools.at(0)),
            R"({"type":"function","function":{"name":"run","description":"Runs.","parameters":{"type":"object",)"
            R"("properties":{"input":{"type":"string"}},"required":["input"],"additionalProperties":false}}})");
  EXPECT_EQ(tools.at(2).at("function").at("parameters").at("properties").at("input").at("pattern"), "^([0-9]+|x)$");
  EXPECT_EQ(request.tool_use->function, "run");
  EXPECT_EQ(request.answer.custom_tools, (std::set<std::string, std::less<>>{"day", "plain", "run"}));
  EXPECT_NE(request.answer.asked.find(R"("tool_choice":{"type":"custom","name":"run"})"), std::string::npos)
      << request.answer.asked;
  EXPECT_NE(request.answer.asked.find(R"({"type":"custom","name":"plain"})"), std::string::npos);
}

TEST(OpenAiResponse, FunctionsOfANamespaceAreFunctions) {
  const Request request = response_with(
      R"("tools":[{"type":"function","name":"find"},
          {"type":"namespace","name":"crm","description":"d","tools":[
            {"type":"function","name":"find","parameters":{"type":"object"}},{"type":"function","name":"add"}]},
          {"type":"namespace","name":"mcp__files__","tools":[{"type":"function","name":"read"}]}],
          "tool_choice":{"type":"function","name":"add"})");
  EXPECT_EQ(told_names(request), (std::vector<std::string>{"find", "crm__find", "crm__add", "mcp__files__read"}));
  EXPECT_EQ(request.answer.members, (MemberNames{{"crm__find", {"crm", "find"}},
                                                 {"crm__add", {"crm", "add"}},
                                                 {"mcp__files__read", {"mcp__files__", "read"}}}));
  EXPECT_EQ(request.tool_use->function, "crm__add");
  EXPECT_NE(request.answer.asked.find(R"("type":"namespace","name":"crm")"), std::string::npos) << request.answer.asked;
  EXPECT_NE(request.answer.asked.find(R"({"type":"function","name":"add"})"), std::string::npos);
}

TEST(OpenAiResponse, FunctionsOfNamespacesAreToldApart) {
  const std::string member = R"({"type":"function","name":")";
  const auto space = [&](const std::string& name, const std::string& function) {
    return R"({"type":"namespace","name":")" + name + R"(","tools":[)" + member + function + "\"}]}";
  };
  const std::string long_name(60, 'x');
  const Request request =
      response_with(R"("tools":[)" + space("a", "b__c") + "," + space("a__b", "c") + "," + space(long_name, "find") +
                    "," + space(long_name, "add") + "," + space("z", "f") + "," + member + R"(z__f"}])");
  const std::vector<std::string> names = told_names(request);
  ASSERT_EQ(names.size(), 6u);
  EXPECT_EQ(names[0], "a__b__c");
  EXPECT_TRUE(names[1].starts_with("a__b__c_")) << names[1];
  EXPECT_TRUE(names[4].starts_with("z__f_")) << names[4];
  EXPECT_EQ(names[5], "z__f");
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), 6u);
  EXPECT_EQ(request.answer.members.at(names[3]), (MemberName{long_name, "add"}));
  for (const std::string& name : names) EXPECT_LE(name.size(), 64u);
}

TEST(OpenAiResponse, ACallOfANamespaceHasNames) {
  std::string long_space;
  for (int i = 0; i < 30; ++i) long_space += "é";
  for (const std::string& names :
       {R"("namespace":")" + long_space + R"(","name":"find")", R"("namespace":"crm","name":")" + long_space + R"(")",
        std::string(R"("namespace":"crm")")}) {
    const auto decoded = decode_response(R"({"model":"m","input":[{"type":"function_call","call_id":"1",)" + names +
                                         R"(,"arguments":"{}"}]})");
    ASSERT_FALSE(decoded) << names;
    EXPECT_EQ(decoded.error().code, base::ErrorCode::kInvalidParams);
  }
}

TEST(OpenAiResponse, ACallOfANamespaceComesBackByTheNameThatTheModelKnows) {
  const auto told = [](const std::string& tools) {
    const auto decoded =
        decode_response(R"({"model":"m","tools":[)" + tools + R"(],"input":[{"role":"user","content":"a"},
          {"type":"function_call","call_id":"1","namespace":"a__b","name":"c","arguments":"{}"},
          {"type":"function_call","call_id":"2","namespace":null,"name":"d","arguments":"{}"}]})");
    EXPECT_TRUE(decoded) << decoded.error().message;
    const Request request = decoded.value_or(Request{});
    std::vector<std::string> out;
    const auto messages = boost::json::parse(request.submission.messages->text);
    for (const auto& call : messages.at(1).at("tool_calls").as_array()) {
      out.emplace_back(call.at("function").at("name").as_string());
    }
    const std::vector<std::string> names = told_names(request);
    return std::pair(out, names.empty() ? std::string() : names.back());
  };
  const std::string space = R"({"type":"namespace","name":"a__b","tools":[{"type":"function","name":"c"}]})";
  const auto plain = told(space);
  EXPECT_EQ(plain.first, (std::vector<std::string>{"a__b__c", "d"}));
  const auto taken = told(R"({"type":"function","name":"a__b__c"},)" + space);
  EXPECT_EQ(taken.first, (std::vector<std::string>{taken.second, "d"}));
  EXPECT_NE(taken.second, "a__b__c");
  EXPECT_EQ(told("").first, (std::vector<std::string>{"a__b__c", "d"})) << "of a conversation whose tools are gone";
}

TEST(OpenAiResponse, FieldsReachTheSubmission) {
  const auto request = decode_response(
      R"({"model":"m","input":"hi","stream":true,"max_output_tokens":9,"temperature":0.5,"top_logprobs":2,
          "text":{"format":{"type":"json_schema","name":"x","schema":{"type":"integer"}},"verbosity":"low"},
          "tools":[{"type":"function","name":"f","parameters":{"type":"object"},"strict":true}],
          "reasoning":{"effort":"low","summary":"auto"},"store":true,"include":[],"truncation":"auto","seed":7})");
  ASSERT_TRUE(request) << request.error().message;
  const wire::SubmitRequest& s = request->submission;
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.seed, 7u);
  EXPECT_TRUE(s.sampling.logprobs);
  EXPECT_EQ(s.sampling.top_logprobs, 2);
  EXPECT_EQ(s.sampling.json_schema->text, R"({"type":"integer"})");
  EXPECT_EQ(s.chat_template_kwargs->text, R"({"reasoning_effort":"low"})");
  EXPECT_EQ(s.tools->text,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"},"strict":true}}])");
  EXPECT_TRUE(request->answer.stream);
  EXPECT_NE(request->answer.asked.find(R"("max_output_tokens":9)"), std::string::npos) << request->answer.asked;
}

TEST(OpenAiResponse, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* members;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"("input":7)", "input", "type"},
      {R"("input":[7])", "input[0]", "type"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", "unsupported"},
      {R"("input":[{"role":"user"}])", "input[0].content", "missing"},
      {R"("input":[{"role":"user","content":[{"type":"input_file"}]}])", "input[0].content[0].type", "unsupported"},
      {R"("input":[{"role":"user","content":[{"type":"input_image","file_id":"x"}]}])", "input[0].content[0].image_url",
       "missing"},
      {R"("input":"a","conversation":"x","previous_response_id":"y")", "previous_response_id", "combination"},
      {R"("input":[{"type":"item_reference","id":"x"}])", "input[0].type", "unsupported"},
      {R"("input":"a","truncation":"middle")", "truncation", "enum"},
      {R"("input":"a","n":2)", "n", "unsupported"},
      {R"("input":"a","tools":[{"type":"file_search"}])", "tools[0].type", "unsupported"},
      {R"("input":"a","tools":[{"type":"namespace","name":"a b","tools":[]}])", "tools[0].name", "charset"},
      {R"("input":"a","tools":[{"type":"namespace","name":"a"}])", "tools[0].tools", "type"},
      {R"("input":"a","tools":[{"type":"namespace","name":"a","tools":[{"type":"custom","name":"b"}]}])",
       "tools[0].tools[0].type", "unsupported"},
      {R"("input":"a","tools":[{"type":"namespace","name":"a","tools":[{"type":"function","name":""}]}])",
       "tools[0].tools[0].name", "charset"},
      {R"("input":"a","tools":[{"type":"custom"}])", "tools[0].name", "charset"},
      {R"("input":"a","tools":[{"type":"custom","name":"a","format":{"type":"xml"}}])", "tools[0].format.type",
       "unsupported"},
      {R"("input":"a","tools":[{"type":"custom","name":"a","format":{"type":"grammar","syntax":"regex"}}])",
       "tools[0].format.definition", "missing"},
      {R"("input":"a","tools":[{"type":"function","name":"a"},{"type":"custom","name":"a"}])", "tools[1].name",
       "duplicate"},
      {R"("input":"a","tools":[{"type":"custom","name":"a"},{"type":"function","name":"a"}])", "tools[1].name",
       "duplicate"},
      {R"("input":"a","tools":[{"type":"custom","name":"a"}],"tool_choice":{"type":"function","name":"a"})",
       "tool_choice", "unknown"},
      {R"("input":"a","tools":[{"type":"function","name":"a"}],"tool_choice":{"type":"custom","name":"a"})",
       "tool_choice", "unknown"},
      {R"("input":"a","tool_choice":"required")", "tool_choice", "combination"},
      {R"("input":"a","tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice.function", "unknown"},
      {R"("input":"a","tool_choice":{"type":"web_search","name":"f"})", "tool_choice.type", "unsupported"},
      {R"("input":"a","text":{"format":{"type":"json_schema"}})", "text.format.schema", "combination"},
  };
  for (const Case& c : cases) {
    const auto request = decode_response(R"({"model":"m",)" + std::string(c.members) + "}");
    ASSERT_FALSE(request) << c.members;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
