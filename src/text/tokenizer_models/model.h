#pragma once
// What turns a piece of plain text, free of special tokens, into token ids.
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "text/text_budget.h"

namespace llorch::text::model {

using base::TokenId;

// Immutable; safe from any thread.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of non-empty `piece`. The budget's error where it looks for long tokens at too many places. REQUIRES
  // piece.size() < 2^31.
  virtual base::Result<> encode(std::string_view piece, TextBudget& budget, std::vector<TokenId>& out) const = 0;
};

// What is left for a text that no token covers: its bytes, else the unknown token.
struct Fallback {
  std::array<std::optional<TokenId>, 256> byte_tokens{};  // by byte; all absent: no byte fallback
  std::optional<TokenId> unknown;

  // Whether append_uncovered has something for every text. Vocabularies may lack the 13 bytes that UTF-8 never uses:
  // they are encoded as U+FFFD.
  bool covers_every_text() const;
  // False, and nothing appended, when a byte of `bytes` has no token.
  bool append_bytes(std::string_view bytes, std::vector<TokenId>& out) const;
  // The unknown token, else the bytes of U+FFFD. REQUIRES covers_every_text().
  void append_uncovered(std::vector<TokenId>& out) const;
};

}  // namespace llorch::text::model
