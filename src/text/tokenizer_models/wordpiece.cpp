#include "text/tokenizer_models/wordpiece.h"

#include "text/unicode/char_class.h"

namespace llorch::text::model {
namespace {

bool has_more_chars_than(std::string_view text, std::size_t count) {
  for (std::size_t chars = 0; !text.empty(); ++chars) {
    if (chars == count) return true;
    text.remove_prefix(unicode::next_char(text).bytes);
  }
  return false;
}

}  // namespace

WordPieceModel::WordPieceModel(const Vocabulary& vocabulary, const Fallback& fallback) : fallback_(fallback) {
  for (std::uint32_t i = 0; i < vocabulary.size(); ++i) {
    const std::string_view key = vocabulary.key(TokenId{i});
    if (key.empty()) continue;
    starts_.add(key, TokenId{i});
    if (key.starts_with(kWordPiecePrefix) && key.size() > kWordPiecePrefix.size()) {
      continuations_.add(key.substr(kWordPiecePrefix.size()), TokenId{i});
    }
  }
  starts_.settle();
  continuations_.settle();
}

base::Result<> WordPieceModel::encode(std::string_view piece, TextBudget&, std::vector<TokenId>& out) const {
  const std::size_t before = out.size();
  if (!has_more_chars_than(piece, kWordCharsMax) && append_tokens(piece, out)) return {};
  out.resize(before, TokenId{0});
  fallback_.append_uncovered(out);
  return {};
}

bool WordPieceModel::append_tokens(std::string_view word, std::vector<TokenId>& out) const {
  const TokenTrie* trie = &starts_;
  for (std::size_t at = 0; at < word.size(); trie = &continuations_) {
    std::optional<TokenId> longest;
    std::size_t longest_end = at;
    std::uint32_t node = TokenTrie::kRoot;
    for (std::size_t end = at; end < word.size(); ++end) {
      node = trie->child_of(node, word[end]);
      if (node == TokenTrie::kNone) break;
      if (!trie->node(node).token) continue;
      longest = trie->node(node).token;
      longest_end = end + 1;
    }
    if (!longest) return false;
    out.push_back(*longest);
    at = longest_end;
  }
  return true;
}

}  // namespace llorch::text::model
