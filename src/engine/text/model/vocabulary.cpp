#include "engine/text/model/vocabulary.h"

#include <algorithm>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::engine::text::model {
namespace {

constexpr std::string_view kSpmSpace = "\xE2\x96\x81";              // U+2581
constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Bytes 33-126, 161-172, 174-255 stand for themselves; the other 68 are U+0100, U+0101, ... in byte order.
constexpr std::array<char32_t, 256> byte_bpe_chars() {
  std::array<char32_t, 256> chars{};
  char32_t next = 0x100;
  for (char32_t b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    chars[b] = printable ? b : next++;
  }
  return chars;
}

constexpr std::size_t kByteBpeCharsEnd = 0x100 + 68;

constexpr std::array<std::int16_t, kByteBpeCharsEnd> byte_of_char() {
  std::array<std::int16_t, kByteBpeCharsEnd> bytes{};
  bytes.fill(-1);
  const auto chars = byte_bpe_chars();
  for (std::size_t b = 0; b < 256; ++b) bytes[chars[b]] = static_cast<std::int16_t>(b);
  return bytes;
}
constexpr auto kByteOfChar = byte_of_char();

// The byte of "<0xXX>".
std::optional<std::uint8_t> parse_byte_token(std::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return std::nullopt;
    value = value * 16 + digit;
  }
  return static_cast<std::uint8_t>(value);
}

}  // namespace

std::string spm_plain_spaces(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const std::size_t plain = text.find(kSpmSpace);
    out += text.substr(0, plain);
    if (plain == std::string_view::npos) return out;
    out += ' ';
    text.remove_prefix(plain + kSpmSpace.size());
  }
}

std::optional<std::string> bytes_of_byte_bpe(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const base::Utf8Step step = base::next_code_point(text);
    if (step.status != base::Utf8Status::kComplete || step.code_point >= kByteBpeCharsEnd) return std::nullopt;
    const int byte = kByteOfChar[step.code_point];
    if (byte < 0) return std::nullopt;
    out += static_cast<char>(byte);
    text.remove_prefix(step.bytes);
  }
  return out;
}

Vocabulary::Vocabulary(const TokenizerData& data, Spelling spelling) : kinds_(data.kinds) {
  ASSERT(kinds_.size() == data.tokens.size());
  offsets_.reserve(kinds_.size() + 1);
  offsets_.push_back(0);
  std::vector<bool> mergeable(kinds_.size());
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const std::string& text = data.tokens[i];
    switch (kinds_[i]) {
      case TokenKind::kControl: break;
      case TokenKind::kUnknown: arena_ += kReplacementCharacter; break;
      case TokenKind::kByte:
        if (const auto byte = parse_byte_token(text)) {
          arena_ += static_cast<char>(*byte);
          if (!byte_tokens_[*byte]) byte_tokens_[*byte] = TokenId{static_cast<std::uint32_t>(i)};
        }
        break;
      case TokenKind::kNormal:
      case TokenKind::kUserDefined:
      case TokenKind::kUnused: {
        const auto spelled = kinds_[i] == TokenKind::kUserDefined ? std::nullopt : bytes_of_byte_bpe(text);
        mergeable[i] = !text.empty() && (spelling == Spelling::kSpm || spelled);
        arena_ += spelling == Spelling::kSpm ? spm_plain_spaces(text) : spelled.value_or(text);
        break;
      }
    }
    offsets_.push_back(arena_.size());
  }
  by_bytes_.reserve(kinds_.size());
  for (std::size_t i = 0; i < kinds_.size(); ++i) {
    const TokenId id{static_cast<std::uint32_t>(i)};
    if (!mergeable[i]) continue;
    by_bytes_.emplace(bytes(id), id);
    mergeable_bytes_max_ = std::max(mergeable_bytes_max_, bytes(id).size());
  }
  if (spelling == Spelling::kByteBpe) {
    for (std::size_t b = 0; b < 256; ++b) {
      const char byte = static_cast<char>(b);
      byte_tokens_[b] = find({&byte, 1});
    }
  }
}

std::string_view Vocabulary::bytes(TokenId id) const {
  const std::size_t begin = offsets_[index(id)];
  return std::string_view(arena_).substr(begin, offsets_[index(id) + 1] - begin);
}

std::optional<TokenId> Vocabulary::find(std::string_view bytes) const {
  // The bound keeps a lookup O(longest token) on hostile text.
  if (bytes.size() > mergeable_bytes_max_) return std::nullopt;
  const auto it = by_bytes_.find(bytes);
  if (it == by_bytes_.end()) return std::nullopt;
  return it->second;
}

}  // namespace llorch::engine::text::model
