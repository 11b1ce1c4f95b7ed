#include "text/partition/partition.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace llorch::text::partition {
namespace {

// Tokens "|", which takes the spaces behind it, and " " stand in any text; "X" is the control token that normalized text spells "x".
Partition make(Partition::Order order) {
  TokenizerData data;
  data.tokens = {"|", " ", "X"};
  data.kinds = {TokenKind::kUserDefined, TokenKind::kUserDefined, TokenKind::kControl};
  data.json.added = {{.id = TokenId{0}, .rstrip = true}, {.id = TokenId{2}, .normalized = true}};
  const std::vector<std::string_view> spellings(data.tokens.begin(), data.tokens.end());
  const std::vector<NormalizerStep> steps{{.kind = NormalizerKind::kLowercase}};
  return Partition::create(data, spellings,
                           {.order = order, .normalizer = normalizer::Normalizer::create(steps).value()})
      .value();
}

// A token as it is spelled, plain text in parentheses.
std::string split(const Partition& partition, const std::string& text, const std::vector<TrustedSpan>& trusted) {
  TextBudget budget = TextBudget::of_text(text.size());
  std::string out;
  const std::vector<Fragment> fragments = partition.split(text, trusted, budget).value();
  for (const Fragment& fragment : fragments) {
    out += fragment.token ? std::string(1, "| X"[index(*fragment.token)]) : "(" + fragment.text + ")";
  }
  return out;
}

std::string naive_split(const std::string& text, const std::vector<TrustedSpan>& trusted) {
  std::string out;
  std::size_t done = 0;
  const auto add_plain = [&](std::size_t end) {
    if (end <= done) return;
    const bool is_trusted = std::any_of(trusted.begin(), trusted.end(),
                                        [&](const TrustedSpan& span) { return span.begin <= done && end <= span.end; });
    std::string plain;
    const auto flush = [&] {
      if (!plain.empty()) out += "(" + std::exchange(plain, {}) + ")";
    };
    for (std::size_t i = done; i < end; ++i) {
      if (!is_trusted || text[i] != 'x') {
        plain += text[i];
        continue;
      }
      flush();
      out += 'X';
    }
    flush();
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '|' && text[i] != ' ') continue;
    add_plain(i);
    out += text[i];
    done = i + 1;
    while (text[i] == '|' && done < text.size() && text[done] == ' ') ++done;
  }
  add_plain(text.size());
  return out;
}

// Also where a space that the token before took is a token by itself, behind which the text goes on further to the left.
TEST(Partition, PlainTextIsTrustedThatLiesInOneTrustedSpan) {
  for (const auto order : {Partition::Order::kLeftmostFirst, Partition::Order::kLongestFirst}) {
    const Partition partition = make(order);
    EXPECT_EQ(split(partition, "ax|  x|x", {{0, 2}, {5, 6}, {7, 7}}), "(a)X|  X|(x)");
    EXPECT_TRUE(rc::check("split == naive", [&] {
      const auto text = *rc::gen::container<std::string>(rc::gen::element('x', 'a', ' ', '|'));
      std::vector<TrustedSpan> trusted;
      std::size_t begin = 0;
      for (int i = *rc::gen::inRange(0, 10); i > 0; --i) {
        begin = std::min(begin + *rc::gen::inRange<std::size_t>(0, 4), text.size());
        const std::size_t end = std::min(begin + *rc::gen::inRange<std::size_t>(0, 8), text.size());
        trusted.push_back({begin, end});
        begin = end;
      }
      RC_ASSERT(split(partition, text, trusted) == naive_split(text, trusted));
    }));
  }
}

}  // namespace
}  // namespace llorch::text::partition
