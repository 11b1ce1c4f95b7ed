#include "grammar/matcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "base/utf8.h"
#include "grammar/testing/small_vocabulary.h"

namespace llorch::grammar {
namespace {

using testing::bytes_and;
using ::testing::HasSubstr;
using testing::is_allowed;
using testing::json_vocabulary;
using testing::SmallVocabulary;
using testing::vocabulary_of;

std::shared_ptr<const Grammar> schema(std::string_view text) {
  auto grammar = Grammar::from_json_schema(text);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return *grammar;
}
std::shared_ptr<const Grammar> gbnf(std::string_view text) {
  auto grammar = Grammar::from_gbnf(text);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return *grammar;
}
std::shared_ptr<const Grammar> regex(std::string_view text) {
  auto grammar = Grammar::from_regex(text);
  EXPECT_TRUE(grammar) << grammar.error().message;
  return *grammar;
}

std::vector<std::shared_ptr<const Grammar>> sample_grammars() {
  return {
      schema("{}"),
      schema(R"({"type": "object", "properties": {"id": {"type": "integer", "minimum": 3, "maximum": 250},
                 "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}, "maxItems": 3}}, "required": ["id"]})"),
      schema(R"({"type": "array", "items": {"$ref": "#"}})"),
      schema(R"({"anyOf": [{"type": "string", "minLength": 2, "maxLength": 20}, {"const": "ab"}, {"type": "null"}]})"),
      schema(R"({"type": "string", "pattern": "^(ab|é|日)*$"})"),
      regex("[a-c]{1,1000}(é|日本|😀)?"),
      regex("(the|then|them) of [^x]*"),
      gbnf("root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"0\""),
      gbnf("root ::= item (\", \" item)*\nitem ::= [0-9]+ | \"ab\" item | \"{}\"?"),
      // Rules that may be over after each byte, with callers that go on with the same bytes, alike or not.
      gbnf("root ::= w [a-z]*\nw ::= [a-z] ([a-z] ([a-z] [a-z]?)?)?"),
      gbnf("root ::= w v [a-z]? \" \"?\nw ::= [a-z] ([a-z] [a-z]?)?\nv ::= \"h\" [a-f]? | \"b\" | \" \" root"),
  };
}

// What mask() should be: every token's bytes run one by one, a token is allowed if a single-byte matcher takes them.
std::set<std::uint32_t> brute_force(const SmallVocabulary& vocabulary, const Matcher& at_bytes) {
  std::set<std::uint32_t> allowed;
  for (std::uint32_t id = 0; id + 1 < vocabulary.tokens.size(); ++id) {
    Matcher matcher = at_bytes;
    bool fits = !vocabulary.tokens[id].empty();
    for (const char c : vocabulary.tokens[id])
      fits = fits && matcher.accept(TokenId{static_cast<std::uint8_t>(c)}).has_value();
    if (fits) allowed.insert(id);
  }
  if (at_bytes.is_complete()) allowed.insert(base::index(vocabulary.end()));
  return allowed;
}

std::set<std::uint32_t> ids_of(std::span<const std::uint32_t> mask, std::size_t vocab_size) {
  std::set<std::uint32_t> out;
  for (std::uint32_t id = 0; id < vocab_size; ++id) {
    if (is_allowed(mask, TokenId{id})) out.insert(id);
  }
  return out;
}

TEST(Matcher, MasksEqualBruteForce) {
  const SmallVocabulary vocabulary = json_vocabulary(), bytes = bytes_and({});
  for (const auto& grammar : sample_grammars()) {
    for (std::uint32_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(seed);
      std::mt19937 random(seed);
      Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
      Matcher by_bytes = Matcher::create(grammar, bytes.trie).value();
      for (int step = 0; step < 25; ++step) {
        const std::set<std::uint32_t> allowed = ids_of(matcher.mask().value(), vocabulary.tokens.size());
        ASSERT_EQ(allowed, brute_force(vocabulary, by_bytes));
        ASSERT_FALSE(allowed.empty());
        const TokenId id{*std::next(allowed.begin(), static_cast<std::ptrdiff_t>(random() % allowed.size()))};
        ASSERT_TRUE(matcher.accept(id));
        if (id == vocabulary.end()) break;
        for (const char c : vocabulary.tokens[base::index(id)]) {
          ASSERT_TRUE(by_bytes.accept(TokenId{static_cast<std::uint8_t>(c)}));
        }
      }
    }
  }
}

TEST(Matcher, AllowsAgreesWithTheMask) {
  const SmallVocabulary vocabulary = json_vocabulary();
  for (const auto& grammar : sample_grammars()) {
    Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
    const std::vector<std::uint32_t> mask(matcher.mask()->begin(), matcher.mask()->end());
    for (std::uint32_t id = 0; id < vocabulary.tokens.size(); ++id) {
      EXPECT_EQ(matcher.allows(TokenId{id}).value(), is_allowed(mask, TokenId{id})) << id;
    }
  }
}

// From every state that a few tokens reach, single bytes lead to an end.
TEST(Matcher, NoAllowedTokenLeadsToADeadEnd) {
  const SmallVocabulary vocabulary = json_vocabulary();
  for (const auto& grammar : sample_grammars()) {
    for (std::uint32_t seed = 100; seed < 110; ++seed) {
      std::mt19937 random(seed);
      Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
      std::string output;
      for (int step = 0; step < 12 && !matcher.is_finished(); ++step) {
        const auto allowed = ids_of(matcher.mask().value(), vocabulary.tokens.size());
        const TokenId id{*std::next(allowed.begin(), static_cast<std::ptrdiff_t>(random() % allowed.size()))};
        ASSERT_TRUE(matcher.accept(id));
        output += vocabulary.tokens[base::index(id)];
      }
      // Breadth first over what is left, by bytes.
      std::vector<Matcher> frontier{matcher};
      bool found = matcher.is_complete();
      for (int depth = 0; depth < 60 && !found; ++depth) {
        std::vector<Matcher> next;
        for (Matcher& each : frontier) {
          for (std::uint32_t byte = 0; byte < 256 && next.size() < 400 && !found; ++byte) {
            Matcher further = each;
            if (!further.accept(TokenId{byte})) continue;
            found = further.is_complete();
            next.push_back(std::move(further));
          }
        }
        std::shuffle(next.begin(), next.end(), random);
        if (next.size() > 40) next.erase(next.begin() + 40, next.end());
        frontier = std::move(next);
      }
      EXPECT_TRUE(found) << output;
    }
  }
}

TEST(Matcher, OnlyAnEndFollowsAFinishedOutput) {
  const SmallVocabulary vocabulary = json_vocabulary();
  Matcher matcher = Matcher::create(schema("{\"const\": null}"), vocabulary.trie).value();
  EXPECT_FALSE(matcher.accept(vocabulary.end())) << "too early";
  for (const char c : std::string_view("null")) ASSERT_TRUE(matcher.accept(TokenId{static_cast<std::uint8_t>(c)}));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_TRUE(matcher.is_finished());
  const std::set<std::uint32_t> only_end{base::index(vocabulary.end())};
  EXPECT_EQ(ids_of(matcher.mask().value(), vocabulary.tokens.size()), only_end);
  ASSERT_TRUE(matcher.accept(vocabulary.end()));
  EXPECT_EQ(ids_of(matcher.mask().value(), vocabulary.tokens.size()), only_end);
  EXPECT_FALSE(matcher.accept(TokenId{'n'}));
}

TEST(Matcher, EndIsAllowedWhileMoreMayFollow) {
  const SmallVocabulary vocabulary = json_vocabulary();
  Matcher matcher = Matcher::create(regex("a*"), vocabulary.trie).value();
  EXPECT_TRUE(is_allowed(matcher.mask().value(), vocabulary.end()));
  EXPECT_TRUE(is_allowed(matcher.mask().value(), TokenId{'a'}));
  EXPECT_FALSE(matcher.is_finished());
}

TEST(Matcher, ACopyIsACheckpoint) {
  const SmallVocabulary vocabulary = json_vocabulary();
  Matcher matcher =
      Matcher::create(schema("{\"type\": \"array\", \"items\": {\"type\": \"integer\"}}"), vocabulary.trie).value();
  ASSERT_TRUE(matcher.accept(TokenId{'['}));
  const std::vector<std::uint32_t> before(matcher.mask()->begin(), matcher.mask()->end());
  Matcher checkpoint = matcher;
  ASSERT_TRUE(matcher.accept(TokenId{'1'}));
  ASSERT_TRUE(matcher.accept(TokenId{']'}));
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(checkpoint.is_complete());
  EXPECT_THAT(checkpoint.mask().value(), ::testing::ElementsAreArray(before));
  EXPECT_FALSE(checkpoint.accept(TokenId{'x'}));
  EXPECT_THAT(checkpoint.mask().value(), ::testing::ElementsAreArray(before)) << "a refused token changes nothing";
}

TEST(Matcher, OutputsAreUtf8HoweverTokensSplitCodePoints) {
  const SmallVocabulary vocabulary = json_vocabulary();
  for (const auto& grammar : {regex(".{1,8}"), schema("{\"type\": \"string\"}"), gbnf("root ::= [^a]+")}) {
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      std::mt19937 random(seed);
      Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
      std::string output;
      for (int step = 0; step < 200; ++step) {
        if (matcher.is_complete() && random() % 4 == 0) break;
        auto allowed = ids_of(matcher.mask().value(), vocabulary.tokens.size());
        const TokenId id{*std::next(allowed.begin(), static_cast<std::ptrdiff_t>(random() % allowed.size()))};
        if (id == vocabulary.end()) break;
        ASSERT_TRUE(matcher.accept(id));
        output += vocabulary.tokens[base::index(id)];
      }
      EXPECT_TRUE(!matcher.is_complete() || base::is_valid_utf8(output));
    }
  }
}

// A token without text is allowed where a grammar names it and nowhere else, and bytes cannot be taken for it.
TEST(Matcher, ControlTokensComeWhereTheyAreNamed) {
  const SmallVocabulary vocabulary = bytes_and({"", "", "ab"});  // 256 and 257 are control tokens
  const TokenId call{256}, other{257};
  Matcher matcher = Matcher::create(gbnf("root ::= \"a\" <[256]> ([a-z] | <[257]>){2}"), vocabulary.trie).value();
  const auto allowed = [&] { return ids_of(matcher.mask().value(), vocabulary.tokens.size()); };
  EXPECT_EQ(allowed(), std::set<std::uint32_t>{'a'}) << "not ab";
  ASSERT_TRUE(matcher.accept(TokenId{'a'}));
  EXPECT_EQ(allowed(), std::set<std::uint32_t>{256}) << "no byte begins it";
  EXPECT_FALSE(matcher.accept(TokenId{0xFF}));
  EXPECT_FALSE(matcher.accept(other));
  ASSERT_TRUE(matcher.accept(call));
  EXPECT_TRUE(allowed().contains(257) && allowed().contains('z') && allowed().contains(258));
  EXPECT_FALSE(allowed().contains(256) || allowed().contains(0xFF));
  ASSERT_TRUE(matcher.accept(other));
  ASSERT_TRUE(matcher.accept(TokenId{'z'}));
  EXPECT_TRUE(matcher.is_finished());
}

// Every vocabulary of json_vocabulary() has a token without text and all 256 bytes; none of these grammars names one.
TEST(Matcher, UnnamedControlTokensNeverCome) {
  const SmallVocabulary vocabulary = json_vocabulary();
  std::vector<std::uint32_t> silent;
  for (std::uint32_t id = 0; id + 1 < vocabulary.tokens.size(); ++id) {
    if (vocabulary.tokens[id].empty()) silent.push_back(id);
  }
  ASSERT_EQ(silent.size(), 1U);
  EXPECT_TRUE(vocabulary.trie->is_control(TokenId{silent[0]}));
  EXPECT_FALSE(vocabulary.trie->is_control(vocabulary.end()));
  EXPECT_FALSE(vocabulary.trie->is_control(TokenId{0xFF}));
  EXPECT_FALSE(vocabulary.trie->is_control(TokenId{1u << 24}));
  for (const auto& grammar : sample_grammars()) {
    Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
    EXPECT_FALSE(is_allowed(matcher.mask().value(), TokenId{silent[0]}));
    EXPECT_TRUE(grammar->control_tokens().empty());
  }
}

// A model may have more rows than its tokenizer has tokens: the vocabulary then ends in tokens without text.
TEST(Matcher, PaddingIsNeverAllowed) {
  const SmallVocabulary small = json_vocabulary();
  constexpr std::uint32_t kPadding = 100;
  const std::size_t tokens = small.tokens.size();
  std::vector<std::string_view> views(small.tokens.begin(), small.tokens.end());
  views.resize(tokens + kPadding);
  const TokenId end = small.end();
  const auto trie = TokenTrie::build(views, {&end, 1}).value();
  EXPECT_EQ(trie->mask_words(), (tokens + kPadding + 31) / 32);
  for (const auto& grammar : sample_grammars()) {
    std::mt19937 random(3);
    Matcher matcher = Matcher::create(grammar, trie).value();
    Matcher without = Matcher::create(grammar, small.trie).value();
    for (int step = 0; step < 25; ++step) {
      const std::span<const std::uint32_t> mask = matcher.mask().value();
      ASSERT_EQ(mask.size(), trie->mask_words());
      const auto allowed = ids_of(mask, 32 * mask.size());
      ASSERT_EQ(allowed, ids_of(without.mask().value(), tokens));
      for (const std::size_t id : {tokens, tokens + kPadding - 1})
        EXPECT_FALSE(*matcher.allows(TokenId{static_cast<std::uint32_t>(id)}));
      const TokenId id{*std::next(allowed.begin(), static_cast<std::ptrdiff_t>(random() % allowed.size()))};
      ASSERT_TRUE(matcher.accept(id) && without.accept(id));
      EXPECT_FALSE(matcher.accept(TokenId{static_cast<std::uint32_t>(tokens)}));
      if (id == small.end()) break;
    }
  }
}

TEST(Matcher, RefusesControlTokensThatTheModelLacks) {
  const SmallVocabulary vocabulary = bytes_and({""});
  const auto message_of = [&](std::string_view text) {
    const auto matcher = Matcher::create(gbnf(text), vocabulary.trie);
    return matcher ? std::string("accepted") : matcher.error().message;
  };
  EXPECT_EQ(message_of("root ::= <[256]>"), "accepted");
  EXPECT_THAT(message_of("root ::= <[97]>"), HasSubstr("token 97")) << "a byte";
  EXPECT_THAT(message_of("root ::= <[257]>"), HasSubstr("token 257")) << "it ends";
  EXPECT_THAT(message_of("root ::= \"a\" | <[5000]>"), HasSubstr("token 5000"));
}

// With few bytes as well: what is named can be finished.
TEST(Matcher, ControlTokensNeedNoBytes) {
  const SmallVocabulary vocabulary = vocabulary_of({"a", "", "b"});
  Matcher matcher = Matcher::create(gbnf("root ::= \"a\" (<[1]> | \"c\") \"b\"?"), vocabulary.trie).value();
  ASSERT_TRUE(matcher.accept(TokenId{0}));
  EXPECT_EQ(ids_of(matcher.mask().value(), 4), std::set<std::uint32_t>{1});
  ASSERT_TRUE(matcher.accept(TokenId{1}));
  EXPECT_EQ(ids_of(matcher.mask().value(), 4), (std::set<std::uint32_t>{2, 3}));
}

// A vocabulary that lacks bytes: what could not be finished is not begun.
TEST(Matcher, AvoidsWhatTheVocabularyCannotFinish) {
  const SmallVocabulary vocabulary = vocabulary_of({"a", "b", "\xC3", "\xC3\xA9", "x", "ax"});
  Matcher matcher = Matcher::create(regex("a(b|é)|x"), vocabulary.trie).value();
  ASSERT_TRUE(matcher.accept(TokenId{0}));
  EXPECT_EQ(ids_of(matcher.mask().value(), 7), (std::set<std::uint32_t>{1, 3})) << "0xC3 alone would need 0xA9";

  const auto nothing = Matcher::create(regex("[0-9]+"), vocabulary.trie);
  ASSERT_FALSE(nothing);
  EXPECT_EQ(nothing.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_THAT(nothing.error().message, HasSubstr("vocabulary"));
}

// Callers of one rule share its frame, so this takes two readings and not two to the power of the depth.
TEST(Matcher, AmbiguousNestingStaysSmall) {
  const SmallVocabulary vocabulary = bytes_and({});
  Matcher matcher =
      Matcher::create(gbnf("root ::= p | q\np ::= \"a\" root \"b\" | \"0\"\nq ::= \"a\" root \"c\" | \"0\""),
                      vocabulary.trie)
          .value();
  for (int depth = 0; depth < 2000; ++depth) ASSERT_TRUE(matcher.accept(TokenId{'a'}));
  ASSERT_TRUE(matcher.accept(TokenId{'0'}));
  for (int depth = 0; depth < 2000; ++depth) {
    ASSERT_TRUE(matcher.mask());
    ASSERT_TRUE(matcher.accept(TokenId{depth % 3 == 0 ? std::uint32_t{'b'} : std::uint32_t{'c'}}));
  }
  EXPECT_TRUE(matcher.is_finished());
}

TEST(Matcher, TooManyReadingsAreRefused) {
  std::string text = "root ::= r0";
  for (int i = 1; i < 600; ++i) text += " | r" + std::to_string(i);
  for (int i = 0; i < 600; ++i) {
    text += "\nr" + std::to_string(i) + " ::= t" + std::to_string(i) + " \"" + std::to_string(i) + "\"\nt" +
            std::to_string(i) + " ::= [a-z] [a-z]";
  }
  const SmallVocabulary vocabulary = bytes_and({});
  Matcher matcher = Matcher::create(gbnf(text), vocabulary.trie).value();
  const auto accepted = matcher.accept(TokenId{'a'});
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_THAT(accepted.error().message, HasSubstr("256 ways"));
  EXPECT_FALSE(matcher.mask());
}

// One byte that three hundred rules begin with, each of which a hundred others call: a single reading comes of it.
TEST(Matcher, AByteThatTakesTooManyMovesIsRefused) {
  const auto rules = [](int count) {
    std::string text = "root ::= r0";
    for (int i = 0; i < count; ++i) {
      text += "\nr" + std::to_string(i) + " ::= ";
      for (int j = i + 1; j < std::min(i + 100, count); ++j) text += "r" + std::to_string(j) + " \"x\" | ";
      text += i + 1 < count ? "r" + std::to_string(i + 1) + " \"y\"" : "[a-z]";
    }
    return text;
  };
  const SmallVocabulary vocabulary = bytes_and({});
  Matcher few = Matcher::create(gbnf(rules(100)), vocabulary.trie).value();
  ASSERT_TRUE(few.mask());
  ASSERT_TRUE(few.accept(TokenId{'a'}));
  Matcher many = Matcher::create(gbnf(rules(300)), vocabulary.trie).value();
  for (int again = 0; again < 2; ++again) {
    const auto accepted = many.accept(TokenId{'a'});
    ASSERT_FALSE(accepted);
    EXPECT_EQ(accepted.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(accepted.error().message, HasSubstr("more than 65536 moves for one byte"));
    const auto mask = many.mask();
    ASSERT_FALSE(mask);
    EXPECT_EQ(mask.error().message, accepted.error().message);
  }
}

// Each of many rules nests all of them and may go on behind them.
std::shared_ptr<const Grammar> nesting(int count) {
  std::string text = "root ::= \"b\"";
  for (int i = 0; i < count; ++i) text += " | r" + std::to_string(i);
  for (int i = 0; i < count; ++i) {
    text += "\nr" + std::to_string(i) + " ::= \"a\" root \"" + std::to_string(i) + "\"?";
  }
  return gbnf(text);
}

// Behind each reading stand all callers of all callers: to find them is most of what such a mask takes.
TEST(Matcher, WhatGoesOnBehindARuleIsCounted) {
  const SmallVocabulary vocabulary = bytes_and({"b0", "b1"});
  const auto mask_of = [&](int count, int depth) {
    Matcher matcher = Matcher::create(nesting(count), vocabulary.trie).value();
    for (int i = 0; i < depth; ++i) EXPECT_TRUE(matcher.accept(TokenId{'a'}));
    const auto mask = matcher.mask();
    return mask ? std::string("a mask") : mask.error().message;
  };
  EXPECT_EQ(mask_of(60, 3), "a mask");
  EXPECT_THAT(mask_of(120, 3), HasSubstr("takes more than 16777216 steps"));
  EXPECT_THAT(mask_of(60, 6), HasSubstr("256 ways")) << "behind one of the readings";
  // Where no token goes on behind them, that is found once they are over.
  const SmallVocabulary bytes = bytes_and({});
  Matcher matcher = Matcher::create(nesting(60), bytes.trie).value();
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(matcher.accept(TokenId{'a'}));
  ASSERT_TRUE(is_allowed(matcher.mask().value(), TokenId{'b'}));
  EXPECT_THAT(matcher.accept(TokenId{'b'}).error().message, HasSubstr("256 ways"));
}

// What an output leaves open is kept until it is closed.
TEST(Matcher, RulesThatAnOutputLeavesOpenAreBounded) {
  const SmallVocabulary vocabulary = bytes_and({});
  Matcher matcher = Matcher::create(nesting(120), vocabulary.trie).value();
  std::size_t depth = 0;
  base::Result<> accepted;
  while (depth < 1500 && (accepted = matcher.accept(TokenId{'a'}))) ++depth;
  ASSERT_FALSE(accepted);
  EXPECT_EQ(accepted.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_THAT(accepted.error().message, HasSubstr("more than 131072 rules of the grammar open"));
  EXPECT_GT(depth, 131072U / 120 - 5);
  EXPECT_FALSE(matcher.accept(TokenId{'a'})) << "asked again";
}

// All words of five letters, and the empty one that ends.
const SmallVocabulary& words_of_five() {
  static const SmallVocabulary vocabulary = [] {
    std::vector<std::string> words;
    for (std::uint32_t i = 0; i < 12 * 12 * 12 * 12 * 12; ++i) {
      std::string word;
      for (std::uint32_t rest = i; word.size() < 5; rest /= 12) word += static_cast<char>('a' + rest % 12);
      words.push_back(std::move(word));
    }
    return bytes_and(std::move(words));
  }();
  return vocabulary;
}
// A cache of its own, which keeps nothing unless it may.
std::shared_ptr<const TokenTrie> trie_of(const SmallVocabulary& vocabulary, std::size_t cache_bytes_max = 64 << 20) {
  const std::vector<std::string_view> views(vocabulary.tokens.begin(), vocabulary.tokens.end());
  const TokenId end = vocabulary.end();
  return TokenTrie::build(views, {&end, 1}, {.mask_cache_bytes_max = cache_bytes_max}).value();
}
// Rules that begin alike and end in different ways: each is a reading, and a place of its own.
std::shared_ptr<const Grammar> readings(int count) {
  std::string root = "root ::= r0", rules;
  for (int i = 0; i < count; ++i) {
    if (i > 0) root += " | r" + std::to_string(i);
    rules += "\nr" + std::to_string(i) + " ::= [a-z][a-z][a-z][a-z][a-z][a-z][a-z] \"" + std::to_string(i) + "\"";
  }
  return gbnf(root + rules);
}

// One request's grammar must not hold up everybody else's tokens: what a mask takes has a bound, whatever the cache holds.
TEST(Matcher, AMaskThatTakesTooManyStepsIsRefused) {
  const SmallVocabulary& vocabulary = words_of_five();
  const auto trie = trie_of(vocabulary);
  const auto mask_of = [&](int count) {
    Matcher matcher = Matcher::create(readings(count), trie).value();
    EXPECT_TRUE(matcher.accept(TokenId{'a'}));
    const auto mask = matcher.mask();
    EXPECT_TRUE(mask || mask.error().code == base::ErrorCode::kInvalidParams);
    EXPECT_EQ(matcher.mask().has_value(), mask.has_value()) << "asked again";
    return mask ? std::string("a mask") : mask.error().message;
  };
  EXPECT_EQ(mask_of(40), "a mask");
  EXPECT_THAT(mask_of(80), HasSubstr("takes more than 16777216 steps"));
  EXPECT_THAT(mask_of(80), HasSubstr("takes more than 16777216 steps")) << "with places that the cache holds";
  // Documents with strings, numbers and choices take an eighth at most.
  for (const auto& grammar : sample_grammars()) {
    Matcher sample = Matcher::create(grammar, trie).value();
    ASSERT_TRUE(sample.mask());
    EXPECT_LT(sample.mask_steps(), Matcher::kMaskStepsMax / 8);
  }
}

// What a mask takes does not depend on the cache, on the masks before it, or on what the matcher has forgotten.
TEST(Matcher, StepsOfAMaskDependOnTheOutputAlone) {
  const SmallVocabulary vocabulary = json_vocabulary();
  const auto cold = trie_of(vocabulary, 0);
  for (const auto& grammar : sample_grammars()) {
    std::mt19937 random(7);
    Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
    std::vector<TokenId> output;
    for (int step = 0; step < 25; ++step) {
      const auto allowed = ids_of(matcher.mask().value(), vocabulary.tokens.size());
      Matcher again = Matcher::create(grammar, cold).value();
      for (const TokenId id : output) ASSERT_TRUE(again.accept(id));
      ASSERT_EQ(ids_of(again.mask().value(), vocabulary.tokens.size()), allowed);
      ASSERT_EQ(again.mask_steps(), matcher.mask_steps()) << step;
      output.push_back(TokenId{*std::next(allowed.begin(), static_cast<std::ptrdiff_t>(random() % allowed.size()))});
      if (output.back() == vocabulary.end()) break;
      ASSERT_TRUE(matcher.accept(output.back()));
    }
  }
}

// Random words behind a rule: what goes on behind it differs from word to word, so that masks fill what a matcher remembers.
TEST(Matcher, StepsOfAMaskDoNotDependOnWhatIsForgotten) {
  const SmallVocabulary& vocabulary = words_of_five();
  std::mt19937 random(11);
  std::string text = "root ::= w f0 w f1 w f2\nw ::= \"y\" [a-l]";
  for (int i = 0; i < 3; ++i) {
    text += "\nf" + std::to_string(i) + " ::= \"aaaa\"";
    for (std::uint32_t word = 1; word < 12 * 12 * 12 * 12; ++word) {
      if (random() % 2 == 0) continue;
      text += " | \"";
      for (std::uint32_t rest = word, n = 0; n < 4; ++n, rest /= 12) text += static_cast<char>('a' + rest % 12);
      text += '"';
    }
  }
  const auto grammar = gbnf(text);
  Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
  std::string output;
  for (const std::string_view more : {"y", "aaaaay", "aaaaay"}) {
    for (const char c : more) ASSERT_TRUE(matcher.accept(TokenId{static_cast<std::uint8_t>(c)}));
    output += more;
    Matcher again = Matcher::create(grammar, vocabulary.trie).value();
    for (const char c : output) ASSERT_TRUE(again.accept(TokenId{static_cast<std::uint8_t>(c)}));
    ASSERT_THAT(matcher.mask().value(), ::testing::ElementsAreArray(again.mask().value()));
    EXPECT_EQ(matcher.mask_steps(), again.mask_steps()) << output;
    EXPECT_GT(matcher.mask_steps(), 10'000U);
  }
}

// Grammars that spell one rule once or twice share masks, and what they took.
TEST(Matcher, EqualRulesAreOneRule) {
  const SmallVocabulary vocabulary = json_vocabulary();
  const std::string rules = "\nm ::= \"t\"\nn ::= \"t\" | \"z\"\np ::= [a-z]+ [a-f]";
  const auto once = gbnf("root ::= m p \"1\" | n p \"2\"" + rules);
  const auto twice = gbnf("root ::= m p \"1\" | n q \"2\"" + rules + "\nq ::= [a-z]+ [a-f]");
  const auto steps_of = [](const std::shared_ptr<const Grammar>& grammar,
                           const std::shared_ptr<const TokenTrie>& trie) {
    std::vector<std::uint64_t> steps;
    Matcher matcher = Matcher::create(grammar, trie).value();
    for (const char c : std::string_view("tabfd")) {
      EXPECT_TRUE(matcher.mask());
      steps.push_back(matcher.mask_steps());
      EXPECT_TRUE(matcher.accept(TokenId{static_cast<std::uint8_t>(c)}));
    }
    return steps;
  };
  const auto alone = steps_of(once, trie_of(vocabulary));
  EXPECT_EQ(steps_of(twice, trie_of(vocabulary)), alone);
  EXPECT_EQ(steps_of(once, vocabulary.trie), alone);
  EXPECT_EQ(steps_of(twice, vocabulary.trie), alone) << "with the masks of the other";
}

// A rule that may be over after each of its bytes, and a caller that goes on like it: below the first node all has been seen.
TEST(Matcher, OneWalkDoesForTheNodesBelowIt) {
  const SmallVocabulary& vocabulary = words_of_five();
  Matcher matcher =
      Matcher::create(gbnf("root ::= w [a-l]*\nw ::= \"y\" ([a-l] ([a-l] ([a-l] ([a-l] ([a-l] [a-l]?)?)?)?)?)?"),
                      vocabulary.trie)
          .value();
  ASSERT_TRUE(matcher.accept(TokenId{'y'}));
  ASSERT_TRUE(matcher.mask());
  // Of each of two places, of the caller behind the rule, and the open nodes themselves.
  EXPECT_LT(matcher.mask_steps(), 4 * vocabulary.trie->tiers()[0].node_count() + 100'000);
}

// More steps than the configuration store holds, over deep nesting: it is compacted on the way and copies live on.
TEST(Matcher, LongOutputsStayWithinBounds) {
  const SmallVocabulary vocabulary = json_vocabulary();
  Matcher matcher =
      Matcher::create(
          schema(
              R"({"type": "array", "items": {"type": "array", "minItems": 3, "maxItems": 100000, "items": {"type": "integer"}}})"),
          vocabulary.trie)
          .value();
  const auto text = [](Matcher& at, std::string_view bytes) {
    for (const char c : bytes) ASSERT_TRUE(at.accept(TokenId{static_cast<std::uint8_t>(c)}));
  };
  text(matcher, "[[1");
  Matcher copy = matcher;
  for (int i = 0; i < 30000; ++i) text(matcher, ",1");
  ASSERT_TRUE(matcher.mask());
  text(matcher, "]]");
  EXPECT_TRUE(matcher.is_complete());
  EXPECT_FALSE(copy.accept(TokenId{']'})) << "one item of three";
  text(copy, ",2,3]]");
  EXPECT_TRUE(copy.is_complete());
}

TEST(TokenTrie, RefusesBadVocabularies) {
  const std::vector<std::string_view> tokens{"a", "b"};
  const TokenId beyond{2}, end{1};
  EXPECT_FALSE(TokenTrie::build({}, {&end, 1}));
  EXPECT_FALSE(TokenTrie::build(tokens, {}));
  EXPECT_FALSE(TokenTrie::build(tokens, {&beyond, 1}));
  const std::string long_token(TokenTrie::kTokenBytesMax + 1, 'x');
  EXPECT_FALSE(TokenTrie::build(std::vector<std::string_view>{long_token, "b"}, {&end, 1}));
  const auto trie = TokenTrie::build(tokens, {&end, 1});
  ASSERT_TRUE(trie);
  EXPECT_EQ((*trie)->bytes(TokenId{1}), "") << "an end id has no bytes";
  EXPECT_EQ((*trie)->mask_words(), 1u);
}

TEST(MaskCache, StaysWithinItsBytesAndKeepsWhatIsUsed) {
  MaskCache cache(20000);
  const auto key = [](std::uint32_t i) { return PlaceKey{.state = i}; };
  for (std::uint32_t i = 0; i < 100; ++i) {
    cache.insert(key(i), std::make_shared<PlaceMask>(PlaceMask{{{.words = std::vector<std::uint32_t>(200)}}}));
    EXPECT_NE(cache.find(key(0)), nullptr) << i;
    EXPECT_LE(cache.bytes(), 20000u);
  }
  EXPECT_EQ(cache.find(key(1)), nullptr);
  EXPECT_NE(cache.find(key(99)), nullptr);
}

// One cache for all grammars of a vocabulary: equal places share masks, and sharing never changes one.
TEST(MaskCache, GrammarsShareMasks) {
  const SmallVocabulary shared = json_vocabulary();
  std::vector<std::vector<std::uint32_t>> first;
  const auto grammars = sample_grammars();
  for (const auto& grammar : grammars) {
    const SmallVocabulary own = json_vocabulary();
    Matcher alone = Matcher::create(grammar, own.trie).value();
    Matcher together = Matcher::create(grammar, shared.trie).value();
    EXPECT_THAT(together.mask().value(), ::testing::ElementsAreArray(alone.mask().value()));
  }
  const std::size_t bytes = shared.trie->mask_cache().bytes();
  for (const auto& grammar : sample_grammars()) {
    Matcher again = Matcher::create(grammar, shared.trie).value();
    ASSERT_TRUE(again.mask());
  }
  EXPECT_EQ(shared.trie->mask_cache().bytes(), bytes) << "recompiled grammars find their masks";
}

}  // namespace
}  // namespace llorch::grammar
