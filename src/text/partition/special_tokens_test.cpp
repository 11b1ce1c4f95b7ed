#include "text/partition/special_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace llorch::text::partition {
namespace {

using Match = std::tuple<std::size_t, std::size_t, std::uint32_t>;
using Spans = std::vector<TrustedSpan>;

// Tokens that contain a 'c' are trusted-only.
bool trusted_only(const std::string& token) { return token.find('c') != std::string::npos; }

std::vector<Match> find(const std::vector<std::string>& tokens, const std::string& text, const Spans& trusted = {}) {
  std::vector<SpelledToken> spelled;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) {
    spelled.push_back({tokens[i], TokenId{i}, trusted_only(tokens[i])});
  }
  std::vector<Match> out;
  TextBudget budget = TextBudget::of_text(text.size());
  const std::vector<SpecialMatch> matches = SpecialTokens(spelled).find(text, trusted, budget).value();
  for (const SpecialMatch& m : matches) {
    out.emplace_back(m.begin, m.bytes, index(m.id));
  }
  return out;
}

// Again and again the longest, then leftmost, token in what is still free.
std::vector<Match> naive_find(const std::vector<std::string>& tokens, const std::string& text, const Spans& trusted) {
  std::vector<bool> taken(text.size());
  std::vector<Match> out;
  while (true) {
    Match best{0, 0, 0};
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
      for (std::uint32_t i = 0; i < tokens.size(); ++i) {
        const std::size_t bytes = tokens[i].size();
        if (bytes <= std::get<1>(best) || text.compare(begin, bytes, tokens[i]) != 0) continue;
        const auto covers = [&](const TrustedSpan& span) { return span.begin <= begin && begin + bytes <= span.end; };
        if (trusted_only(tokens[i]) && std::none_of(trusted.begin(), trusted.end(), covers)) continue;
        const auto first = taken.begin() + static_cast<std::ptrdiff_t>(begin);
        if (std::find(first, first + static_cast<std::ptrdiff_t>(bytes), true) !=
            first + static_cast<std::ptrdiff_t>(bytes)) {
          continue;
        }
        best = {begin, bytes, i};
      }
    }
    if (std::get<1>(best) == 0) break;
    std::fill_n(taken.begin() + static_cast<std::ptrdiff_t>(std::get<0>(best)), std::get<1>(best), true);
    out.push_back(best);
  }
  std::sort(out.begin(), out.end());
  return out;
}

TEST(SpecialTokens, EqualTheNaiveSearch) {
  EXPECT_TRUE(rc::check("trie == naive", [] {
    const auto text_of = [] { return rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')); };
    const auto tokens = *rc::gen::resize(6, rc::gen::unique<std::vector<std::string>>(rc::gen::nonEmpty(text_of())));
    const auto text = *text_of();
    Spans trusted;
    for (std::size_t begin = 0; begin < text.size(); begin += *rc::gen::inRange<std::size_t>(1, 8)) {
      const auto end = begin + *rc::gen::inRange<std::size_t>(1, 8);
      if (trusted.empty() || trusted.back().end <= begin) trusted.push_back({begin, std::min(end, text.size())});
    }
    RC_ASSERT(find(tokens, text, trusted) == naive_find(tokens, text, trusted));
  }));
}

TEST(SpecialTokens, TheLongestWinsWhereverItStands) {
  EXPECT_EQ(find({"ab", "bxd"}, "abxd"), (std::vector<Match>{{1, 3, 1}}));
  EXPECT_EQ(find({"ab", "abx", "xd"}, "abxd"), (std::vector<Match>{{0, 3, 1}}));
  EXPECT_EQ(find({"a", "aa", "ba"}, "aaba"), (std::vector<Match>{{0, 2, 1}, {2, 2, 2}}));
  EXPECT_EQ(find({}, "abc"), (std::vector<Match>{}));
}

TEST(SpecialTokens, LeftmostTakesTheLongestAtTheFirstPlace) {
  const auto leftmost = [](const std::vector<std::string>& tokens, const std::string& text, const Spans& trusted) {
    std::vector<SpelledToken> spelled;
    for (std::uint32_t i = 0; i < tokens.size(); ++i) {
      spelled.push_back({tokens[i], TokenId{i}, trusted_only(tokens[i])});
    }
    std::vector<Match> out;
    TextBudget budget = TextBudget::of_text(text.size());
    const std::vector<SpecialMatch> matches = SpecialTokens(spelled).find_leftmost(text, trusted, budget).value();
    for (const SpecialMatch& m : matches) {
      out.emplace_back(m.begin, m.bytes, index(m.id));
    }
    return out;
  };
  EXPECT_EQ(leftmost({"ab", "bxd"}, "abxd", {}), (std::vector<Match>{{0, 2, 0}}));
  EXPECT_EQ(leftmost({"a", "aa", "ba"}, "aaba", {}), (std::vector<Match>{{0, 2, 1}, {2, 2, 2}}));
  EXPECT_EQ(leftmost({"abc", "ab", "b"}, "abcabc", {{1, 3}, {3, 6}}), (std::vector<Match>{{0, 2, 1}, {3, 3, 0}}));
}

// At each of a thousand places the longest token gives way to the next shorter one, a thousand times, as a longer token stands behind.
TEST(SpecialTokens, PlacesThatGiveWayAreCounted) {
  std::vector<std::string> tokens;
  for (std::size_t bytes = 1; bytes <= 2'000; ++bytes) tokens.emplace_back(bytes, 'a');
  tokens.push_back(tokens.back() + "b");
  std::vector<SpelledToken> spelled;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) spelled.push_back({tokens[i], TokenId{i}});
  const SpecialTokens special(spelled);
  const auto takes = [&](const std::string& text) {
    TextBudget budget = TextBudget::of_text(text.size());
    return special.find(text, {}, budget).has_value();
  };
  EXPECT_TRUE(takes(std::string(3'000, 'a')));
  EXPECT_FALSE(takes(std::string(3'000, 'a') + "b"));
}

TEST(SpecialTokens, TrustedOnlyTokensStayInsideOneTrustedSpan) {
  const std::vector<std::string> tokens{"abc", "ab"};
  EXPECT_EQ(find(tokens, "abcabc", {}), (std::vector<Match>{{0, 2, 1}, {3, 2, 1}}));
  EXPECT_EQ(find(tokens, "abcabc", {{0, 3}}), (std::vector<Match>{{0, 3, 0}, {3, 2, 1}}));
  EXPECT_EQ(find(tokens, "abcabc", {{1, 3}, {3, 6}}), (std::vector<Match>{{0, 2, 1}, {3, 3, 0}}));
  EXPECT_EQ(find(tokens, "abc", {{0, 2}, {2, 3}}), (std::vector<Match>{{0, 2, 1}}));
}

}  // namespace
}  // namespace llorch::text::partition
