#pragma once
// What turns a stretch of plain text, free of special tokens, into token ids.
#include <string_view>
#include <vector>

#include "base/token_id.h"

namespace llorch::engine::text::model {

using base::TokenId;

// Immutable; safe from any thread.
class Model {
 public:
  virtual ~Model() = default;
  // Appends the ids of non-empty `text`. REQUIRES text.size() < 2^31.
  virtual void encode(std::string_view text, std::vector<TokenId>& out) const = 0;
};

}  // namespace llorch::engine::text::model
