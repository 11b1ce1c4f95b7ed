#pragma once
// SentencePiece's BPE as GGUF's model "llama" has it: the neighbours whose union has the best score merge first, of
// equal ones the leftmost.
#include <cstdint>
#include <vector>

#include "text/tokenizer_models/model.h"
#include "text/tokenizer_models/vocabulary.h"

namespace llorch::text::model {

struct SpmOptions {
  bool add_space_prefix = true;
  Fallback fallback;
};

class SpmModel final : public Model {
 public:
  // `vocabulary` must outlive the model. REQUIRES one score per token, no NaN, and
  // options.fallback.covers_every_text().
  SpmModel(const Vocabulary& vocabulary, const std::vector<double>& scores, SpmOptions options);
  base::Result<> encode(std::string_view text, TextBudget& budget, std::vector<TokenId>& out) const override;

 private:
  const Vocabulary& vocabulary_;
  std::vector<std::uint32_t> ranks_;  // [V] order of the scores, best 0, equal scores equal ranks
  SpmOptions options_;
};

}  // namespace llorch::text::model
