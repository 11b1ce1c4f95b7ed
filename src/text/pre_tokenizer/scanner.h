#pragma once
// Hand-written scanners for the published patterns of pre-tokenizers: linear time, no recursion, exact.
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace llorch::text::pre_tokenizer {

enum class Scanner : std::uint8_t {
  kGpt2,
  kCl100k,          // contractions in either ASCII case, up to three digits
  kCl100kFold,      // contractions under Unicode case folding: U+017F is an s
  kCl100kOneDigit,  // as kCl100k, single digits
  kCl100kOneDigitFold,
  kO200k,  // words by case, contractions at their end in either ASCII case, up to three digits
  kO200kFold,
  kTekken,  // words by case, no contractions, single digits
  kDeepseekV3Words,
  kOneNumber,
  kNumbers,
  kUpToThreeNumbers,
  kThreeAsciiDigits,
  kCjkOrKana,
  kPunctuationRun,
  kOneNewline,
  kDeepseekLlmWord,  // of cased letters
  kDeepseekLlmPunctuation,
  kDeepseekLlmCjk,
  kTrailingSpaces,
  kOneSpace,
  kOnePunctuation,  // \p{P} and ASCII punctuation
};

struct KnownPattern {
  std::string_view regex;  // what the scanner matches, as files spell it
  Scanner scanner;
};
// Several spellings may name one scanner.
std::span<const KnownPattern> known_patterns();

struct Match {
  std::size_t begin, end;
};
// The leftmost match that begins at or after `from`, as a regular expression engine finds it; never empty.
std::optional<Match> find(Scanner scanner, std::string_view text, std::size_t from);

}  // namespace llorch::text::pre_tokenizer
