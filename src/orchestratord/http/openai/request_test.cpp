#include "orchestratord/http/openai/request.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <set>

#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

std::string chat_body(const std::string& members) {
  return R"({"model":"m","messages":[{"role":"user","content":"hi"}])" + (members.empty() ? "" : "," + members) + "}";
}
Request chat(const std::string& members) {
  auto request = decode_chat(chat_body(members));
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
Request completion(const std::string& members) {
  auto request = decode_completion(R"({"model":"m","prompt":"p")" + (members.empty() ? "" : "," + members) + "}");
  EXPECT_TRUE(request) << members << ": " << request.error().message;
  return request ? *request : Request{};
}
// What the chat template gets of these messages.
std::string messages_of(const std::string& messages) {
  auto request = decode_chat(R"({"model":"m","messages":)" + messages + "}");
  EXPECT_TRUE(request) << messages << ": " << request.error().message;
  return request ? request->submission.messages->text : "";
}

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

// Also the sampling fields, which have values of their own.
TEST(OpenAiRequests, NullOfAnyFieldMeansLeftOut) {
  const auto check = [](const std::string& schema, auto decode, const std::string& body) {
    const auto left_out = decode("{" + body + "}");
    ASSERT_TRUE(left_out) << left_out.error().message;
    const auto described = boost::json::parse(schema);
    for (const auto& field : described.at("properties").as_object()) {
      const std::string name(field.key());
      if (body.find('"' + name + "\":") != std::string::npos) continue;
      const auto request = decode("{" + body + ",\"" + name + "\":null}");
      ASSERT_TRUE(request) << name << ": " << request.error().message;
      EXPECT_EQ(wire::encode(request->submission), wire::encode(left_out->submission)) << name;
    }
  };
  check(wire::json_schema<wire::ChatCompletionRequest>(), decode_chat,
        R"("model":"m","messages":[{"role":"user","content":"hi"}])");
  check(wire::json_schema<wire::TextCompletionRequest>(), decode_completion, R"("model":"m","prompt":"p")");
  check(wire::json_schema<wire::ResponsesRequest>(), decode_response, R"("model":"m","input":"hi")");
  EXPECT_EQ(detail(decode_chat(chat_body(R"("no_such_field":null)")).error(), "reason"), "unknown");
  EXPECT_EQ(detail(decode_response(R"({"model":null,"input":"a"})").error(), "reason"), "missing");
}

// Where several models have names, the gateway refuses it (chat::only_model).
TEST(OpenAiRequests, AChatOrACompletionMayLeaveItsModelToBeFound) {
  for (const char* model : {R"("model":null,)", R"("model":"",)", ""}) {
    const auto turn = decode_chat("{" + std::string(model) + R"("messages":[{"role":"user","content":"hi"}]})");
    ASSERT_TRUE(turn) << turn.error().message;
    EXPECT_FALSE(turn->submission.model);
    EXPECT_EQ(turn->answer.model, "");
    const auto text = decode_completion("{" + std::string(model) + R"("prompt":"p"})");
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_FALSE(text->submission.model);
  }
  EXPECT_EQ(detail(decode_response(R"({"model":"","input":"a"})").error(), "field"), "model");
}

TEST(OpenAiRequests, BelowZeroTokensIsNoLimit) {
  EXPECT_FALSE(chat(R"("max_tokens":-1)").submission.max_tokens);
  EXPECT_FALSE(chat(R"("max_completion_tokens":-2)").submission.max_tokens);
  EXPECT_EQ(chat(R"("max_tokens":-1,"max_completion_tokens":5)").submission.max_tokens, 5);
  EXPECT_EQ(chat(R"("max_tokens":5,"max_completion_tokens":-1)").submission.max_tokens, 5);
  EXPECT_FALSE(completion(R"("max_tokens":-1)").submission.max_tokens) << "16 is of a request without a number";
  const auto response = decode_response(R"({"model":"m","input":"a","max_output_tokens":-1})");
  ASSERT_TRUE(response) << response.error().message;
  EXPECT_FALSE(response->submission.max_tokens);
  EXPECT_NE(response->answer.asked.find(R"("max_output_tokens":null)"), std::string::npos) << response->answer.asked;
  for (const char* none : {R"("max_tokens":0)", R"("max_completion_tokens":0)"}) {
    EXPECT_EQ(detail(decode_chat(chat_body(none)).error(), "reason"), "range") << none;
  }
  EXPECT_EQ(detail(decode_completion(R"({"model":"m","prompt":"p","max_tokens":0})").error(), "reason"), "range");
}

TEST(OpenAiRequests, ASeedBelow0IsTheOneOfTheSameBits) {
  EXPECT_EQ(chat(R"("seed":-1)").submission.seed, 0xffff'ffff'ffff'ffffU);
  EXPECT_EQ(chat(R"("seed":-9223372036854775808)").submission.seed, 0x8000'0000'0000'0000U);
  EXPECT_EQ(completion(R"("seed":18446744073709551615)").submission.seed, 0xffff'ffff'ffff'ffffU);
  EXPECT_EQ(detail(decode_chat(chat_body(R"("seed":1.5)")).error(), "reason"), "type");
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

// What clients of llama.cpp's server always send changes no job.
TEST(OpenAiRequests, FieldsOfLlamaCppThatChangeNothing) {
  const std::string members =
      R"("cache_prompt":true,"id_slot":0,"timings_per_token":true,"return_progress":true,"reasoning_format":"auto",
         "backend_sampling":false,"samplers":"edkypmxt","dynatemp_range":0,"dynatemp_exponent":1,"typical_p":1,"typ_p":1,
         "xtc_probability":0,"xtc_threshold":0.1,"repeat_last_n":64,"repeat_penalty":1,"presence_penalty":0,
         "frequency_penalty":0,"dry_multiplier":0,"dry_base":1.75,"dry_allowed_length":2,"dry_penalty_last_n":-1)";
  EXPECT_EQ(wire::encode(chat(members).submission), wire::encode(chat("").submission));
  EXPECT_EQ(wire::encode(completion(members).submission), wire::encode(completion("").submission));
}

TEST(OpenAiRequests, SamplingHasTheNamesOfLlamaCppToo) {
  const auto changed = [](const std::string& members) {
    return wire::changed_sampling_fields(chat(members).submission.sampling);
  };
  EXPECT_EQ(changed(R"("repeat_penalty":1.5)"), R"("repetition_penalty":1.5E0)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"repeat_last_n":32)"), R"("repetition_penalty":1.5E0,"penalty_last_n":32)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"repeat_last_n":-1)"), R"("repetition_penalty":1.5E0)");
  EXPECT_EQ(changed(R"("repeat_penalty":1.5,"presence_penalty":1,"repeat_last_n":0)"), "");
  EXPECT_EQ(changed(R"("presence_penalty":1,"repeat_last_n":32)"), R"("presence_penalty":1E0,"penalty_last_n":32)");
  EXPECT_EQ(changed(R"("typ_p":0.5)"), R"("typical_p":5E-1)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":9)"), R"("dry_multiplier":5E-1,"dry_last_n":9)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":-1)"), R"("dry_multiplier":5E-1)");
  EXPECT_EQ(changed(R"("dry_multiplier":0.5,"dry_penalty_last_n":0)"), "");
  EXPECT_EQ(wire::changed_sampling_fields(completion(R"("repeat_penalty":1.5)").submission.sampling),
            R"("repetition_penalty":1.5E0)");
}

TEST(OpenAiRequests, ASamplerThatIsNotListedIsOff) {
  const std::string all = R"("temperature":0.5,"top_k":40,"top_p":0.9,"min_p":0.1,"repeat_penalty":1.5,"samplers":)";
  const wire::SubmitRequest listed = chat(all + R"(["top_k","infill","temperature"])").submission;
  EXPECT_EQ(wire::changed_sampling_fields(listed.sampling), R"("top_k":40)");
  EXPECT_EQ(listed.temperature, 0.5);
  const wire::SubmitRequest letters = chat(all + R"("ep")").submission;
  EXPECT_EQ(wire::changed_sampling_fields(letters.sampling), R"("top_p":9E-1,"repetition_penalty":1.5E0)");
  EXPECT_EQ(letters.temperature, 1.0);
  EXPECT_EQ(wire::changed_sampling_fields(chat(all + "[]").submission.sampling), "");
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
      {R"("ignore_eos":true)", "ignore_eos", "unknown"},
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
  EXPECT_EQ(refusal(R"({"type":"custom","name":"apply_patch"})"), "tool_choice.type unsupported");
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

TEST(OpenAiCompletion, SeveralChoicesMayBeWanted) {
  EXPECT_EQ(completion("").answer.choices, 1);
  EXPECT_EQ(completion(R"("n":16)").answer.choices, 16);
  EXPECT_EQ(completion(R"("n":3,"best_of":3)").answer.choices, 3);
}

TEST(OpenAiCompletion, FieldsReachTheSubmission) {
  Request request = completion("");
  EXPECT_EQ(request.submission.prompt->text, "p");
  EXPECT_EQ(request.submission.max_tokens, 16);
  EXPECT_EQ(request.answer.echo, "");
  request = completion(R"("max_tokens":5,"logprobs":0,"best_of":1,"user":"u")");
  EXPECT_EQ(request.submission.max_tokens, 5);
  EXPECT_TRUE(request.submission.sampling.logprobs);
  EXPECT_EQ(request.submission.sampling.top_logprobs, 0);
  EXPECT_EQ(completion(R"("echo":true)").answer.echo, "p");
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":["only"]})")->submission.prompt->text, "only");
  const auto several = decode_completion(R"({"model":"m","prompt":["a","b"],"n":3})").value();
  ASSERT_EQ(several.prompts.size(), 2u);
  EXPECT_EQ(several.prompts[1].text, "b");
  EXPECT_EQ(several.submission.prompt->text, "a");
  EXPECT_EQ(several.answer.choices, 6);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":[5,6]})")->submission.prompt->tokens, (std::vector{5, 6}));
  const auto ids = decode_completion(R"({"model":"m","prompt":[[5,6],"b",[7]]})").value();
  ASSERT_EQ(ids.prompts.size(), 3u);
  EXPECT_EQ(ids.submission.prompt->tokens, (std::vector{5, 6}));
  EXPECT_EQ(ids.prompts[1].text, "b");
  EXPECT_EQ(ids.prompts[2].tokens, std::vector{7});
  EXPECT_EQ(several.answer.choices_per_prompt, 3);
}

TEST(OpenAiCompletion, TheOutputStandsBetweenPromptAndSuffix) {
  const auto request = decode_completion(R"({"model":"m","prompt":"","suffix":"s"})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->submission.prompt->text, "");
  EXPECT_EQ(request->submission.suffix, "s");
  EXPECT_FALSE(request->submission.parse_special);
  const auto whole = decode_completion(R"({"model":"m","prompt":"p","suffix":""})");
  EXPECT_FALSE(whole->submission.suffix);
  EXPECT_EQ(whole->submission.parse_special, true);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":"p","max_tokens":2147483647})")->submission.max_tokens,
            1'000'000);
  EXPECT_EQ(decode_completion(R"({"model":"m","prompt":["p",""],"suffix":"s"})")->prompts.size(), 2u);
}

TEST(OpenAiCompletion, RefusalsNameTheFieldAndTheReason) {
  struct Case {
    const char* body;
    const char* field;
    const char* reason;
  };
  const Case cases[] = {
      {R"({"model":"m"})", "prompt", "missing"},
      {R"({"model":"m","prompt":7})", "prompt", "type"},
      {R"({"model":"m","prompt":[1,"a"]})", "prompt[1]", "type"},
      {R"({"model":"m","prompt":[1,2.5]})", "prompt[1]", "type"},
      {R"({"model":"m","prompt":[1,4294967296]})", "prompt[1]", "range"},
      {R"({"model":"m","prompt":[[1],[]]})", "prompt[1]", "length"},
      {R"({"model":"m","prompt":[[1],[[2]]]})", "prompt[1][0]", "type"},
      {R"({"model":"m","prompt":[1],"echo":true})", "echo", "combination"},
      {R"({"model":"m","prompt":[]})", "prompt", "range"},
      {R"({"model":"m","prompt":["a",""]})", "prompt[1]", "length"},
      {R"({"model":"m","prompt":["a","b","c","d","e"],"n":16})", "n", "range"},
      {R"({"model":"m","prompt":""})", "prompt", "length"},
      {R"({"model":"m","prompt":"p","best_of":2})", "best_of", "unsupported"},
      {R"({"model":"m","prompt":"p","n":2,"best_of":1})", "best_of", "unsupported"},
      {R"({"model":"m","prompt":[1],"suffix":"s"})", "suffix", "combination"},
      {R"({"model":"m","prompt":["p",[1]],"suffix":"s"})", "suffix", "combination"},
      {R"({"model":"m","prompt":"p","suffix":5})", "suffix", "type"},
      {R"({"model":"m","prompt":"","suffix":""})", "prompt", "length"},
      {R"({"model":"m","prompt":"p","logprobs":6})", "logprobs", "range"},
      {R"({"model":"m","prompt":"p","logprobs":1,"echo":true})", "echo", "combination"},
      {"[", "", "json"},
      {"\xff", "", "utf8"},
  };
  for (const Case& c : cases) {
    const auto request = decode_completion(c.body);
    ASSERT_FALSE(request) << c.body;
    EXPECT_EQ(detail(request.error(), "field"), c.field) << request.error().message;
    EXPECT_EQ(detail(request.error(), "reason"), c.reason) << request.error().message;
    EXPECT_EQ(request.error().message.find("\"p\""), std::string::npos);
  }
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
