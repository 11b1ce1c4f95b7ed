#include "orchestratord/http/ollama/embeddings.h"

#include <gtest/gtest.h>

#include "base/base64.h"

namespace llorch::orchestratord::http::ollama {
namespace {

std::string vector_of(std::initializer_list<float> values) {
  return base::base64_encode({reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(float)});
}

EmbeddingsCall embed(const std::string& members) {
  auto call = decode_embed(R"({"model":"m")" + members + "}");
  EXPECT_TRUE(call) << members << ": " << call.error().message;
  return call ? *call : EmbeddingsCall{};
}

std::string refused_field(const base::Result<EmbeddingsCall>& call) {
  if (call) return "taken";
  for (const auto& [name, value] : call.error().details)
    if (name == "field") return std::get<std::string>(value);
  return "";
}

TEST(OllamaEmbed, TakesATextAndAList) {
  const EmbeddingsCall one = embed(R"(,"input":"a","dimensions":5,"keep_alive":"5m","options":{"num_ctx":1})");
  EXPECT_EQ(one.submission.model, "m");
  EXPECT_EQ(one.submission.workload, wire::Workload::kEmbedding);
  EXPECT_EQ(one.submission.input->inputs.at(0).text, "a");
  EXPECT_EQ(one.submission.dimensions, 5);
  EXPECT_TRUE(one.cuts_long_inputs) << "as that API does";
  EXPECT_FALSE(one.only_finds_model);
  const EmbeddingsCall two = embed(R"(,"input":["a","b"],"truncate":false)");
  EXPECT_EQ(two.submission.input->inputs.at(1).text, "b");
  EXPECT_FALSE(two.cuts_long_inputs);
  for (const char* none : {"", R"(,"input":"")", R"(,"input":[])", R"(,"input":null)"})
    EXPECT_TRUE(embed(none).only_finds_model) << none;
}

TEST(OllamaEmbed, NamesTheFieldThatIsRefused) {
  EXPECT_EQ(refused_field(decode_embed(R"({"input":"a"})")), "model");
  EXPECT_EQ(refused_field(decode_embed(R"({"model":"m","input":["a",""]})")), "input[1]");
  EXPECT_EQ(refused_field(decode_embed(R"({"model":"m","input":7})")), "input");
  EXPECT_EQ(refused_field(decode_embed(R"({"model":"m","input":"a","dimensions":0})")), "dimensions");
  EXPECT_EQ(refused_field(decode_embed(R"({"model":"m","input":"a\u0000"})")), "input[0]");
  EXPECT_EQ(refused_field(decode_embeddings(R"({"model":"m","prompt":"a\u0000"})")), "input[0]");
  EXPECT_EQ(refused_field(decode_embeddings(R"({"prompt":"a"})")), "model");
  EXPECT_EQ(refused_field(decode_embeddings(R"({"model":"m","prompt":["a"]})")), "prompt");
}

TEST(OllamaEmbed, TheOlderRouteHasOnePrompt) {
  const auto call = decode_embeddings(R"({"model":"m","prompt":"a"})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->submission.input->inputs.at(0).text, "a");
  EXPECT_TRUE(call->cuts_long_inputs);
  EXPECT_TRUE(decode_embeddings(R"({"model":"m","prompt":""})")->only_finds_model);
}

std::string answer(EmbeddingsOptions options) {
  EmbeddingsRenderer renderer(std::move(options), {.job_id = base::JobId("job"), .correlation_id = {}});
  std::string out;
  renderer.started({.job_id = "job", .queue_wait_ms = 100}, {}, out);
  const std::string first = vector_of({0.6f, -0.8f}), second = vector_of({1.0f, 1e-10f});
  renderer.token({.t = first, .i = 0}, {}, out);
  renderer.token({.t = second, .i = 1}, {}, out);
  EXPECT_EQ(out, "");
  renderer.end({.job_id = "job", .tokens_in = 7, .tokens_out = 2, .decode_time_ms = 20, .first_token_ms = 5}, {}, out);
  EXPECT_EQ(renderer.head().status, 200);
  return out;
}

TEST(OllamaEmbed, AnswersWithAllVectors) {
  const std::string whole = answer({.model = "tale \"5m\""});
  EXPECT_EQ(whole.substr(0, whole.find(R"(,"llorch")")),
            R"({"model":"tale \"5m\"","embeddings":[[0.6,-0.8],[1,1e-10]],)"
            R"("total_duration":125000000,"load_duration":100000000,"prompt_eval_count":7)");
  EXPECT_EQ(whole.find("cut_inputs"), std::string::npos);
  EXPECT_TRUE(answer({.model = "m", .cut_inputs = {0, 3}}).ends_with(R"(,"cut_inputs":[0,3]}})"));
  EXPECT_TRUE(answer({.shape = EmbeddingsShape::kOne}).starts_with(R"({"embedding":[0.6,-0.8])"));
  EXPECT_EQ(empty_embeddings({.model = "m"}), R"({"model":"m","embeddings":[]})");
  EXPECT_EQ(empty_embeddings({.shape = EmbeddingsShape::kOne, .model = "m"}), R"({"embedding":[]})");
}

TEST(OllamaEmbed, AnErrorHasItsStatus) {
  EmbeddingsRenderer renderer({.model = "m"}, {.job_id = base::JobId("job"), .correlation_id = {}});
  std::string out;
  renderer.error(wire::error_body({base::ErrorCode::kTimeout, "too long", {}}, {}), {}, out);
  EXPECT_EQ(renderer.head().status, base::info(base::ErrorCode::kTimeout).http_status);
  EXPECT_TRUE(out.starts_with(R"({"error":"too long")")) << out;
}

}  // namespace
}  // namespace llorch::orchestratord::http::ollama
