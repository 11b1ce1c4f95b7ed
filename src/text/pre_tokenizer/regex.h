#pragma once
// A regular expression of a tokenizer.json, written for Oniguruma and run by PCRE2. Constructs that the two read
// differently are translated or refused.
#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>

#include "base/result.h"
#include "text/pre_tokenizer/scanner.h"
#include "text/text_budget.h"

namespace llorch::text::pre_tokenizer {

// Immutable; safe from any thread.
class Regex {
 public:
  // UNSUPPORTED_TOKENIZER: it does not compile, may match nothing at all, or would not mean here what it means there.
  static base::Result<Regex> create(std::string_view pattern);
  Regex(Regex&&) noexcept;
  Regex& operator=(Regex&&) noexcept;
  ~Regex();

  // The leftmost match that begins at or after `from`. `text` is well-formed UTF-8. Spends a step of `budget` for each item of
  // the pattern that is tried and each byte that is passed, more where the pattern is long. The budget's error: it is used up,
  // or the search takes too much memory.
  base::Result<std::optional<Match>> find(std::string_view text, std::size_t from, TextBudget& budget) const;

 private:
  struct Code;
  explicit Regex(std::unique_ptr<const Code> code);
  std::unique_ptr<const Code> code_;
};

}  // namespace llorch::text::pre_tokenizer
