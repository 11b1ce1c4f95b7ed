#include "orchestratord/http/llamacpp/rerank.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

namespace llorch::orchestratord::http::llamacpp {
namespace {

base::Error refused(std::string_view body) {
  const auto call = decode_rerank(body);
  EXPECT_FALSE(call) << body;
  return call ? base::Error{} : call.error();
}
std::string field(std::string_view body) {
  for (const auto& [key, value] : refused(body).details) {
    if (key == "field") return std::get<std::string>(value);
  }
  return "";
}

TEST(Rerank, DocumentsAreTextsOrObjectsWithOne) {
  const auto call = decode_rerank(
      R"({"model":"m","query":"q","documents":["a",{"text":"b","title":"t"}],"top_n":1,"return_documents":true,"other":1})");
  ASSERT_TRUE(call) << call.error().message;
  EXPECT_EQ(call->submission.workload, wire::Workload::kRerank);
  EXPECT_EQ(call->submission.query, "q");
  ASSERT_EQ(call->submission.input->inputs.size(), 2U);
  EXPECT_EQ(call->submission.input->inputs[1].text, "b");
  EXPECT_EQ(call->answer.top_n, 1);
  EXPECT_EQ(call->answer.documents, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(decode_rerank(R"({"query":"q","documents":["a"]})")->answer.documents.empty());
}

TEST(Rerank, RefusesByTheFieldsName) {
  EXPECT_EQ(field(R"({"documents":["a"]})"), "query");
  EXPECT_EQ(field(R"({"query":"q"})"), "documents");
  EXPECT_EQ(field(R"({"query":"q","documents":[]})"), "documents");
  EXPECT_EQ(field(R"({"query":"q","documents":[{"title":"a"}]})"), "documents[0]");
  EXPECT_EQ(field(R"({"query":"q","documents":["a",5]})"), "documents[1]");
  EXPECT_EQ(field(R"({"query":"q","documents":["a"],"top_n":0})"), "top_n");
  EXPECT_EQ(field(R"({"query":"q\u0000","documents":["a"]})"), "query");
  EXPECT_EQ(field(R"({"query":"q","documents":["a","b\u0000"]})"), "input[1]");
}

boost::json::value answer(RerankOptions options, const std::vector<std::string>& scores) {
  RerankRenderer renderer(std::move(options), {});
  std::string out;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    renderer.token({.t = scores[i], .i = static_cast<std::int64_t>(i)}, {}, out);
  }
  renderer.end({.job_id = "j", .tokens_in = 9, .tokens_out = static_cast<std::int64_t>(scores.size())}, {}, out);
  EXPECT_EQ(renderer.head().status, 200);
  return boost::json::parse(out);
}

TEST(Rerank, TheBestComeFirstAndOfEqualsTheEarlier) {
  const auto body = answer({.model = "m"}, {"0.25", "1e-05", "0.75", "0.25"});
  std::vector<std::int64_t> order;
  for (const auto& result : body.at("results").as_array()) order.push_back(result.at("index").as_int64());
  EXPECT_EQ(order, (std::vector<std::int64_t>{2, 0, 3, 1}));
  EXPECT_EQ(body.at("results").at(3).at("relevance_score").as_double(), 1e-05);
  EXPECT_EQ(body.at("model").as_string(), "m");
  EXPECT_EQ(body.at("usage").at("prompt_tokens").as_int64(), 9);
  EXPECT_EQ(body.at("llorch").at("job_id").as_string(), "j");
  EXPECT_FALSE(body.at("results").at(0).as_object().contains("document"));
}

TEST(Rerank, TopNKeepsTheBestWithTheirDocuments) {
  const auto body = answer({.model = "m", .top_n = 1, .documents = {"a\"b", "c"}}, {"0.9", "0.1"});
  ASSERT_EQ(body.at("results").as_array().size(), 1U);
  EXPECT_EQ(body.at("results").at(0).at("document").at("text").as_string(), "a\"b");
}

}  // namespace
}  // namespace llorch::orchestratord::http::llamacpp
