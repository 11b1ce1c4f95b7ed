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

#include "base/keyed_hash.h"
#include "text/tokenizer_data.h"

namespace llorch::text::model {

struct TokenSpelling {
  std::string output;  // what the token adds to the output
  std::string key;     // the bytes of a text that the model may make the token of; empty: it never makes it
};

class Vocabulary {
 public:
  // REQUIRES one spelling per kind.
  Vocabulary(std::vector<TokenKind> kinds, const std::vector<TokenSpelling>& spellings);
  Vocabulary(const Vocabulary&) = delete;

  std::size_t size() const { return kinds_.size(); }
  TokenKind kind(TokenId id) const { return kinds_[index(id)]; }
  std::string_view output(TokenId id) const { return outputs_.at(id); }
  std::string_view key(TokenId id) const { return keys_.at(id); }
  // The token the model may make of exactly these bytes. The lowest id when the file has the token twice.
  std::optional<TokenId> find(std::string_view key) const;
  std::size_t key_bytes_max() const { return key_bytes_max_; }

 private:
  struct Strings {
    std::string arena;
    std::vector<std::size_t> offsets{0};  // [V + 1]
    void add(std::string_view text);
    std::string_view at(TokenId id) const;
  };
  std::vector<TokenKind> kinds_;
  Strings outputs_, keys_;
  std::unordered_map<std::string_view, TokenId, base::KeyedHash> by_key_;
  std::size_t key_bytes_max_ = 0;
};

}  // namespace llorch::text::model
