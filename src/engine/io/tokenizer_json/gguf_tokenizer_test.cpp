#include "engine/io/tokenizer_json/gguf_tokenizer.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <filesystem>
#include <set>

#include "engine/io/gguf_writer.h"
#include "engine/io/tokenizer_json/tokenizer_directory.h"
#include "text/pre_tokenizer/scanner.h"
#include "text/tokenizer.h"

namespace llorch::engine::io::tokenizer_json {
namespace {

namespace bj = boost::json;
using text::TokenId;
using text::Tokenizer;
using text::pre_tokenizer::Scanner;

std::string utf8(unsigned code_point) {
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | code_point >> 6), static_cast<char>(0x80 | (code_point & 63))};
}

// The characters that byte-level tokens are spelled in: printable Latin-1 bytes stand for themselves, the other 68 are
// U+0100 and following.
std::vector<std::string> byte_characters() {
  std::vector<std::string> out;
  unsigned next = 256;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    out.push_back(utf8(itself ? byte : next++));
  }
  return out;
}

std::string regex_of(Scanner scanner) {
  for (const auto& known : text::pre_tokenizer::known_patterns()) {
    if (known.scanner == scanner) return std::string(known.regex);
  }
  return "";
}

struct Options {
  Scanner scanner = Scanner::kCl100kOneDigit;
  bj::value normalizer;
  bool byte_level = true;
};

TokenizerFiles files(const Options& options) {
  bj::object vocab;
  for (const std::string& character : byte_characters()) vocab[character] = vocab.size();
  vocab["ab"] = 256;
  vocab["\u0120ab"] = 257;
  const bj::object split{{"type", "Split"},
                         {"pattern", bj::object{{"Regex", regex_of(options.scanner)}}},
                         {"behavior", "Isolated"},
                         {"invert", false}};
  const bj::object byte_level{
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", false}};
  bj::array steps{split};
  if (options.byte_level) steps.push_back(byte_level);
  const bj::array added{bj::object{{"id", 258}, {"content", "<|im_end|>"}, {"special", true}, {"normalized", false}}};
  const bj::object root{
      {"version", "1.0"},
      {"added_tokens", added},
      {"normalizer", options.normalizer},
      {"pre_tokenizer", bj::object{{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"post_processor", nullptr},
      {"decoder", bj::object{{"type", "ByteLevel"}}},
      {"model",
       bj::object{
           {"type", "BPE"}, {"vocab", vocab}, {"merges", bj::array{"a b", "\u0120 ab"}}, {"ignore_merges", false}}}};
  return {.tokenizer = bj::serialize(root),
          .tokenizer_config = R"({"eos_token":"<|im_end|>","add_bos_token":false,"chat_template":"{{ x }}"})"};
}

// The tokenizer that a GGUF file with this metadata has.
text::TokenizerData read_back(const GgufMetadata& metadata) {
  GgufWriter writer;
  metadata.write_to(writer);
  const auto path =
      std::filesystem::path(testing::TempDir()) / ("llorch-tokenizer-" + std::to_string(::getpid()) + ".gguf");
  EXPECT_TRUE(writer.write(path));
  auto data = read_tokenizer(path);
  std::filesystem::remove(path);
  return std::move(data).value();
}

std::int64_t rows_of(const text::TokenizerData& data) { return static_cast<std::int64_t>(data.tokens.size()); }

template <class T>
T value_of(const GgufMetadata& metadata, std::string_view key) {
  return std::get<T>(std::ranges::find(metadata.entries(), key, &GgufMetadataEntry::key)->value);
}

void expect_same_tokens(const text::TokenizerData& a, const text::TokenizerData& b) {
  const Tokenizer first = Tokenizer::create(a).value(), second = Tokenizer::create(b).value();
  for (const char* text : {"", "ab", " ab ab", "xabab 12345\n\n ab<|im_end|>'Re", "e\xCC\x81 \xF0\x9F\x98\x80\xFF"}) {
    EXPECT_EQ(first.encode(text).value(), second.encode(text).value()) << text;
  }
  EXPECT_EQ(a.eos, b.eos);
  EXPECT_EQ(a.chat_template, b.chat_template);
}

TEST(GgufTokenizer, ByteLevelUnderAKnownPatternBecomesKeys) {
  const TokenizerFiles source = files({});
  const auto data = parse_tokenizer_files(source).value();
  const GgufTokenizer made = gguf_tokenizer(data, rows_of(data), source.tokenizer).value();
  EXPECT_TRUE(made.notes.empty()) << made.notes.front();
  EXPECT_FALSE(made.metadata.contains(kEmbeddedKey));
  const auto back = read_back(made.metadata);
  EXPECT_EQ(back.model, "gpt2");
  EXPECT_EQ(back.pre, "qwen2");
  expect_same_tokens(back, data);
}

TEST(GgufTokenizer, WhatKeysSayOnlyNearlyStandsInBothForms) {
  for (const Options& options :
       {Options{.normalizer = bj::object{{"type", "NFC"}}}, Options{.scanner = Scanner::kCl100kOneDigitFold}}) {
    const TokenizerFiles source = files(options);
    const auto data = parse_tokenizer_files(source).value();
    const GgufTokenizer made = gguf_tokenizer(data, rows_of(data), source.tokenizer).value();
    EXPECT_EQ(made.notes.size(), 1U);
    EXPECT_TRUE(made.metadata.contains("tokenizer.ggml.merges"));
    const auto back = read_back(made.metadata);
    EXPECT_EQ(back.model, "bpe");
    expect_same_tokens(back, data);
  }
}

TEST(GgufTokenizer, OtherKindsAreKeptWhole) {
  const TokenizerFiles source = files({.byte_level = false});
  const auto data = parse_tokenizer_files(source).value();
  const GgufTokenizer made = gguf_tokenizer(data, rows_of(data), source.tokenizer).value();
  EXPECT_FALSE(made.metadata.contains("tokenizer.ggml.model"));
  EXPECT_EQ(read_back(made.metadata).tokens, data.tokens);
}

// As Qwen's are: 259 tokens and a table of 300 rows.
TEST(GgufTokenizer, EveryRowOfTheTableHasATextOfItsOwn) {
  const TokenizerFiles source = files({});
  const auto data = parse_tokenizer_files(source).value();
  const GgufTokenizer made = gguf_tokenizer(data, 300, source.tokenizer).value();
  EXPECT_TRUE(made.notes.empty());
  const auto tokens = value_of<std::vector<std::string>>(made.metadata, "tokenizer.ggml.tokens");
  const auto kinds = value_of<std::vector<std::int32_t>>(made.metadata, "tokenizer.ggml.token_type");
  ASSERT_EQ(tokens.size(), 300U);
  ASSERT_EQ(kinds.size(), 300U);
  EXPECT_EQ(tokens.back(), "[PAD299]");
  EXPECT_EQ(kinds.back(), 5);
  EXPECT_EQ(std::set<std::string>(tokens.begin(), tokens.end()).size(), 300U);

  // A worker has one tokenizer, whether the model is the directory or the file.
  text::TokenizerData of_directory = data;
  ASSERT_TRUE(text::fit_to_rows(of_directory, 300));
  const auto of_file = read_back(made.metadata);
  EXPECT_EQ(of_file.tokens, of_directory.tokens);
  EXPECT_EQ(of_file.kinds, of_directory.kinds);
  expect_same_tokens(of_file, of_directory);
  const Tokenizer first = Tokenizer::create(of_file).value(), second = Tokenizer::create(of_directory).value();
  for (std::uint32_t id = 0; id < 300; ++id) EXPECT_EQ(first.token_bytes(TokenId{id}), second.token_bytes(TokenId{id}));
  EXPECT_EQ(first.token_bytes(TokenId{299}), "");
}

TEST(GgufTokenizer, TokensWithoutARowAreLeftOut) {
  const TokenizerFiles source = files({});
  auto data = parse_tokenizer_files(source).value();
  EXPECT_EQ(gguf_tokenizer(data, 258, source.tokenizer).error().code, base::ErrorCode::kModelIncompatible);  // its end
  data.eos.reset();
  const GgufTokenizer made = gguf_tokenizer(data, 258, source.tokenizer).value();
  EXPECT_EQ(value_of<std::vector<std::string>>(made.metadata, "tokenizer.ggml.tokens").size(), 258U);
  ASSERT_EQ(made.notes.size(), 1U);
  EXPECT_NE(made.notes[0].find("1 of the tokenizer's 259 tokens"), std::string::npos) << made.notes[0];
}

TEST(GgufTokenizer, ADirectoryWithoutOneHasANote) {
  const auto made = gguf_tokenizer(std::filesystem::path("/nonexistent"), 100).value();
  EXPECT_TRUE(made.metadata.entries().empty());
  EXPECT_EQ(made.notes.size(), 1U);
}

}  // namespace
}  // namespace llorch::engine::io::tokenizer_json
