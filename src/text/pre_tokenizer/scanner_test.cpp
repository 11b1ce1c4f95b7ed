#include "text/pre_tokenizer/scanner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/pre_tokenizer/pattern.h"
#include "text/pre_tokenizer/regex.h"
#include "text/unicode/char_class.h"

namespace llorch::text::pre_tokenizer {
namespace {

using Pieces = std::vector<std::string>;

// Matches and what lies between them.
template <class Find>
Pieces pieces(std::string_view text, const Find& find_from) {
  Pieces out;
  std::size_t done = 0;
  while (const std::optional<Match> match = find_from(done)) {
    EXPECT_LT(match->begin, match->end);
    EXPECT_GE(match->begin, done);
    if (match->begin > done) out.emplace_back(text.substr(done, match->begin - done));
    out.emplace_back(text.substr(match->begin, match->end - match->begin));
    done = match->end;
  }
  if (done < text.size()) out.emplace_back(text.substr(done));
  return out;
}

Pieces scan(Scanner scanner, std::string_view text) {
  return pieces(text, [&](std::size_t from) { return find(scanner, text, from); });
}

Pieces match(const Regex& regex, std::string_view text) {
  TextBudget budget = TextBudget::of_text(text.size());
  return pieces(text, [&](std::size_t from) { return regex.find(text, from, budget).value(); });
}

std::string utf8(char32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 63)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

// PCRE2's own classes; its Unicode is older than ours (char_class.cpp).
class RegexClasses {
 public:
  unicode::CharSet of(const std::string& character) const {
    for (const auto& [set, regex] : classes_) {
      if (matches(regex, character)) return set;
    }
    return unicode::kOther;
  }
  bool is_unassigned(const std::string& character) const { return matches(unassigned_, character); }

 private:
  static bool matches(const Regex& regex, const std::string& character) {
    TextBudget budget = TextBudget::of_text(character.size());
    return regex.find(character, 0, budget).value().has_value();
  }
  static Regex make(std::string_view pattern) { return Regex::create(pattern).value(); }
  Regex unassigned_ = make(R"([\p{Cn}\p{Co}])");
  std::map<unicode::CharSet, Regex> classes_ = [] {
    std::map<unicode::CharSet, Regex> classes;
    for (const auto& [set, pattern] :
         std::initializer_list<std::pair<unicode::CharSet, std::string_view>>{{unicode::kLu, R"(\p{Lu})"},
                                                                              {unicode::kLl, R"(\p{Ll})"},
                                                                              {unicode::kLt, R"(\p{Lt})"},
                                                                              {unicode::kLm, R"(\p{Lm})"},
                                                                              {unicode::kLo, R"(\p{Lo})"},
                                                                              {unicode::kMark, R"(\p{M})"},
                                                                              {unicode::kNumber, R"(\p{N})"},
                                                                              {unicode::kPunctuation, R"(\p{P})"},
                                                                              {unicode::kSymbol, R"(\p{S})"},
                                                                              {unicode::kSpace, R"(\s)"}}) {
      classes.emplace(set, make(pattern));
    }
    return classes;
  }();
};

bool is_scalar(char32_t c) { return c < 0xD800 || (c > 0xDFFF && c < 0x110000); }

// Nothing differs but what the older version had not assigned.
TEST(CharClass, EqualsTheRegularExpressionsClassesWhereTheyKnowTheCharacter) {
  const RegexClasses classes;
  std::size_t newer = 0;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (!is_scalar(c)) continue;
    const std::string character = utf8(c);
    const auto got = unicode::next_char(character);
    ASSERT_EQ(got.bytes, character.size()) << std::hex << static_cast<unsigned>(c);
    ASSERT_EQ(got.code_point, c);
    if (got.char_class == classes.of(character)) continue;
    ASSERT_TRUE(classes.is_unassigned(character)) << std::hex << static_cast<unsigned>(c);
    ++newer;
  }
  EXPECT_LT(newer, 20'000u);
}

std::string deepseek_llm_word() {
  struct Range {
    unsigned first, last;
  };
  constexpr Range kRanges[] = {
#include "text/pre_tokenizer/deepseek_llm_letters.inc"
  };
  std::string set;
  for (const Range& range : kRanges) set += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", range.first, range.last);
  return "\\s?[" + set + "]+";
}

std::vector<std::pair<std::string, Scanner>> all_patterns() {
  std::vector<std::pair<std::string, Scanner>> out;
  for (const KnownPattern& known : known_patterns()) out.emplace_back(known.regex, known.scanner);
  out.emplace_back(deepseek_llm_word(), Scanner::kDeepseekLlmWord);
  out.emplace_back(R"([\p{P}$+<=>^`|~])", Scanner::kOnePunctuation);
  return out;
}

// A character of every class in every plane that has one, and whatever patterns name.
rc::Gen<std::string> any_character() {
  const auto known = rc::gen::element<std::string>(
      "a", "Z", "s", "S", "T", "re", "VE", "l", "L", "m", "d", "'", "'", "\"", " ", " ", " ", "\t", "\n", "\r", "\r\n",
      "0", "7", "123", "!", "-", "/", "$", "`", "|", "\xC3\xA9", "\xC3\x89", "\xC3\x9F", "\xE4\xB8\xAD", "\xE3\x81\x82",
      "\xE3\x82\xAB", "\xED\x95\x9C", "\xD9\xA3", "\xC2\xBD", "\xC2\xA0", "\xE3\x80\x80", "\xE3\x80\x82",
      "\xE2\x80\xA8", "\xC2\x85", "\xCC\x81", "\xF0\x9F\x98\x80", "\xE2\x85\xA7", "\xC5\xBF", "\xC7\x85", "\xCA\xB0",
      "\xE2\x80\x99", "\xEF\xBC\x81", std::string(1, '\0'), "\x01");
  const auto scalar = rc::gen::suchThat(
      rc::gen::oneOf(rc::gen::inRange<char32_t>(0, 0x800), rc::gen::inRange<char32_t>(0x800, 0x3400),
                     rc::gen::inRange<char32_t>(0xA000, 0x20000), rc::gen::inRange<char32_t>(0x20000, 0x110000)),
      is_scalar);
  return rc::gen::weightedOneOf<std::string>({{4, known}, {1, rc::gen::map(scalar, utf8)}});
}

TEST(Scanner, MatchesAsTheRegularExpressionDoes) {
  static const RegexClasses classes;
  for (const auto& [pattern, scanner] : all_patterns()) {
    const Regex regex = Regex::create(pattern).value();
    EXPECT_TRUE(rc::check("scanner == PCRE2: " + pattern.substr(0, 60), [&, scanner = scanner] {
      std::string text;
      for (const std::string& character : *rc::gen::container<Pieces>(any_character())) {
        const bool same = character.size() < 2 || classes.of(character) == unicode::next_char(character).char_class;
        if (same) text += character;
      }
      RC_ASSERT(scan(scanner, text) == match(regex, text));
    }));
  }
}

TEST(Scanner, KnownRegularExpressionsGetTheirScanner) {
  for (const KnownPattern& known : known_patterns()) {
    const Pattern pattern = Pattern::create({std::string(known.regex), true}).value();
    const std::string text = "I'LL say 12345?! \xE4\xB8\xAD\xE6\x96\x87\r\n\n  x";
    TextBudget budget = TextBudget::of_text(text.size());
    EXPECT_EQ(pieces(text, [&](std::size_t from) { return pattern.find(text, from, budget).value(); }),
              scan(known.scanner, text));
  }
}

TEST(Scanner, Examples) {
  EXPECT_EQ(scan(Scanner::kGpt2, "I'll  say 123!\n\n x"), (Pieces{"I", "'ll", " ", " say", " 123", "!", "\n\n", " x"}));
  EXPECT_EQ(scan(Scanner::kCl100k, "I'LL\tsay 12345?!\r\n\n  x"),
            (Pieces{"I", "'LL", "\tsay", " ", "123", "45", "?!\r\n\n", " ", " x"}));
  EXPECT_EQ(scan(Scanner::kCl100kOneDigit, "12 \n "), (Pieces{"1", "2", " \n", " "}));
  EXPECT_EQ(scan(Scanner::kO200k, "camelCase HTMLParser don't a/b\n"),
            (Pieces{"camel", "Case", " HTMLParser", " don't", " a", "/b", "\n"}));
  EXPECT_EQ(scan(Scanner::kTekken, "don't 42"), (Pieces{"don", "'t", " ", "4", "2"}));
  EXPECT_EQ(scan(Scanner::kDeepseekV3Words, "a.b c"), (Pieces{"a", ".b", " c"}));
}

TEST(Scanner, IllFormedBytesAreNoLetters) {
  for (const Scanner scanner : {Scanner::kGpt2, Scanner::kCl100k, Scanner::kO200k}) {
    EXPECT_EQ(scan(scanner, "a\xFF\xE2\x82"), (Pieces{"a", "\xFF\xE2\x82"}));
  }
  EXPECT_EQ(well_formed("a\xFF\xE2\x82\xE2\x82\xAC"), "a\x01\x01\x01\xE2\x82\xAC");
}

// With anything quadratic this takes hours.
TEST(Scanner, LongRunsStayCheap) {
  for (const auto& [pattern, scanner] : all_patterns()) {
    for (const char* unit : {"a", " ", "\n", "1", "!", "\xE4\xB8\xAD", "A", " \n", "'", "\xCC\x81"}) {
      std::string text;
      for (int i = 0; i < 50'000; ++i) text += unit;
      text += 'x';
      std::string joined;
      for (const std::string& piece : scan(scanner, text)) joined += piece;
      EXPECT_EQ(joined, text);
    }
  }
}

TEST(Regex, RefusesWhatWouldMeanSomethingElse) {
  for (const char* pattern : {"a*", "(", "[a&&b]", "[[:punct:]]", R"(\bword)", R"(\h)", R"([^\W])", "a{2}+", "(?m:.)",
                              "(*SKIP)a", R"(a\)", R"(\p{L)", "[]a]", R"(\p{NoSuchScript})", "(?<n>a)"}) {
    const auto regex = Regex::create(pattern);
    ASSERT_FALSE(regex.has_value()) << pattern;
    EXPECT_EQ(regex.error().code, base::ErrorCode::kUnsupportedTokenizer) << pattern;
  }
  EXPECT_EQ(Regex::create(std::string(20'000, 'a')).error().code, base::ErrorCode::kUnsupportedTokenizer);
}

TEST(Regex, ClassesAreThoseOfTheOriginal) {
  const auto matches = [](const char* pattern, const std::string& text) {
    return match(Regex::create(pattern).value(), text).size() == 1;
  };
  EXPECT_TRUE(matches(R"(\w+)", "a\xCC\x81_\xE2\x80\xBF"));  // marks and connectors are word characters
  EXPECT_TRUE(matches(R"(a[^\s]b)",
                      "a\xE1\xA0\x8E"
                      "b"));  // U+180E is no space
  EXPECT_TRUE(matches(R"(^b$)", "b"));
  EXPECT_EQ(match(Regex::create("^b").value(), "a\nb"), (Pieces{"a\n", "b"}));  // ^ is the start of a line
  // A script is the script alone: the ideographic full stop is used with Han and is not of it.
  EXPECT_EQ(match(Regex::create(R"(\p{Han}+)").value(), "\xE4\xB8\x96\xE7\x95\x8C\xE3\x80\x82"),
            (Pieces{"\xE4\xB8\x96\xE7\x95\x8C", "\xE3\x80\x82"}));
}

}  // namespace
}  // namespace llorch::text::pre_tokenizer
