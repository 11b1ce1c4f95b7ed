#pragma once
// The WordPiece model of a tokenizer.json: from the left, the longest token that fits; tokens inside of a word are
// spelled with the prefix "##".
#include <string_view>
#include <vector>

#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/token_trie.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text::model {

inline constexpr std::string_view kWordPiecePrefix = "##";

class WordPieceModel final : public Model {
 public:
  static constexpr std::size_t kWordCharsMax = 100;  // a longer word is unknown

  // REQUIRES fallback.covers_every_text().
  WordPieceModel(const Vocabulary& vocabulary, const Fallback& fallback);
  // O(bytes * kWordCharsMax), whatever the tokens are. A word that tokens do not cover to its end is unknown as a whole.
  base::Result<> encode(std::string_view piece, TextBudget& budget, std::vector<TokenId>& out) const override;

 private:
  bool append_tokens(std::string_view word, std::vector<TokenId>& out) const;

  Fallback fallback_;
  TokenTrie starts_, continuations_;
};

}  // namespace llorch::text::model
