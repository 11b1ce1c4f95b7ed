#include "engine/text/model/pre_tokenizer.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <memory>
#include <vector>

namespace llorch::engine::text::model {
namespace {

using Pieces = std::vector<std::string>;

Pieces scan(PrePattern pattern, std::string_view text) {
  Pieces pieces;
  while (!text.empty()) {
    const std::size_t bytes = first_piece_bytes(pattern, text);
    EXPECT_GT(bytes, 0u);
    EXPECT_LE(bytes, text.size());
    pieces.emplace_back(text.substr(0, bytes));
    text.remove_prefix(bytes);
  }
  return pieces;
}

// The published pattern, run by a regular expression engine.
class Regex {
 public:
  explicit Regex(const std::string& pattern) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code_.reset(pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                &error, &offset, nullptr));
    EXPECT_NE(code_, nullptr) << "error " << error << " at " << offset;
    match_.reset(pcre2_match_data_create_from_pattern_8(code_.get(), nullptr));
  }

  Pieces split(const std::string& text) const {
    Pieces pieces;
    std::size_t done = 0;
    while (done < text.size()) {
      const int rc = pcre2_match_8(code_.get(), reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), done, 0,
                                   match_.get(), nullptr);
      const PCRE2_SIZE* range = pcre2_get_ovector_pointer_8(match_.get());
      const std::size_t begin = rc > 0 ? range[0] : text.size();
      if (begin > done) pieces.push_back(text.substr(done, begin - done));
      if (rc <= 0) break;
      pieces.push_back(text.substr(begin, range[1] - begin));
      done = range[1];
    }
    return pieces;
  }

 private:
  struct Free {
    void operator()(pcre2_code_8* code) const { pcre2_code_free_8(code); }
    void operator()(pcre2_match_data_8* match) const { pcre2_match_data_free_8(match); }
  };
  std::unique_ptr<pcre2_code_8, Free> code_;
  std::unique_ptr<pcre2_match_data_8, Free> match_;
};

const std::string kContractions = R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))";
const std::string kSpaces = R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

std::string published(PrePattern pattern) {
  switch (pattern) {
    case PrePattern::kGpt2: return R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S))";
    case PrePattern::kCl100k:
      return kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + kSpaces;
    case PrePattern::kOneDigit:
      return kContractions + R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)" + kSpaces;
  }
  return {};
}

class PrePatternTest : public testing::TestWithParam<PrePattern> {};

TEST_P(PrePatternTest, ScansAsTheRegularExpressionMatches) {
  const Regex regex(published(GetParam()));
  EXPECT_TRUE(rc::check("scanner == PCRE2", [&] {
    const auto parts = *rc::gen::container<Pieces>(rc::gen::element<std::string>(
        "a", "Z", "s", "T", "re", "VE", "l", "'", "'", "\"", " ", " ", "\t", "\n", "\r", "\r\n", "0", "7", "123", "!",
        "-", "\xC3\xA9", "\xC3\x9F", "\xE4\xB8\xAD", "\xD9\xA3", "\xC2\xBD", "\xC2\xA0", "\xE3\x80\x80", "\xE2\x80\xA8",
        "\xC2\x85", "\xCC\x81", "\xF0\x9F\x98\x80", "\xE2\x85\xA7", "\xC5\xBF"));
    std::string text;
    for (const std::string& part : parts) text += part;
    RC_ASSERT(scan(GetParam(), text) == regex.split(text));
  }));
}

INSTANTIATE_TEST_SUITE_P(Patterns, PrePatternTest,
                         testing::Values(PrePattern::kGpt2, PrePattern::kCl100k, PrePattern::kOneDigit));

TEST(PreTokenizer, Examples) {
  EXPECT_EQ(scan(PrePattern::kGpt2, "I'll  say 123!\n\n x"),
            (Pieces{"I", "'ll", " ", " say", " 123", "!", "\n\n", " x"}));
  EXPECT_EQ(scan(PrePattern::kCl100k, "I'LL\tsay 12345?!\r\n\n  x"),
            (Pieces{"I", "'LL", "\tsay", " ", "123", "45", "?!\r\n\n", " ", " x"}));
  EXPECT_EQ(scan(PrePattern::kOneDigit, "12 \n "), (Pieces{"1", "2", " \n", " "}));
}

TEST(PreTokenizer, IllFormedBytesArePiecesToo) {
  for (const PrePattern pattern : {PrePattern::kGpt2, PrePattern::kCl100k, PrePattern::kOneDigit}) {
    EXPECT_EQ(scan(pattern, "a\xFF\xE2\x82"), (Pieces{"a", "\xFF\xE2\x82"}));
  }
}

TEST(PreTokenizer, ByName) {
  EXPECT_EQ(pre_tokenizer_by_name("gpt-2")->pattern, PrePattern::kGpt2);
  EXPECT_TRUE(pre_tokenizer_by_name("llama-bpe")->whole_piece_first);
  EXPECT_FALSE(pre_tokenizer_by_name("qwen2")->add_bos);
  EXPECT_EQ(pre_tokenizer_by_name("default"), std::nullopt);
  EXPECT_EQ(pre_tokenizer_by_name(""), std::nullopt);
}

}  // namespace
}  // namespace llorch::engine::text::model
