#pragma once
// Byte-level BPE as GGUF's model "gpt2" has it (engine.md §4.4).
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "engine/text/model/merge.h"
#include "engine/text/model/model.h"
#include "engine/text/model/pre_tokenizer.h"
#include "engine/text/model/vocabulary.h"

namespace llorch::engine::text::model {

struct ByteBpeOptions {
  PreTokenizer pre;
  std::optional<TokenId> unknown;
};

class ByteBpeModel final : public Model {
 public:
  // `vocabulary` must outlive the model. REQUIRES for every byte a token or an unknown token.
  // CONFIG_KEY_INVALID when a merge is no pair of tokens that form a token.
  static base::Result<std::unique_ptr<const Model>> create(const Vocabulary& vocabulary,
                                                           const std::vector<std::string>& merges,
                                                           ByteBpeOptions options);
  void encode(std::string_view text, std::vector<TokenId>& out) const override;

 private:
  ByteBpeModel(const Vocabulary& vocabulary, ByteBpeOptions options) : vocabulary_(vocabulary), options_(options) {}
  void encode_piece(std::string_view piece, MergeLoop& loop, std::vector<TokenId>& out) const;

  const Vocabulary& vocabulary_;
  ByteBpeOptions options_;
  std::unordered_map<std::uint64_t, Joined> merges_;  // by (left id, right id)
};

}  // namespace llorch::engine::text::model
