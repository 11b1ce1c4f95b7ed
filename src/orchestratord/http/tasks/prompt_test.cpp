#include "orchestratord/http/tasks/prompt.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "orchestratord/http/tasks/constraint.h"
#include "orchestratord/http/tasks/engine_text.h"
#include "text/test_vocabularies.h"
#include "wire/json.h"

namespace llorch::orchestratord::http::tasks {
namespace {

// Bytes are their own ids.
models::KnownModel model(std::initializer_list<std::pair<std::string, text::TokenKind>> special) {
  text::TokenizerData data = text::byte_bpe_data({}, special);
  models::KnownModel known;
  if (auto infill = text::Infill::of(data)) known.infill = std::make_shared<const text::Infill>(*std::move(infill));
  known.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  return known;
}
models::KnownModel coder() {
  constexpr auto kControl = text::TokenKind::kControl;
  return model({{"<fim_prefix>", kControl}, {"<fim_middle>", kControl}, {"<fim_suffix>", kControl}});
}

std::string detail(const base::Error& error, std::string_view wanted) {
  for (const auto& [name, value] : error.details) {
    if (name == wanted) return std::get<std::string>(value);
  }
  return "";
}
std::string refusal(std::string_view body) {
  const auto request = wire::decode<wire::SubmitRequest>(body, wire::UnknownKeys::kRefuse);
  return request ? "" : detail(request.error(), "field") + " " + detail(request.error(), "reason");
}

wire::SubmitRequest request(std::string prompt, std::optional<std::string> suffix) {
  wire::SubmitRequest out;
  out.model = "m";
  out.prompt = {.text = std::move(prompt)};
  out.suffix = std::move(suffix);
  return out;
}

TEST(WholePrompt, SpellsControlTokensWhereItsClientSaysSo) {
  using Ids = std::vector<std::uint32_t>;
  const auto encoded = [](const std::string& prompt, const models::KnownModel& of, bool parse_special) {
    auto asked = request(prompt, {});
    asked.parse_special = parse_special;
    return prepare({std::move(asked), {}}, {}, of, {}).value().prompt;
  };
  const auto marked = encoded("<fim_prefix>a", coder(), true);
  EXPECT_EQ(text::numbers(marked.tokens), (Ids{256, 'a'}));
  EXPECT_EQ(marked.text, "") << "no text says it all";
  EXPECT_EQ(encoded("<fim_prefix>a", coder(), false).tokens.size(), 13u);
  EXPECT_EQ(encoded("ab", coder(), true).text, "ab");
  models::KnownModel sees = coder();
  sees.facts.images = wire::ModelImages{.image_token = 256};
  auto image = request("<fim_prefix>a", {});
  image.parse_special = true;
  EXPECT_EQ(detail(prepare({std::move(image), {}}, {}, sees, {}).error(), "reason"), "image_token");

  text::TokenizerData data = text::byte_bpe_data({}, {{"<s>", text::TokenKind::kControl}});
  data.bos = text::TokenId{256};
  data.add_bos = true;
  models::KnownModel begins;
  begins.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  EXPECT_EQ(text::numbers(encoded("<s>a", begins, true).tokens), (Ids{256, 'a'})) << "it begins once";
  EXPECT_EQ(text::numbers(encoded("a", begins, true).tokens), (Ids{256, 'a'}));
  EXPECT_EQ(encoded("a", begins, true).text, "a");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":"p","suffix":"s","parse_special":true})"), "parse_special combination");
  EXPECT_EQ(refusal(R"({"model":"m","messages":[],"parse_special":false})"), "parse_special combination");
}

TEST(InfillPrompt, IsTheModelsTokensAroundTheTexts) {
  auto wanted = request("a", "b");
  wanted.extra_files.emplace().push_back({.name = "f", .text = "x"});
  const auto prepared = prepare({wanted, {}}, {}, coder(), {});
  ASSERT_TRUE(prepared) << prepared.error().message;
  const auto ids = text::numbers(prepared->prompt.tokens);
  EXPECT_EQ(std::vector(ids.end() - 5, ids.end()), (std::vector<std::uint32_t>{256, 'a', 258, 'b', 257}));
  EXPECT_EQ(ids[ids.size() - 6], 'x');
  EXPECT_EQ(prepared->prompt.text, "") << "no text says it all";
  EXPECT_TRUE(prepare({request("", ""), {}}, {}, coder(), {}));
}

TEST(InfillPrompt, AModelWithoutSuchTokensRefusesIt) {
  const auto refused = prepare({request("secret", "b"), {}}, {}, model({}), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_EQ(detail(refused.error(), "field"), "suffix");
  EXPECT_EQ(detail(refused.error(), "reason"), "no_infill");
  EXPECT_EQ(refused.error().message.find("secret"), std::string::npos);
  auto of_engine = request("a", "b");
  EXPECT_EQ(detail(fit_to_engine(of_engine, {}, {}, {}).error(), "field"), "suffix");
}

TEST(EngineText, GoesWithoutAnApisOwnValuesThatItsEngineDoesNotKnow) {
  wire::SubmitRequest wanted;
  wanted.prompt = {.text = "a"};
  wanted.sampling.top_k = 40;
  wanted.sampling.top_p = 0.9;
  wanted.sampling.penalty_last_n = 64;
  wire::ModelFacts facts;
  facts.parameters = {"top_p"};
  const std::vector<std::string_view> defaults{"top_k", "top_p", "penalty_last_n"};
  ASSERT_TRUE(fit_to_engine(wanted, {}, facts, defaults));
  EXPECT_EQ(wanted.sampling.top_k, 0);
  EXPECT_EQ(wanted.sampling.top_p, 0.9);
  EXPECT_EQ(wanted.sampling.penalty_last_n, 0);
  wanted.sampling.top_k = 40;
  EXPECT_EQ(detail(fit_to_engine(wanted, {}, facts, {}).error(), "field"), "top_k") << "the client sent it";
}

TEST(InfillPrompt, GoesWithAPromptOfText) {
  EXPECT_EQ(refusal(R"({"model":"m","prompt":"","suffix":""})"), "");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":""})"), "prompt length");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":[1],"suffix":"s"})"), "suffix combination");
  EXPECT_EQ(refusal(R"({"model":"m","messages":[],"suffix":"s"})"), "suffix combination");
  EXPECT_EQ(refusal(R"({"model":"m","workload":"embedding","input":"a","suffix":"s"})"), "suffix combination");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":"p","extra_files":[]})"), "extra_files combination");
  EXPECT_EQ(refusal(R"({"model":"m","prompt":"p","suffix":"s","extra_files":[{"name":"a"}]})"),
            "extra_files[0].text missing");
}

TEST(InfillPrompt, AllOfItsTextsCountAgainstTheLimit) {
  config::LimitsConfig limits;
  limits.prompt_bytes_max = 4;
  auto wanted = request("a", "b");
  wanted.extra_files.emplace().push_back({.name = "f", .text = "x"});
  EXPECT_EQ(bytes_of(wanted), 4u);
  EXPECT_TRUE(take_inputs(wanted, limits));
  wanted.extra_files->front().text = "xy";
  const auto refused = take_inputs(wanted, limits);
  EXPECT_EQ(detail(refused.error(), "reason"), "CONTEXT_TOO_LARGE");
  EXPECT_EQ(detail(refused.error(), "field"), "prompt");
  EXPECT_NE(refused.error().message.find("prompt is too long: 5 bytes > 4 maximum"), std::string::npos);
}

TEST(TakeInputs, EachInputIsBoundedByItself) {
  config::LimitsConfig limits;
  limits.prompt_bytes_max = 4;
  limits.request_bytes_max = 10;
  const auto refused = [&](std::vector<std::string> texts, std::optional<std::string> query) {
    wire::SubmitRequest wanted;
    wanted.input.emplace();
    for (std::string& text : texts) wanted.input->inputs.push_back({.text = std::move(text)});
    wanted.query = std::move(query);
    const auto taken = take_inputs(std::move(wanted), limits);
    if (taken) return std::string();
    EXPECT_EQ(detail(taken.error(), "field") + " " + detail(taken.error(), "reason"), "input CONTEXT_TOO_LARGE");
    return taken.error().message;
  };
  EXPECT_EQ(refused({"abcd", "abcd"}, {}), "");
  EXPECT_EQ(refused({"a", "abcde"}, {}), "input 1 is too long: 5 bytes > 4 maximum (limits.prompt_bytes_max)");
  EXPECT_EQ(refused({"abcd", "abcd", "abcd"}, {}),
            "the inputs are too long: 12 bytes > 10 maximum (limits.request_bytes_max)");
  EXPECT_EQ(refused({"bcd", "bcd"}, "a"), "");
  EXPECT_EQ(refused({"bcd"}, "aa"),
            "input 0 with the query is too long: 5 bytes > 4 maximum (limits.prompt_bytes_max)");
  EXPECT_EQ(refused({"bcd", "bcd", "bcd"}, "a"),
            "the documents, each with the query, are too long: 12 bytes > 10 maximum (limits.request_bytes_max)");
}

TEST(TakeInputs, APromptAsLongAsARequestIsTaken) {
  const config::LimitsConfig limits;
  EXPECT_TRUE(take_inputs(request(std::string(static_cast<std::size_t>(limits.request_bytes_max), 'a'), {}), limits));
}

TEST(TakeInputs, AnOutputAboveTheLimitIsRefusedOrCutLater) {
  config::LimitsConfig limits;
  limits.max_tokens = 8;
  auto wanted = request("a", {});
  wanted.max_tokens = 9;
  EXPECT_EQ(detail(take_inputs(wanted, limits).error(), "field"), "max_tokens");
  const auto taken = take_inputs(wanted, limits, LongOutputs::kCut);
  ASSERT_TRUE(taken) << taken.error().message;
  EXPECT_EQ(taken->request.max_tokens, 9) << "what the client sent makes two submissions the same one";
}

TEST(EngineText, AnOutputThatNoPromptLeavesIsCut) {
  auto wanted = request("abcd", {});
  wire::ModelFacts facts;
  facts.context_length = 1000;
  const auto tokens = [&](std::int64_t max_tokens, LongOutputs long_outputs) {
    wanted.max_tokens = max_tokens;
    return engine_max_tokens(wanted, facts, 800, long_outputs);
  };
  EXPECT_EQ(tokens(700, LongOutputs::kCut), 700);
  EXPECT_EQ(tokens(999, LongOutputs::kCut), 800) << "its engine counts the prompt";
  EXPECT_EQ(tokens(32000, LongOutputs::kCut), 800);
  EXPECT_EQ(tokens(700, LongOutputs::kRefuse), 700);
  facts.context_length = 500;
  EXPECT_EQ(tokens(32000, LongOutputs::kCut), 500 - 2) << "a token has two bytes";
  EXPECT_EQ(tokens(600, LongOutputs::kRefuse), 600) << "its engine refuses it";
  facts.context_length = 0;
  EXPECT_EQ(tokens(32000, LongOutputs::kCut), 800);
}

// Its template ends every prompt within a thought.
models::KnownModel thinker() {
  text::TokenizerData data = text::byte_bpe_data({}, {});
  data.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}<think>\n";
  models::KnownModel known;
  known.chat = std::make_shared<const text::Chat>(data);
  known.format = known.format_with_tools =
      std::make_shared<const models::ChatFormat>(models::ChatFormat::of(data.chat_template, {}));
  known.tokenizer = std::make_shared<const text::Tokenizer>(text::Tokenizer::create(std::move(data)).value());
  return known;
}
base::Result<Prepared> chat_prepared(std::string_view members) {
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":"a"}])" + std::string(members) + "}";
  const auto request = wire::decode<wire::SubmitRequest>(body, wire::UnknownKeys::kRefuse);
  EXPECT_TRUE(request) << body << " " << request.error().message;
  return prepare({*request, {}}, chat::ToolUse{}, thinker(), {});
}
std::shared_ptr<const chat::Reading> reading_of(std::string_view members) {
  auto prepared = chat_prepared(members);
  EXPECT_TRUE(prepared) << prepared.error().message;
  return prepared->reading;
}

TEST(ChatTurn, AnOutputThatIsConstrainedFromItsFirstTokenIsNoThought) {
  ASSERT_NE(reading_of(""), nullptr);
  EXPECT_TRUE(reading_of("")->in_thought);
  constexpr std::string_view kTools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  EXPECT_EQ(reading_of(R"(,"json_schema":{"type":"object"})"), nullptr) << "all of it is content";
  EXPECT_EQ(reading_of(R"(,"regex":"[0-9]+")"), nullptr);
  EXPECT_EQ(reading_of(R"(,"regex":"[0-9]+")" + std::string(kTools)), nullptr);
  // A grammar says itself whether the thought ends.
  const auto plain = reading_of(R"(,"grammar":"root ::= [0-9]+")");
  ASSERT_NE(plain, nullptr);
  EXPECT_FALSE(plain->in_thought);
  EXPECT_TRUE(reading_of(R"(,"grammar":"root ::= [a-z]* \"</think>\" [0-9]+")")->in_thought);
}

// Of both that a request offers, tools and the form of an answer, the model chooses.
TEST(ChatTurn, ACallMayStandInsteadOfTheJsonThatIsAskedFor) {
  constexpr std::string_view kAsked =
      R"(,"json_schema":{"type":"object","properties":{"a":{"type":"integer"}}},"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto prepared = chat_prepared(kAsked);
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_FALSE(prepared->request.sampling.json_schema);
  ASSERT_TRUE(prepared->request.sampling.grammar);
  EXPECT_NE(prepared->request.sampling.grammar->find(R"(| "" %json {"type":"object","properties":{"a":)"),
            std::string::npos)
      << *prepared->request.sampling.grammar;
  EXPECT_TRUE(check_constraint(prepared->request.sampling, thinker()));
  ASSERT_NE(prepared->reading, nullptr);
  EXPECT_TRUE(prepared->reading->in_thought) << "it ends before either";
  EXPECT_NE(prepared->reading->tools.find("f"), nullptr);
  EXPECT_TRUE(prepared->reading->calls_or_answer);
}

TEST(ChatTurn, ASchemaThatNothingCanBeHeldToIsRefusedByItsName) {
  const auto refused =
      chat_prepared(R"(,"json_schema":{"not":{}},"tools":[{"type":"function","function":{"name":"f"}}])");
  ASSERT_FALSE(refused);
  EXPECT_EQ(detail(refused.error(), "field"), "json_schema");
}

// A call that nobody demands may break its schema.
TEST(ChatTurn, ToolsWhoseSchemasNoGrammarKeepsAreCalledWithAnyArguments) {
  const auto prepared = chat_prepared(
      R"(,"json_schema":{"type":"object"},"tools":[
        {"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"p":{"not":{}}}}}},
        {"type":"function","function":{"name":"g","parameters":{"type":"object","properties":{"kept":{}}}}}])");
  ASSERT_TRUE(prepared) << prepared.error().message;
  const std::string& grammar = *prepared->request.sampling.grammar;
  EXPECT_EQ(grammar.find("\"not\""), std::string::npos) << grammar;
  EXPECT_EQ(grammar.find("\"kept\""), std::string::npos) << "which tool it was is not looked for: " << grammar;
  EXPECT_NE(grammar.find("\"f\""), std::string::npos) << grammar;
  EXPECT_NE(grammar.find("\"g\""), std::string::npos) << grammar;
  EXPECT_TRUE(check_constraint(prepared->request.sampling, thinker()));
}

std::string tool(std::string_view name, std::string_view parameters) {
  return fmt::format(R"({{"type":"function","function":{{"name":"{}","parameters":{}}}}})", name, parameters);
}

// One that no grammar keeps, and others that fit one by one and not together.
TEST(ChatTurn, ToolsThatFitNoGrammarTogetherAreCalledWithAnyArguments) {
  std::string tools = tool("f", R"({"type":"object","properties":{"p":{"not":{}}}})");
  for (int i = 0; i < 8; ++i) {
    std::string properties;
    for (int p = 0; p < 1500; ++p) {
      properties += fmt::format(R"({}"p{}":{{"const":{}}})", p == 0 ? "" : ",", p, 1500 * i + p);
    }
    tools += "," + tool(fmt::format("g{}", i), R"({"type":"object","properties":{)" + properties + "}}");
  }
  const auto prepared = chat_prepared(R"(,"json_schema":{"type":"object"},"tools":[)" + tools + "]");
  ASSERT_TRUE(prepared) << prepared.error().message;
  EXPECT_EQ(prepared->request.sampling.grammar->find("\"p1\""), std::string::npos);
  EXPECT_TRUE(check_constraint(prepared->request.sampling, thinker()));
}

}  // namespace
}  // namespace llorch::orchestratord::http::tasks
