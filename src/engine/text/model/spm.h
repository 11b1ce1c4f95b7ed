#pragma once
// SentencePiece's BPE as GGUF's model "llama" has it (engine.md §4.3).
#include <cstdint>
#include <vector>

#include "engine/text/model/model.h"
#include "engine/text/model/vocabulary.h"

namespace llorch::engine::text::model {

struct SpmOptions {
  bool add_space_prefix = true;
  std::optional<TokenId> unknown;
};

class SpmModel final : public Model {
 public:
  // `vocabulary` must outlive the model. REQUIRES one score per token, no NaN, and for every byte a token or an
  // unknown token.
  SpmModel(const Vocabulary& vocabulary, const std::vector<float>& scores, SpmOptions options);
  void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
  // False, and nothing appended, when a byte has no token.
  bool append_byte_tokens(std::string_view bytes, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  std::vector<std::uint32_t> ranks_;  // [V] order of the scores, best 0, equal scores equal ranks
  SpmOptions options_;
};

}  // namespace llorch::engine::text::model
