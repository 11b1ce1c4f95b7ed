#include "orchestratord/http/llamacpp/embedding/embedding.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "base/base64.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

std::string refused_field(std::string_view body) {
  const auto decoded = decode_embedding(body);
  if (decoded) return "taken";
  EXPECT_EQ(decoded.error().code, base::ErrorCode::kInvalidParams);
  for (const auto& [key, value] : decoded.error().details) {
    if (key == "field") return std::get<std::string>(value);
  }
  return "";
}

std::vector<wire::TextOrTokens> inputs(std::string_view members) {
  return decode_embedding("{" + std::string(members) + "}").value().input->inputs;
}

TEST(LlamaCppEmbedding, TakesTextsAndTokensAloneAndInLists) {
  EXPECT_EQ(inputs(R"("content":"one")").at(0).text, "one");
  EXPECT_EQ(inputs(R"("content":["one",[1,2]])").at(0).text, "one");
  EXPECT_EQ(inputs(R"("content":["one",[1,2]])").at(1).tokens, (std::vector<std::int32_t>{1, 2}));
  EXPECT_EQ(inputs(R"("content":[1,2,3])").size(), 1U);
  EXPECT_EQ(inputs(R"("content":"a","input":"b")").at(0).text, "b");
  const auto call = decode_embedding(R"({"model":"m","content":"x","embd_normalize":2,"image_data":[]})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->workload, wire::Workload::kEmbedding);
  EXPECT_EQ(call->model, "m");
  EXPECT_FALSE(decode_embedding(R"({"content":"x"})")->model);
}

TEST(LlamaCppEmbedding, NamesTheFieldThatIsRefused) {
  EXPECT_EQ(refused_field("{}"), "content");
  EXPECT_EQ(refused_field(R"({"content":""})"), "content");
  EXPECT_EQ(refused_field(R"({"content":[]})"), "content");
  EXPECT_EQ(refused_field(R"({"content":["x",""]})"), "content[1]");
  EXPECT_EQ(refused_field(R"({"content":{"prompt_string":"x"}})"), "content");
  EXPECT_EQ(refused_field(R"({"content":"x\u0000"})"), "input[0]");
  EXPECT_EQ(refused_field(R"({"input":5})"), "input");
  EXPECT_EQ(refused_field(R"({"content":"x","embd_normalize":-1})"), "embd_normalize");
  EXPECT_EQ(refused_field(R"({"content":"x","embd_normalize":"2"})"), "embd_normalize");
  EXPECT_FALSE(decode_embedding("{\"content\":\"\xff\"}"));
  EXPECT_FALSE(decode_embedding("[1]"));
}

std::string vector_of(std::initializer_list<float> values) {
  return base::base64_encode({reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)});
}

TEST(LlamaCppEmbedding, AVectorIsTheOnlyRowOfItsInput) {
  EmbeddingRenderer renderer({});
  std::string out;
  const std::string first = vector_of({0.6f, -0.8f}), second = vector_of({1.0f, 0.0f});
  renderer.token({.t = first, .i = 0}, {}, out);
  renderer.token({.t = second, .i = 1}, {}, out);
  EXPECT_EQ(out, "");
  renderer.end({.job_id = "j", .tokens_in = 7, .tokens_out = 2}, {}, out);
  EXPECT_EQ(renderer.head().status, 200);
  EXPECT_TRUE(out.starts_with(R"([{"index":0,"embedding":[[0.6,-0.8]]},{"index":1,"embedding":[[1,0]],"llorch":{)"))
      << out;
  EXPECT_EQ(boost::json::parse(out).at(1).at("llorch").at("job_id").as_string(), "j");
}

TEST(LlamaCppEmbedding, AnErrorHasItsStatusAndNoVector) {
  EmbeddingRenderer renderer({});
  std::string out;
  renderer.token({.t = "AAAAAA==", .i = 0}, {}, out);
  renderer.error(wire::error_body({base::ErrorCode::kTimeout, "too long", {}}, {}), {}, out);
  EXPECT_EQ(renderer.head().status, base::info(base::ErrorCode::kTimeout).http_status);
  EXPECT_TRUE(out.starts_with(R"({"error":{)")) << out;
}

}  // namespace
}  // namespace llorch::orchestratord::http::llamacpp
