// Golden transcripts: the bytes that clients of the Anthropic API get.
#include "orchestratord/http/anthropic/renderer.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "orchestratord/http/anthropic/errors.h"
#include "orchestratord/http/anthropic/models.h"

namespace llorch::orchestratord::http::anthropic {
namespace {

const chat::AnswerIdentity kIdentity{.job_id = base::JobId("0b5dbe0e-9c7d-4f3a-8f2b-6c1d2e3f4a5b"),
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

AnswerOptions options_of(bool stream) { return {.model = "tale \"5m\"", .stream = stream, .tokens_in = 11}; }

// A model that marks thoughts and calls as Hermes does.
AnswerOptions reading_options(bool stream) {
  auto format = std::make_shared<models::ChatFormat>();
  format->format = text::formats::Format::kHermes;
  AnswerOptions options = options_of(stream);
  options.reading = std::make_shared<chat::Reading>(
      chat::Reading{format, *text::formats::Tools::parse(R"([{"type":"function","function":{"name":"add"}}])"), false});
  return options;
}

std::string transcript(const AnswerOptions& options, const std::vector<std::string>& tokens,
                       wire::StopReason reason = wire::StopReason::kEos) {
  MessageRenderer renderer(options, kIdentity);
  std::string out;
  renderer.queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
  if (options.stream) renderer.keep_alive(out);
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7}, {}, out);
  std::int64_t i = 0;
  for (const std::string& text : tokens) renderer.token({.t = text, .i = i++}, {}, out);
  renderer.end(ended(reason), {}, out);
  EXPECT_EQ(renderer.head().status, 200);
  return out;
}
const std::vector<std::string> kTale = {"H\xC3\xA9", " \"a\"\n", ""};
const std::vector<std::string> kCalls = {"<think>",
                                         "let me ",
                                         "see",
                                         "</think>",
                                         "Wait. ",
                                         R"(<tool_call>{"name": "add", "arguments": {"a": 1}}</tool_call>)",
                                         R"(<tool_call>{"name": "add", "arguments": {}}</tool_call>)"};

void expect_golden(const std::string& name, const std::string& actual) {
  const std::string path = std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/http/anthropic/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

TEST(AnthropicRenderer, AMessageStreams) {
  expect_golden("message_stream.sse", transcript(options_of(true), kTale));
  expect_golden("calls_stream.sse", transcript(reading_options(true), kCalls));
}

TEST(AnthropicRenderer, AMessageIsOneBody) {
  expect_golden("message.json", transcript(options_of(false), kTale));
  expect_golden("calls.json", transcript(reading_options(false), kCalls));
}

std::string stop_of(const AnswerOptions& options, const std::vector<std::string>& tokens, wire::StopReason reason) {
  const auto message = boost::json::parse(transcript(options, tokens, reason));
  return boost::json::serialize(message.at("stop_reason")) + boost::json::serialize(message.at("stop_sequence"));
}

TEST(AnthropicRenderer, SaysWhyAnAnswerEnded) {
  using wire::StopReason;
  AnswerOptions options = options_of(false);
  EXPECT_EQ(stop_of(options, kTale, StopReason::kEos), R"("end_turn"null)");
  EXPECT_EQ(stop_of(options, kTale, StopReason::kMaxTokens), R"("max_tokens"null)");
  EXPECT_EQ(stop_of(options, kTale, StopReason::kContext), R"("model_context_window_exceeded"null)");
  options.max_tokens = 4;
  EXPECT_EQ(stop_of(options, kTale, StopReason::kMaxTokens), R"("model_context_window_exceeded"null)") << "it has 3";
  options.max_tokens = 3;
  EXPECT_EQ(stop_of(options, kTale, StopReason::kMaxTokens), R"("max_tokens"null)");
  options.stop = {"END"};
  EXPECT_EQ(stop_of(options, kTale, StopReason::kStop), R"("stop_sequence""END")");
  EXPECT_EQ(stop_of(options, kTale, StopReason::kEos), R"("end_turn"null)");
  options.stop = {"END", "FIN"};
  EXPECT_EQ(stop_of(options, kTale, StopReason::kStop), R"("stop_sequence"null)") << "which of them is not known";
  EXPECT_EQ(stop_of(reading_options(false), kCalls, StopReason::kEos), R"("tool_use"null)");
  EXPECT_EQ(stop_of(reading_options(false), kCalls, StopReason::kMaxTokens), R"("max_tokens"null)");
}

TEST(AnthropicRenderer, AnAnswerWithoutATextHasNoBlocks) {
  EXPECT_TRUE(boost::json::parse(transcript(options_of(false), {""})).at("content").as_array().empty());
  EXPECT_EQ(transcript(options_of(true), {""}).find("content_block"), std::string::npos);
}

TEST(AnthropicRenderer, ATaskThatFails) {
  const wire::ErrorBody error{.code = "POOL_UNAVAILABLE", .message = "no device", .retriable = true};
  MessageRenderer stream(options_of(true), kIdentity);
  std::string out;
  stream.started({}, {}, out);
  stream.error(error, {}, out);
  expect_golden("error_stream.sse", out);
  MessageRenderer body(options_of(false), kIdentity);
  out.clear();
  body.error(error, {}, out);
  expect_golden("error.json", out);
  EXPECT_EQ(body.head().status, 503);
  EXPECT_EQ(body.head().headers.get("X-Should-Retry"), "true");
  EXPECT_EQ(body.head().headers.get("Request-Id"), "corr-1");
}

TEST(AnthropicErrors, TypesFollowTheStatus) {
  const auto type_of = [](base::ErrorCode code) {
    const auto response = error_response({code, "m", {}}, base::CorrelationId("c"));
    const auto body = boost::json::parse(response.body);
    EXPECT_EQ(body.at("request_id").as_string(), "c");
    EXPECT_EQ(body.at("error").at("llorch").at("code").as_string(), base::info(code).name);
    return std::string(body.at("error").at("type").as_string());
  };
  using base::ErrorCode;
  EXPECT_EQ(type_of(ErrorCode::kInvalidParams), "invalid_request_error");
  EXPECT_EQ(type_of(ErrorCode::kBadToken), "authentication_error");
  EXPECT_EQ(type_of(ErrorCode::kForbidden), "permission_error");
  EXPECT_EQ(type_of(ErrorCode::kModelNotFound), "not_found_error");
  EXPECT_EQ(type_of(ErrorCode::kPayloadTooLarge), "request_too_large");
  EXPECT_EQ(type_of(ErrorCode::kQueueFull), "rate_limit_error");
  EXPECT_EQ(type_of(ErrorCode::kPoolUnavailable), "overloaded_error");
  EXPECT_EQ(type_of(ErrorCode::kTimeout), "timeout_error");
  EXPECT_EQ(type_of(ErrorCode::kInternal), "api_error");
}

// Programs look for these sentences, and read their numbers.
TEST(AnthropicErrors, AFullContextIsToldAsThatApiTellsIt) {
  const auto message = [](std::int64_t prompt, std::int64_t max_tokens) {
    const auto error = base::Error{base::ErrorCode::kInvalidParams, "Ours.", {}}
                           .with("reason", std::string("CONTEXT_TOO_LARGE"))
                           .with("tokens_in", prompt)
                           .with("max_tokens", max_tokens)
                           .with("context_tokens", std::int64_t{512});
    const auto body = boost::json::parse(error_response(error, base::CorrelationId("c")).body);
    return std::string(body.at("error").at("message").as_string());
  };
  EXPECT_EQ(message(600, 1), "prompt is too long: 600 tokens > 512 maximum. Ours.");
  EXPECT_EQ(message(512, 1), "input length and `max_tokens` exceed context limit: 512 + 1 > 512. Ours.");
}

TEST(AnthropicModels, HaveWhatClientsRequire) {
  EXPECT_EQ(
      model_object("m", 0),
      R"({"type":"model","id":"m","display_name":"m","created_at":"1970-01-01T00:00:00.000Z","lifecycle":"active"})");
}

}  // namespace
}  // namespace llorch::orchestratord::http::anthropic
