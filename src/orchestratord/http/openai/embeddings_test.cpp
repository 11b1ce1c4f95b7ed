#include "orchestratord/http/openai/embeddings.h"

#include <gtest/gtest.h>

#include "base/base64.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::openai {
namespace {

std::string vector_of(std::initializer_list<float> values) {
  return base::base64_encode({reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)});
}

std::string field_of(std::string_view body) {
  const auto decoded = decode_embeddings(body);
  if (decoded) return "taken";
  EXPECT_EQ(decoded.error().code, base::ErrorCode::kInvalidParams);
  for (const auto& [name, value] : decoded.error().details)
    if (name == "field") return std::get<std::string>(value);
  return "";
}

TEST(EmbeddingsRequest, TakesTextsAndTokensAloneAndInLists) {
  const auto inputs = [](std::string_view json) {
    return decode_embeddings(R"({"model":"m","input":)" + std::string(json) + "}").value().submission.input->inputs;
  };
  EXPECT_EQ(inputs(R"("one")").at(0).text, "one");
  EXPECT_EQ(inputs(R"(["one","two"])").at(1).text, "two");
  EXPECT_EQ(inputs("[1,2,3]").at(0).tokens, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(inputs("[1,2,3]").size(), 1U);
  EXPECT_EQ(inputs(R"([[1],[2,3],"three"])").at(1).tokens, (std::vector<std::int32_t>{2, 3}));
  const auto call =
      decode_embeddings(R"({"model":"m","input":"x","dimensions":5,"encoding_format":"base64","user":"u"})");
  ASSERT_TRUE(call);
  EXPECT_EQ(call->submission.workload, wire::Workload::kEmbedding);
  EXPECT_EQ(call->submission.dimensions, 5);
  EXPECT_EQ(call->answer.encoding, wire::EmbeddingEncoding::kBase64);
}

TEST(EmbeddingsRequest, NamesTheFieldThatIsRefused) {
  EXPECT_EQ(field_of(R"({"model":"m","input":"x","drop_params":true})"), "taken");
  EXPECT_EQ(field_of(R"({"model":"m"})"), "input");
  EXPECT_EQ(field_of(R"({"input":"x"})"), "model");
  EXPECT_EQ(field_of(R"({"model":"m","input":[]})"), "input");
  EXPECT_EQ(field_of(R"({"model":"m","input":""})"), "input");
  EXPECT_EQ(field_of(R"({"model":"m","input":["x",""]})"), "input[1]");
  EXPECT_EQ(field_of(R"({"model":"m","input":[["x"]]})"), "input[0][0]");
  EXPECT_EQ(field_of(R"({"model":"m","input":{"text":"x"}})"), "input");
  EXPECT_EQ(field_of(R"({"model":"m","input":"x","dimensions":0})"), "dimensions");
  EXPECT_EQ(field_of(R"({"model":"m","input":"x","encoding_format":"int8"})"), "encoding_format");
  EXPECT_EQ(field_of(R"({"model":"m","input":"x","temperature":1})"), "temperature");
  std::string many = R"({"model":"m","input":["x")";
  for (std::int64_t i = 0; i < wire::kEmbeddingInputsMax; ++i) many += R"(,"x")";
  EXPECT_EQ(field_of(many + "]}"), "input");
}

class Answer : public testing::Test {
 protected:
  std::string body(wire::EmbeddingEncoding encoding) {
    EmbeddingsRenderer renderer({.model = "a \"model\"", .encoding = encoding},
                                {.job_id = base::JobId("job"), .correlation_id = base::CorrelationId("c-1")});
    std::string out;
    const std::string first = vector_of({0.6f, -0.8f}), second = vector_of({1.0f, 1e-10f});
    renderer.token({.t = first, .i = 0}, {}, out);
    renderer.token({.t = second, .i = 1}, {}, out);
    EXPECT_EQ(out, "");
    renderer.end({.job_id = "job", .tokens_in = 7, .tokens_out = 2}, {}, out);
    EXPECT_EQ(renderer.head().status, 200);
    EXPECT_EQ(renderer.head().headers.get("X-Request-Id"), "c-1");
    return out.substr(0, out.find(R"(,"system_fingerprint")"));
  }
};

TEST_F(Answer, SaysEachNumberSoThatItReadsBackTheSame) {
  EXPECT_EQ(body(wire::EmbeddingEncoding::kFloat),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.6,-0.8]},)"
            R"({"object":"embedding","index":1,"embedding":[1,1e-10]}],"model":"a \"model\"",)"
            R"("usage":{"prompt_tokens":7,"total_tokens":7})");
}

TEST_F(Answer, HandsBase64OnAsItIs) {
  EXPECT_EQ(body(wire::EmbeddingEncoding::kBase64),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":"mpkZP83MTL8="},)"
            R"({"object":"embedding","index":1,"embedding":"AACAP//m2y4="}],"model":"a \"model\"",)"
            R"("usage":{"prompt_tokens":7,"total_tokens":7})");
}

TEST(EmbeddingsAnswer, AnErrorHasItsStatus) {
  EmbeddingsRenderer renderer({.model = "m"}, {.job_id = base::JobId("job"), .correlation_id = {}});
  std::string out;
  renderer.token({.t = "AAAAAA==", .i = 0}, {}, out);
  renderer.error(wire::error_body({base::ErrorCode::kTimeout, "too long", {}}, {}), {}, out);
  EXPECT_EQ(renderer.head().status, base::info(base::ErrorCode::kTimeout).http_status);
  EXPECT_TRUE(out.starts_with(R"({"error":{)")) << out;
}

}  // namespace
}  // namespace llorch::orchestratord::http::openai
