#pragma once
// Splits a text into tokens that stand in it as they are spelled and the plain text between them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/token_id.h"
#include "text/normalizer/normalizer.h"
#include "text/partition/special_tokens.h"
#include "text/pre_tokenizer/regex.h"
#include "text/tokenizer_data.h"

namespace llorch::text::partition {

struct Fragment {
  std::optional<TokenId> token;  // else plain text
  std::string text;              // normalized; of plain text only
  bool at_text_start = false;    // nothing stands before it
};

// Immutable; safe from any thread.
class Partition {
 public:
  enum class Order : std::uint8_t { kLongestFirst, kLeftmostFirst };
  struct Options {
    Order order;
    normalizer::Normalizer normalizer;
  };

  // User-defined tokens stand in any text, control and unknown ones in trusted text only. `spellings`: one per token,
  // as it stands in texts. REQUIRES data.kinds and data.json.added that fit data.tokens.
  // UNSUPPORTED_TOKENIZER: the normalizer makes too much of the tokens.
  static base::Result<Partition> create(const TokenizerData& data, std::span<const std::string_view> spellings,
                                        Options options);

  // No empty plain text. `trusted`: ascending, without overlap. The budget's errors.
  base::Result<std::vector<Fragment>> split(std::string_view text, std::span<const TrustedSpan> trusted,
                                            TextBudget& budget) const;

 private:
  struct Rule {
    bool lstrip = false, rstrip = false, single_word = false;
  };
  struct Cut {
    std::size_t begin, end;
    TokenId id;
  };
  Partition(Options options, pre_tokenizer::Regex word_character);
  base::Result<std::vector<Cut>> cuts(const SpecialTokens& tokens, std::string_view text,
                                      std::span<const TrustedSpan> trusted, TextBudget& budget) const;
  bool stands_alone(std::string_view text, const SpecialMatch& match) const;
  base::Result<> split_plain(std::string_view raw, bool trusted, bool at_text_start, TextBudget& budget,
                             std::vector<Fragment>& out) const;

  Options options_;
  pre_tokenizer::Regex word_character_;
  std::vector<Rule> rules_;                          // [V]
  std::unique_ptr<const SpecialTokens> raw_;         // found in the text as it came
  std::unique_ptr<const SpecialTokens> normalized_;  // found in normalized text
};

}  // namespace llorch::text::partition
