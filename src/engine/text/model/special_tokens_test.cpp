#include "engine/text/model/special_tokens.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <tuple>

namespace llorch::engine::text::model {
namespace {

using Match = std::tuple<std::size_t, std::size_t, std::uint32_t>;

std::vector<Match> find(const std::vector<std::string>& tokens, const std::string& text) {
  std::vector<SpelledToken> spelled;
  for (std::uint32_t i = 0; i < tokens.size(); ++i) spelled.push_back({tokens[i], TokenId{i}});
  std::vector<Match> out;
  for (const SpecialMatch& m : SpecialTokens(spelled).find(text)) out.emplace_back(m.begin, m.bytes, index(m.id));
  return out;
}

// Again and again the longest, then leftmost, token in what is still free.
std::vector<Match> naive_find(const std::vector<std::string>& tokens, const std::string& text) {
  std::vector<bool> taken(text.size());
  std::vector<Match> out;
  while (true) {
    Match best{0, 0, 0};
    for (std::size_t begin = 0; begin < text.size(); ++begin) {
      for (std::uint32_t i = 0; i < tokens.size(); ++i) {
        const std::size_t bytes = tokens[i].size();
        if (bytes <= std::get<1>(best) || text.compare(begin, bytes, tokens[i]) != 0) continue;
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
    const auto text_of = [] { return rc::gen::container<std::string>(rc::gen::element('a', 'b')); };
    const auto tokens = *rc::gen::resize(6, rc::gen::unique<std::vector<std::string>>(rc::gen::nonEmpty(text_of())));
    const auto text = *text_of();
    RC_ASSERT(find(tokens, text) == naive_find(tokens, text));
  }));
}

TEST(SpecialTokens, TheLongestWinsWhereverItStands) {
  EXPECT_EQ(find({"ab", "bcd"}, "abcd"), (std::vector<Match>{{1, 3, 1}}));
  EXPECT_EQ(find({"ab", "abc", "cd"}, "abcd"), (std::vector<Match>{{0, 3, 1}}));
  EXPECT_EQ(find({"a", "aa", "ba"}, "aaba"), (std::vector<Match>{{0, 2, 1}, {2, 2, 2}}));
  EXPECT_EQ(find({}, "abc"), (std::vector<Match>{}));
}

}  // namespace
}  // namespace llorch::engine::text::model
