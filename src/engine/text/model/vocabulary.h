#pragma once
// The tokens of one model as the bytes they stand for, and the way back from bytes to a token.
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/tokenizer_data.h"

namespace llorch::engine::text::model {

// How a file spells the bytes of a token.
enum class Spelling : std::uint8_t {
  kSpm,      // text with U+2581 for a space; <0xXX> for single bytes
  kByteBpe,  // one character per byte (byte_bpe_char)
};

class Vocabulary {
 public:
  // REQUIRES data.kinds of the size of data.tokens. Copies what it needs.
  Vocabulary(const TokenizerData& data, Spelling spelling);
  Vocabulary(const Vocabulary&) = delete;

  std::size_t size() const { return kinds_.size(); }
  TokenKind kind(TokenId id) const { return kinds_[index(id)]; }
  // What the token adds to the output. Control: nothing. Unknown: U+FFFD.
  std::string_view bytes(TokenId id) const;
  // The token that merging may form with exactly these bytes; never a control, unknown or byte token, so text cannot
  // spell one. The lowest id when the file has the token twice.
  std::optional<TokenId> find(std::string_view bytes) const;
  // The token of a byte that nothing longer covers.
  std::optional<TokenId> byte_token(std::uint8_t byte) const { return byte_tokens_[byte]; }

 private:
  std::vector<TokenKind> kinds_;
  std::string arena_;                 // bytes of all tokens, one after the other
  std::vector<std::size_t> offsets_;  // [V + 1] into arena_
  std::unordered_map<std::string_view, TokenId> by_bytes_;
  std::size_t mergeable_bytes_max_ = 0;
  std::array<std::optional<TokenId>, 256> byte_tokens_{};
};

// `text` with U+2581, as which SPM files write a space, as U+0020.
std::string spm_plain_spaces(std::string_view text);

// The bytes a byte-level BPE file spells as `text`; nullopt when a character stands for no byte.
std::optional<std::string> bytes_of_byte_bpe(std::string_view text);

}  // namespace llorch::engine::text::model
