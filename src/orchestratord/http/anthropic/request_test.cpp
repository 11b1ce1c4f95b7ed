#include "orchestratord/http/anthropic/request.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "wire/anthropic.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

constexpr std::int64_t kTokensMax = 100;  // of the server

Request decoded(const std::string& members, const std::string& messages = R"([{"role":"user","content":"hi"}])") {
  auto request = decode_messages(
      R"({"model":"m","max_tokens":9,"messages":)" + messages + (members.empty() ? "" : "," + members) + "}",
      kTokensMax);
  EXPECT_TRUE(request) << members << messages << ": " << request.error().message;
  return request ? *request : Request{};
}
// What the chat template gets of these messages.
std::string messages_of(const std::string& messages, const std::string& members = "") {
  const Request request = decoded(members, messages);
  return request.submission.messages ? request.submission.messages->text : "";
}

TEST(AnthropicRequest, LeavesTheDefaultsOfThatApi) {
  const Request request = decoded("");
  EXPECT_EQ(request.submission.model, "m");
  EXPECT_EQ(request.submission.messages->text, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.submission.max_tokens, 9);
  EXPECT_EQ(request.submission.temperature, 1.0);
  EXPECT_EQ(request.submission.chat_template_kwargs->text, R"({"enable_thinking":false})");
  EXPECT_FALSE(request.submission.tools);
  EXPECT_EQ(request.tool_use, chat::ToolUse{});
  EXPECT_FALSE(request.answer.stream);
  EXPECT_EQ(request.answer.model, "m");
}

// The answer tells a limit of the server from a full context by what it was let have.
TEST(AnthropicRequest, TheAnswerKnowsWhatTheServerLetsItHave) {
  const auto tokens = [](std::int64_t asked, std::int64_t tokens_max) {
    const auto request = decode_messages(
        R"({"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":)" + std::to_string(asked) + "}",
        tokens_max);
    return std::pair(request.value().submission.max_tokens.value(), request->answer.max_tokens);
  };
  EXPECT_EQ(tokens(64000, 20), std::pair(std::int64_t{64000}, std::int64_t{20}));
  EXPECT_EQ(tokens(7, 20), std::pair(std::int64_t{7}, std::int64_t{7}));
}

TEST(AnthropicRequest, FieldsReachTheSubmission) {
  const Request request = decoded(
      R"("stream":true,"temperature":0.5,"top_p":0.9,"top_k":40,"stop_sequences":["END"],"seed":7,"min_p":0.1,
         "metadata":{"user_id":"u"},"service_tier":"auto","cache_control":{"type":"ephemeral"},"context_management":{"edits":[]},
         "thinking":{"type":"enabled","budget_tokens":2048},
         "output_config":{"effort":"max","format":{"type":"json_schema","schema":{"type":"object"}}})");
  const wire::SubmitRequest& s = request.submission;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.sampling.top_p, 0.9);
  EXPECT_EQ(s.sampling.top_k, 40);
  EXPECT_EQ(s.sampling.min_p, 0.1);
  EXPECT_EQ(s.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.sampling.json_schema->text, R"({"type":"object"})");
  EXPECT_EQ(s.chat_template_kwargs->text, R"({"enable_thinking":true,"reasoning_effort":"high"})");
  EXPECT_TRUE(request.answer.stream);
  EXPECT_EQ(request.answer.stop, s.stop);
}

// A client's values of what it does not set.
TEST(AnthropicRequest, CutsBelow0AreLeftOut) {
  EXPECT_EQ(wire::encode(decoded(R"("top_k":-1,"top_p":-1)").submission), wire::encode(decoded("").submission));
  EXPECT_EQ(decoded(R"("top_k":0,"top_p":0)").submission.sampling.top_p, 0);
}

TEST(AnthropicRequest, TheOlderSpellingOfTheFormatCounts) {
  const auto format = [](const char* type) {
    return std::string(R"({"type":"json_schema","schema":{"type":")") + type + R"("}})";
  };
  const std::string older = R"("output_format":)" + format("object");
  const std::string same = older + R"(,"output_config":{"format":)" + format("object") + "}";
  for (const std::string& members : {older, same}) {
    EXPECT_EQ(decoded(members).submission.sampling.json_schema->text, R"({"type":"object"})") << members;
    const auto counted =
        decode_count_tokens(R"({"model":"m","messages":[{"role":"user","content":"a"}],)" + members + "}");
    EXPECT_TRUE(counted) << members;
  }
  const std::string body = R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],)" + older;
  const auto two = decode_messages(body + R"(,"output_config":{"format":)" + format("array") + "}}", kTokensMax);
  ASSERT_FALSE(two);
  EXPECT_EQ(detail(two.error(), "field") + " " + detail(two.error(), "reason"), "output_format combination");
  const auto regex = decode_messages(body + R"(,"regex":"a"})", kTokensMax);
  ASSERT_FALSE(regex);
  EXPECT_EQ(detail(regex.error(), "field"), "output_format");
}

// Also the sampling fields and the list of stop texts, which have values of their own.
TEST(AnthropicRequest, NullOfAnyFieldMeansLeftOut) {
  const std::string plain = wire::encode(decoded("").submission);
  const auto described = boost::json::parse(wire::json_schema<wire::MessagesRequest>());
  for (const auto& field : described.at("properties").as_object()) {
    const std::string name(field.key());
    if (name == "model" || name == "messages" || name == "max_tokens") continue;
    EXPECT_EQ(wire::encode(decoded('"' + name + "\":null").submission), plain) << name;
  }
}

TEST(AnthropicRequest, WhatIsNotDoneHereIsIgnoredOrRefused) {
  EXPECT_EQ(wire::encode(decoded(R"("billing_policy":{"type":"billing_policy"},"fallbacks":"default",
                                    "fallback_credit_token":"t",
                                    "output_config":{"task_budget":{"type":"tokens","total":9}})")
                             .submission),
            wire::encode(decoded("").submission));
  for (const std::string name : {"compaction", "thread"}) {
    const auto refused = decode_messages(R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],")" +
                                             name + R"(":{"type":"create"}})",
                                         kTokensMax);
    ASSERT_FALSE(refused) << name;
    EXPECT_EQ(detail(refused.error(), "reason"), "unsupported");
  }
  EXPECT_TRUE(decode_count_tokens(R"({"model":"m","messages":[{"role":"user","content":"a"}],"compaction":{}})"));
}

TEST(AnthropicRequest, BlocksBecomeOneText) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},
                            {"type":"text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"q"}])", R"("system":"be terse")"),
            R"([{"role":"system","content":"be terse"},{"role":"user","content":"q"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"q"}])",
                        R"("system":[{"type":"text","text":"be"},{"type":"text","text":"terse"}])"),
            R"([{"role":"system","content":"be\nterse"},{"role":"user","content":"q"}])");
}

// Claude Code writes it as the first block, or in front of the prompt; cch changes with each request.
TEST(AnthropicRequest, TheBillingHeaderOfASystemPromptIsLeftOut) {
  const std::string header = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;";
  const auto system_of = [](const std::string& system) {
    return messages_of(R"([{"role":"user","content":"q"}])", R"("system":)" + system);
  };
  const auto block = [](const std::string& text) { return R"({"type":"text","text":")" + text + "\"}"; };
  const std::string plain = system_of(R"("You are; x=1; terse")");
  EXPECT_EQ(plain, R"([{"role":"system","content":"You are; x=1; terse"},{"role":"user","content":"q"}])");
  for (const char* between : {"", " ", "\\n", " cc_workload=cron;\\n", "cch=2\\n"}) {
    const std::string text = header + between + "You are; x=1; terse";
    EXPECT_EQ(system_of('"' + text + '"'), plain) << between;
    EXPECT_EQ(system_of("[" + block(text) + "]"), plain) << between;
  }
  EXPECT_EQ(system_of("[" + block(header) + "," + block("You are; x=1; terse") + "]"), plain);
  EXPECT_EQ(system_of("[" + block(header) + "]"), R"([{"role":"user","content":"q"}])");
  EXPECT_EQ(system_of('"' + header + '"'), R"([{"role":"user","content":"q"}])");
  const std::string told = R"([{"role":"user","content":")" + header + "\"}]";
  EXPECT_EQ(messages_of(told), told) << "what a user says is the user's";
  EXPECT_EQ(system_of("[" + block("a " + header) + "]"), system_of("\"a " + header + '"'));
  const auto refused =
      decode_messages(R"({"model":"m","max_tokens":9,"messages":[{"role":"user","content":"q"}],"system":[)" +
                          block(header) + R"(,{"type":"image"}]})",
                      kTokensMax);
  ASSERT_FALSE(refused);
  EXPECT_EQ(detail(refused.error(), "field"), "system[1].type");
}

TEST(AnthropicRequest, MessagesOfOneRoleAreOneTurn) {
  EXPECT_EQ(
      messages_of(R"([{"role":"user","content":"a"},{"role":"user","content":"b"},{"role":"assistant","content":"c"},
                            {"role":"assistant","content":[{"type":"text","text":"d"}]},{"role":"user","content":"e"}])"),
      R"([{"role":"user","content":"a\nb"},{"role":"assistant","content":"c\nd"},{"role":"user","content":"e"}])");
}

TEST(AnthropicRequest, AnImageIsAPart) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[{"type":"text","text":"what?"},{"type":"image","source":
                            {"type":"base64","media_type":"image/png","data":"AAAA"}}]}])"),
            R"([{"role":"user","content":[{"type":"text","text":"what?"},)"
            R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]}])");
}

TEST(AnthropicRequest, CallsThoughtsAndResultsAreToldAsTemplatesWantThem) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"add"},{"role":"assistant","content":[
      {"type":"thinking","thinking":"hm","signature":""},{"type":"redacted_thinking","data":"x"},
      {"type":"text","text":"Wait."},{"type":"tool_use","id":"toolu_1","name":"add","input":{"a":1}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":[{"type":"text","text":"2"}]},
      {"type":"tool_result","tool_use_id":"toolu_2","content":null,"is_error":true},{"type":"text","text":"and?"}]}])"),
            R"([{"role":"user","content":"add"},)"
            R"({"role":"assistant","content":"Wait.","reasoning_content":"hm","tool_calls":[{"id":"toolu_1",)"
            R"("type":"function","function":{"name":"add","arguments":"{\"a\":1}"}}]},)"
            R"({"role":"tool","tool_call_id":"toolu_1","content":"2"},)"
            R"({"role":"tool","tool_call_id":"toolu_2","content":""},{"role":"user","content":"and?"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"add"},{"role":"assistant","content":[]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"2"}]}])"),
            R"([{"role":"user","content":"add"},{"role":"assistant","content":""},)"
            R"({"role":"tool","tool_call_id":"t","content":"2"}])");
}

TEST(AnthropicRequest, DocumentsAndSearchResultsAreText) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[
      {"type":"document","title":"T","context":"C","source":{"type":"text","media_type":"text/plain","data":"D"},
       "citations":{"enabled":true},"cache_control":{"type":"ephemeral"}},
      {"type":"document","source":{"type":"content","content":"E"}},
      {"type":"document","source":{"type":"content","content":[{"type":"text","text":"F"},{"type":"text","text":"G"}]}},
      {"type":"search_result","title":"S","source":"http://a/","content":[{"type":"text","text":"H"}]},
      {"type":"text","text":"what?"}]}])"),
            R"([{"role":"user","content":"T\n\nC\n\nD\nE\nF\nG\nS\n\nhttp://a/\n\nH\nwhat?"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"assistant","content":[
      {"type":"tool_use","id":"t","name":"f","input":{}}]},{"role":"user","content":[{"type":"tool_result",
      "tool_use_id":"t","content":[{"type":"document","source":{"type":"text","data":"D"}}]}]}])")
                .find(R"({"role":"tool","tool_call_id":"t","content":"D"})"),
            150u);
}

// A client may say between the turns what the system's prompt says before all.
TEST(AnthropicRequest, SystemMessagesStandWhereTheyAre) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},
      {"role":"system","content":[{"type":"text","text":"s"}]},{"role":"user","content":"c"}])"),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"b"},{"role":"system","content":"s"},)"
            R"({"role":"user","content":"c"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"a"},{"role":"system","content":"s"}])"),
            R"([{"role":"user","content":"a"},{"role":"system","content":"s"}])");
}

constexpr const char* kTools =
    R"("tools":[{"name":"add","description":"sums","input_schema":{"type":"object"},"strict":true}])";

TEST(AnthropicRequest, ToolsAndTheirChoice) {
  const auto with = [](const std::string& choice) {
    return decoded(kTools + (choice.empty() ? "" : R"(,"tool_choice":)" + choice));
  };
  Request request = with("");
  EXPECT_EQ(request.submission.tools->text,
            R"([{"type":"function","function":{"name":"add","description":"sums","parameters":{"type":"object"}}}])");
  EXPECT_EQ(request.tool_use, chat::ToolUse{});
  EXPECT_EQ(with(R"({"type":"any"})").tool_use, (chat::ToolUse{.required = true}));
  EXPECT_EQ(with(R"({"type":"any","disable_parallel_tool_use":true})").tool_use,
            (chat::ToolUse{.required = true, .several = false}));
  EXPECT_EQ(with(R"({"type":"tool","name":"add"})").tool_use,
            (chat::ToolUse{.required = true, .function = "add", .several = false}));
  EXPECT_FALSE(with(R"({"type":"none"})").submission.tools);
}

TEST(AnthropicRequest, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* members;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"("messages":[])", "messages", "combination"},
      {R"("messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b"}])", "messages", "combination"},
      {R"("messages":[{"role":"system","content":"a"}])", "messages[0].role", "enum"},
      {R"("messages":[{"role":"tool","content":"a"}])", "messages[0].role", "enum"},
      {R"("messages":[{"role":"user","content":"a"},{"role":"system"}])", "messages[1].content", "missing"},
      {R"("messages":[{"role":"user","content":"a"},{"role":"system","content":[{"type":"image"}]}])",
       "messages[1].content[0].type", "unsupported"},
      {R"("messages":[{"role":"user"}])", "messages[0].content", "missing"},
      {R"("messages":[{"role":"user","content":5}])", "messages[0].content", "type"},
      {R"("messages":[5])", "messages[0]", "type"},
      {R"("messages":[{"role":"user","content":[{"type":"document"}]}])", "messages[0].content[0].source.type",
       "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"document","source":{"type":"base64","data":"JVBERi0=",
          "media_type":"application/pdf"}}]}])",
       "messages[0].content[0].source.type", "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"document","source":{"type":"content","content":[
          {"type":"image"}]}}]}])",
       "messages[0].content[0].source.content[0].type", "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"search_result","content":7}]}])",
       "messages[0].content[0].content", "type"},
      {R"("messages":[{"role":"assistant","content":[{"type":"document"}]}])", "messages[0].content[0].type",
       "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_use"}]}])", "messages[0].content[0].type", "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0].text", "type"},
      {R"("messages":[{"role":"user","content":[{"type":"tool_result"}]}])", "messages[0].content[0].tool_use_id",
       "missing"},
      {R"("messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://a/"}}]}])",
       "messages[0].content[0].source.type", "unsupported"},
      {R"("messages":[{"role":"user","content":[{"type":"image","source":{"type":"base64","media_type":"image/svg"}}]}])",
       "messages[0].content[0].source.media_type", "enum"},
      {R"("messages":[{"role":"assistant","content":[{"type":"tool_use","id":"i","name":"n","input":"x"}]}])",
       "messages[0].content[0].input", "type"},
      {R"("messages":[{"role":"user","content":"a"}],"max_tokens":0)", "max_tokens", "range"},
      {R"("messages":[{"role":"user","content":"a"}],"temperature":1.5)", "temperature", "range"},
      {R"("messages":[{"role":"user","content":"a"}],"prompt":"x")", "prompt", "unknown"},
      {R"("messages":[{"role":"user","content":"a"}],"mcp_servers":[])", "mcp_servers", "unsupported"},
      {R"("messages":[{"role":"user","content":"a"}],"container":"c")", "container", "unsupported"},
      {R"("messages":[{"role":"user","content":"a"}],"system":5)", "system", "type"},
      {R"("messages":[{"role":"user","content":"a"}],"system":[{"type":"image"}])", "system[0].type", "unsupported"},
      {R"("messages":[{"role":"user","content":"a"}],"tools":[{"type":"bash_20250124","name":"bash"}])",
       "tools[0].type", "unsupported"},
      {R"("messages":[{"role":"user","content":"a"}],"tools":[{"name":"a b","input_schema":{}}])", "tools[0].name",
       "charset"},
      {R"("messages":[{"role":"user","content":"a"}],"tools":[{"name":"a"}])", "tools[0].input_schema", "missing"},
      {R"("messages":[{"role":"user","content":"a"}],"tools":[{"name":"a","input_schema":null}])",
       "tools[0].input_schema", "missing"},
      {R"("messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"any"})", "tool_choice", "combination"},
      {R"("messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"tool"})", "tool_choice.name",
       "combination"},
      {R"("messages":[{"role":"user","content":"a"}],"thinking":{"type":"often"})", "thinking.type", "enum"},
      {R"("messages":[{"role":"user","content":"a"}],"stop_sequences":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])",
       "stop_sequences", "length"},
  };
  for (const Case& c : cases) {
    const std::string members = c.members;
    const std::string end = members.find("max_tokens") == std::string::npos ? R"(,"max_tokens":1})" : "}";
    const auto request = decode_messages(R"({"model":"m",)" + members + end, kTokensMax);
    ASSERT_FALSE(request) << members;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
  }
  EXPECT_EQ(detail(decode_messages(R"({"model":"m","messages":[]})", kTokensMax).error(), "field"), "max_tokens");
  EXPECT_EQ(detail(decode_messages("\xff", kTokensMax).error(), "reason"), "utf8");
  EXPECT_EQ(detail(decode_messages("[", kTokensMax).error(), "reason"), "json");
}

TEST(AnthropicRequest, TokensAreCountedOfWhatDecidesThePrompt) {
  const std::string body =
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"system":"s",)" + std::string(kTools);
  const auto request = decode_count_tokens(body + "}");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->submission.messages->text, decoded(R"("system":"s")").submission.messages->text);
  EXPECT_TRUE(request->submission.tools);
  EXPECT_EQ(detail(decode_count_tokens(body + R"(,"max_tokens":1})").error(), "reason"), "unknown");
}

}  // namespace
}  // namespace llorch::orchestratord::http::anthropic
