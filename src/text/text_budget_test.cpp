#include "text/text_budget.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "text/normalizer/normalizer.h"
#include "text/pre_tokenizer/pre_tokenizer.h"
#include "text/pre_tokenizer/regex.h"
#include "text/test_vocabularies.h"
#include "text/tokenizer.h"
#include "text/tokenizer_models/spelling.h"
#include "text/tokenizer_models/spm.h"
#include "text/tokenizer_models/token_trie.h"

namespace llorch::text {
namespace {

using base::ErrorCode;
using pre_tokenizer::Regex;

constexpr std::size_t kPromptBytes = 400'000;
const std::string kLong(16'000, 'a');  // what a step may put into a text
const std::string kMark = "\xE2\x96\x81";
constexpr const char* kManyCharacters = "\xEF\xB7\xBA";  // U+FDFA: 33 bytes in NFKC and NFKD, more than any other

std::string repeated(std::string_view unit, std::size_t bytes) {
  std::string out;
  while (out.size() < bytes) out += unit;
  return out;
}

// A BPE of a tokenizer.json over bytes, "a" and, found as spelled, "|".
TokenizerData json_data() {
  TokenizerData data;
  data.model = "bpe";
  constexpr const char* kHex = "0123456789ABCDEF";
  for (unsigned b = 0; b < 256; ++b) data.tokens.push_back(std::string("<0x") + kHex[b / 16] + kHex[b % 16] + ">");
  data.kinds.assign(data.tokens.size(), TokenKind::kByte);
  data.tokens.insert(data.tokens.end(), {"a", "|"});
  data.kinds.insert(data.kinds.end(), {TokenKind::kNormal, TokenKind::kUserDefined});
  data.json.byte_fallback = true;
  data.json.pipeline.decoders = {{.kind = DecoderKind::kFuse}};
  return data;
}

NormalizerStep replace(std::string what, std::string by, bool is_regex = false) {
  return {.kind = NormalizerKind::kReplace, .pattern = {std::move(what), is_regex}, .text = std::move(by)};
}

// The code with which a tokenizer refuses `text`; nullopt: it takes it.
std::optional<ErrorCode> refusal(const TokenizerData& data, std::string_view text) {
  const auto ids = Tokenizer::create(data).value().encode(text);
  if (ids) return std::nullopt;
  EXPECT_NE(ids.error().message.find("this text"), std::string::npos) << ids.error().message;
  return ids.error().code;
}

std::optional<ErrorCode> refusal(const Pipeline& steps, std::string_view text) {
  TokenizerData data = json_data();
  data.json.pipeline.normalizers = steps.normalizers;
  data.json.pipeline.pre_tokenizers = steps.pre_tokenizers;
  return refusal(data, text);
}

std::optional<ErrorCode> load_refusal(const TokenizerData& data) {
  const auto made = Tokenizer::create(data);
  if (made) return std::nullopt;
  EXPECT_NE(made.error().message.find("its own tokens"), std::string::npos) << made.error().message;
  return made.error().code;
}

TEST(TextBudget, NormalizersThatMultiplyAnAddedTokenMakeNoTokenizer) {
  for (const TokenKind kind : {TokenKind::kUserDefined, TokenKind::kControl}) {
    TokenizerData data = json_data();
    data.tokens.emplace_back("aa");
    data.kinds.push_back(kind);
    data.json.added = {{.id = TokenId{258}, .normalized = true}};
    data.json.pipeline.normalizers = {replace("a", kLong)};
    EXPECT_EQ(load_refusal(data), std::nullopt) << "that is not too much";
    data.json.pipeline.normalizers.push_back(replace("a", kLong));
    EXPECT_EQ(load_refusal(data), ErrorCode::kUnsupportedTokenizer);
  }
}

TEST(TextBudget, DecodersThatMultiplyTokensMakeNoTokenizer) {
  const DecoderStep longer{.kind = DecoderKind::kReplace, .pattern = {"a", false}, .text = kLong};
  TokenizerData data = json_data();
  data.json.pipeline.decoders = {longer};
  EXPECT_EQ(load_refusal(data), std::nullopt);
  data.json.pipeline.decoders = {longer, longer};
  EXPECT_EQ(load_refusal(data), ErrorCode::kUnsupportedTokenizer);
  TokenizerData many = json_data();
  many.json.pipeline.decoders = {longer};
  for (int i = 0; i < 20; ++i) {
    many.tokens.push_back("a" + std::to_string(i));
    many.kinds.push_back(TokenKind::kNormal);
  }
  EXPECT_EQ(load_refusal(many), ErrorCode::kUnsupportedTokenizer) << "all tokens share one budget";
}

TEST(TextBudget, StepsThatMultiplyATextRefuseIt) {
  const auto metaspace = [](PrependScheme prepend) {
    return PreTokenizerStep{
        .kind = PreTokenizerKind::kMetaspace, .replacement = kLong, .prepend = prepend, .split = false};
  };
  EXPECT_EQ(refusal({.normalizers = {replace("a", kLong)}}, "a"), std::nullopt);
  EXPECT_EQ(refusal({.normalizers = {replace("a", kLong)}}, "aaaaa"), ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.normalizers = {replace("a", kLong), replace("a", kLong)}}, "a"), ErrorCode::kInvalidParams);
  const NormalizerStep prepend{.kind = NormalizerKind::kPrepend, .text = kLong};
  EXPECT_EQ(refusal({.normalizers = {prepend}}, "x"), std::nullopt);
  EXPECT_EQ(refusal({.normalizers = {prepend}}, "x|x|x|x|x"), ErrorCode::kInvalidParams) << "all stretches share it";
  EXPECT_EQ(refusal({.normalizers = std::vector<NormalizerStep>(5, prepend)}, "x"), ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.pre_tokenizers = {metaspace(PrependScheme::kNever)}}, "x "), std::nullopt);
  EXPECT_EQ(refusal({.pre_tokenizers = {metaspace(PrependScheme::kNever)}}, "     "), ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.pre_tokenizers = {metaspace(PrependScheme::kAlways)}}, "x|x|x|x|x"), ErrorCode::kInvalidParams);
}

// After what is left by a step before.
TEST(TextBudget, GrowthOfCharactersCounts) {
  struct Case {
    NormalizerKind kind;
    std::string character;
  };
  for (const auto& [kind, character] : {Case{NormalizerKind::kNfkc, kManyCharacters},
                                        {NormalizerKind::kNfkd, kManyCharacters},
                                        {NormalizerKind::kNfd, "\xCE\x90"},
                                        {NormalizerKind::kLowercase, "\xC8\xBA"},
                                        {NormalizerKind::kSpaceCjk, "\xE4\xB8\xAD"}}) {
    const NormalizerStep fills = replace("a", repeated(character, kLong.size()));
    EXPECT_EQ(refusal({.normalizers = {fills}}, "aaaa"), std::nullopt) << character;
    EXPECT_EQ(refusal({.normalizers = {fills, {.kind = kind}}}, "aaaa"), ErrorCode::kInvalidParams) << character;
  }
}

TEST(TextBudget, WhatPublishedStepsMakeOfAnyTextPasses) {
  using N = NormalizerKind;
  const NormalizerStep prepend{.kind = N::kPrepend, .text = kMark};
  const PreTokenizerStep split{.kind = PreTokenizerKind::kWhitespaceSplit};
  const PreTokenizerStep metaspace{
      .kind = PreTokenizerKind::kMetaspace, .replacement = kMark, .prepend = PrependScheme::kAlways};
  const Pipeline pipelines[] = {
      {.normalizers = {prepend, replace(" ", kMark)}},
      {.normalizers = {{.kind = N::kNfkc}, prepend, replace(" ", kMark)}},
      {.normalizers = {{.kind = N::kNfkd}, {.kind = N::kLowercase}}, .pre_tokenizers = {split, metaspace}},
      {.normalizers = {{.kind = N::kClean}, {.kind = N::kSpaceCjk}, {.kind = N::kNfd}, {.kind = N::kLowercase}},
       .pre_tokenizers = {split}},
  };
  for (const Pipeline& pipeline : pipelines) {
    for (const char* unit : {"a", " ", "a ", "x|", "\xE4\xB8\xAD", "\xC4\xB0", kManyCharacters}) {
      EXPECT_EQ(refusal(pipeline, repeated(unit, kPromptBytes / 4)), std::nullopt) << unit;
    }
  }
}

PreTokenizerStep split_by(std::string regex) {
  return {.kind = PreTokenizerKind::kSplit, .pattern = {std::move(regex), true}};
}

const std::string kQuadratic = "a+b|a";  // looks at all that follows before it takes one letter

TEST(TextBudget, SearchesOfATextAreCountedTogether) {
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by(kQuadratic)}}, std::string(1'000, 'a')), std::nullopt);
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by(kQuadratic)}}, std::string(20'000, 'a')), ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by(kQuadratic)}}, repeated(std::string(1'000, 'a') + "|", 20'000)),
            ErrorCode::kInvalidParams)
      << "all stretches share it";
  EXPECT_EQ(refusal({.normalizers = {replace(kQuadratic, "x", true)}}, std::string(20'000, 'a')),
            ErrorCode::kInvalidParams);
  // Nothing is tried twice at one place, but all alternatives are long.
  std::string alternatives = "a";
  for (int i = 0; i < 100; ++i) alternatives.insert(0, "a++[0-9]|");
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by(alternatives)}}, std::string(2'000, 'a')), ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by("(?:a|aa)+$|c")}}, std::string(60, 'a') + "b"),
            ErrorCode::kInvalidParams);
  EXPECT_EQ(refusal({.pre_tokenizers = {split_by("(?:a|x)+")}}, std::string(kPromptBytes, 'a')),
            ErrorCode::kInvalidParams)
      << "a search that needs too much memory";
}

TEST(TextBudget, TextsOfARequestShareWhatIsFree) {
  TokenizerData data = json_data();
  data.json.pipeline.pre_tokenizers = {split_by(kQuadratic)};
  const Tokenizer quadratic = Tokenizer::create(data).value();
  TextBudget budget = TextBudget::of_texts();
  const std::string text(1'000, 'a');
  const TextRun run{.text = text, .origin = TextOrigin::kData};
  ASSERT_TRUE(quadratic.encode(text, {.budget = &budget}));
  int taken = 1;
  while (taken < 100 && quadratic.encode(text, {.budget = &budget})) ++taken;
  EXPECT_LT(taken, 100) << "each of them is nothing by itself";
  EXPECT_TRUE(quadratic.encode(text));
  TextBudget of_runs = TextBudget::of_texts();
  for (taken = 0; taken < 100 && quadratic.encode(std::span(&run, 1), false, &of_runs); ++taken) continue;
  EXPECT_LT(taken, 100);
  // Texts that cost what texts cost are as many as they like.
  data.json.pipeline.pre_tokenizers = {split_by("a++|b")};
  const Tokenizer linear = Tokenizer::create(data).value();
  TextBudget of_many = TextBudget::of_texts();
  for (int i = 0; i < 2'000; ++i) {
    const auto ids = linear.encode(text, {.budget = &of_many});
    ASSERT_TRUE(ids) << i << " " << ids.error().message;
  }
}

// Steps that search for nothing, each of which goes over all that the one before has made.
TEST(TextBudget, StepsOfThePipelineAreCounted) {
  constexpr std::size_t kSteps = 64;
  const std::string text(10'000, '1');
  const std::vector<NormalizerStep> forms(kSteps, NormalizerStep{.kind = NormalizerKind::kNfkc});
  const std::vector<PreTokenizerStep> digits(
      kSteps, PreTokenizerStep{.kind = PreTokenizerKind::kDigits, .individual_digits = true});
  const auto taken = [&](const Pipeline& steps) {
    TokenizerData data = json_data();
    data.json.pipeline.normalizers = steps.normalizers;
    data.json.pipeline.pre_tokenizers = steps.pre_tokenizers;
    TextBudget budget = TextBudget::of_texts();
    EXPECT_TRUE(Tokenizer::create(data).value().encode(text, {.budget = &budget}));
    return TextBudget::of_text(text.size()).steps_left() - budget.steps_left();
  };
  EXPECT_GE(taken({.normalizers = forms}), kSteps * 2 * text.size());
  EXPECT_GE(taken({.pre_tokenizers = digits}), (kSteps - 1) * 4 * text.size());
  EXPECT_GE(taken({.normalizers = std::vector<NormalizerStep>(kSteps, replace("1", "1"))}), kSteps * text.size());
  const std::uint64_t without = taken({});
  for (const bool is_regex : {false, true}) {  // a regular expression that has a scanner
    const PreTokenizerStep cut{.kind = PreTokenizerKind::kSplit, .pattern = {is_regex ? R"(\p{N})" : "1", is_regex}};
    EXPECT_GE(taken({.pre_tokenizers = {cut}}), without + text.size()) << is_regex;
  }
  const auto normal_forms = normalizer::Normalizer::create(forms);
  const auto cuts = pre_tokenizer::PreTokenizer::create(digits);
  ASSERT_TRUE(normal_forms && cuts);
  TextBudget few = TextBudget::of_text(text.size()), none = few;
  ASSERT_TRUE(few.spend_steps(few.steps_left() - text.size()) && none.spend_steps(none.steps_left() - text.size()));
  EXPECT_EQ(normal_forms->apply(text, few).error().code, ErrorCode::kInvalidParams);
  EXPECT_EQ(cuts->split(text, true, none).error().code, ErrorCode::kInvalidParams);

  TokenizerData words = json_data();
  words.json.added = {{.id = TokenId{257}, .single_word = true}};
  TextBudget budget = TextBudget::of_texts();
  ASSERT_TRUE(Tokenizer::create(words).value().encode(std::string(100, '|'), {.budget = &budget}));
  EXPECT_GE(TextBudget::of_text(100).steps_left() - budget.steps_left(), 100u * 32);
}

// The normalizer makes 16 bytes of each, in every one of which the decoder's steps find a match.
TEST(TextBudget, MatchesOfTheDecoderAreCounted) {
  TokenizerData data = json_data();
  data.tokens.emplace_back(10'000, 'a');
  data.kinds.push_back(TokenKind::kUserDefined);
  data.json.added = {{.id = TokenId{258}, .normalized = true}};
  data.json.pipeline.normalizers = {replace("a", std::string(16, 'a'))};
  const DecoderStep step{.kind = DecoderKind::kReplace, .pattern = {"a", false}, .text = "a"};
  data.json.pipeline.decoders = {step};
  EXPECT_EQ(load_refusal(data), std::nullopt);
  data.json.pipeline.decoders.assign(TokenizerLimits::kStepsMax, step);
  EXPECT_EQ(load_refusal(data), ErrorCode::kUnsupportedTokenizer);
}

// A list of a million entries may name one token, and what is done for it takes milliseconds.
TEST(TextBudget, ATokenThatIsNamedAgainIsNormalizedOnce) {
  TokenizerData data = json_data();
  data.tokens.emplace_back(TokenizerLimits::kStringBytesMax, 'x');
  data.kinds.push_back(TokenKind::kUserDefined);
  data.json.pipeline.normalizers.assign(64, NormalizerStep{.kind = NormalizerKind::kNfkc});
  data.json.added.assign(100'000, AddedTokenRule{.id = TokenId{258}, .normalized = true});
  EXPECT_EQ(load_refusal(data), std::nullopt);
}

TEST(TextBudget, BytesThatMergesJoinAreBounded) {
  TokenizerData data = json_data();
  for (int i = 0; i < 2; ++i) {
    data.tokens.emplace_back(TokenizerLimits::kStringBytesMax, i == 0 ? 'a' : 'b');
    data.kinds.push_back(TokenKind::kNormal);
  }
  const std::size_t bytes = 2 * TokenizerLimits::kStringBytesMax;
  data.json.merges.assign((256u << 20) / bytes, {TokenId{258}, TokenId{259}});
  EXPECT_TRUE(Tokenizer::create(data));
  data.json.merges.push_back({TokenId{258}, TokenId{259}});
  const auto made = Tokenizer::create(data);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code, ErrorCode::kUnsupportedTokenizer);
}

TokenizerData unigram_data(const std::vector<std::string>& tokens) {
  TokenizerData data = json_data();
  data.model = "unigram";
  data.tokens.insert(data.tokens.end(), tokens.begin(), tokens.end());
  data.kinds.resize(data.tokens.size(), TokenKind::kNormal);
  data.scores.assign(data.tokens.size(), -1);
  return data;
}

// Of a GGUF file, each found as it is spelled.
TokenizerData user_defined_data(const std::vector<std::string>& tokens) {
  TokenizerData data = byte_bpe_data({});
  data.tokens.insert(data.tokens.end(), tokens.begin(), tokens.end());
  data.kinds.resize(data.tokens.size(), TokenKind::kUserDefined);
  return data;
}

TEST(TextBudget, LookingForALongTokenAtEachPlaceIsCounted) {
  const std::string longest(TokenizerLimits::kStringBytesMax, 'a'), run(4'000, 'a');
  TokenizerData added = json_data();
  added.tokens.push_back(longest);
  added.kinds.push_back(TokenKind::kUserDefined);
  for (const TokenizerData& data : {unigram_data({longest}), user_defined_data({longest}), added}) {
    EXPECT_EQ(refusal(data, run), std::nullopt) << data.model << ": it takes less than is free";
    TextBudget budget = TextBudget::of_texts();
    ASSERT_TRUE(budget.spend_steps(budget.steps_left() - 1));
    const auto refused = Tokenizer::create(data).value().encode(run, {.budget = &budget});
    ASSERT_FALSE(refused) << data.model;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalidParams);
    EXPECT_EQ(budget.steps_left(), 0u) << data.model;
  }
  EXPECT_EQ(refusal(user_defined_data({longest}), std::string(30'000, 'a')), ErrorCode::kInvalidParams);
}

// All tokens of one letter, the longer the better: each letter of a text joins a token that is hashed anew.
TEST(TextBudget, HashingLongTokensIsCounted) {
  std::vector<std::string> pieces;
  for (std::size_t bytes = 2'000; bytes > 0; --bytes) pieces.emplace_back(bytes, 'a');
  const TokenizerData data = spm_data(pieces);
  const model::Vocabulary vocabulary(data.kinds, model::spm_spellings(data));
  const model::SpmModel spm(
      vocabulary, data.scores,
      {.add_space_prefix = false, .fallback = {.byte_tokens = model::byte_tokens(data), .unknown = data.unknown}});
  TextBudget budget = TextBudget::of_text(0);
  std::vector<TokenId> ids;
  EXPECT_TRUE(spm.encode(std::string(50'000, 'a'), budget, ids));
  EXPECT_EQ(ids.size(), 25u);
  const auto refused = spm.encode(std::string(200'000, 'a'), budget, ids);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidParams);
}

// Children of one node are looked for by groups, in whatever order they come.
TEST(TokenTrie, FindsEachOfManyChildren) {
  model::TokenTrie trie;
  constexpr std::uint32_t kBytes = 256, kStride = 77;  // no divisor of it
  const auto text_of = [](std::uint32_t i) { return std::string("x") + static_cast<char>(i * kStride % kBytes) + 'y'; };
  for (std::uint32_t round = 0; round < 2; ++round) {
    for (std::uint32_t i = 0; i < kBytes; ++i) trie.add(text_of(i), TokenId{round * kBytes + i});
  }
  EXPECT_EQ(trie.size(), 1u + 1 + 2 * kBytes);
  const std::uint32_t parent = trie.node(model::TokenTrie::kRoot).child;
  std::set<char> siblings;
  for (std::uint32_t c = trie.node(parent).child; c != model::TokenTrie::kNone; c = trie.node(c).sibling)
    EXPECT_TRUE(siblings.insert(trie.node(c).byte).second);
  EXPECT_EQ(siblings.size(), kBytes);
  trie.settle();
  for (std::uint32_t i = 0; i < kBytes; ++i) {
    std::uint32_t node = model::TokenTrie::kRoot;
    for (const char byte : text_of(i)) node = trie.child_of(node, byte);
    EXPECT_EQ(trie.node(node).token, TokenId{i}) << "the first that was added";
    EXPECT_EQ(trie.node(node).depth, 3u);
  }
}

TEST(TextBudget, SpacesThatManyTokensTakeAreCounted) {
  TokenizerData data = json_data();
  data.tokens.emplace_back("\t");
  data.kinds.push_back(TokenKind::kUserDefined);
  data.json.added = {{.id = TokenId{258}, .rstrip = true}};
  EXPECT_EQ(refusal(data, std::string(12'000, '\t')), ErrorCode::kInvalidParams) << "each takes all that follow it";
  EXPECT_EQ(refusal(data, repeated("\ta" + std::string(100, ' '), kPromptBytes)), std::nullopt);
}

// The most that a byte may cost in a text of any length.
TEST(TextBudget, TokensOfPublishedLengthsPassInAnyText) {
  constexpr std::size_t kStepsPerByteAtLeast = 32;
  std::vector<std::string> marks, spaces;
  for (std::size_t count = 2; count <= 31; ++count) {
    marks.push_back(repeated(kMark, kMark.size() * count));
    spaces.emplace_back(count, ' ');
  }
  TokenizerData unigram = unigram_data(marks);
  unigram.json.pipeline.normalizers = {replace(" ", kMark)};
  TokenizerData added = user_defined_data(spaces);
  const std::string text(16'000, ' ');
  for (const TokenizerData& data : {unigram, added, spm_data(marks)}) {
    TextBudget budget = TextBudget::of_texts();
    ASSERT_TRUE(Tokenizer::create(data).value().encode(text, {.budget = &budget})) << data.model;
    const std::uint64_t taken = TextBudget::of_text(text.size()).steps_left() - budget.steps_left();
    EXPECT_LT(taken, kStepsPerByteAtLeast * text.size()) << data.model;
  }
  // The longest prompt by default.
  TokenizerData words = unigram_data({"the", kMark + "the", kMark + "q", "u", "ick", "quick", kMark + "brown", "fox"});
  words.json.pipeline.normalizers = {replace(" ", kMark)};
  words.json.pipeline.pre_tokenizers = {
      {.kind = PreTokenizerKind::kMetaspace, .replacement = kMark, .prepend = PrependScheme::kAlways}};
  EXPECT_EQ(refusal(words, repeated("the quick brown fox ", 4u << 20)), std::nullopt);
}

TEST(TextBudget, SearchesOfAddedTokensAreCountedTogether) {
  TokenizerData data = json_data();
  data.tokens.emplace_back(10'000, 'a');
  data.kinds.push_back(TokenKind::kControl);
  data.json.added = {{.id = TokenId{258}, .normalized = true}};
  data.json.pipeline.normalizers = {replace("a", "x", true)};
  EXPECT_EQ(load_refusal(data), std::nullopt);
  data.json.pipeline.normalizers = {replace(kQuadratic, "x", true)};
  EXPECT_EQ(load_refusal(data), ErrorCode::kUnsupportedTokenizer);
}

// Nobody sees how far a repetition came that fell short.
TEST(TextBudget, PatternsWithManyRepetitionsAreRefused) {
  EXPECT_TRUE(Regex::create(R"(a{32}|\p{N}{1,512}|b{2,})"));
  for (const char* pattern : {"a{33}", "b|(?:ab){33,}", "a{99999999999}"}) {
    const auto regex = Regex::create(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, ErrorCode::kUnsupportedTokenizer) << pattern;
  }
}

// Also where no scanner is known for a spelling of them.
TEST(TextBudget, PublishedPatternsPassOverLongRuns) {
  for (const pre_tokenizer::KnownPattern& known : pre_tokenizer::known_patterns()) {
    if (known.regex.size() < 64) continue;  // one of those that cut all of a text
    const auto by_regex = pre_tokenizer::PreTokenizer::create(
        std::vector<PreTokenizerStep>{split_by("(?:" + std::string(known.regex) + ")")});
    ASSERT_TRUE(by_regex.has_value()) << known.regex;
    for (const char* unit : {"a", " ", "1", "A's b,\n"}) {
      const std::string text = repeated(unit, kPromptBytes);
      TextBudget budget = TextBudget::of_text(text.size());
      EXPECT_TRUE(by_regex->split(text, true, budget).has_value()) << known.regex << " on many of " << unit;
    }
  }
}

}  // namespace
}  // namespace llorch::text
