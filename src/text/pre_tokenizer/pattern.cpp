#include "text/pre_tokenizer/pattern.h"

#include "base/find_text.h"
#include "text/unicode/char_class.h"

namespace llorch::text::pre_tokenizer {

base::Result<Pattern> Pattern::create(const TextPattern& pattern) {
  if (pattern.text.empty())
    return base::fail(base::ErrorCode::kUnsupportedTokenizer, "a pattern of the tokenizer is empty");
  if (!pattern.is_regex) return Pattern(pattern.text);
  for (const KnownPattern& known : known_patterns()) {
    if (known.regex == pattern.text) return Pattern(known.scanner);
  }
  return Pattern(TRY(Regex::create(pattern.text)));
}

base::Result<std::optional<Match>> Pattern::find(std::string_view text, std::size_t from, TextBudget& budget) const {
  if (from >= text.size()) return std::optional<Match>();
  if (const auto* regex = std::get_if<Regex>(&impl_)) return regex->find(text, from, budget);
  if (!budget.spend_steps(1)) return base::fail(budget.too_slow());
  if (const auto* scanner = std::get_if<Scanner>(&impl_)) return pre_tokenizer::find(*scanner, text, from);
  const std::string& literal = std::get<std::string>(impl_);
  const std::size_t begin = base::find_text(text, literal, from);
  if (begin == std::string_view::npos) return std::optional<Match>();
  return std::optional(Match{begin, begin + literal.size()});
}

std::string well_formed(std::string_view text) {
  std::string out(text);
  for (std::size_t i = 0; i < text.size();) {
    const unicode::Char c = unicode::next_char(text.substr(i));
    if (c.code_point == unicode::kIllFormed) out[i] = '\x01';
    i += c.bytes;
  }
  return out;
}

}  // namespace llorch::text::pre_tokenizer
