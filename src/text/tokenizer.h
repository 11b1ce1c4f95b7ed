#pragma once
// Text to token ids and back. The same bytes give the same ids in every process: no locale, no clock, no global state.
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "text/text_run.h"
#include "text/tokenizer_data.h"

namespace llorch::text {

namespace partition {
struct TrustedSpan;
}
struct TokenizerParts;
class TextBudget;

struct EncodeOptions {
  bool add_special = true;       // BOS and EOS where the model wants them
  bool parse_special = false;    // spelled control tokens become tokens: of a whole prompt that its client wrote
  TextBudget* budget = nullptr;  // of the texts of a request together; null: this text has one of its own
};

struct TokenizerFacts {
  std::string_view kind;  // "gguf-bpe", "gguf-spm", "hf-json"
  std::size_t vocab_size = 0;
  std::optional<TokenId> bos, eos;
  std::vector<TokenId> end_of_generation;  // ascending
  bool add_bos = false, add_eos = false;
  bool drops_leading_space = false;  // a space at the start of a text is the tokenizer's own and not shown
};

// Immutable after create; every const member may be called from any thread.
class Tokenizer {
 public:
  // UNSUPPORTED_TOKENIZER: a model or step around it this build has no exact implementation of, or a vocabulary that
  // cannot encode every byte. CONFIG_KEY_INVALID: data that contradicts itself.
  static base::Result<Tokenizer> create(TokenizerData data);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Takes any bytes, also ill-formed UTF-8. O(n log n) in the length of `text`, whatever it holds (patterns of a
  // tokenizer.json that have no scanner here are bounded, not linear: pre_tokenizer/regex.h). INVALID_PARAMS (text_budget.h): the
  // steps of a tokenizer.json make too much of this text or search it too long, or any file's long tokens are looked for at too many
  // places of it. REQUIRES text.size() < 2^31.
  base::Result<std::vector<TokenId>> encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The runs joined, as one text. A control token is found only where all of its spelling is of template origin, a
  // user-defined one anywhere, also across runs; borders between runs change nothing else. `add_special` as in
  // EncodeOptions, and so is `budget`: off for a chat template, which writes its own BOS. REQUIRES together less than 2^31 bytes.
  // Errors as above.
  base::Result<std::vector<TokenId>> encode(std::span<const TextRun> runs, bool add_special,
                                            TextBudget* budget = nullptr) const;

  // Two texts as one: what stands around every text, with what stands between the two. Nullopt: the tokenizer does not say.
  // Errors as of encode.
  struct Pair {
    std::vector<TokenId> tokens;
    std::size_t second_begin = 0;   // the second text's first token; the suffix behind it counts to it
    std::uint32_t second_type = 0;  // of the tokens from there on
  };
  base::Result<std::optional<Pair>> encode_pair(std::string_view first, std::string_view second,
                                                TextBudget* budget = nullptr) const;

  // The bytes the token adds to the output: may be a part of a code point; empty for control tokens. Lives as long as
  // the tokenizer. REQUIRES index(token) < vocab_size.
  std::string_view token_bytes(TokenId token) const;
  // All bytes in order, less what the tokenizer says is no text at the start: the space that encode put in front. Ill-formed sequences stay as they are;
  // for text to show use TextStream.
  std::string decode(std::span<const TokenId> tokens) const;

  bool is_end_of_generation(TokenId token) const;
  const TokenizerFacts& facts() const;

 private:
  explicit Tokenizer(std::unique_ptr<const TokenizerParts> parts);
  base::Result<std::vector<TokenId>> encode(std::string_view text, std::span<const partition::TrustedSpan> trusted,
                                            bool add_special, TextBudget* shared_budget) const;

  std::unique_ptr<const TokenizerParts> parts_;
};

}  // namespace llorch::text
