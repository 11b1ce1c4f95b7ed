#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "grammar/frontend/gbnf.h"
#include "grammar/frontend/pattern.h"
#include "grammar/testing/small_vocabulary.h"

namespace llorch::grammar {
namespace {

using ::testing::HasSubstr;

enum class Verdict { kWhole, kPrefix, kRefused };

Verdict verdict(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  static const testing::SmallVocabulary vocabulary = testing::bytes_and({});
  Matcher matcher = Matcher::create(grammar, vocabulary.trie).value();
  for (const char c : text) {
    if (!matcher.accept(TokenId{static_cast<std::uint8_t>(c)})) return Verdict::kRefused;
  }
  return matcher.is_complete() ? Verdict::kWhole : Verdict::kPrefix;
}

std::string repeated(std::string_view text, std::size_t times) {
  std::string out;
  for (std::size_t i = 0; i < times; ++i) out += text;
  return out;
}

struct FrontendCase {
  std::string grammar;
  std::vector<std::string> whole;
  std::vector<std::string> other;
};

TEST(Regex, Language) {
  const std::vector<FrontendCase> cases{
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"^a|b$", {"a", "b"}, {"ab", ""}},
      {"(?:ab|c)+?d{2,3}", {"abdd", "cccddd", "abcdd"}, {"dd", "abd", "abdddd"}},
      {"[^a-c\\d]", {"x", "é", "😀", "\n"}, {"a", "5", ""}},
      {"[\\w\\-.]{3}", {"a-.", "_9Z"}, {"a b", "é-."}},
      {".\\s\\S", {"a b", "é\tx"}, {"\n a", "a  "}},
      {"\\x41\\u00e9\\u{1F600}\\n\\/", {"Aé😀\n/"}, {"A"}},
      {"a{0}b{1,}", {"b", "bbb"}, {"", "ab"}},
      {"(?<year>\\d{4})-(0[1-9]|1[0-2])", {"1999-12", "2024-01"}, {"1999-13", "199-01"}},
      {"()|[]x", {""}, {"x"}},
      {"(a|aa)*b", {"b", "aaaaaab"}, {"aaaa"}},
      {"x{1,1000000}", {"x", std::string(5000, 'x')}, {""}},
      {"((ab){2,3}c){100,200}",
       {[] {
         std::string s;
         for (int i = 0; i < 150; ++i) s += i % 2 ? "ababc" : "abababc";
         return s;
       }()},
       {"ababc"}},
  };
  for (const FrontendCase& each : cases) {
    const auto grammar = Grammar::from_regex(each.grammar);
    ASSERT_TRUE(grammar) << each.grammar << ": " << grammar.error().message;
    for (const auto& text : each.whole)
      EXPECT_EQ(verdict(*grammar, text), Verdict::kWhole) << each.grammar << " " << text;
    for (const auto& text : each.other)
      EXPECT_NE(verdict(*grammar, text), Verdict::kWhole) << each.grammar << " " << text;
  }
}

TEST(Regex, Refusals) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"(a", "not closed"},
      {"a)", "no opening"},
      {"[a", "not closed"},
      {"a**", "quantifier"},
      {"*a", "quantifier"},
      {"a{3,1}", "above its maximum"},
      {"a{", "written"},
      {"a{9999999999}", "above"},
      {"(?=a)", "look-around"},
      {"(?i)a", "look-around and flags"},
      {"\\1", "not supported"},
      {"\\bx", "not supported"},
      {"\\p{L}", "not supported"},
      {"a^b", "two ends"},
      {"(x|^)a", "two ends"},
      {"[z-a]", "before it begins"},
      {"\\", "escapes nothing"},
      {"\\ud800", "code point"},
      {"\xFF", "UTF-8"},
      {std::string(100, '(') + std::string(100, ')'), "nested"},
      {"[]", "no output"},
      {"(a|b)*a(a|b){15}(a|b){15}(a|b){15}", "states"},
      {std::string(2 << 20, 'a'), "bytes"},
  };
  for (const auto& [text, message] : cases) {
    const auto grammar = Grammar::from_regex(text);
    ASSERT_FALSE(grammar) << text.substr(0, 40);
    EXPECT_EQ(grammar.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(grammar.error().message, HasSubstr(message)) << text.substr(0, 40);
  }
}

// Each of half a million anchors is looked at once, and moves none of the others.
TEST(Regex, ManyAnchorsAreTakenAtOnce) {
  const std::string many(500'000, '^');
  for (const std::string& expression : {many + "ab" + std::string(20'000, '$'), "ab|" + many + "x"}) {
    const auto grammar = Grammar::from_regex(expression);
    ASSERT_TRUE(grammar) << grammar.error().message;
    EXPECT_EQ(verdict(*grammar, "ab"), Verdict::kWhole);
    EXPECT_EQ(verdict(*grammar, "a"), Verdict::kPrefix);
    EXPECT_EQ(verdict(*grammar, "b"), Verdict::kRefused);
  }
  const auto schema = Grammar::from_json_schema(R"({"type": "string", "pattern": ")" + many + "ab$\"}");
  ASSERT_TRUE(schema) << schema.error().message;
  EXPECT_EQ(verdict(*schema, "\"ab\""), Verdict::kWhole);
  EXPECT_EQ(verdict(*schema, "\"b"), Verdict::kRefused);
}

// A set of characters takes some fifty states, and a text may spell a set a million times.
TEST(Sets, EqualOnesAreOneExpression) {
  ir::Builder builder(Limits{});
  const auto pattern = frontend::parse_pattern(repeated("\\S.[^a]", 1000), frontend::Match::kWhole, {});
  ASSERT_TRUE(pattern) << pattern.error().message;
  frontend::to_expr(builder, *pattern, ir::Encoding::kUtf8);
  EXPECT_EQ(builder.exprs().size(), 4u) << "three sets and a sequence";
  ir::Builder of_gbnf(Limits{});
  ASSERT_TRUE(frontend::read_gbnf(of_gbnf, "root ::= " + repeated(". [^a] ", 1000) + "\n"));
  EXPECT_EQ(of_gbnf.exprs().size(), 3u);
}

TEST(Sets, NoneIsMadeOnceTheGrammarIsTooLarge) {
  constexpr std::size_t kSets = 10'000;
  std::string sets, blanks;
  for (std::size_t i = 0; i < kSets; ++i) {
    const std::string set = "[^\\u" + fmt::format("{:04x}", 0x1000 + i) + "]";
    sets += set;
    blanks += set + " ";
  }
  const Limits limits{.nfa_states_max = kSets};  // in a builder's automata twice as many, in each set more than sixteen
  ir::Builder builder(limits);
  const auto pattern = frontend::parse_pattern(sets, frontend::Match::kWhole, {});
  ASSERT_TRUE(pattern) << pattern.error().message;
  frontend::to_expr(builder, *pattern, ir::Encoding::kUtf8);
  EXPECT_FALSE(builder.check());
  EXPECT_EQ(builder.exprs().back().kind, ir::Expr::Kind::kSequence);
  const auto made = std::ranges::count(builder.exprs(), ir::Expr::Kind::kAutomaton, &ir::Expr::kind);
  EXPECT_LT(static_cast<std::size_t>(made), kSets);
  EXPECT_THAT(Grammar::from_regex(sets, limits).error().message, HasSubstr("too large"));
  ir::Builder of_gbnf(limits);
  const auto read = frontend::read_gbnf(of_gbnf, "root ::= " + blanks + "\n");
  ASSERT_FALSE(read);
  EXPECT_THAT(read.error().message, HasSubstr("too large"));
  EXPECT_LT(of_gbnf.exprs().size(), kSets);
}

TEST(Gbnf, Language) {
  const std::vector<FrontendCase> cases{
      {"root ::= \"a\" | \"b\" \"c\"", {"a", "bc"}, {"ab", "b"}},
      {"# comment\nroot ::= (\n  \"x\" # inner\n  | y\n)*\ny ::= [0-9a-f] [^\\n\\]] . \"\\x41\\u00e9\"\n",
       {"", "x", "f/éAé", "xx0\"zAéx"},
       {"g", "f\nzAé"}},
      {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= num | \"(\" expr \")\"\nnum ::= [0-9]+",
       {"1", "1+(2+3)+4", "((7))"},
       {"1+", "(1", ")"}},
      {"root ::= \"a\"{2,3} \"b\"{,2} \"c\"{2} \"d\"{1,}",
       {"aacc"
        "d",
        "aaabbccdd"},
       {"acc"
        "d",
        "aacc"}},
      {"root ::= a-b_1?\na-b_1 ::= \"q\"", {"", "q"}, {"qq"}},
      {"root ::= list |\n  \"none\"\nlist ::= \"x\" list | \"x\"", {"none", "xxxxxxx"}, {""}},
      {"root ::= \"<\" %json {\"properties\": {\"a\": {\"enum\": [1, \"}\"]}}} \">\" # {\nother ::= \"x\"",
       {"<{}>", "<{\"a\": 1}>", "<{\"a\": \"}\"}>"},
       {"<{\"a\": 2}>", "{}", "<{}>x"}},
      {"root ::= one{2} | two\none ::= %json {\"const\": 1}\n\ntwo ::= %json{\n \"type\": \"null\"}\n",
       {"11", "null"},
       {"1"}},
      {"root ::= \"a\"? \"b\"? root2\nroot2 ::= \"c\"*", {"", "a", "abccc", "ccc"}, {"ba"}},
  };
  for (const FrontendCase& each : cases) {
    const auto grammar = Grammar::from_gbnf(each.grammar);
    ASSERT_TRUE(grammar) << each.grammar << ": " << grammar.error().message;
    for (const auto& text : each.whole)
      EXPECT_EQ(verdict(*grammar, text), Verdict::kWhole) << each.grammar << " " << text;
    for (const auto& text : each.other)
      EXPECT_NE(verdict(*grammar, text), Verdict::kWhole) << each.grammar << " " << text;
  }
}

TEST(Gbnf, Refusals) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "no rule named root"},
      {"root ::= a", "rule a is not defined"},
      {"root ::= \"a\"\nroot ::= \"b\"", "line 2"},
      {"root = \"a\"", "::="},
      {"root ::= \"a", "not closed"},
      {"root ::= (\"a\"", "not closed"},
      {"root ::= [a", "not closed"},
      {"root ::= [z-a]", "before it begins"},
      {"root ::= [^a-z\\u00e9-\\u00e8]", "before it begins"},
      {"root ::= \"\\q\"", "escape"},
      {"root ::= root \"a\" | \"b\"", "left recursion"},
      {"root ::= x\nx ::= y? x \"a\" | \"b\"\ny ::= \"\"", "left recursion"},
      {"root ::= \"a\" root", "no output"},
      {"root ::= \"a\"{3,1}", "above its maximum"},
      {"root ::= " + std::string(100, '(') + "\"a\"" + std::string(100, ')'), "nested"},
      {"root ::= \"a\" \"b\" ) x", "line 1"},
      {"root ::= %jso {}", "%json"},
      {"root ::= %json", "%json"},
      {"root ::= %json 3", "%json"},
      {"root ::= %json {\"type\": ", "%json"},
      {"root ::= <think>", "<[ID]>"},
      {"root ::= <[]>", "<[ID]>"},
      {"root ::= <[7]", "<[ID]>"},
      {"root ::= <[99999999]>", "so large an id"},
      {"root ::= \"a\"\nb ::= %json {\"not\": {}}", "not is not supported"},
  };
  for (const auto& [text, message] : cases) {
    const auto grammar = Grammar::from_gbnf(text);
    ASSERT_FALSE(grammar) << text;
    EXPECT_EQ(grammar.error().code, base::ErrorCode::kInvalidParams);
    EXPECT_THAT(grammar.error().message, HasSubstr(message)) << text;
  }
}

// Each of five hundred letters that may be left out looks at all that follow it.
TEST(Gbnf, RulesBecomeDeterministicWithinOneBudget) {
  const auto compiled = [](int rules) {
    std::string text = "root ::= \"x\"";
    for (int i = 0; i < rules; ++i) text += " | r" + std::to_string(i);
    for (int i = 0; i < rules; ++i) {
      text += "\nr" + std::to_string(i) + " ::= \"" + std::to_string(i) + "\"";
      for (int copies = 0; copies < 16; ++copies) text += " (\"a\"?){32}";
    }
    return Grammar::from_gbnf(text + "\n", {.states_max = 16384});
  };
  EXPECT_TRUE(compiled(1));
  const auto many = compiled(30);
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().code, base::ErrorCode::kInvalidParams);
  EXPECT_THAT(many.error().message, HasSubstr("more than 4194304 steps"));
}

TEST(Gbnf, ALimitOfAutomataSaysWhichItIsAndWhatToDo) {
  const auto refusal = [](const std::string& text, const Limits& limits) {
    const auto grammar = Grammar::from_gbnf(text, limits);
    return grammar ? std::string() : grammar.error().message;
  };
  const std::string letters(100, 'a');
  const std::string two = "root ::= \"" + letters + "\" more\nmore ::= \"" + letters + "\"\n";
  EXPECT_EQ(refusal(two, {}), "");
  EXPECT_EQ(refusal(two, {.nfa_states_max = 90}),
            "the rule root needs more than 90 states by itself; repeat less in it, or split it");
  EXPECT_EQ(refusal(two, {.states_max = 150}),
            "the rule more and all before it need more than 150 states together; make the grammar smaller");
  std::string many = "root ::= \"x\"";
  for (int i = 0; i < 30; ++i) many += " (\"a\"?){32}";
  EXPECT_EQ(refusal(many + "\n", {.states_max = 1000}),
            "the rule root and all before it take more than 256000 steps to be made deterministic; have fewer "
            "alternatives and repetitions that begin alike");
}

}  // namespace
}  // namespace llorch::grammar
