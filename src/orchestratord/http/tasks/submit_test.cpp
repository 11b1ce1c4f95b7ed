#include "orchestratord/http/tasks/submit.h"

#include <gtest/gtest.h>

#include <random>

#include "base/utf8.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

TEST(ExecuteRequest, TheDefaultTemperatureDependsOnDeterminism) {
  wire::SubmitRequest request;
  EXPECT_EQ(execute_request(request, {}).temperature, 0.7);
  request.determinism = wire::Determinism::kStrict;
  EXPECT_EQ(execute_request(request, {}).temperature, 0.0);
  request.temperature = 1.2;
  EXPECT_EQ(execute_request(request, {}).temperature, 1.2);
}

TEST(ExecuteRequest, CarriesTokensAndNoText) {
  wire::SubmitRequest request;
  request.prompt = {.text = "secret"};
  request.stop = {"end"};
  request.sampling.top_k = 7;
  request.sampling.logit_bias = {{3, -1.0}};
  request.sampling.logprobs = true;
  const auto out = execute_request(request, {.job_id = base::JobId("j"),
                                             .prompt_tokens = std::vector<std::int32_t>{1, 2},
                                             .prompt_sha256 = "h",
                                             .max_tokens = 9,
                                             .seed = 5});
  EXPECT_FALSE(out.prompt);
  EXPECT_EQ(out.prompt_tokens->size(), 2u);
  EXPECT_EQ(out.stop, request.stop);
  EXPECT_EQ(out.seed, 5u);
  EXPECT_EQ(out.max_tokens, 9);
  EXPECT_EQ(out.sampling.top_k, 7);
  EXPECT_EQ(out.sampling.logit_bias, request.sampling.logit_bias);
  EXPECT_TRUE(out.sampling.logprobs);
}

// A client sends the request of a job that another version accepted again, for days. A field that was added is to be a std::optional.
TEST(RequestSha256, IsThatOfOtherVersions) {
  struct Case {
    const char* body;
    std::vector<std::string> images;
    const char* sha256;
  };
  const Case cases[] = {
      {R"({"model":"m","prompt":"p","max_tokens":4,"task_id":"t"})",
       {},
       "c7fc1cb3b237e543b15a0b56f4b84cce9e1e3a0199ddf833397b4490a05aef61"},
      {R"({"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function"}],"task_id":"t",)"
       R"("session_id":"s","priority":"batch","temperature":0.5,"stop":["end"],"seed":7,"determinism":"strict",)"
       R"("on_disconnect":"resume","placement":{"mode":"prefer","prefer_pools":["pool-1"]},"timeout_ms":1000,)"
       R"("deadline_ms":2000,"result":{"keep_ms":3000},"top_p":0.9,"top_k":40,"logit_bias":{"7":-1},)"
       R"("logprobs":true,"top_logprobs":2,"json_schema":{"type":"object"}})",
       {"aW1hZ2U="},
       "94c63301e6eddf0e0c07023fb1a756df07be46b2b68bebbd525b4cd0fce24df9"},
      {R"({"model":"m","workload":"rerank","input":["a","b"],"query":"q"})",
       {},
       "ac8c9265a986d048ae5a053ba2d4851a376b567cf8962c55b152fc24bf5c3c0f"}};
  for (const auto& [body, images, sha256] : cases) {
    const auto request = decode_request(body);
    ASSERT_TRUE(request) << request.error().message;
    EXPECT_EQ(request_sha256(*request, images), sha256) << wire::encode(*request);
  }
}

TEST(IdempotencyKey, NamesTheTask) {
  const auto named = [](net::http::Headers headers, std::optional<std::string> task_id) -> base::Result<std::string> {
    wire::SubmitRequest request{.task_id = std::move(task_id)};
    TRY(take_idempotency_key(headers, request));
    return request.task_id.value_or("none");
  };
  EXPECT_EQ(named({}, std::nullopt).value(), "none");
  EXPECT_EQ(named({}, "a").value(), "a");
  EXPECT_EQ(named({{"idempotency-key", "k-1"}}, std::nullopt).value(), "k-1");
  EXPECT_EQ(named({{"Idempotency-Key", "\"k-1\""}}, std::nullopt).value(), "k-1");
  EXPECT_EQ(named({{"Idempotency-Key", "k-1"}}, "k-1").value(), "k-1");
  for (const char* bad : {"", "\"", "\"\"", "a b", "a\"b"}) {
    EXPECT_EQ(named({{"Idempotency-Key", bad}}, std::nullopt).error().code, base::ErrorCode::kInvalidParams) << bad;
  }
  EXPECT_EQ(named({{"Idempotency-Key", "k-1"}}, "k-2").error().code, base::ErrorCode::kInvalidParams);
}

// The task body under 10,000 structured mutations: an answer every time, and what passes is within all limits.
TEST(ParseSubmission, SurvivesTenThousandMutations) {
  static const std::vector<std::string> kKeys = {
      "model",         "model_ref",          "prompt",      "max_tokens", "task_id",
      "session_id",    "priority",           "temperature", "top_p",      "top_k",
      "min_p",         "repetition_penalty", "stop",        "seed",       "determinism",
      "on_disconnect", "timeout_ms",         "deadline_ms", "PROMPT",     "",
      "logit_bias",    "logprobs",           "mirostat",    "min_keep",   "x\\u0000"};
  static const std::vector<std::string> kValues = {"null",
                                                   "true",
                                                   "0",
                                                   "1",
                                                   "-1",
                                                   "16",
                                                   "0.5",
                                                   "1e309",
                                                   "-0",
                                                   "1e3",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "-9223372036854775809",
                                                   "\"\"",
                                                   "\"demo\"",
                                                   "\"file:/m.gguf\"",
                                                   "\"\\ud800\"",
                                                   "\"\\u0000\"",
                                                   "\"batch\"",
                                                   "\"resume\"",
                                                   "\"strict\"",
                                                   "[]",
                                                   "[\"a\"]",
                                                   "[\"\"]",
                                                   "[1]",
                                                   "[\"a\",\"b\",\"c\",\"d\",\"e\"]",
                                                   "{}",
                                                   "{\"a\":1}",
                                                   "{\"7\":1}",
                                                   "\"x",
                                                   "\xff"};
  const config::LimitsConfig limits;
  const std::random_device::result_type seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto pick = [&](const std::vector<std::string>& from) { return from[random() % from.size()]; };
  int accepted = 0;
  for (int i = 0; i < 10'000; ++i) {
    std::string body = R"({"model":"demo","prompt":"a","max_tokens":4)";
    for (unsigned n = random() % 4; n > 0; --n) body += ",\"" + pick(kKeys) + "\":" + pick(kValues);
    body += "}";
    switch (random() % 8) {
      case 0: body.resize(random() % body.size()); break;
      case 1: body[random() % body.size()] = static_cast<char>(random()); break;
      case 2: body.insert(random() % body.size(), pick(kValues)); break;
      default: break;
    }
    auto decoded = decode_request(body);
    const auto parsed = decoded ? take_inputs(*std::move(decoded), limits) : base::fail(std::move(decoded).error());
    if (!parsed) {
      EXPECT_EQ(parsed.error().code, base::ErrorCode::kInvalidParams) << body;
      EXPECT_FALSE(parsed.error().message.empty());
      continue;
    }
    ++accepted;
    const wire::SubmitRequest& request = parsed->request;
    EXPECT_TRUE(base::is_valid_utf8(request.prompt.value_or(wire::TextOrTokens{}).text));
    EXPECT_GE(request.max_tokens.value_or(1), 1);
    EXPECT_LE(request.max_tokens.value_or(1), limits.max_tokens);
    EXPECT_NE(request.model.has_value(), request.model_ref.has_value());
    EXPECT_TRUE(wire::decode<wire::SubmitRequest>(wire::encode(request), wire::UnknownKeys::kRefuse)) << body;
  }
  EXPECT_GT(accepted, 500);
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
