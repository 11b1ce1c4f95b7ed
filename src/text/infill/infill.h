#pragma once
// Fill in the middle: a text, and what follows it, told in the tokens by which a model was trained to be asked for what stands
// between the two (docs/internals/tokenizers.md).
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"
#include "text/tokenizer_data.h"

namespace llorch::text {

// Which tokens those are: the file's word, else the vocabulary's, by spellings that model families use. A family counts with all of
// its tokens only.
InfillTokens infill_tokens(const TokenizerData& data);

// Another text that the model may look at.
struct InfillFile {
  std::string_view name;
  std::string_view text;
};
struct InfillInput {
  std::string_view prefix;  // may be empty, as may `suffix`
  std::string_view suffix;
  std::span<const InfillFile> files{};
};

// Immutable; thread-safe.
class Infill {
 public:
  // Nullopt: the model has no such tokens, or not all it takes.
  static std::optional<Infill> of(const TokenizerData& data);

  // The tokens to continue; `tokenizer` is the one of the same data. None of the infill tokens comes of the texts: one that they
  // spell is told in pieces. Takes long for long texts. INVALID_PARAMS: a text that the tokenizer makes such a token of, however it
  // is cut, or that it refuses.
  base::Result<std::vector<TokenId>> prompt(const Tokenizer& tokenizer, const InfillInput& input) const;

 private:
  class Writer;
  Infill() = default;

  InfillTokens tokens_;
  bool suffix_first_ = false;           // and no token stands between prefix and what is wanted
  std::vector<std::string> spellings_;  // of the tokens, without a space at the begin
};

}  // namespace llorch::text
