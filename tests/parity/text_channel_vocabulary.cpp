#include "tests/parity/text_channel_vocabulary.h"

#include <optional>
#include <string>
#include <vector>

#include "base/assert.h"

namespace llorch::tests::parity {
namespace {

using text::TokenizerData;
using text::TokenKind;

constexpr std::string_view kLost = "\xEF\xBF\xBD";
constexpr std::string_view kKeyPrefix = "tokenizer.ggml.";

class Reader {
 public:
  // Stands after the key of an array and its header.
  Reader(std::string_view file, std::string_view key) {
    const std::size_t at = file.find(key);
    ASSERT(at != std::string_view::npos, "key={}", key);
    rest_ = file.substr(at + key.size());
    for (int i = 0; i < 4 + 4 + 8; ++i) byte();  // array, element type, count
  }

  // nullopt: a byte that was lost.
  std::optional<unsigned char> byte() {
    ASSERT(!rest_.empty());
    if (rest_.starts_with(kLost)) {
      rest_.remove_prefix(kLost.size());
      return std::nullopt;
    }
    const auto value = static_cast<unsigned char>(rest_[0]);
    rest_.remove_prefix(1);
    return value;
  }

  std::string string() {
    const auto low = byte();
    const auto second = byte();
    for (int i = 0; i < 6; ++i) ASSERT(byte() == 0);
    ASSERT(second.has_value());
    const std::size_t bytes = low ? *low + 256u * *second : bytes_to_next_length();
    std::string text(rest_.substr(0, bytes));
    rest_.remove_prefix(bytes);
    return text;
  }

 private:
  std::size_t bytes_to_next_length() const {
    const std::size_t zeros = rest_.find(std::string(7, '\0'));
    ASSERT(zeros != std::string_view::npos);
    const bool lost = rest_.substr(0, zeros).ends_with(kLost);
    return zeros - (lost ? kLost.size() : 1);
  }

  std::string_view rest_;
};

std::vector<std::string> strings_of(std::string_view file, std::string_view key) {
  std::vector<std::string> strings;
  for (Reader reader(file, key);;) {
    std::string text = reader.string();
    if (text.starts_with(kKeyPrefix)) return strings;  // the next key
    strings.push_back(std::move(text));
  }
}

std::string value_of(std::string_view file, std::string_view key) {
  const std::size_t at = file.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = file.substr(at + key.size() + 4);
  return std::string(rest.substr(8, static_cast<unsigned char>(rest[0])));
}

float spm_score(std::string_view token, std::size_t place, std::size_t special_count) {
  constexpr std::string_view kSpmSpace = "\xE2\x96\x81";
  std::size_t spaces = 0;
  while (token.substr(spaces * kSpmSpace.size()).starts_with(kSpmSpace)) ++spaces;
  if (spaces > 1 && spaces * kSpmSpace.size() == token.size()) return -1e9f;
  return place < special_count ? 0.0f : -static_cast<float>(place - special_count);
}

}  // namespace

TokenizerData recover_text_channel_vocabulary(std::string_view file) {
  TokenizerData data;
  data.model = value_of(file, "tokenizer.ggml.model");
  data.pre = value_of(file, "tokenizer.ggml.pre");
  data.tokens = strings_of(file, "tokenizer.ggml.tokens");
  Reader kinds(file, "tokenizer.ggml.token_type");
  std::size_t special_count = 0;
  for (std::size_t i = 0; i < data.tokens.size(); ++i) {
    data.kinds.push_back(static_cast<TokenKind>(kinds.byte().value()));
    for (int b = 0; b < 3; ++b) ASSERT(kinds.byte() == 0);
    special_count += data.kinds.back() != TokenKind::kNormal;
  }
  if (data.model == "gpt2") {
    data.merges = strings_of(file, "tokenizer.ggml.merges");
  } else {
    for (std::size_t i = 0; i < data.tokens.size(); ++i) {
      data.scores.push_back(spm_score(data.tokens[i], i, special_count));
    }
  }
  return data;
}

}  // namespace llorch::tests::parity
