#include "grammar/ir/automaton.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <string>

#include "base/utf8.h"
#include "grammar/frontend/pattern.h"

namespace llorch::grammar::ir {
namespace {

Dfa dfa_of(std::string_view expression) {
  const auto pattern = frontend::parse_pattern(expression, frontend::Match::kWhole, Limits{});
  EXPECT_TRUE(pattern) << pattern.error().message;
  return *frontend::to_dfa(*pattern, 1000);
}

std::vector<std::vector<Symbol>> words_up_to(std::size_t length, std::string_view alphabet) {
  std::vector<std::vector<Symbol>> out{{}};
  for (std::size_t begin = 0, round = 0; round < length; ++round) {
    const std::size_t end = out.size();
    for (; begin < end; ++begin) {
      for (const char c : alphabet) {
        auto word = out[begin];
        word.push_back(static_cast<unsigned char>(c));
        out.push_back(std::move(word));
      }
    }
  }
  return out;
}

TEST(SymbolSet, Algebra) {
  EXPECT_EQ(normalise({{5, 9}, {1, 2}, {3, 4}, {20, 20}}), (SymbolSet{{1, 9}, {20, 20}}));
  EXPECT_EQ(complement({{0, 3}, {7, 7}}, {0, 10}), (SymbolSet{{4, 6}, {8, 10}}));
  EXPECT_EQ(complement({}, {2, 3}), (SymbolSet{{2, 3}}));
  EXPECT_TRUE(complement({{0, 10}}, {0, 10}).empty());
  EXPECT_EQ(intersection({{0, 5}, {8, 9}}, {{4, 8}}), (SymbolSet{{4, 5}, {8, 8}}));
}

TEST(Automaton, SetOperationsAgreeWithMembership) {
  const std::vector<Dfa> languages{dfa_of("a*b?"), dfa_of("(ab|ba)*"), dfa_of("[ab]{2,3}c?"),
                                   dfa_of(".*c"),  dfa_of("a|b|abc"),  dfa_of("")};
  const auto words = words_up_to(5, "abc");
  for (const Dfa& a : languages) {
    for (const Dfa& b : languages) {
      const Dfa both = *intersect(a, b, 1000), either = *unite(a, b, 1000), only = *subtract(a, b, 1000);
      for (const auto& word : words) {
        ASSERT_EQ(both.contains(word), a.contains(word) && b.contains(word));
        ASSERT_EQ(either.contains(word), a.contains(word) || b.contains(word));
        ASSERT_EQ(only.contains(word), a.contains(word) && !b.contains(word));
      }
    }
    EXPECT_TRUE(subtract(a, a, 1000)->is_empty());
  }
}

TEST(Automaton, EveryStateReachesAcceptance) {
  const Dfa dfa = *intersect(dfa_of("a*b[ab]*"), dfa_of("a{0,3}b"), 1000);
  for (const Dfa::State& state : dfa.states) EXPECT_TRUE(state.accepts || !state.edges.empty());
  EXPECT_TRUE(intersect(dfa_of("a+"), dfa_of("b+"), 1000)->is_empty());
}

TEST(Automaton, ExponentialOnesStopAtTheLimit) {
  const auto pattern = frontend::parse_pattern("[ab]*a[ab]{30}", frontend::Match::kWhole, Limits{});
  EXPECT_FALSE(frontend::to_dfa(*pattern, 10000));
  EXPECT_FALSE(intersect(dfa_of("[ab]{200}"), dfa_of("(aa|b)*"), 100));
}

// Also where nothing is left in the end; one that may take less stops on the way.
TEST(Automaton, OperationsStopWhereTheirWorkIsOver) {
  const Dfa a = dfa_of("(a{97})*c"), b = dfa_of("(a{101})*b");
  const auto rest = [](std::int64_t at, char c) { return (at * 10 + (c - '0')) % 1009; };
  const auto explored = [&](Work* work) {
    return explore(
        0, "0123456789", rest, [](std::int64_t at) { return at == 0; }, 20000, work);
  };
  const std::vector<std::function<std::optional<Dfa>(Work*)>> operations{
      [&](Work* work) { return intersect(a, b, 20000, work); },
      [&](Work* work) { return subtract(a, b, 20000, work); },
      [&](Work* work) { return unite(a, b, 20000, work); },
      explored,
  };
  for (const auto& operation : operations) {
    Work all;
    ASSERT_TRUE(operation(&all));
    EXPECT_GT(all.spent(), std::min(97u * 101u, 1009u * 10u));
    EXPECT_TRUE(operation(nullptr));
    Work all_but_one(all.spent() - 1);
    EXPECT_FALSE(operation(&all_but_one)) << "merging counts as well";
    Work little(1000);
    EXPECT_FALSE(operation(&little));
    EXPECT_LT(little.spent(), 2000u);
  }
  EXPECT_TRUE(intersect(a, b, 20000)->is_empty());
  // One state with edges that overlap.
  std::string alternatives = "a";
  for (unsigned i = 0; i < 2000; ++i) alternatives += fmt::format("|[a-\\u{:04x}]x", 0x4E00 + i);
  const auto pattern = frontend::parse_pattern(alternatives, frontend::Match::kWhole, Limits{});
  ASSERT_TRUE(pattern);
  Work little(50'000);
  EXPECT_FALSE(frontend::to_dfa(*pattern, 20000, &little));
  EXPECT_LT(little.spent(), 60'000u);
}

// Every code point of the set and no other, by its UTF-8 bytes.
TEST(CodePoints, SpelledAsUtf8) {
  const SymbolSet set{{'a', 'c'},       {0x7F, 0x81},      {0x7FE, 0x802},
                      {0xD7FF, 0xE001}, {0xFFFE, 0x10001}, {0x10FFFF, 0x10FFFF}};
  Builder builder{Limits{}};
  const ExprId expr = one_of(builder, set, Encoding::kUtf8);
  const Dfa dfa = *determinise(builder.nfa(builder.expr(expr).automaton), 1000);
  const auto utf8 = [](Symbol c) -> std::vector<Symbol> {
    if (c < 0x80) return {c};
    if (c < 0x800) return {0xC0 | c >> 6, 0x80 | (c & 0x3F)};
    if (c < 0x10000) return {0xE0 | c >> 12, 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F)};
    return {0xF0 | c >> 18, 0x80 | (c >> 12 & 0x3F), 0x80 | (c >> 6 & 0x3F), 0x80 | (c & 0x3F)};
  };
  for (Symbol c = 0; c <= 0x10FFFF; ++c) {
    const bool is_surrogate = c >= 0xD800 && c <= 0xDFFF;
    const bool is_member = !is_surrogate && !intersection(set, {{c, c}}).empty();
    ASSERT_EQ(dfa.contains(utf8(c)), is_member) << c;
  }
}

TEST(CodePoints, SpelledInsideJsonStrings) {
  Builder builder{Limits{}};
  const ExprId expr = one_of(builder, all_code_points(), Encoding::kJsonString);
  const Dfa dfa = *determinise(builder.nfa(builder.expr(expr).automaton), 1000);
  const auto contains = [&](std::string_view text) {
    return dfa.contains(std::vector<Symbol>(reinterpret_cast<const std::uint8_t*>(text.data()),
                                            reinterpret_cast<const std::uint8_t*>(text.data()) + text.size()));
  };
  for (const char* good : {"a", "\\n", "\\\"", "\\\\", "\\u0000", "\\u001f", "é", "😀", "/"})
    EXPECT_TRUE(contains(good)) << good;
  for (const char* bad : {"\"", "\\", "\n", "\\u000a", "\\/", "\\u0041", ""}) EXPECT_FALSE(contains(bad)) << bad;
  EXPECT_EQ(json_escape("a\"\\\n\x01é"), "a\\\"\\\\\\n\\u0001é");
}

}  // namespace
}  // namespace llorch::grammar::ir
