#include "text/tokenizer_models/model.h"

#include <algorithm>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::text::model {

namespace {

// Whether well-formed UTF-8 may hold the byte (Unicode 15, table 3-7).
bool is_utf8_byte(std::size_t byte) { return byte < 0xC0 || (byte > 0xC1 && byte < 0xF5); }

}  // namespace

bool Fallback::covers_every_text() const {
  if (unknown) return true;
  for (std::size_t byte = 0; byte < byte_tokens.size(); ++byte) {
    if (is_utf8_byte(byte) && !byte_tokens[byte]) return false;
  }
  return true;
}

void Fallback::append_uncovered(std::vector<TokenId>& out) const {
  if (unknown) {
    out.push_back(*unknown);
    return;
  }
  const bool has_tokens = append_bytes(base::kReplacementCharacter, out);
  ASSERT(has_tokens);
}

bool Fallback::append_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  const auto token_of = [&](char byte) { return byte_tokens[static_cast<std::uint8_t>(byte)]; };
  if (!std::all_of(bytes.begin(), bytes.end(), [&](char byte) { return token_of(byte).has_value(); })) return false;
  for (const char byte : bytes) out.push_back(*token_of(byte));
  return true;
}

}  // namespace llorch::text::model
