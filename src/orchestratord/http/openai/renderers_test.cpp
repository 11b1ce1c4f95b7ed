// Golden transcripts: the bytes that clients of the OpenAI API get.
#include "orchestratord/http/openai/renderers.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "orchestratord/http/openai/errors.h"
#include "orchestratord/http/openai/models.h"
#include "orchestratord/http/openai/response_renderer.h"

namespace llorch::orchestratord::http::openai {
namespace {

const AnswerIdentity kIdentity{.job_id = base::JobId("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
                               .correlation_id = base::CorrelationId("corr-1"),
                               .created_unix_s = 1764000000};

wire::EndEvent ended(wire::StopReason reason) {
  return {.job_id = kIdentity.job_id.value,
          .tokens_in = 11,
          .tokens_out = 3,
          .decode_time_ms = 40,
          .first_token_ms = 5,
          .stop_reason = reason,
          .receipt = wire::Receipt{.model_digest = "sha256:aa",
                                   .engine_build = "b1",
                                   .numerics = "cpu-1",
                                   .device_class = "cpu-x86",
                                   .sampler = "s1",
                                   .kv_dtype = "f16",
                                   .seed = 7,
                                   .prompt_sha256 = "pp",
                                   .output_sha256 = "oo",
                                   .tokens_out = 3}};
}

constexpr std::string_view kLogprobs[] = {
    R"({"id":1,"logprob":-0.5,"token":"Hé","bytes":[72,195,169],"top_logprobs":[{"id":1,"logprob":-0.5,"token":"Hé","bytes":[72,195,169]},{"id":2,"logprob":-1.5,"token":"He","bytes":[72,101]}]})",
    R"({"id":3,"logprob":-0.25,"token":" \"a\"","bytes":[32,34,97,34],"top_logprobs":[]})",
    R"({"id":4,"logprob":-1,"token":"","bytes":[],"top_logprobs":[]})"};

// The end, and what is left for it.
void append_end(streams::Renderer& renderer, wire::StopReason reason, std::string& out) {
  renderer.end(ended(reason), {}, out);
  while (renderer.more(out)) continue;
}

// A job of three tokens, the last one without a text.
std::string transcript(streams::Renderer& renderer, bool logprobs = false) {
  std::string out;
  renderer.queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  std::int64_t i = 0;
  for (const std::string_view text : {"H\xC3\xA9", " \"a\"\n", ""}) {
    const auto index = static_cast<std::size_t>(i);
    renderer.token({.t = text, .i = i, .logprobs = logprobs ? kLogprobs[index] : std::string_view()}, {}, out);
    ++i;
  }
  append_end(renderer, wire::StopReason::kEos, out);
  return out;
}

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/http/openai/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

AnswerOptions options_of(Endpoint endpoint, bool stream) {
  return {.endpoint = endpoint, .model = "tale \"5m\"", .stream = stream};
}

TEST(OpenAiRenderers, AChatStreams) {
  ChunkRenderer plain(options_of(Endpoint::kChat, true), kIdentity);
  expect_golden("chat_stream.sse", transcript(plain));
  AnswerOptions options = options_of(Endpoint::kChat, true);
  options.include_usage = options.logprobs = options.is_flex = true;
  ChunkRenderer full(options, kIdentity);
  expect_golden("chat_stream_usage_logprobs.sse", transcript(full, true));
}

// As vLLM tells it: each chunk counts the tokens up to it.
TEST(OpenAiRenderers, EveryChunkCounts) {
  AnswerOptions options = options_of(Endpoint::kChat, true);
  options.include_usage = options.continuous_usage = true;
  options.tokens_in = 5;
  ChunkRenderer renderer(options, kIdentity);
  expect_golden("chat_stream_continuous_usage.sse", transcript(renderer));
}

TEST(OpenAiRenderers, AChatIsOneBody) {
  BodyRenderer plain(options_of(Endpoint::kChat, false), kIdentity);
  expect_golden("chat.json", transcript(plain));
  AnswerOptions options = options_of(Endpoint::kChat, false);
  options.logprobs = true;
  BodyRenderer full(options, kIdentity);
  expect_golden("chat_logprobs.json", transcript(full, true));
  EXPECT_EQ(full.head().status, 200);
}

TEST(OpenAiRenderers, ACompletionStreams) {
  AnswerOptions options = options_of(Endpoint::kCompletions, true);
  options.echo = "Once ";
  options.include_usage = true;
  ChunkRenderer echo(options, kIdentity);
  expect_golden("completion_stream_echo.sse", transcript(echo));
  options = options_of(Endpoint::kCompletions, true);
  options.logprobs = true;
  ChunkRenderer logprobs(options, kIdentity);
  expect_golden("completion_stream_logprobs.sse", transcript(logprobs, true));
}

TEST(OpenAiRenderers, ACompletionIsOneBody) {
  AnswerOptions options = options_of(Endpoint::kCompletions, false);
  options.logprobs = true;
  BodyRenderer renderer(options, kIdentity);
  expect_golden("completion_logprobs.json", transcript(renderer, true));
  options = options_of(Endpoint::kCompletions, false);
  options.echo = "Once ";
  BodyRenderer echo(options, kIdentity);
  EXPECT_NE(transcript(echo).find("\"text\":\"Once H\xC3\xA9 \\\"a\\\"\\n\""), std::string::npos);
}

constexpr std::string_view kPromptLogprobs[] = {
    R"({"id":1,"token":"","bytes":[],"top_logprobs":[]})",
    R"({"id":8,"logprob":-2.5,"token":" H","bytes":[32,72],"top_logprobs":[{"id":9,"logprob":-0.5,"token":"O","bytes":[79]}]})",
    R"({"id":7,"logprob":-1,"token":"\ufffd","bytes":[195],"top_logprobs":[]})",
    R"({"id":6,"logprob":-0.125,"token":"\ufffd","bytes":[169],"top_logprobs":[]})"};

// Four tokens of a prompt, the first of them a control token, and one of the output.
std::string scored_transcript(streams::Renderer& renderer) {
  std::string out;
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  std::int64_t i = 0;
  for (const std::string_view logprobs : kPromptLogprobs)
    renderer.token({.t = "", .i = i++, .logprobs = logprobs, .of_prompt = true}, {}, out);
  renderer.token({.t = "H\xC3\xA9", .i = i, .logprobs = kLogprobs[0]}, {}, out);
  append_end(renderer, wire::StopReason::kEos, out);
  return out;
}

boost::json::object scored_choice(const AnswerOptions& options) {
  BodyRenderer renderer(options, kIdentity);
  const std::string body = scored_transcript(renderer);
  EXPECT_EQ(renderer.head().status, 200) << body;
  return boost::json::parse(body).at("choices").at(0).as_object();
}

AnswerOptions echo_options(std::string echo) {
  AnswerOptions options = options_of(Endpoint::kCompletions, false);
  options.logprobs = options.echo_logprobs = true;
  options.echo = std::move(echo);
  return options;
}

// OpenAI's lists, from the prompt's first token on.
TEST(OpenAiRenderers, AnEchoHasTheLogprobsOfThePrompt) {
  const auto of_ids = scored_choice(echo_options(""));
  EXPECT_EQ(of_ids.at("text"), " H\xC3\xA9H\xC3\xA9") << "what the tokens say together";
  EXPECT_EQ(boost::json::serialize(of_ids.at("logprobs").at("token_logprobs")), "[null,-2.5E0,-1,-1.25E-1,-5E-1]");
  EXPECT_EQ(boost::json::serialize(of_ids.at("logprobs").at("tokens")),
            "[\"\",\" H\",\"\xEF\xBF\xBD\",\"\xEF\xBF\xBD\",\"H\xC3\xA9\"]");
  EXPECT_EQ(boost::json::serialize(of_ids.at("logprobs").at("top_logprobs")),
            "[null,{\"O\":-5E-1},{},{},{\"H\xC3\xA9\":-5E-1,\"He\":-1.5E0}]");
  EXPECT_EQ(boost::json::serialize(of_ids.at("logprobs").at("text_offset")), "[0,0,2,3,3]");
}

// A tokenizer may put a space before a text; offsets are the text's.
TEST(OpenAiRenderers, AnEchoOfATextIsThatText) {
  const auto of_text = scored_choice(echo_options("H\xC3\xA9"));
  EXPECT_EQ(of_text.at("text"), "H\xC3\xA9H\xC3\xA9");
  EXPECT_EQ(boost::json::serialize(of_text.at("logprobs").at("text_offset")), "[0,0,1,2,2]");
}

TEST(OpenAiRenderers, AnEchoWithoutTokensIsThePromptAlone) {
  AnswerOptions options = echo_options("");
  options.hides_output = true;
  const auto alone = scored_choice(options);
  EXPECT_EQ(alone.at("text"), " H\xC3\xA9");
  EXPECT_EQ(alone.at("finish_reason"), "length");
  EXPECT_EQ(alone.at("logprobs").at("tokens").as_array().size(), 4u);
  BodyRenderer renderer(options, kIdentity);
  const auto body = boost::json::parse(scored_transcript(renderer));
  EXPECT_EQ(body.at("usage").at("completion_tokens"), 0);
  EXPECT_EQ(body.at("llorch").at("tokens_out"), 3) << "what was made";
}

TEST(OpenAiRenderers, AnEchoWithLogprobsStreams) {
  for (const char* echo : {"", "H\xC3\xA9"}) {
    AnswerOptions options = echo_options(echo);
    const auto whole = scored_choice(options);
    options.stream = true;
    ChunkRenderer renderer(options, kIdentity);
    const std::string bytes = scored_transcript(renderer);
    std::string text;
    boost::json::array values;
    for (std::size_t at = 0; (at = bytes.find("data: {", at)) != std::string::npos; ++at) {
      const auto chunk = boost::json::parse(bytes.substr(at + 6, bytes.find("\n\n", at) - at - 6));
      const auto& choice = chunk.at("choices").at(0);
      text += choice.at("text").as_string().c_str();
      if (choice.at("logprobs").is_null()) continue;
      for (const auto& value : choice.at("logprobs").at("token_logprobs").as_array()) values.push_back(value);
    }
    EXPECT_EQ(text, whole.at("text").as_string().c_str()) << bytes;
    EXPECT_EQ(boost::json::serialize(values), boost::json::serialize(whole.at("logprobs").at("token_logprobs")))
        << bytes;
  }
}

AnswerOptions prompt_logprobs_options(Endpoint endpoint, std::int64_t likeliest) {
  AnswerOptions options = options_of(endpoint, false);
  options.prompt_logprobs = likeliest;
  return options;
}

// As vLLM has them: of a completion in its choice, of a chat beside the choices.
TEST(OpenAiRenderers, PromptLogprobsAreThoseOfVllm) {
  const std::string likeliest =
      R"([null,{"8":{"logprob":-2.5E0,"rank":null,"decoded_token":" H"},"9":{"logprob":-5E-1,"rank":1,"decoded_token":"O"}},)"
      "{\"7\":{\"logprob\":-1,\"rank\":null,\"decoded_token\":\"\xEF\xBF\xBD\"}},"
      "{\"6\":{\"logprob\":-1.25E-1,\"rank\":null,\"decoded_token\":\"\xEF\xBF\xBD\"}}]";
  const auto completion = scored_choice(prompt_logprobs_options(Endpoint::kCompletions, 1));
  EXPECT_EQ(boost::json::serialize(completion.at("prompt_logprobs")), likeliest);
  EXPECT_EQ(completion.at("text"), "H\xC3\xA9") << "the prompt is not echoed";
  EXPECT_TRUE(completion.at("logprobs").is_null()) << "nobody asked for those of the output";
  BodyRenderer chat(prompt_logprobs_options(Endpoint::kChat, 1), kIdentity);
  const auto body = boost::json::parse(scored_transcript(chat));
  EXPECT_EQ(boost::json::serialize(body.at("prompt_logprobs")), likeliest);
  EXPECT_FALSE(body.at("choices").at(0).as_object().contains("prompt_logprobs"));
  BodyRenderer plain(options_of(Endpoint::kChat, false), kIdentity);
  EXPECT_EQ(transcript(plain).find("prompt_logprobs"), std::string::npos);
}

TEST(OpenAiRenderers, ATokenOfThePromptIsListedOnceWithTheRankItHas) {
  BodyRenderer renderer(prompt_logprobs_options(Endpoint::kCompletions, 2), kIdentity);
  std::string out;
  renderer.token(
      {.t = "",
       .logprobs = R"({"id":5,"logprob":-1,"token":"b","bytes":[98],"top_logprobs":[)"
                   R"({"id":4,"logprob":-0.5,"token":"a","bytes":[97]},{"id":5,"logprob":-1,"token":"b","bytes":[98]},)"
                   R"({"id":6,"logprob":-2,"token":"c","bytes":[99]}]})",
       .of_prompt = true},
      {}, out);
  append_end(renderer, wire::StopReason::kEos, out);
  EXPECT_NE(out.find(R"("prompt_logprobs":[{"5":{"logprob":-1,"rank":2,"decoded_token":"b"},)"
                     R"("4":{"logprob":-0.5,"rank":1,"decoded_token":"a"}}])"),
            std::string::npos)
      << out;
}

// The worker tells as many with the output's tokens as with the prompt's.
TEST(OpenAiRenderers, PromptLogprobsLengthenNoOtherList) {
  for (const Endpoint endpoint : {Endpoint::kChat, Endpoint::kCompletions}) {
    AnswerOptions options = prompt_logprobs_options(endpoint, 2);
    options.logprobs = true;
    options.top_logprobs_max = 1;
    const auto choice = scored_choice(options);
    const auto& logprobs = choice.at("logprobs");
    if (endpoint == Endpoint::kChat) {
      EXPECT_EQ(logprobs.at("content").at(0).at("top_logprobs").as_array().size(), 1u);
    } else {
      EXPECT_EQ(boost::json::serialize(logprobs.at("top_logprobs")), "[{\"H\xC3\xA9\":-5E-1}]");
    }
  }
}

// The data of the events of a stream, in one line each.
std::vector<boost::json::object> events_of(std::string_view bytes) {
  std::vector<boost::json::object> out;
  for (std::size_t at = 0; (at = bytes.find("data: ", at)) != std::string_view::npos; ++at) {
    const std::string_view line = bytes.substr(at + 6, bytes.find('\n', at) - at - 6);
    out.push_back(boost::json::parse(boost::json::string_view(line.data(), line.size())).as_object());
  }
  return out;
}

AnswerOptions response_options(bool stream, bool logprobs) {
  AnswerOptions options = options_of(Endpoint::kResponses, stream);
  options.logprobs = logprobs;
  options.asked = R"("parallel_tool_calls":true,"tool_choice":"auto","tools":[])";
  return options;
}

TEST(OpenAiRenderers, AResponseStreams) {
  ResponseRenderer plain(response_options(true, false), kIdentity);
  expect_golden("response_stream.sse", transcript(plain));
  ResponseRenderer logprobs(response_options(true, true), kIdentity);
  expect_golden("response_stream_logprobs.sse", transcript(logprobs, true));
}

// Each of the events at the end repeats the output with its log-probabilities: one is made at a time, of what is held once.
TEST(OpenAiRenderers, AResponseClosesOneEventAtATime) {
  ResponseRenderer renderer(response_options(true, true), kIdentity);
  std::string out;
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  std::size_t told_bytes = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    renderer.token({.t = "H\xC3\xA9", .i = i, .logprobs = kLogprobs[0]}, {}, out);
    told_bytes += kLogprobs[0].size();
  }
  out.clear();
  renderer.end(ended(wire::StopReason::kEos), {}, out);
  EXPECT_EQ(out, "");
  std::vector<std::string> types;
  for (; renderer.more(out); out.clear()) {
    const auto events = events_of(out);
    ASSERT_EQ(events.size(), 1U);
    types.emplace_back(events.front().at("type").as_string());
    EXPECT_GT(out.size(), told_bytes);
    EXPECT_LT(out.size(), told_bytes * 3 / 2);
  }
  EXPECT_EQ(types, (std::vector<std::string>{"response.output_text.done", "response.content_part.done",
                                             "response.output_item.done", "response.completed"}));
}

TEST(OpenAiRenderers, AResponseIsOneBody) {
  ResponseRenderer renderer(response_options(false, true), kIdentity);
  expect_golden("response_logprobs.json", transcript(renderer, true));
  EXPECT_EQ(renderer.head().status, 200);
  ResponseRenderer cut(response_options(false, false), kIdentity);
  std::string out;
  cut.end(ended(wire::StopReason::kMaxTokens), {}, out);
  EXPECT_NE(out.find(R"("incomplete_details":{"reason":"max_output_tokens"})"), std::string::npos) << out;
}

// A thought, a text, two calls with their markers as control tokens, and one that breaks off.
constexpr base::TokenId kOpen{7}, kClose{8};

AnswerOptions with_calls(AnswerOptions options) {
  auto format = std::make_shared<models::ChatFormat>();
  format->format = text::formats::Format::kHermes;
  format->markers = {{kOpen, "<tool_call>"}, {kClose, "</tool_call>"}};
  options.reading = std::make_shared<chat::Reading>(
      chat::Reading{format, *text::formats::Tools::parse(R"([{"type":"function","function":{"name":"add"}}])"), true});
  return options;
}

std::string calls_transcript(streams::Renderer& renderer, wire::StopReason reason = wire::StopReason::kEos) {
  struct Token {
    std::string_view text;
    std::optional<base::TokenId> id{};
  };
  std::string out;
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  std::int64_t i = 0;
  for (const Token& token : std::vector<Token>{{"Two "},
                                               {"sums.</think>"},
                                               {"Here:"},
                                               {"", kOpen},
                                               {R"({"name": "add", "arguments")"},
                                               {R"(: {"a": "\"1\""}})"},
                                               {"", kClose},
                                               {"", kOpen},
                                               {R"({"name": "add", "arguments": {}})"},
                                               {"", kClose}}) {
    renderer.token({.t = token.text, .i = i++, .id = token.id}, {}, out);
  }
  append_end(renderer, reason, out);
  return out;
}

TEST(OpenAiRenderers, CallsAndThoughtsAreToldApart) {
  ChunkRenderer chunks(with_calls(options_of(Endpoint::kChat, true)), kIdentity);
  expect_golden("chat_calls_stream.sse", calls_transcript(chunks));
  BodyRenderer body(with_calls(options_of(Endpoint::kChat, false)), kIdentity);
  expect_golden("chat_calls.json", calls_transcript(body));
  ResponseRenderer events(with_calls(response_options(true, false)), kIdentity);
  expect_golden("response_calls_stream.sse", calls_transcript(events));
  ResponseRenderer response(with_calls(response_options(false, false)), kIdentity);
  expect_golden("response_calls.json", calls_transcript(response));
}

TEST(OpenAiRenderers, ACallOfANamespaceIsToldByBothItsNames) {
  AnswerOptions options = with_calls(response_options(false, false));
  options.members = {{"add", {"crm", "sum"}}};
  ResponseRenderer response(options, kIdentity);
  const std::string whole = calls_transcript(response);
  EXPECT_NE(whole.find(R"(,"name":"sum","namespace":"crm"})"), std::string::npos) << whole;
  options.stream = true;
  ResponseRenderer events(options, kIdentity);
  const std::string out = calls_transcript(events);
  EXPECT_NE(out.find(R"(,"name":"sum","namespace":"crm"})"), std::string::npos) << out;
  EXPECT_NE(out.find(R"(,"name":"sum","arguments":)"), std::string::npos) << out;
  EXPECT_EQ(out.find(R"("name":"add")"), std::string::npos) << out;
}

TEST(OpenAiRenderers, ACallOfACustomToolIsToldByItsText) {
  const auto run = [](bool stream, std::string_view arguments) {
    AnswerOptions options = with_calls(response_options(stream, false));
    options.custom_tools = {"add"};
    ResponseRenderer renderer(options, kIdentity);
    std::string out;
    const std::string call = fmt::format(R"({{"name": "add", "arguments": {}}})", arguments);
    renderer.token({.t = "</think>"}, {}, out);
    renderer.token({.t = "", .i = 1, .id = kOpen}, {}, out);
    renderer.token({.t = call, .i = 2}, {}, out);
    renderer.token({.t = "", .i = 3, .id = kClose}, {}, out);
    append_end(renderer, wire::StopReason::kEos, out);
    return out;
  };
  const auto body = boost::json::parse(run(false, R"({"input": "a \"b\"\n"})"));
  const auto& item = body.at("output").at(0);
  EXPECT_EQ(item.at("type"), "custom_tool_call");
  EXPECT_EQ(item.at("name"), "add");
  EXPECT_EQ(item.at("input"), "a \"b\"\n");
  EXPECT_TRUE(item.at("id").as_string().starts_with("ctc_"));
  EXPECT_TRUE(item.at("call_id").as_string().starts_with("call_"));
  EXPECT_FALSE(item.as_object().contains("arguments"));
  EXPECT_EQ(boost::json::parse(run(false, R"({"patch": 1})")).at("output").at(0).at("input"), R"({"patch": 1})")
      << "what the model wrote is not lost";

  std::string told;
  for (const auto& event : events_of(run(true, R"({"input": "a"})"))) {
    const std::string type(event.at("type").as_string());
    if (type.find("custom") == std::string::npos && !event.contains("item")) continue;
    const auto& member = type.ends_with("delta")        ? event.at("delta")
                         : type.ends_with("input.done") ? event.at("input")
                                                        : event.at("item").at("input");
    told += type + "=" + std::string(member.as_string()) + "\n";
  }
  EXPECT_EQ(told,
            "response.output_item.added=\nresponse.custom_tool_call_input.delta=a\n"
            "response.custom_tool_call_input.done=a\nresponse.output_item.done=a\n");
}

// The log-probabilities of `type`'s events, as the spellings of their tokens.
std::string logprobs_of(std::string_view events, std::string_view type) {
  std::string out;
  for (std::size_t at = 0; (at = events.find("data: ", at)) != std::string_view::npos; ++at) {
    const std::string_view line = events.substr(at + 6, events.find('\n', at) - at - 6);
    const auto event = boost::json::parse(boost::json::string_view(line.data(), line.size()));
    if (event.at("type").as_string() != type) continue;
    for (const auto& token : event.at("logprobs").as_array()) out += token.at("token").as_string();
    out += '|';
  }
  return out;
}

TEST(OpenAiRenderers, LogProbabilitiesOfAThoughtAreNoneOfTheText) {
  const auto logprob = [](std::string_view token) {
    return fmt::format(R"({{"id":1,"logprob":-0.5,"token":"{}","bytes":[],"top_logprobs":[]}})", token);
  };
  const auto run = [&](bool stream) {
    ResponseRenderer renderer(with_calls(response_options(stream, true)), kIdentity);
    std::string out;
    std::int64_t i = 0;
    for (const std::string_view text : {"So ", "so", "</think>", "He", "re"}) {
      const std::string logprobs = logprob(text);
      renderer.token({.t = text, .i = i++, .logprobs = logprobs}, {}, out);
    }
    append_end(renderer, wire::StopReason::kEos, out);
    return out;
  };
  const std::string events = run(true);
  EXPECT_EQ(logprobs_of(events, "response.output_text.delta"), "He|re|");
  EXPECT_EQ(logprobs_of(events, "response.output_text.done"), "Here|");
  const auto body = boost::json::parse(run(false));
  EXPECT_EQ(body.at("output").at(1).at("content").at(0).at("logprobs").as_array().size(), 2U);
}

TEST(OpenAiRenderers, AnAnswerThatWasCutSaysSoAlsoWithCalls) {
  BodyRenderer body(with_calls(options_of(Endpoint::kChat, false)), kIdentity);
  EXPECT_NE(calls_transcript(body, wire::StopReason::kMaxTokens).find(R"("finish_reason":"length")"),
            std::string::npos);
}

TEST(OpenAiRenderers, AnAnswerOfNothingButCallsHasNoContent) {
  BodyRenderer body(with_calls(options_of(Endpoint::kChat, false)), kIdentity);
  std::string out;
  body.token({.t = R"(</think><tool_call>{"name": "add", "arguments": {}}</tool_call>)"}, {}, out);
  body.end(ended(wire::StopReason::kEos), {}, out);
  EXPECT_NE(out.find(R"("content":null,"refusal":null,"tool_calls":[)"), std::string::npos) << out;
  ResponseRenderer silent(with_calls(response_options(false, false)), kIdentity);
  out.clear();
  silent.end(ended(wire::StopReason::kEos), {}, out);
  EXPECT_NE(out.find(R"("output":[{"id":"msg_)"), std::string::npos) << out;
}

TEST(OpenAiRenderers, AResponseInTheBackground) {
  AnswerOptions options = response_options(true, false);
  options.background = options.kept = true;
  ResponseRenderer renderer(options, kIdentity);
  const std::string begun = renderer.unfinished("queued");
  EXPECT_NE(begun.find(R"("status":"queued")"), std::string::npos) << begun;
  EXPECT_NE(begun.find(R"("background":true,"store":true)"), std::string::npos) << begun;
  std::string out;
  renderer.error({.code = "CANCELLED", .message = "the job was cancelled"}, std::nullopt, out);
  EXPECT_NE(out.find(R"("status":"cancelled","error":null)"), std::string::npos) << out;
}

TEST(OpenAiRenderers, AResponseThatFails) {
  const wire::ErrorBody error{.code = "CANCELLED", .message = "the job was cancelled"};
  ResponseRenderer stream(response_options(true, false), kIdentity);
  std::string out;
  stream.error(error, std::nullopt, out);
  EXPECT_TRUE(out.starts_with("event: response.created\n")) << out;
  EXPECT_NE(out.find("event: response.failed\n"), std::string::npos) << out;
  EXPECT_NE(out.find(R"("llorch":{"code":"CANCELLED")"), std::string::npos) << out;
  ResponseRenderer body(response_options(false, false), kIdentity);
  out.clear();
  body.token({.t = "Hi"}, {}, out);
  body.error(error, std::nullopt, out);
  EXPECT_TRUE(out.starts_with(R"({"error":{"message":"the job was cancelled",)")) << out;
  EXPECT_EQ(body.head().status, 499);
}

// Whatever is sent is JSON behind "data: ", a comment, or the end. Clients take a chunk with the member usage for the one that counts.
TEST(OpenAiRenderers, EveryLineOfAStreamIsReadable) {
  AnswerOptions options = options_of(Endpoint::kChat, true);
  options.include_usage = options.logprobs = true;
  ChunkRenderer renderer(options, kIdentity);
  std::string all = transcript(renderer, true);
  renderer.keep_alive(all);
  int chunks = 0, counts = 0;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = all.find("\n\n", begin);
    ASSERT_NE(end, std::string::npos);
    const std::string_view frame = std::string_view(all).substr(begin, end - begin);
    begin = end + 2;
    if (frame.starts_with(": ") || frame == "data: [DONE]") continue;
    ASSERT_TRUE(frame.starts_with("data: ")) << frame;
    boost::json::error_code failed;
    const auto chunk = boost::json::parse(boost::json::string_view(frame.data() + 6, frame.size() - 6), failed);
    ASSERT_FALSE(failed) << frame;
    EXPECT_EQ(chunk.at("object").as_string(), "chat.completion.chunk");
    const bool has_usage = chunk.as_object().contains("usage");
    EXPECT_EQ(has_usage, chunk.at("choices").as_array().empty()) << frame;
    counts += has_usage;
    ++chunks;
  }
  EXPECT_EQ(chunks, 6);  // role, three tokens, finish, usage
  EXPECT_EQ(counts, 1);
}

// Programs that read a stream by its lines take the first one for data.
TEST(OpenAiRenderers, AWaitIsToldByWhatKeepsTheStreamAlive) {
  ChunkRenderer chunks(options_of(Endpoint::kChat, true), kIdentity);
  ResponseRenderer events(response_options(true, false), kIdentity);
  for (streams::Renderer* renderer : std::initializer_list<streams::Renderer*>{&chunks, &events}) {
    std::string out;
    renderer->queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
    EXPECT_EQ(out, "");
    renderer->keep_alive(out);
    renderer->keep_alive(out);
    const std::string wait = ": queued: 2 before this one when it came, its start was expected 1500 ms later\n\n";
    EXPECT_EQ(out, wait + wait);
    renderer->started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
    out.clear();
    renderer->keep_alive(out);
    EXPECT_EQ(out, ": keep-alive\n\n");
  }
}

TEST(OpenAiRenderers, WhatAStopReasonIsCalled) {
  EXPECT_EQ(finish_reason(wire::StopReason::kEos), "stop");
  EXPECT_EQ(finish_reason(wire::StopReason::kStop), "stop");
  EXPECT_EQ(finish_reason(wire::StopReason::kMaxTokens), "length");
  EXPECT_EQ(finish_reason(wire::StopReason::kContext), "length");
}

// An error ends a stream without [DONE], and is the whole answer of a body that was collected so far.
TEST(OpenAiRenderers, AnErrorAfterTokens) {
  const wire::ErrorBody error{.code = "TIMEOUT",
                              .message = "the job ran longer than 5 ms",
                              .retriable = false,
                              .correlation_id = "corr-1",
                              .details = {{"timeout_ms", std::int64_t{5}}}};
  ChunkRenderer stream(options_of(Endpoint::kChat, true), kIdentity);
  std::string out;
  stream.token({.t = "Hi"}, {}, out);
  out.clear();
  stream.error(error, std::nullopt, out);
  expect_golden("error.sse", out);
  BodyRenderer body(options_of(Endpoint::kChat, false), kIdentity);
  out.clear();
  body.token({.t = "Hi"}, {}, out);
  body.error(error, std::nullopt, out);
  EXPECT_EQ(body.head().status, 504);
  EXPECT_EQ(body.head().headers.get("X-Should-Retry"), "false");
  EXPECT_TRUE(out.starts_with(R"({"error":{"message":"the job ran longer than 5 ms","type":"server_error",)")) << out;
}

TEST(OpenAiErrors, AreThoseThatClientsKnow) {
  using base::Error;
  using base::ErrorCode;
  struct Case {
    Error error;
    int status;
    std::string members;
  };
  const auto invalid = [](std::string field, std::string reason) {
    return Error{ErrorCode::kInvalidParams, "m", {}}.with("field", std::move(field)).with("reason", std::move(reason));
  };
  const Case cases[] = {
      {{ErrorCode::kMissingToken, "m", {}},
       401,
       R"("type":"authentication_error","param":null,"code":"invalid_api_key")"},
      {{ErrorCode::kForbidden, "m", {}}, 403, R"("type":"permission_error","param":null,"code":"forbidden")"},
      {{ErrorCode::kModelNotFound, "m", {}},
       404,
       R"("type":"invalid_request_error","param":"model","code":"model_not_found")"},
      {{ErrorCode::kNotFound, "m", {}}, 404, R"("type":"invalid_request_error","param":null,"code":"unknown_url")"},
      {{ErrorCode::kQueueFull, "m", {}}, 429, R"("type":"rate_limit_error","param":null,"code":"rate_limit_exceeded")"},
      {{ErrorCode::kStoreUnavailable, "m", {}},
       503,
       R"("type":"server_error","param":null,"code":"store_unavailable")"},
      {invalid("top_p", "range"), 400, R"("type":"invalid_request_error","param":"top_p","code":"invalid_params")"},
      {invalid("x", "unknown"), 400, R"("type":"invalid_request_error","param":"x","code":"unknown_parameter")"},
      {invalid("prompt", "CONTEXT_TOO_LARGE"), 400,
       R"("type":"invalid_request_error","param":"prompt","code":"context_length_exceeded")"},
  };
  for (const Case& c : cases) {
    const auto response = error_response(c.error, base::CorrelationId("corr-1"));
    EXPECT_EQ(response.status, c.status);
    EXPECT_TRUE(response.body.starts_with(R"({"error":{"message":"m",)" + c.members + R"(,"llorch":{"code":")" +
                                          std::string(c.error.name()) + '"'))
        << response.body;
    EXPECT_EQ(response.headers.get("X-Request-Id"), "corr-1");
    EXPECT_EQ(response.headers.get("X-Should-Retry"), base::info(c.error.code).retriable ? "true" : "false");
    EXPECT_EQ(response.headers.get("Retry-After").has_value(), c.status == 429);
  }
}

// Programs look for the sentence, and read its number.
TEST(OpenAiErrors, AFullContextIsToldAsThatApiTellsIt) {
  const auto error = base::Error{base::ErrorCode::kInvalidParams, "The prompt has 9 tokens.", {}}
                         .with("reason", std::string("CONTEXT_TOO_LARGE"))
                         .with("context_tokens", std::int64_t{8});
  const auto response = error_response(error, base::CorrelationId("corr-1"));
  EXPECT_TRUE(response.body.starts_with(
      R"({"error":{"message":"This model's maximum context length is 8 tokens. However, the prompt has 9 tokens.",)"))
      << response.body;
  EXPECT_NE(response.body.find(R"("code":"context_length_exceeded")"), std::string::npos);
  EXPECT_NE(response.body.find(R"("message":"The prompt has 9 tokens.")"), std::string::npos)
      << "the error body of /v2";
}

TEST(OpenAiModels, AreListedAndShown) {
  EXPECT_EQ(model_list({}, 5), R"({"object":"list","data":[]})");
  const ListedModel unknown{.name = "a"}, known{.name = "b", .context_tokens = 2048};
  EXPECT_EQ(model_list({unknown, known}, 5),
            R"({"object":"list","data":[)" + model_object(unknown, 5) + "," + model_object(known, 5) + "]}");
  EXPECT_EQ(model_object(unknown, 5), R"({"id":"a","object":"model","created":5,"owned_by":"llama-orch","root":"a"})");
  EXPECT_EQ(model_object(known, 5),
            R"({"id":"b","object":"model","created":5,"owned_by":"llama-orch","root":"b","max_model_len":2048})");
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
