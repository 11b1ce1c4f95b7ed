#include "text/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>

#include "base/utf8.h"
#include "text/test_vocabularies.h"

namespace llorch::text {
namespace {

std::vector<std::string> random_split(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t done = 0; done < text.size();) {
    const auto bytes = *rc::gen::inRange<std::size_t>(1, 6);
    parts.push_back(text.substr(done, bytes));
    done += parts.back().size();
  }
  return parts;
}

std::string utf8(char32_t c) {
  const auto tail = [c](int shift) { return static_cast<char>(0x80 | (c >> shift & 63)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(0)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(6), tail(0)};
  return {static_cast<char>(0xF0 | c >> 18), tail(12), tail(6), tail(0)};
}

rc::Gen<std::string> any_utf8() {
  const auto scalar = rc::gen::suchThat(
      rc::gen::oneOf(rc::gen::inRange<char32_t>(1, 0x80), rc::gen::inRange<char32_t>(0x80, 0x800),
                     rc::gen::inRange<char32_t>(0x800, 0x10000), rc::gen::inRange<char32_t>(0x10000, 0x110000)),
      [](char32_t c) { return c < 0xD800 || c > 0xDFFF; });
  return rc::gen::map(rc::gen::container<std::vector<char32_t>>(scalar), [](const std::vector<char32_t>& scalars) {
    std::string text;
    for (const char32_t c : scalars) text += utf8(c);
    return text;
  });
}

// The text as a whole: what can be no code point becomes U+FFFD.
std::string naive_replace(std::string_view bytes) {
  std::string out;
  while (!bytes.empty()) {
    const base::Utf8Step step = base::next_code_point(bytes);
    out += step.status == base::Utf8Status::kComplete ? bytes.substr(0, step.bytes) : "\xEF\xBF\xBD";
    bytes.remove_prefix(step.bytes);
  }
  return out;
}

// However valid text is cut, the parts that come out are whole code points, and together they are the text.
TEST(Utf8Assembler, AnySplitOfValidTextRejoinsBitwise) {
  EXPECT_TRUE(rc::check("split and rejoin", [] {
    const auto text = *any_utf8();
    Utf8Assembler assembler;
    std::string out;
    std::size_t pushed_bytes = 0;
    for (const std::string& part : random_split(text)) {
      const std::string piece = assembler.push(part);
      RC_ASSERT(base::is_valid_utf8(piece));
      out += piece;
      pushed_bytes += part.size();
      RC_ASSERT(pushed_bytes - out.size() <= 3u);
    }
    RC_ASSERT(out == text);
    RC_ASSERT(assembler.finish().empty());
  }));
}

TEST(Utf8Assembler, AnySplitOfAnyBytesGivesTheSameReplacements) {
  EXPECT_TRUE(rc::check("split and replace", [] {
    const auto bytes = *rc::gen::container<std::string>(rc::gen::oneOf(
        rc::gen::element('a', '\xC3', '\xA9', '\xE2', '\x96', '\x81', '\xF0', '\x9F', '\x98', '\xED', '\xA0'),
        rc::gen::arbitrary<char>()));
    Utf8Assembler assembler;
    std::string out;
    for (const std::string& part : random_split(bytes)) {
      const std::string piece = assembler.push(part);
      RC_ASSERT(base::is_valid_utf8(piece));
      out += piece;
    }
    RC_ASSERT(out + assembler.finish() == naive_replace(bytes));
  }));
}

TEST(Utf8Assembler, ReplacesOnlyWhatCanNoLongerBecomeValid) {
  Utf8Assembler assembler;
  EXPECT_EQ(assembler.push("\xF0\x9F"), "");
  EXPECT_EQ(assembler.push("\x98"), "");
  EXPECT_EQ(assembler.push("\x80"), "\xF0\x9F\x98\x80");
  EXPECT_EQ(assembler.push("\xE2\x96"), "");
  EXPECT_EQ(assembler.push("x"), "\xEF\xBF\xBDx");
  EXPECT_EQ(assembler.push("\xE2\x96"), "");
  EXPECT_EQ(assembler.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(assembler.finish(), "");
}

struct Stopped {
  std::string text;
  bool stopped;
  bool operator==(const Stopped&) const = default;
};

// The first end at which some stop string is complete; the longest there.
Stopped naive_stop(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t bytes = 0;
    for (const std::string& stop : stops) {
      if (std::string_view(text).substr(0, end).ends_with(stop)) bytes = std::max(bytes, stop.size());
    }
    if (bytes > 0) return {text.substr(0, end - bytes), true};
  }
  return {text, false};
}

std::size_t longest_open_prefix(const std::string& text, const std::vector<std::string>& stops) {
  std::size_t longest = 0;
  for (const std::string& stop : stops) {
    for (std::size_t n = 1; n < stop.size(); ++n) {
      if (text.ends_with(std::string_view(stop).substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

rc::Gen<std::string> ab_text() { return rc::gen::container<std::string>(rc::gen::element('a', 'b', 'c')); }

// M0-W-1422, on text instead of tokens: nothing lost, nothing doubled, nothing of a stop string shown, no byte held
// back without need, whatever the split.
TEST(StopMatcher, EqualsTheNaiveSearchForAnySplit) {
  EXPECT_TRUE(rc::check("stop matcher == naive", [] {
    const auto stops = *rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(rc::gen::nonEmpty(ab_text())));
    const auto text = *ab_text();
    StopMatcher matcher(stops);
    Stopped got{"", false};
    std::string seen;
    for (const std::string& part : random_split(text)) {
      const auto out = matcher.push(part);
      got.text += out.text;
      got.stopped = out.stopped;
      seen += part;
      if (!got.stopped) RC_ASSERT(got.text.size() + longest_open_prefix(seen, stops) == seen.size());
    }
    got.text += matcher.finish();
    RC_ASSERT(got == naive_stop(text, stops));
  }));
}

TEST(StopMatcher, HoldsBackAcrossPiecesAndReleasesWhatIsNoMatch) {
  StopMatcher matcher({"END", "\n\nUser:"});
  EXPECT_EQ(matcher.push("one E").text, "one ");
  EXPECT_EQ(matcher.push("N").text, "");
  EXPECT_EQ(matcher.push("EN").text, "EN");
  EXPECT_EQ(matcher.push("\n").text, "EN");
  EXPECT_EQ(matcher.push("\n").text, "");
  const auto last = matcher.push("User: END");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
  EXPECT_EQ(matcher.push("more").text, "");
  EXPECT_EQ(matcher.finish(), "");
}

std::string all_of(TextStream& stream, const std::vector<TokenId>& tokens) {
  std::string out;
  for (const TokenId token : tokens) {
    const TextPiece piece = stream.push(token);
    EXPECT_TRUE(base::is_valid_utf8(piece.text));
    out += piece.text;
  }
  return out + stream.finish().text;
}

TEST(TextStream, JoinsToWhatTheTokensSayUpToTheStop) {
  const Tokenizer tokenizer =
      Tokenizer::create(byte_bpe_data({{"a", "b"}, {"ab", "c"}, {"\xE2\x82", "\xAC"}, {"\xE2", "\x82"}},
                                      {{"<s>", TokenKind::kControl}}))
          .value();
  EXPECT_TRUE(rc::check("stream == naive", [&] {
    const auto tokens = *rc::gen::container<std::vector<TokenId>>(
        rc::gen::map(rc::gen::element<std::uint32_t>('a', 'b', 'c', 256, 257, 258, 259, 260, 0xE2, 0x82, 0xAC, 0xFF),
                     [](std::uint32_t n) { return TokenId{n}; }));
    const auto stops = *rc::gen::resize(4, rc::gen::container<std::vector<std::string>>(
                                               rc::gen::element<std::string>("ca", "abca", "\xE2\x82\xAC", "bb")));
    TextStream stream(tokenizer, {.stop_strings = stops});
    std::string bytes;
    for (const TokenId token : tokens) bytes += tokenizer.token_bytes(token);
    RC_ASSERT(all_of(stream, tokens) == naive_stop(naive_replace(bytes), stops).text);
  }));
}

TEST(TextStream, LeadingSpaceIsDroppedOnlyAtTheStartOfAText) {
  const TokenizerData data =
      spm_data({"\xE2\x96\x81"
                "a",
                "a"});
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  const std::vector<TokenId> tokens{TokenId{1}, TokenId{259}, TokenId{259}};
  TextStream at_start(tokenizer, {.stop_strings = {}, .at_text_start = true});
  EXPECT_EQ(all_of(at_start, tokens), "a a");
  TextStream after_prompt(tokenizer, {});
  EXPECT_EQ(all_of(after_prompt, tokens), " a a");
}

TEST(TextStream, EndTokensEmitNothingEvenWhenTheFileCallsThemNormal) {
  TokenizerData data = byte_bpe_data({}, {{"<end>", TokenKind::kNormal}});
  data.eos = TokenId{256};
  const Tokenizer tokenizer = Tokenizer::create(data).value();
  TextStream stream(tokenizer, {});
  EXPECT_EQ(all_of(stream, {TokenId{'a'}, TokenId{256}}), "a");
}

TEST(TextStream, AStopStringMayEndInTheFlushedReplacement) {
  const Tokenizer tokenizer = Tokenizer::create(byte_bpe_data({})).value();
  TextStream stream(tokenizer, {.stop_strings = {"a\xEF\xBF\xBD"}});
  EXPECT_EQ(stream.push(TokenId{'a'}).text, "");
  EXPECT_EQ(stream.push(TokenId{0xE2}).text, "");
  const TextPiece tail = stream.finish();
  EXPECT_TRUE(tail.stopped);
  EXPECT_EQ(tail.text, "");
}

TEST(StopStrings, LimitsAreCheckedAndNamed) {
  const Tokenizer tokenizer = Tokenizer::create(byte_bpe_data({})).value();
  const auto code = [&](const std::vector<std::string>& stops) {
    const auto result = validate_stop_strings(tokenizer, stops);
    return result ? std::optional<base::ErrorCode>() : result.error().code;
  };
  EXPECT_EQ(code({}), std::nullopt);
  EXPECT_EQ(code({"a", "b", "c", std::string(32, 'x')}), std::nullopt);
  EXPECT_EQ(code(std::vector<std::string>(kStopStringsMax + 1, "a")), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code({""}), base::ErrorCode::kInvalidParams);
  EXPECT_EQ(code({std::string(33, 'x')}), base::ErrorCode::kInvalidParams);
}

}  // namespace
}  // namespace llorch::text
