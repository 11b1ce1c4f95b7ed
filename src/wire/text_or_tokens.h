#pragma once
// A text, or the token ids that somebody made of one. Field codec: text_or_tokens_field.h.
#include <cstdint>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace llorch::wire {

// On the wire a string, or a list of integers.
struct TextOrTokens {
  std::string text{};
  std::vector<std::int32_t> tokens{};  // not empty: instead of `text`, taken as they are

  bool has_tokens() const { return !tokens.empty(); }
  // An id counts as the bytes it takes.
  std::size_t bytes() const { return text.size() + tokens.size() * sizeof(std::int32_t); }
};

// SHA-256 of the text, or of the ids as i32, little-endian.
inline base::Sha256Digest digest_of(const TextOrTokens& value) {
  base::Sha256 hash;
  hash.update(value.text);
  for (const std::int32_t id : value.tokens) hash.update_u32_le(static_cast<std::uint32_t>(id));
  return hash.digest();
}

}  // namespace llorch::wire
