// Golden transcripts: the bytes that clients of the Ollama API get.
#include "orchestratord/http/ollama/renderer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <fstream>

#include "base/file.h"
#include "orchestratord/http/ollama/errors.h"
#include "orchestratord/http/ollama/models.h"

namespace llorch::orchestratord::http::ollama {
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

AnswerOptions options_of(Endpoint endpoint, bool stream) {
  return {.endpoint = endpoint, .model = "tale \"5m\":latest", .stream = stream};
}

// A model that marks thoughts and calls as Hermes does.
AnswerOptions reading_options(Endpoint endpoint, bool stream) {
  auto format = std::make_shared<models::ChatFormat>();
  format->format = text::formats::Format::kHermes;
  AnswerOptions options = options_of(endpoint, stream);
  options.reading = std::make_shared<chat::Reading>(
      chat::Reading{format, *text::formats::Tools::parse(R"([{"type":"function","function":{"name":"add"}}])"), false});
  return options;
}

constexpr std::string_view kLogprobs =
    R"({"id":1,"logprob":-0.5,"token":"H","bytes":[72],"top_logprobs":[{"id":1,"logprob":-0.5,"token":"H","bytes":[72]}]})";

std::string transcript(const AnswerOptions& options, const std::vector<std::string>& tokens,
                       wire::StopReason reason = wire::StopReason::kEos) {
  AnswerRenderer renderer(options, kIdentity);
  std::string out;
  renderer.queued({.job_id = kIdentity.job_id.value, .queue_position = 2, .predicted_start_ms = 1500}, {}, out);
  renderer.started({.job_id = kIdentity.job_id.value, .seed = 7, .queue_wait_ms = 100}, {}, out);
  std::int64_t i = 0;
  for (const std::string& text : tokens) {
    renderer.token({.t = text, .i = i++, .logprobs = options.logprobs ? kLogprobs : std::string_view()}, {}, out);
  }
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
  const std::string path = std::string(LLORCH_SOURCE_DIR) + "/src/orchestratord/http/ollama/golden/" + name;
  if (std::getenv("LLORCH_UPDATE_GOLDEN") != nullptr) std::ofstream(path, std::ios::binary) << actual;
  const auto expected = base::read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << path;
  EXPECT_EQ(actual, *expected) << "run with LLORCH_UPDATE_GOLDEN=1 after a meant change";
}

TEST(OllamaRenderer, AnswersStreamAsLines) {
  expect_golden("chat_stream.ndjson", transcript(options_of(Endpoint::kChat, true), kTale));
  expect_golden("generate_stream.ndjson", transcript(options_of(Endpoint::kGenerate, true), kTale));
  expect_golden("calls_stream.ndjson", transcript(reading_options(Endpoint::kChat, true), kCalls));
  AnswerOptions logprobs = options_of(Endpoint::kChat, true);
  logprobs.logprobs = true;
  expect_golden("chat_stream_logprobs.ndjson", transcript(logprobs, {"H", ""}));
  EXPECT_EQ(AnswerRenderer(logprobs, kIdentity).head().headers.get("Content-Type"), "application/x-ndjson");
}

TEST(OllamaRenderer, ACallOverSeveralLinesTearsNone) {
  const std::string out = transcript(reading_options(Endpoint::kChat, true),
                                     {"<tool_call>{\"name\": \"add\", \"arguments\": {\n \"a\": 1\n}}</tool_call>"});
  EXPECT_EQ(std::ranges::count(out, '\n'), 2) << out;
}

TEST(OllamaRenderer, AnswersAreOneObject) {
  expect_golden("chat.json", transcript(options_of(Endpoint::kChat, false), kTale));
  expect_golden("generate.json",
                transcript(options_of(Endpoint::kGenerate, false), kTale, wire::StopReason::kMaxTokens));
  expect_golden("calls.json", transcript(reading_options(Endpoint::kChat, false), kCalls));
  expect_golden("generate_thinking.json",
                transcript(reading_options(Endpoint::kGenerate, false), {"<think>", "hm", "</think>", "yes"}));
  expect_golden("load.json", empty_answer(options_of(Endpoint::kChat, true), kIdentity.created_unix_s, "load"));
}

TEST(OllamaRenderer, ATaskThatFails) {
  const wire::ErrorBody error{.code = "POOL_UNAVAILABLE", .message = "no \"device\"", .retriable = true};
  AnswerRenderer stream(options_of(Endpoint::kChat, true), kIdentity);
  std::string out;
  stream.token({.t = "H"}, {}, out);
  stream.error(error, {}, out);
  expect_golden("error_stream.ndjson", out);
  AnswerRenderer body(options_of(Endpoint::kChat, false), kIdentity);
  out.clear();
  body.error(error, {}, out);
  expect_golden("error.json", out);
  EXPECT_EQ(body.head().status, 503);
}

TEST(OllamaModels, AreListedWithATag) {
  EXPECT_EQ(listed_name("tale"), "tale:latest");
  EXPECT_EQ(listed_name("tale:5m"), "tale:5m");
}

// Ollama's command line prints the first twelve digits, and ends where there are none.
TEST(OllamaModels, HaveADigestBeforeAnythingIsKnown) {
  const auto digest_of = [](const std::string& ref) {
    const auto tags = boost::json::parse(tags_body({{"m", ref, {}}}, 0));
    return std::string(tags.at("models").at(0).at("digest").as_string());
  };
  EXPECT_EQ(digest_of("file:/a.gguf").size(), 64u);
  EXPECT_EQ(digest_of("file:/a.gguf"), digest_of("file:/a.gguf"));
  EXPECT_NE(digest_of("file:/a.gguf"), digest_of("file:/b.gguf"));
}

TEST(OllamaModels, AreListedWithWhatIsKnown) {
  const wire::ModelFacts facts{.model_ref = "file:/a.gguf",
                               .digest = "sha256:aa",
                               .architecture = "llama",
                               .quant_kind = "q8_0",
                               .size_bytes = 5};
  expect_golden("tags.json",
                tags_body({{"tale", "file:/a.gguf", facts}, {"other", "file:/b.gguf", {}}}, 1764000000000));
  expect_golden(
      "ps.json",
      ps_body({{"tale",
                facts,
                {.model_ref = "file:/a.gguf", .model_digest = "sha256:aa", .vram_bytes = 7, .context_length = 512}}}));
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
