#include "text/tokenizer_models/vocabulary.h"

#include <algorithm>

#include "base/assert.h"

namespace llorch::text::model {

void Vocabulary::Strings::add(std::string_view text) {
  arena += text;
  offsets.push_back(arena.size());
}

std::string_view Vocabulary::Strings::at(TokenId id) const {
  const std::size_t begin = offsets[index(id)];
  return std::string_view(arena).substr(begin, offsets[index(id) + 1] - begin);
}

Vocabulary::Vocabulary(std::vector<TokenKind> kinds, const std::vector<TokenSpelling>& spellings)
    : kinds_(std::move(kinds)) {
  ASSERT(kinds_.size() == spellings.size());
  for (const TokenSpelling& spelling : spellings) {
    outputs_.add(spelling.output);
    keys_.add(spelling.key);
    key_bytes_max_ = std::max(key_bytes_max_, spelling.key.size());
  }
  by_key_.reserve(size());
  for (std::uint32_t i = 0; i < size(); ++i) {
    if (!spellings[i].key.empty()) by_key_.emplace(key(TokenId{i}), TokenId{i});
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view key) const {
  // The bound keeps a lookup O(longest token) on hostile text.
  if (key.empty() || key.size() > key_bytes_max_) return std::nullopt;
  const auto it = by_key_.find(key);
  if (it == by_key_.end()) return std::nullopt;
  return it->second;
}

}  // namespace llorch::text::model
