// Requests of /v1/chat/completions.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "orchestratord/http/openai/testing/requests.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

TEST(OpenAiChat, LeavesTheDefaultsOfThatApi) {
  const Request request = chat("");
  EXPECT_EQ(request.submission.model, "m");
  EXPECT_EQ(request.submission.messages->text, R"([{"role":"user","content":"hi"}])");
  EXPECT_EQ(request.submission.temperature, 1.0);
  EXPECT_EQ(request.submission.max_tokens, std::nullopt);
  EXPECT_EQ(request.submission.priority, wire::Priority::kInteractive);
  EXPECT_FALSE(request.submission.sampling.logprobs);
  EXPECT_FALSE(request.answer.stream);
  EXPECT_EQ(request.answer.model, "m");
}

TEST(OpenAiChat, FieldsReachTheSubmission) {
  const Request request = chat(
      R"("stream":true,"stream_options":{"include_usage":true},"temperature":0.5,"top_p":0.9,"frequency_penalty":1,
         "presence_penalty":-1,"logit_bias":{"5":-100},"stop":"END","seed":7,"n":1,"max_completion_tokens":9,
         "logprobs":true,"top_logprobs":3,"service_tier":"flex","top_k":40,"min_p":0.1)");
  const wire::SubmitRequest& s = request.submission;
  EXPECT_EQ(s.temperature, 0.5);
  EXPECT_EQ(s.sampling.top_p, 0.9);
  EXPECT_EQ(s.sampling.frequency_penalty, 1);
  EXPECT_EQ(s.sampling.presence_penalty, -1);
  EXPECT_EQ(s.sampling.logit_bias, (std::vector<wire::LogitBias>{{.token = 5, .bias = -100}}));
  EXPECT_EQ(s.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(s.seed, 7u);
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_TRUE(s.sampling.logprobs);
  EXPECT_EQ(s.sampling.top_logprobs, 3);
  EXPECT_EQ(s.sampling.top_k, 40);
  EXPECT_EQ(s.sampling.min_p, 0.1);
  EXPECT_EQ(s.priority, wire::Priority::kBatch);
  EXPECT_TRUE(request.answer.stream);
  EXPECT_TRUE(request.answer.include_usage);
  EXPECT_FALSE(request.answer.continuous_usage);
  EXPECT_TRUE(request.answer.logprobs);
  EXPECT_TRUE(request.answer.is_flex);
  EXPECT_EQ(chat(R"("stop":["a","b"],"max_tokens":3)").submission.stop, (std::vector<std::string>{"a", "b"}));
}

// Clients send null for what they leave out.
TEST(OpenAiChat, NullMeansLeftOut) {
  const Request request = chat(
      R"("stream":null,"stream_options":null,"temperature":null,"top_p":null,"frequency_penalty":null,
         "presence_penalty":null,"logit_bias":null,"stop":null,"seed":null,"n":null,"max_completion_tokens":null,
         "max_tokens":null,"logprobs":null,"top_logprobs":null,"response_format":null,"tools":null,"tool_choice":null,
         "parallel_tool_calls":null,"reasoning_effort":null,"service_tier":null,"modalities":null,"metadata":null,
         "audio":null,"functions":null,"function_call":null,"web_search_options":null)");
  EXPECT_EQ(request.submission.temperature, 1.0);
  EXPECT_EQ(request.submission.sampling.top_p, 1.0);
  EXPECT_FALSE(request.submission.tools);
}

TEST(OpenAiChat, NullOfAFunctionMeansLeftOut) {
  const Request request = chat(
      R"("tools":[{"type":"function","function":{"name":"f","description":null,"parameters":null,"strict":null}}])");
  EXPECT_EQ(request.submission.tools->text, R"([{"type":"function","function":{"name":"f"}}])");
  const auto response =
      decode_response(R"({"model":"m","input":"a","tools":[{"type":"function","name":"f","parameters":null}]})");
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_EQ(response->submission.tools->text, R"([{"type":"function","function":{"name":"f"}}])");
}

TEST(OpenAiChat, ResponseFormatsConstrainTheOutput) {
  EXPECT_FALSE(chat(R"("response_format":{"type":"text"})").submission.sampling.json_schema);
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object"})").submission.sampling.json_schema->text,
            R"({"type":"object"})");
  EXPECT_EQ(chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,
                    "schema":{"type":"integer"}}})")
                .submission.sampling.json_schema->text,
            R"({"type":"integer"})");
}

// As llama.cpp's older server and hosted ones have it.
TEST(OpenAiChat, AnObjectMayHaveASchema) {
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object","schema":{"type":"integer"}})")
                .submission.sampling.json_schema->text,
            R"({"type":"integer"})");
  EXPECT_EQ(chat(R"("response_format":{"type":"json_object","schema":null})").submission.sampling.json_schema->text,
            R"({"type":"object"})");
}

// As the manual of llama.cpp's server writes it, and instructor's mode for Perplexity.
TEST(OpenAiChat, ASchemaMayStandWithoutAName) {
  EXPECT_EQ(chat(R"("response_format":{"type":"json_schema","schema":{"type":"integer"}})")
                .submission.sampling.json_schema->text,
            R"({"type":"integer"})");
  EXPECT_EQ(chat(R"("response_format":{"type":"json_schema","schema":{"type":"integer"},"json_schema":null})")
                .submission.sampling.json_schema->text,
            R"({"type":"integer"})");
  EXPECT_EQ(chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"type":"integer"}}})")
                .submission.sampling.json_schema->text,
            R"({"type":"integer"})");
}

TEST(OpenAiChat, ReasoningEffortIsAVariableOfTheTemplate) {
  const auto kwargs = [](const std::string& members) { return chat(members).submission.chat_template_kwargs->text; };
  EXPECT_EQ(kwargs(R"("reasoning_effort":"none")"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("reasoning_effort":"minimal")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(kwargs(R"("reasoning_effort":"medium")"), R"({"reasoning_effort":"medium"})");
  EXPECT_EQ(kwargs(R"("reasoning_effort":"high","chat_template_kwargs":{"reasoning_effort":"low","x":1})"),
            R"({"reasoning_effort":"low","x":1})");
}

TEST(OpenAiChat, WhetherToThinkHasOtherSpellings) {
  const auto kwargs = [](const std::string& members) {
    const auto variables = chat(members).submission.chat_template_kwargs;
    return variables ? variables->text : std::string();
  };
  EXPECT_EQ(kwargs(R"("enable_thinking":false)"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("enable_thinking":true,"thinking_budget":4096)"), R"({"enable_thinking":true})");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"enabled","budget_tokens":1024,"more":[]})"), R"({"enable_thinking":true})");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"auto"})"), "");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"adaptive"},"thinking_budget":1)"), "");
  EXPECT_EQ(kwargs(R"("enable_thinking":true,"thinking":{"type":"disabled"})"), R"({"enable_thinking":true})");
  EXPECT_EQ(kwargs(R"("enable_thinking":true,"chat_template_kwargs":{"enable_thinking":false})"),
            R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("thinking":{"type":"disabled"},"reasoning_effort":"high")"),
            R"({"enable_thinking":false,"reasoning_effort":"high"})");
  EXPECT_EQ(kwargs(R"("enable_thinking":true,"reasoning_effort":"none")"), R"({"enable_thinking":true})");
}

TEST(OpenAiChat, ReasoningHasAnEffortAndASwitch) {
  const auto kwargs = [](const std::string& members) {
    const auto variables = chat(members).submission.chat_template_kwargs;
    return variables ? variables->text : std::string();
  };
  EXPECT_EQ(kwargs(R"("reasoning":{"effort":"medium"})"), R"({"reasoning_effort":"medium"})");
  EXPECT_EQ(kwargs(R"("reasoning":{"effort":"none"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("reasoning":{"effort":"high"},"reasoning_effort":"low")"), R"({"reasoning_effort":"low"})");
  EXPECT_EQ(kwargs(R"("reasoning":{"enabled":false})"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("reasoning":{"enabled":true,"effort":"high","max_tokens":9,"exclude":false})"),
            R"({"enable_thinking":true,"reasoning_effort":"high"})");
  EXPECT_EQ(kwargs(R"("reasoning":{"enabled":true},"enable_thinking":false)"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("reasoning":{"enabled":true},"thinking":{"type":"disabled"})"), R"({"enable_thinking":false})");
  EXPECT_EQ(kwargs(R"("reasoning":{"enabled":true},"thinking":{"type":"auto"})"), "")
      << "it says: as the template has it";
  EXPECT_EQ(kwargs(R"("reasoning":{"effort":null,"enabled":null,"summary":"auto"})"), "");
  EXPECT_EQ(kwargs(R"("reasoning":{})"), "");
}

// It is for a proxy on the way.
TEST(OpenAiChat, DropParamsChangesNothing) {
  EXPECT_EQ(wire::encode(chat(R"("drop_params":true)").submission), wire::encode(chat("").submission));
}

// The official client's argument of this name is no member; whoever posts one has it read by no server.
TEST(OpenAiChat, AnExtraBodyIsNotMerged) {
  const std::string extra = R"("extra_body":{"temperature":0.5,"json_schema":{"type":"integer"},"unheard":1})";
  EXPECT_EQ(wire::encode(chat(extra).submission), wire::encode(chat("").submission));
  EXPECT_EQ(chat(extra + R"(,"json_schema":{"type":"string"})").submission.sampling.json_schema->text,
            R"({"type":"string"})");
}

TEST(OpenAiChat, OptionsOfOllamaSayHowManyTokens) {
  EXPECT_EQ(
      chat(R"("options":{"num_predict":7,"num_ctx":4096,"any":{"thing":[1]}},"keep_alive":"5m")").submission.max_tokens,
      7);
  EXPECT_EQ(chat(R"("options":{"num_predict":7},"max_tokens":3)").submission.max_tokens, 3);
  EXPECT_EQ(chat(R"("options":{"num_predict":7},"max_completion_tokens":3)").submission.max_tokens, 3);
  EXPECT_FALSE(chat(R"("options":{"num_predict":-1})").submission.max_tokens);
  EXPECT_FALSE(chat(R"("options":{"num_ctx":4096})").submission.max_tokens);
  EXPECT_EQ(wire::encode(chat(R"("options":{"temperature":0,"seed":1})").submission),
            wire::encode(chat("").submission));
}

TEST(OpenAiChat, ToolsGoToTheTemplateUnlessNoneIsChosen) {
  const std::string tools = R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])";
  EXPECT_EQ(chat(tools).submission.tools->text,
            R"([{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}])");
  EXPECT_TRUE(chat(tools + R"(,"tool_choice":"auto","parallel_tool_calls":false)").submission.tools);
  EXPECT_FALSE(chat(tools + R"(,"tool_choice":"none")").submission.tools);
  EXPECT_EQ(chat(tools + R"(,"parallel_tool_calls":false)").tool_use, (chat::ToolUse{.several = false}));
  EXPECT_EQ(chat(tools + R"(,"tool_choice":"required")").tool_use, (chat::ToolUse{.required = true}));
  EXPECT_EQ(chat(tools + R"(,"tool_choice":{"type":"function","function":{"name":"f"}})").tool_use,
            (chat::ToolUse{.required = true, .function = "f", .several = false}));
  EXPECT_FALSE(chat(R"("tools":[])").submission.tools);
}

TEST(OpenAiChat, MessagesAreMadeReadyForTemplates) {
  EXPECT_EQ(messages_of(R"([{"role":"developer","content":"be brief"}])"),
            R"([{"role":"system","content":"be brief"}])");
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}])"),
            R"([{"role":"user","content":"a\nb"}])");
  // An answer as the official client sends it back.
  EXPECT_EQ(messages_of(R"([{"role":"assistant","content":"yes","refusal":null,"annotations":[],"audio":null,
                             "function_call":null,"tool_calls":null}])"),
            R"([{"role":"assistant","content":"yes"}])");
  EXPECT_EQ(messages_of(R"([{"role":"assistant","content":null,
                             "tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
                            {"role":"tool","tool_call_id":"c","content":"42"}])"),
            R"([{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f",)"
            R"("arguments":"{}"}}],"content":""},{"role":"tool","tool_call_id":"c","content":"42"}])");
  // An image keeps the parts; what it is is checked where it is taken out.
  EXPECT_EQ(messages_of(R"([{"role":"user","content":[{"type":"text","text":"a"},
                             {"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}])"),
            R"([{"role":"user","content":[{"type":"text","text":"a"},)"
            R"({"type":"image_url","image_url":{"url":"data:image/png;base64,AA=="}}]}])");
}

TEST(OpenAiChat, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* members;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"("n":0)", "n", "range"},
      {R"("n":17)", "n", "range"},
      {R"("stop":["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17"])", "stop", "length"},
      {R"("stop":"")", "stop", "length"},
      {R"("stop":7)", "stop", "type"},
      {R"("temperature":2.5)", "temperature", "range"},
      {R"("top_logprobs":2)", "top_logprobs", "combination"},
      {R"("top_logprobs":21,"logprobs":true)", "top_logprobs", "range"},
      {R"("max_tokens":1,"max_completion_tokens":2)", "max_tokens", "combination"},
      {R"("max_completion_tokens":0)", "max_completion_tokens", "range"},
      {R"("options":{"num_predict":"7"})", "options.num_predict", "type"},
      {R"("options":[])", "options", "type"},
      {R"("enable_thinking":"yes")", "enable_thinking", "type"},
      {R"("thinking":{"budget_tokens":1})", "thinking.type", "missing"},
      {R"("thinking":{"type":"hard"})", "thinking.type", "enum"},
      {R"("thinking":true)", "thinking", "type"},
      {R"("reasoning":{"effort":"much"})", "reasoning.effort", "enum"},
      {R"("reasoning":{"enabled":1})", "reasoning.enabled", "type"},
      {R"("reasoning":"high")", "reasoning", "type"},
      {R"("repeat_penalty":1.5,"repetition_penalty":1.2)", "repeat_penalty", "combination"},
      {R"("repeat_penalty":3)", "repeat_penalty", "range"},
      {R"("repeat_penalty":1.5,"repeat_last_n":32,"penalty_last_n":64)", "repeat_last_n", "combination"},
      {R"("samplers":7)", "samplers", "type"},
      {R"("ignore_eos":true)", "ignore_eos", "unsupported"},
      {R"("ignore_eos":0)", "ignore_eos", "unsupported"},
      {R"("use_beam_search":true)", "use_beam_search", "unsupported"},
      {R"("best_of":2)", "best_of", "unsupported"},
      {R"("length_penalty":1.5)", "length_penalty", "unsupported"},
      {R"("length_penalty":true)", "length_penalty", "unsupported"},
      {R"("min_tokens":1)", "min_tokens", "unsupported"},
      {R"("priority":"high")", "priority", "unsupported"},
      {R"("skip_special_tokens":false)", "skip_special_tokens", "unsupported"},
      {R"("truncate_prompt_tokens":-1)", "truncate_prompt_tokens", "unsupported"},
      {R"("min_p":2)", "min_p", "range"},
      {R"("top_k":-2)", "top_k", "range"},
      {R"("stream_options":{"include_usage":true})", "stream_options", "combination"},
      {R"("stream_options":{"x":1},"stream":true)", "stream_options.x", "unknown"},
      {R"("response_format":{"type":"xml"})", "response_format.type", "enum"},
      {R"("response_format":{"type":"json_schema"})", "response_format.json_schema", "combination"},
      {R"("response_format":{"type":"json_schema","schema":null})", "response_format.json_schema", "combination"},
      {R"("response_format":{"type":"json_schema","schema":{},"json_schema":{"name":"n"}})", "response_format.schema",
       "combination"},
      {R"("response_format":{"type":"json_object","json_schema":{"name":"n"}})", "response_format.json_schema",
       "combination"},
      {R"("response_format":{"type":"text","schema":{}})", "response_format.schema", "combination"},
      {R"("response_format":{"type":"json_object","schema":7})", "response_format.schema", "type"},
      {R"("response_format":{"type":"json_object"},"regex":"a")", "response_format", "combination"},
      {R"("regex":"a","grammar":"root ::= \"a\"")", "grammar", "combination"},
      {R"("tool_choice":"required")", "tool_choice", "combination"},
      {R"("tool_choice":{"type":"function","function":{"name":"f"}})", "tool_choice", "combination"},
      {R"("tool_choice":{"type":"function","name":"f"})", "tool_choice.name", "unknown"},
      {R"("tool_choice":"required","tools":[{"type":"function","function":{"name":"f"}}],"response_format":{"type":"json_object"})",
       "tool_choice", "combination"},
      {R"("tool_choice":"always")", "tool_choice", "enum"},
      {R"("tools":[{"type":"custom"}])", "tools[0].type", "unsupported"},
      {R"("tools":[{"type":"function","function":{"name":"a b"}}])", "tools[0].function.name", "charset"},
      {R"("tools":[{"type":"function","function":{"name":"f","parameters":1}}])", "tools[0].function.parameters",
       "type"},
      {R"("functions":[])", "functions", "unsupported"},
      {R"("function_call":"auto")", "function_call", "unsupported"},
      {R"("audio":{"voice":"x","format":"wav"})", "audio", "unsupported"},
      {R"("modalities":["text","audio"])", "modalities", "unsupported"},
      {R"("reasoning_effort":"huge")", "reasoning_effort", "enum"},
      {R"("no_such_field":1)", "no_such_field", "unknown"},
      {R"("prompt_logprobs":1,"stream":true)", "prompt_logprobs", "combination"},
      {R"("prompt_logprobs":1,"n":2)", "prompt_logprobs", "combination"},
      {R"("prompt_logprobs":1,"top_logprobs":2)", "top_logprobs", "combination"},
      {R"("messages":[])", "messages", "duplicate"},
  };
  for (const Case& c : cases) {
    const auto request = decode_chat(chat_body(c.members));
    ASSERT_FALSE(request) << c.members;
    EXPECT_EQ(request.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
  }
}

TEST(OpenAiChat, MessagesThatNoTemplateTakesAreRefused) {
  struct Case {
    const char* messages;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"(["hi"])", "messages[0]", "type"},
      {R"([{"content":"hi"}])", "messages[0].role", "enum"},
      {R"([{"role":"function","name":"f","content":"x"}])", "messages[0].role", "enum"},
      {R"([{"role":"user"}])", "messages[0].content", "missing"},
      {R"([{"role":"user","content":7}])", "messages[0].content", "type"},
      {R"([{"role":"user","content":["a"]}])", "messages[0].content[0].type", "unsupported"},
      {R"([{"role":"user","content":[{"type":"input_audio","input_audio":{}}]}])", "messages[0].content[0].type",
       "unsupported"},
      {R"([{"role":"user","content":[{"type":"text"}]}])", "messages[0].content[0]", "type"},
      {R"([{"role":"assistant","content":"","function_call":{"name":"f"}}])", "messages[0].function_call",
       "unsupported"},
      {R"({"role":"user"})", "messages", "type"},
  };
  for (const Case& c : cases) {
    const auto request = decode_chat(R"({"model":"m","messages":)" + std::string(c.messages) + "}");
    ASSERT_FALSE(request) << c.messages;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
