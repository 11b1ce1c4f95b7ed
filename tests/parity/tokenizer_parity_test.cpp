// Token ids against the published ones of the llama.cpp project's vocabulary tests.
#include <gtest/gtest.h>

#include <filesystem>
#include <sstream>

#include "base/file.h"
#include "engine/io/gguf.h"
#include "engine/io/tokenizer_source.h"
#include "tests/parity/text_channel_vocabulary.h"
#include "text/tokenizer.h"

namespace llorch::tests::parity {
namespace {

using text::Tokenizer;
using text::TokenizerData;

constexpr std::size_t kFileBytesMax = 64u << 20;
constexpr std::size_t kCasesCount = 46;

// Every part is followed by `terminator`.
std::vector<std::string> split(std::string_view text, std::string_view terminator) {
  std::vector<std::string> parts;
  for (std::size_t end; (end = text.find(terminator)) != std::string_view::npos;) {
    parts.emplace_back(text.substr(0, end));
    text.remove_prefix(end + terminator.size());
  }
  EXPECT_TRUE(text.empty());
  return parts;
}

std::vector<std::uint32_t> numbers_of(const std::string& line) {
  std::istringstream in(line);
  return {std::istream_iterator<std::uint32_t>(in), {}};
}

TokenizerData read_vocabulary(const std::filesystem::path& path) {
  const std::string bytes = base::read_file(path, kFileBytesMax).value();
  const auto file = engine::io::GgufFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())), path.string());
  if (file) return engine::io::read_tokenizer_data(*file).value();
  std::printf("%s: %s; recovering the vocabulary\n", path.c_str(), file.error().message.c_str());
  return recover_text_channel_vocabulary(bytes);
}

class TokenizerParity : public testing::TestWithParam<const char*> {};

// M0-W-1362, M0-W-1363: golden vectors per tokenizer.
TEST_P(TokenizerParity, GivesThePublishedIds) {
  const std::filesystem::path path =
      std::filesystem::path(LLORCH_SOURCE_DIR "/../shared/data/vocab") / (std::string(GetParam()) + ".gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: " << GetParam() << " is not compared";

  auto tokenizer = Tokenizer::create(read_vocabulary(path));
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const auto texts = split(base::read_file(path.string() + ".inp", kFileBytesMax).value(), "\n__ggml_vocab_test__\n");
  const auto lines = split(base::read_file(path.string() + ".out", kFileBytesMax).value(), "\n");
  ASSERT_EQ(texts.size(), kCasesCount);
  ASSERT_EQ(lines.size(), kCasesCount);
  for (std::size_t i = 0; i < kCasesCount; ++i) {
    const auto ids = tokenizer->encode(texts[i], {.add_special = false, .parse_special = false}).value();
    std::vector<std::uint32_t> numbers;
    for (const auto id : ids) numbers.push_back(index(id));
    EXPECT_EQ(numbers, numbers_of(lines[i])) << "case " << i;
    EXPECT_EQ(tokenizer->decode(ids), texts[i]) << "case " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Vocabularies, TokenizerParity, testing::Values("gpt-2", "llama-spm", "deepseek-llm"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::erase(name, '-');
                           return name;
                         });

}  // namespace
}  // namespace llorch::tests::parity
