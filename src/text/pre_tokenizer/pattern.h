#pragma once
// A pattern of a pre-tokenizer or normalizer, run by the fastest exact means there is.
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "base/result.h"
#include "text/pipeline.h"
#include "text/pre_tokenizer/regex.h"
#include "text/pre_tokenizer/scanner.h"
#include "text/text_budget.h"

namespace llorch::text::pre_tokenizer {

// Immutable; safe from any thread.
class Pattern {
 public:
  explicit Pattern(Scanner scanner) : impl_(scanner) {}
  // A known regular expression gets its scanner, another one PCRE2. UNSUPPORTED_TOKENIZER as Regex::create, and for an
  // empty text.
  static base::Result<Pattern> create(const TextPattern& pattern);

  // The leftmost non-empty match that begins at or after `from`. Well-formed UTF-8 only: see well_formed. Errors as
  // Regex::find. Scanners and plain texts take linear time, and each of their matches one step of `budget`.
  base::Result<std::optional<Match>> find(std::string_view text, std::size_t from, TextBudget& budget) const;

 private:
  explicit Pattern(std::variant<Scanner, Regex, std::string> impl) : impl_(std::move(impl)) {}
  std::variant<Scanner, Regex, std::string> impl_;
};

// `text` with every byte that is no part of a character replaced by U+0001, which is in the same classes. Offsets stay.
std::string well_formed(std::string_view text);

}  // namespace llorch::text::pre_tokenizer
