#include "orchestratord/http/tasks/embedding.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/sha256.h"
#include "orchestratord/http/tasks/prompt.h"
#include "text/test_vocabularies.h"
#include "wire/request_limits.h"

namespace llorch::orchestratord::http::tasks {
namespace {

constexpr std::int32_t kEnd = 256;  // what the tokenizer puts behind a text

models::KnownModel model() {
  text::TokenizerData data = text::byte_bpe_data({}, {{"<end>", text::TokenKind::kControl}});
  data.eos = base::TokenId{kEnd};
  data.add_eos = true;
  models::KnownModel known;
  known.facts.embedding_dimensions = 8;
  known.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  return known;
}

wire::SubmitRequest request(std::vector<wire::TextOrTokens> inputs, std::optional<std::int64_t> dimensions = {}) {
  wire::SubmitRequest out;
  out.workload = wire::Workload::kEmbedding;
  out.input = {.inputs = std::move(inputs)};
  out.dimensions = dimensions;
  return out;
}

std::string field_of(const base::Error& error) {
  EXPECT_EQ(error.code, base::ErrorCode::kInvalidParams);
  for (const auto& [name, value] : error.details)
    if (name == "field") return std::get<std::string>(value);
  return "";
}

TEST(EmbeddingPrompt, HoldsInputsOneBehindTheOther) {
  const auto prompt = embedding_prompt(request({{.text = "ab"}, {.tokens = {7, kEnd}}, {.text = "c"}}, 3), model(), 4);
  ASSERT_TRUE(prompt) << prompt.error().message;
  EXPECT_EQ(prompt->tokens, (std::vector<std::int32_t>{'a', 'b', kEnd, 7, kEnd, 'c', kEnd}));
  EXPECT_EQ(prompt->order.input_tokens, (std::vector<std::int64_t>{3, 2, 2}));
  EXPECT_EQ(prompt->order.dimensions, 3);
  base::Sha256 hash;
  const std::string ids("\x07\0\0\0\0\x01\0\0", 8);
  for (const std::string& input : {std::string("ab"), ids, std::string("c")}) {
    const base::Sha256Digest digest = base::sha256(input);
    hash.update(std::as_bytes(std::span(digest)));
  }
  EXPECT_EQ(prompt->sha256, base::to_hex(hash.digest()));
}

TEST(EmbeddingPrompt, HasAsManyTokensAsAJobMayHave) {
  constexpr std::int64_t kInputs = 4;
  const std::vector<std::int32_t> ids(wire::kInputTokensMax / kInputs, 7);
  std::vector<wire::TextOrTokens> inputs(kInputs, {.tokens = ids});
  EXPECT_TRUE(embedding_prompt(request(inputs), model(), 0));
  inputs.push_back({.tokens = {7}});
  const auto refused = embedding_prompt(request(inputs), model(), 0);
  ASSERT_FALSE(refused);
  EXPECT_EQ(field_of(refused.error()), "input");
  EXPECT_NE(refused.error().message.find("more than 1048576 tokens"), std::string::npos) << refused.error().message;
}

// Bytes, cut by a pattern that looks at all that follows before it takes one letter.
text::TokenizerData searching_data() {
  text::TokenizerData data;
  data.model = "bpe";
  for (unsigned b = 0; b < 256; ++b) data.tokens.push_back(fmt::format("<0x{:02X}>", b));
  data.kinds.assign(data.tokens.size(), text::TokenKind::kByte);
  data.json.byte_fallback = true;
  data.json.pipeline.decoders = {{.kind = text::DecoderKind::kFuse}};
  data.json.pipeline.pre_tokenizers = {{.kind = text::PreTokenizerKind::kSplit, .pattern = {"a+b|a", true}}};
  data.named_chat_templates = {{"rerank", "{query}{document}"}};
  return data;
}

TEST(EmbeddingPrompt, AllTextsOfARequestShareOneBudgetOfSteps) {
  text::TokenizerData data = searching_data();
  models::KnownModel searching;
  searching.facts.embedding_dimensions = 8;
  searching.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(data).value());
  searching.chat = std::make_shared<const text::Chat>(data);
  // Each of 1,000 letters, and by itself well within what one text may cost.
  const auto told = [&](std::size_t count, LongInputs long_inputs, const std::optional<std::string>& query) {
    const std::string letters(query ? 500 : 1000, 'a');
    wire::SubmitRequest wanted = request(std::vector<wire::TextOrTokens>(count, {.text = letters, .tokens = {}}));
    wanted.query = query;
    const auto prompt = embedding_prompt(wanted, searching, long_inputs == LongInputs::kCut ? 900 : 1200, long_inputs);
    return prompt ? std::string() : prompt.error().message;
  };
  const std::optional<std::string> no_query, query(std::string(500, 'a'));
  for (const auto& [long_inputs, with] :
       {std::pair(LongInputs::kRefuse, no_query), {LongInputs::kCut, no_query}, {LongInputs::kRefuse, query}}) {
    EXPECT_EQ(told(1, long_inputs, with), "");
    const std::string refused = told(200, long_inputs, with);
    EXPECT_NE(refused.find("bytes of these texts"), std::string::npos) << refused;
    EXPECT_NE(refused.find("send fewer or shorter texts"), std::string::npos) << refused;
  }
  data.named_chat_templates.clear();
  data.chat_template = "{{ messages[0].content }}{{ messages[1].content }}";
  searching.chat = std::make_shared<const text::Chat>(data);
  EXPECT_EQ(told(1, LongInputs::kRefuse, query), "");
  const std::string refused = told(200, LongInputs::kRefuse, query);
  EXPECT_NE(refused.find("bytes of these texts"), std::string::npos) << refused;
}

TEST(PromptIds, AreTheModelsOwnAndNoImages) {
  models::KnownModel with_images = model();
  with_images.facts.images = wire::ModelImages{.image_token = 7};
  const auto refused = [&](std::vector<std::int32_t> ids) {
    const auto checked = check_ids("prompt", "prompt", ids, with_images);
    return checked ? std::string() : checked.error().message;
  };
  EXPECT_EQ(refused({0, 6, kEnd}), "");
  EXPECT_EQ(refused({0, kEnd + 1}), "prompt has the id 257 at index 1; this model's vocabulary has the ids 0 to 256");
  EXPECT_EQ(refused({-1}), "prompt has the id -1 at index 0; this model's vocabulary has the ids 0 to 256");
  EXPECT_EQ(refused({1, 1, 7}), "prompt has the id 7 at index 2, which stands for an image; send images in messages");
}

TEST(EmbeddingPrompt, RefusesWhatTheModelCannotTake) {
  const auto refused = [](const wire::SubmitRequest& r) { return field_of(embedding_prompt(r, model(), 4).error()); };
  EXPECT_EQ(refused(request({{.text = "abcd"}})), "input");  // five tokens
  EXPECT_EQ(refused(request({{.tokens = {1, 2, 3, 4, 5}}})), "input");
  EXPECT_EQ(refused(request({{.tokens = {257}}})), "input");
  EXPECT_EQ(refused(request({{.tokens = {-1}}})), "input");
  EXPECT_EQ(refused(request({{.text = "a"}}, 9)), "dimensions");
  EXPECT_TRUE(embedding_prompt(request({{.text = "abc"}}, 8), model(), 4));
  EXPECT_TRUE(embedding_prompt(request({{.text = "abcdefgh"}}), model(), 0));  // its context is not known
}

TEST(EmbeddingPrompt, CutsLongInputsWhereThatIsWanted) {
  const wire::SubmitRequest texts =
      request({{.text = "abcdef"}, {.text = "abc"}, {.tokens = {1, 2, 3, 4, 5}}, {.text = "x"}});
  const auto cut = embedding_prompt(texts, model(), 4, LongInputs::kCut);
  ASSERT_TRUE(cut) << cut.error().message;
  EXPECT_EQ(cut->tokens, (std::vector<std::int32_t>{'a', 'b', 'c', kEnd, 'a', 'b', 'c', kEnd, 1, 2, 3, 4, 'x', kEnd}));
  EXPECT_EQ(cut->order.input_tokens, (std::vector<std::int64_t>{4, 4, 4, 2}));
  EXPECT_EQ(cut->cut_inputs, (std::vector<std::int64_t>{0, 2}));
  const auto ids = embedding_prompt(
      request({{.tokens = {'a', 'b', 'c', kEnd}}, {.text = "abc"}, {.tokens = {1, 2, 3, 4}}, {.text = "x"}}), model(),
      4);
  EXPECT_EQ(cut->sha256, ids->sha256) << "the digest is of what the model was given";
  EXPECT_TRUE(embedding_prompt(request({{.text = "abcdefgh"}}), model(), 0, LongInputs::kCut)->cut_inputs.empty());
}

TEST(Workload, FollowsFromTheModel) {
  const wire::ModelFacts embeds = model().facts, writes;
  wire::SubmitRequest completion;
  completion.prompt = {.text = "a"};
  EXPECT_TRUE(check_workload(request({{.text = "a"}}), embeds));
  EXPECT_TRUE(check_workload(completion, writes));
  EXPECT_EQ(field_of(check_workload(request({{.text = "a"}}), writes).error()), "workload");
  EXPECT_EQ(field_of(check_workload(completion, embeds).error()), "workload");
}

// Bytes; [CLS] and [SEP] around a text, [SEP] between two, of which the second is of type 1.
models::KnownModel judge(std::string rerank_template = "") {
  text::TokenizerData data =
      text::byte_bpe_data({}, {{"[CLS]", text::TokenKind::kControl}, {"[SEP]", text::TokenKind::kControl}});
  if (!rerank_template.empty()) data.named_chat_templates = {{"rerank", std::move(rerank_template)}};
  models::KnownModel known;
  known.facts.reranks = true;
  known.chat = std::make_shared<const text::Chat>(data);
  known.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  return known;
}

wire::SubmitRequest rerank(std::string query, std::vector<wire::TextOrTokens> documents) {
  wire::SubmitRequest out;
  out.workload = wire::Workload::kRerank;
  out.query = std::move(query);
  out.input = {.inputs = std::move(documents)};
  return out;
}

TEST(RerankPrompt, AllPairsHaveTheStepsOfOneTemplate) {
  text::TokenizerData data = text::byte_bpe_data({});
  models::KnownModel known;
  known.facts.reranks = true;
  known.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(data).value());
  const auto told = [&](std::size_t documents, const std::string& chat_template) {
    data.chat_template = chat_template;
    known.chat = std::make_shared<const text::Chat>(data);
    const auto prompt = embedding_prompt(
        rerank("query", std::vector<wire::TextOrTokens>(documents, {.text = std::string(200, 'd'), .tokens = {}})),
        known, 0);
    return prompt ? std::string() : prompt.error().message;
  };
  const std::string slow =
      "{% for i in range(400000) %}{% set x = i %}{% endfor %}{{ messages[0].content }}{{ messages[1].content }}";
  EXPECT_EQ(told(1, slow), "");
  EXPECT_EQ(told(20, slow),
            "the chat template needs more than the 5000000 steps it may use; send fewer or shorter messages");
  const std::string usual =
      "{% for m in messages %}{% if m.role == 'query' %}<|im_start|>user\n<Query>: {{ m.content | trim }}"
      "{% elif m.role == 'document' %}\n<Document>: {{ m.content | trim }}<|im_end|>{% else %}"
      "{{ raise_exception('unknown role ' ~ m.role) }}{% endif %}{% endfor %}"
      "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
  EXPECT_EQ(told(2048, usual), "");
}

TEST(RerankPrompt, IsWhatTheModelsTemplateMakesOfThePair) {
  const auto prompt = embedding_prompt(rerank("q", {{.text = "ab"}, {.text = "[SEP]{query}"}}),
                                       judge("[CLS]{query}?{document}[SEP]"), 0);
  ASSERT_TRUE(prompt) << prompt.error().message;
  std::vector<std::int32_t> expected{256, 'q', '?', 'a', 'b', 257, 256, 'q', '?'};
  for (const char c : std::string("[SEP]{query}")) expected.push_back(c);  // what a user writes is text
  expected.push_back(257);
  EXPECT_EQ(prompt->tokens, expected);
  EXPECT_TRUE(prompt->order.scores.value_or(false));
  EXPECT_EQ(prompt->order.input_tokens, (std::vector<std::int64_t>{6, 16}));
  EXPECT_NE(prompt->sha256,
            embedding_prompt(rerank("r", {{.text = "ab"}, {.text = "[SEP]{query}"}}), judge("x"), 0)->sha256);
}

TEST(RerankPrompt, IsRefusedWhereNothingTellsPairs) {
  EXPECT_EQ(field_of(embedding_prompt(rerank("q", {{.text = "a"}}), judge(), 0).error()), "query");
  EXPECT_EQ(
      field_of(embedding_prompt(rerank("q", {{.text = "a"}, {.text = "abc"}}), judge("{query}{document}"), 3).error()),
      "input")
      << "the second pair has four tokens";
}

TEST(Workload, OfAModelOfScoresIsReranking) {
  const wire::ModelFacts judges = judge().facts, embeds = model().facts, writes;
  const wire::SubmitRequest wanted = rerank("q", {{.text = "a"}});
  EXPECT_TRUE(check_workload(wanted, judges));
  EXPECT_EQ(field_of(check_workload(wanted, embeds).error()), "workload");
  EXPECT_EQ(field_of(check_workload(wanted, writes).error()), "workload");
  EXPECT_EQ(field_of(check_workload(request({{.text = "a"}}), judges).error()), "workload");
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
