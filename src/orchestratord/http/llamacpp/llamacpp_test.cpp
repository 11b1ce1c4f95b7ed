#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "orchestratord/http/chat/only_model.h"
#include "orchestratord/http/llamacpp/answers.h"
#include "orchestratord/http/llamacpp/errors.h"
#include "orchestratord/http/llamacpp/request.h"
#include "text/test_vocabularies.h"

namespace llorch::orchestratord::http::llamacpp {
namespace {

std::string detail(const base::Error& error, std::string_view name) {
  for (const auto& [key, value] : error.details) {
    if (key == name) return std::get<std::string>(value);
  }
  return "";
}

// Bytes are their own ids.
const text::Tokenizer& bytes() {
  static const text::Tokenizer tokenizer =
      text::Tokenizer::create(text::byte_bpe_data({}, {{"<s>", text::TokenKind::kControl}})).value();
  return tokenizer;
}

std::string tokenized(const std::string& body) {
  const auto request = decode_tokenize(body);
  EXPECT_TRUE(request) << request.error().message;
  return request ? tokenize_body(bytes(), *request).value() : "";
}
base::Result<std::string> detokenized(const std::string& body, std::int64_t bytes_max = 100) {
  return detokenize_body(bytes(), TRY(decode_detokenize(body)).tokens, bytes_max);
}

TEST(LlamaCpp, SlotsOfAllWorkersInARowTheBusyOnesOfEachFirst) {
  EXPECT_EQ(slots_body({}), "[]");
  EXPECT_EQ(slots_body({{.model = "a \"b\"", .total = 2, .busy = 1, .context_tokens = 64},
                        {.model = "c", .total = 1, .busy = 0, .context_tokens = 32}}),
            R"([{"id":0,"model":"a \"b\"","n_ctx":64,"state":1,"is_processing":true},)"
            R"({"id":1,"model":"a \"b\"","n_ctx":64,"state":0,"is_processing":false},)"
            R"({"id":2,"model":"c","n_ctx":32,"state":0,"is_processing":false}])");
}

TEST(LlamaCpp, TokenizesATextAndTheTextOfItsTokens) {
  EXPECT_EQ(tokenized(R"({"content":"ab"})"), R"({"tokens":[97,98]})");
  EXPECT_EQ(tokenized(R"({"content":""})"), R"({"tokens":[]})");
  EXPECT_EQ(tokenized(R"({"content":"a<s>","parse_special":true})"), R"({"tokens":[97,256]})");
  EXPECT_EQ(tokenized(R"({"content":"<s>","parse_special":false})"), R"({"tokens":[60,115,62]})");
  EXPECT_EQ(tokenized("{\"content\":\"\xC3\xA9\",\"with_pieces\":true,\"unknown\":1}"),
            R"({"tokens":[{"id":195,"piece":[195]},{"id":169,"piece":[169]}]})");
  EXPECT_EQ(tokenized(R"({"content":"a<s>","with_pieces":true})"),
            R"({"tokens":[{"id":97,"piece":"a"},{"id":256,"piece":""}]})");
}

TEST(LlamaCpp, DetokenizesWhatItTokenizes) {
  EXPECT_EQ(detokenized(R"({"tokens":[97,98]})"), R"({"content":"ab"})");
  EXPECT_EQ(detokenized(R"({"tokens":[195,169,34]})"), "{\"content\":\"\xC3\xA9\\\"\"}");
  EXPECT_EQ(detokenized(R"({"tokens":[97,195]})"), "{\"content\":\"a\xEF\xBF\xBD\"}") << "half a character";
  for (const char* body : {R"({"tokens":[-1]})", R"({"tokens":[257]})"}) {
    const auto refused = detokenized(body);
    ASSERT_FALSE(refused);
    EXPECT_EQ(detail(refused.error(), "field") + " " + detail(refused.error(), "reason"), "tokens range");
  }
}

// A short list of ids may stand for a text that is larger by far.
TEST(LlamaCpp, DetokenizesNoMoreThanAPromptMayHold) {
  EXPECT_EQ(detokenized(R"({"tokens":[97,98,256]})", 2), R"({"content":"ab"})");
  const auto refused = detokenized(R"({"tokens":[97,98,99]})", 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(detail(refused.error(), "field") + " " + detail(refused.error(), "reason"), "tokens length");
}

TEST(LlamaCpp, AConversationIsOneThatV2WouldTake) {
  const auto request = decode_apply_template(
      R"({"messages":[{"role":"user","content":"a"}],"tools":[],"chat_template_kwargs":{"x":1},"temperature":5})");
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->messages->text, R"([{"role":"user","content":"a"}])");
  EXPECT_EQ(request->chat_template_kwargs->text, R"({"x":1})");
  EXPECT_FALSE(request->model);
  EXPECT_EQ(detail(decode_apply_template(R"({"messages":5})").error(), "field"), "messages");
  EXPECT_EQ(detail(decode_apply_template(R"({"messages":["\u0000"]})").error(), "reason"), "nul");
  EXPECT_EQ(apply_template_body("a\n\"b\""), R"({"prompt":"a\n\"b\""})");
}

TEST(LlamaCpp, TheOnlyModelNeedsNoName) {
  EXPECT_EQ(chat::only_model({{.model_id = "tale"}}, {}), "tale");
  EXPECT_EQ(detail(chat::only_model({}, {}).error(), "field"), "model");
  const auto several = chat::only_model({{.model_id = "a"}, {.model_id = "b"}}, {});
  EXPECT_EQ(detail(several.error(), "reason"), "missing");
  EXPECT_TRUE(several.error().message.ends_with("have a name: a, b")) << several.error().message;
  EXPECT_TRUE(chat::only_model(std::vector<wire::CatalogModel>(17), {}).error().message.ends_with(", ..."));
}

TEST(LlamaCpp, AModelThatIsKnownToDoAnotherThingIsNotMeant) {
  using enum wire::Workload;
  const wire::CatalogModel unknown{.model_id = "unknown"};
  wire::CatalogModel writes{.model_id = "writes"}, embeds{.model_id = "embeds"}, judges{.model_id = "judges"};
  for (wire::CatalogModel* model : {&writes, &embeds, &judges}) model->facts.emplace();
  embeds.facts->embedding_dimensions = 8;
  judges.facts->reranks = true;
  const std::vector<wire::CatalogModel> all = {writes, embeds, judges};
  EXPECT_EQ(chat::only_model(all, kCompletion), "writes");
  EXPECT_EQ(chat::only_model(all, kEmbedding), "embeds");
  EXPECT_EQ(chat::only_model(all, kRerank), "judges");
  EXPECT_TRUE(chat::only_model(all, {}).error().message.ends_with(": writes, embeds, judges"));
  EXPECT_EQ(chat::only_model({unknown, embeds}, kCompletion), "unknown");
  EXPECT_TRUE(chat::only_model({unknown, writes, embeds}, kCompletion).error().message.ends_with(": unknown, writes"));
  EXPECT_EQ(chat::only_model({embeds}, kCompletion), "embeds") << "which says itself that it writes nothing";
  EXPECT_TRUE(chat::only_model({embeds, judges}, kCompletion).error().message.ends_with(": embeds, judges"));
}

TEST(LlamaCpp, ErrorsHaveThatApisShape) {
  const auto response = error_response({base::ErrorCode::kModelNotFound, "none", {}}, base::CorrelationId("c"));
  EXPECT_EQ(response.status, 404);
  const auto error = boost::json::parse(response.body).at("error");
  EXPECT_EQ(error.at("code").as_int64(), 404);
  EXPECT_EQ(error.at("type").as_string(), "not_found_error");
  EXPECT_EQ(error.at("llorch").at("code").as_string(), "MODEL_NOT_FOUND");
}

TEST(LlamaCpp, AFullContextHasAnErrorOfItsOwn) {
  const auto full = base::Error{base::ErrorCode::kInvalidParams, "Ours.", {}}
                        .with("reason", std::string("CONTEXT_TOO_LARGE"))
                        .with("tokens_in", std::int64_t{600})
                        .with("max_tokens", std::int64_t{1})
                        .with("context_tokens", std::int64_t{512});
  const auto error = boost::json::parse(error_response(full, base::CorrelationId("c")).body).at("error");
  EXPECT_EQ(error.at("code").as_int64(), 400);
  EXPECT_EQ(error.at("message").as_string(), "the request exceeds the available context size. Ours.");
  EXPECT_EQ(error.at("type").as_string(), "exceed_context_size_error");
  EXPECT_EQ(error.at("n_prompt_tokens").as_int64(), 600);
  EXPECT_EQ(error.at("n_ctx").as_int64(), 512);
  EXPECT_EQ(error.at("llorch").at("code").as_string(), "INVALID_PARAMS");
}

TEST(LlamaCpp, NullMeansLeftOut) {
  const auto tokenize =
      decode_tokenize(R"({"content":"a","model":null,"add_special":null,"parse_special":null,"with_pieces":null})");
  ASSERT_TRUE(tokenize) << tokenize.error().message;
  EXPECT_TRUE(tokenize->parse_special);
}

}  // namespace
}  // namespace llorch::orchestratord::http::llamacpp
