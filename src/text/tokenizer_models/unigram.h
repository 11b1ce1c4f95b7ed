#pragma once
// The Unigram model of a tokenizer.json: of all ways to write a piece in tokens, the one with the best sum of
// log-probabilities (Kudo, "Subword Regularization", 2018).
#include <cstdint>
#include <vector>

#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/token_trie.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text::model {

struct UnigramOptions {
  bool fuse_unknown = true;  // unknown characters in a row are one token
  Fallback fallback;
};

class UnigramModel final : public Model {
 public:
  // `vocabulary` must outlive the model. REQUIRES one finite score per token, and options.fallback.covers_every_text().
  UnigramModel(const Vocabulary& vocabulary, const std::vector<double>& scores, UnigramOptions options);
  // O(bytes * longest token), within the budget. Of equal sums the one whose last token begins first.
  base::Result<> encode(std::string_view piece, TextBudget& budget, std::vector<TokenId>& out) const override;

 private:
  std::vector<double> scores_;
  double unknown_score_ = 0;
  UnigramOptions options_;
  TokenTrie trie_;
};

}  // namespace llorch::text::model
