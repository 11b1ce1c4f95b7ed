#include "text/pre_tokenizer/scanner.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "text/unicode/char_class.h"

namespace llorch::text::pre_tokenizer {
namespace {

using unicode::Char;
using unicode::CharSet;
using unicode::kLetter;
using unicode::kMark;
using unicode::kNumber;
using unicode::kPunctuation;
using unicode::kSpace;
using unicode::kSymbol;
using unicode::next_char;

constexpr CharSet kAny = 0xFFFF;
constexpr CharSet kUpperOrCaseless = unicode::kLu | unicode::kLt | unicode::kLm | unicode::kLo | kMark;
constexpr CharSet kLowerOrCaseless = unicode::kLl | unicode::kLm | unicode::kLo | kMark;
constexpr CharSet without(CharSet set) { return static_cast<CharSet>(kAny & ~set); }

enum class Case : std::uint8_t { kLower, kEither, kFold };

// The functions below look at `text` from `at` on and return where their match ends; `at` itself if there is none.

bool is_newline(char c) { return c == '\r' || c == '\n'; }

bool is_in(std::string_view text, std::size_t at, CharSet set) {
  return at < text.size() && (next_char(text.substr(at)).char_class & set) != 0;
}

std::size_t one_of(std::string_view text, std::size_t at, CharSet set) {
  if (at >= text.size()) return at;
  const Char c = next_char(text.substr(at));
  return (c.char_class & set) != 0 ? at + c.bytes : at;
}

std::size_t run_of(std::string_view text, std::size_t at, CharSet set, std::size_t count_max = SIZE_MAX) {
  for (std::size_t i = 0; i < count_max; ++i) {
    const std::size_t end = one_of(text, at, set);
    if (end == at) break;
    at = end;
  }
  return at;
}

template <class IsIn>
std::size_t run_where(std::string_view text, std::size_t at, const IsIn& is_member) {
  while (at < text.size()) {
    const Char c = next_char(text.substr(at));
    if (!is_member(c)) break;
    at += c.bytes;
  }
  return at;
}

std::size_t newlines(std::string_view text, std::size_t at, bool slashes = false) {
  while (at < text.size() && (is_newline(text[at]) || (slashes && text[at] == '/'))) ++at;
  return at;
}

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// 's 't 're 've 'm 'll 'd
std::size_t contraction(std::string_view text, std::size_t at, Case letter_case) {
  if (at + 1 >= text.size() || text[at] != '\'') return at;
  const auto letter = [&](std::size_t i) {
    if (i >= text.size()) return '\0';
    return letter_case == Case::kLower ? text[i] : lower(text[i]);
  };
  const char first = letter(at + 1), second = letter(at + 2);
  if (first == 's' || first == 't' || first == 'm' || first == 'd') return at + 2;
  if ((first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')) {
    return at + 3;
  }
  constexpr std::string_view kLongS = "\xC5\xBF";  // U+017F folds to s; no other letter beyond ASCII folds to one here
  return letter_case == Case::kFold && text.substr(at + 1).starts_with(kLongS) ? at + 1 + kLongS.size() : at;
}

// \s+(?!\S)|\s+ : spaces before a word leave it the last one, unless that is the only one.
// With `to_newline` first \s*[\r\n]+.
std::size_t spaces(std::string_view text, std::size_t at, bool to_newline) {
  std::size_t end = at, last_char = at, after_newline = at;
  while (is_in(text, end, kSpace)) {
    last_char = end;
    end = one_of(text, end, kSpace);
    if (is_newline(text[last_char])) after_newline = end;
  }
  if (to_newline && after_newline > at) return after_newline;
  return end == text.size() || last_char == at ? end : last_char;
}

std::size_t after_space(std::string_view text, std::size_t at) {
  return at < text.size() && text[at] == ' ' ? at + 1 : at;
}

// ` ?` and then what begins where that leaves off; `at` if nothing does.
std::size_t spaced_run(std::string_view text, std::size_t at, CharSet set) {
  const std::size_t begin = after_space(text, at);
  const std::size_t end = run_of(text, begin, set);
  return end > begin ? end : at;
}

std::size_t gpt2(std::string_view text, std::size_t at) {
  if (const std::size_t end = contraction(text, at, Case::kLower); end > at) return end;
  for (const CharSet set : {kLetter, kNumber, without(kSpace | kLetter | kNumber)}) {
    if (const std::size_t end = spaced_run(text, at, set); end > at) return end;
  }
  return spaces(text, at, false);
}

// ` ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
std::size_t signs_or_spaces(std::string_view text, std::size_t at, bool slashes) {
  const std::size_t end = spaced_run(text, at, without(kSpace | kLetter | kNumber));
  return end > at ? newlines(text, end, slashes) : spaces(text, at, true);
}

bool may_lead_a_word(std::string_view text, std::size_t at) {
  return !is_newline(text[at]) && is_in(text, at, without(kLetter | kNumber));
}

std::size_t cl100k(std::string_view text, std::size_t at, Case letter_case, std::size_t digits_max) {
  if (const std::size_t end = contraction(text, at, letter_case); end > at) return end;
  const std::size_t word = may_lead_a_word(text, at) ? one_of(text, at, kAny) : at;
  if (const std::size_t end = run_of(text, word, kLetter); end > word) return end;
  if (const std::size_t end = run_of(text, at, kNumber, digits_max); end > at) return end;
  return signs_or_spaces(text, at, false);
}

// [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+
std::size_t word_with_lower(std::string_view text, std::size_t at) {
  std::size_t upper_end = at, last_caseless_end = at;
  while (is_in(text, upper_end, kUpperOrCaseless)) {
    const bool caseless = is_in(text, upper_end, kLowerOrCaseless);
    upper_end = one_of(text, upper_end, kAny);
    if (caseless) last_caseless_end = upper_end;
  }
  const std::size_t end = run_of(text, upper_end, kLowerOrCaseless);
  // Without a lower-case letter the last caseless character must do: the first part gives it back.
  return end > upper_end ? end : last_caseless_end;
}

// The two word alternatives of o200k, without the contraction at their end.
std::size_t word_by_case(std::string_view text, std::size_t at) {
  const bool leads = may_lead_a_word(text, at);
  const std::size_t after_lead = leads ? one_of(text, at, kAny) : at;
  for (const std::size_t begin : {after_lead, at}) {
    if (const std::size_t end = word_with_lower(text, begin); end > begin) return end;
  }
  for (const std::size_t begin : {after_lead, at}) {
    const std::size_t end = run_of(text, begin, kUpperOrCaseless);
    if (end > begin) return run_of(text, end, kLowerOrCaseless);
  }
  return at;
}

std::size_t o200k(std::string_view text, std::size_t at, Case letter_case) {
  if (const std::size_t end = word_by_case(text, at); end > at) return contraction(text, end, letter_case);
  if (const std::size_t end = run_of(text, at, kNumber, 3); end > at) return end;
  return signs_or_spaces(text, at, true);
}

std::size_t tekken(std::string_view text, std::size_t at) {
  if (const std::size_t end = word_by_case(text, at); end > at) return end;
  if (const std::size_t end = one_of(text, at, kNumber); end > at) return end;
  return signs_or_spaces(text, at, true);
}

bool is_ascii_letter(const Char& c) { return c.code_point < 0x80 && (c.char_class & kLetter) != 0; }
bool is_ascii_punctuation(const Char& c) {
  return c.code_point < 0x80 && (c.char_class & (kPunctuation | kSymbol)) != 0;
}

// [!-~ less letters and digits][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|spaces
std::size_t deepseek_v3_words(std::string_view text, std::size_t at) {
  const Char first = next_char(text.substr(at));
  if (is_ascii_punctuation(first)) {
    if (const std::size_t end = run_where(text, at + 1, is_ascii_letter); end > at + 1) return end;
  }
  const bool leads = !is_newline(text[at]) && (first.char_class & (kLetter | kPunctuation | kSymbol)) == 0;
  for (const std::size_t begin : {leads ? at + first.bytes : at, at}) {
    if (const std::size_t end = run_of(text, begin, kLetter | kMark); end > begin) return end;
  }
  if (const std::size_t end = spaced_run(text, at, kPunctuation | kSymbol); end > at) return newlines(text, end);
  return spaces(text, at, true);
}

struct Range {
  char32_t first, last;
};
constexpr Range kDeepseekLlmLetters[] = {
#include "text/pre_tokenizer/deepseek_llm_letters.inc"
};
constexpr Range kDeepseekLlmPunctuation[] = {{0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
                                             {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr Range kDeepseekLlmCjk[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};
constexpr Range kCjkOrKana[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};

struct InRanges {
  std::span<const Range> ranges;  // ascending
  bool operator()(const Char& c) const {
    const auto it = std::partition_point(ranges.begin(), ranges.end(),
                                         [&](const Range& range) { return range.last < c.code_point; });
    return it != ranges.end() && it->first <= c.code_point;
  }
};

// \s?[ranges]+
std::size_t any_spaced_run(std::string_view text, std::size_t at, std::span<const Range> ranges) {
  for (const std::size_t begin : {one_of(text, at, kSpace), at}) {
    if (const std::size_t end = run_where(text, begin, InRanges{ranges}); end > begin) return end;
  }
  return at;
}

bool is_run_punctuation(const Char& c) {
  constexpr std::string_view kSymbols = "$+<=>^~|";
  return (c.char_class & kPunctuation) != 0 ||
         (c.code_point < 0x80 && kSymbols.find(static_cast<char>(c.code_point)) != kSymbols.npos);
}

std::size_t three_ascii_digits(std::string_view text, std::size_t at) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const std::string_view three = text.substr(at, 3);
  return three.size() == 3 && std::all_of(three.begin(), three.end(), is_digit) ? at + 3 : at;
}

std::size_t one_where(std::string_view text, std::size_t at, bool (*is_member)(const Char&)) {
  const Char c = next_char(text.substr(at));
  return is_member(c) ? at + c.bytes : at;
}

std::size_t match_at(Scanner scanner, std::string_view text, std::size_t at) {
  switch (scanner) {
    case Scanner::kGpt2: return gpt2(text, at);
    case Scanner::kCl100k: return cl100k(text, at, Case::kEither, 3);
    case Scanner::kCl100kFold: return cl100k(text, at, Case::kFold, 3);
    case Scanner::kCl100kOneDigit: return cl100k(text, at, Case::kEither, 1);
    case Scanner::kCl100kOneDigitFold: return cl100k(text, at, Case::kFold, 1);
    case Scanner::kO200k: return o200k(text, at, Case::kEither);
    case Scanner::kO200kFold: return o200k(text, at, Case::kFold);
    case Scanner::kTekken: return tekken(text, at);
    case Scanner::kDeepseekV3Words: return deepseek_v3_words(text, at);
    case Scanner::kOneNumber: return one_of(text, at, kNumber);
    case Scanner::kNumbers: return run_of(text, at, kNumber);
    case Scanner::kUpToThreeNumbers: return run_of(text, at, kNumber, 3);
    case Scanner::kThreeAsciiDigits: return three_ascii_digits(text, at);
    case Scanner::kCjkOrKana: return run_where(text, at, InRanges{kCjkOrKana});
    case Scanner::kPunctuationRun: return run_where(text, at, is_run_punctuation);
    case Scanner::kOneNewline: return is_newline(text[at]) ? at + 1 : at;
    case Scanner::kDeepseekLlmWord: return any_spaced_run(text, at, kDeepseekLlmLetters);
    case Scanner::kDeepseekLlmPunctuation: return any_spaced_run(text, at, kDeepseekLlmPunctuation);
    case Scanner::kDeepseekLlmCjk: return run_where(text, at, InRanges{kDeepseekLlmCjk});
    case Scanner::kTrailingSpaces: break;  // find_trailing_spaces
    case Scanner::kOneSpace: return one_of(text, at, kSpace);
    case Scanner::kOnePunctuation:
      return one_where(text, at,
                       [](const Char& c) { return (c.char_class & kPunctuation) != 0 || is_ascii_punctuation(c); });
  }
  return at;
}

// \s+$ where $ is the end of a line; in one pass: tried at every space it would be quadratic.
std::optional<Match> find_trailing_spaces(std::string_view text, std::size_t at) {
  while (at < text.size()) {
    const std::size_t begin = at;
    std::size_t line_end = begin;  // the last one inside the run of spaces
    while (is_in(text, at, kSpace)) {
      if (text[at] == '\n') line_end = at;
      at = one_of(text, at, kAny);
    }
    if (at == text.size() && at > begin) return Match{begin, at};
    if (line_end > begin) return Match{begin, line_end};
    if (at == begin) at = one_of(text, at, kAny);
  }
  return std::nullopt;
}

#define LLORCH_WORDS_END R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define LLORCH_EITHER_CASE R"((?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]))"
#define LLORCH_FOLD R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LLORCH_WORD_1 R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
#define LLORCH_WORD_2 R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
#define LLORCH_CASED_END R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"

constexpr KnownPattern kKnownPatterns[] = {
    {R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Scanner::kGpt2},
    {R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", Scanner::kGpt2},
    {LLORCH_EITHER_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" LLORCH_WORDS_END, Scanner::kCl100k},
    {LLORCH_FOLD R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})" LLORCH_WORDS_END, Scanner::kCl100kFold},
    {LLORCH_EITHER_CASE R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" LLORCH_WORDS_END, Scanner::kCl100kOneDigit},
    {LLORCH_FOLD R"(|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})" LLORCH_WORDS_END, Scanner::kCl100kOneDigitFold},
    {LLORCH_WORD_1 LLORCH_EITHER_CASE "?" LLORCH_WORD_2 LLORCH_EITHER_CASE R"(?|\p{N}{1,3})" LLORCH_CASED_END,
     Scanner::kO200k},
    {LLORCH_WORD_1 LLORCH_FOLD "?" LLORCH_WORD_2 LLORCH_FOLD R"(?|\p{N}{1,3})" LLORCH_CASED_END, Scanner::kO200kFold},
    {LLORCH_WORD_1 LLORCH_WORD_2 R"(|\p{N})" LLORCH_CASED_END, Scanner::kTekken},
    {R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
     R"(| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
     Scanner::kDeepseekV3Words},
    {R"(\p{N})", Scanner::kOneNumber},
    {R"(\p{N}+)", Scanner::kNumbers},
    {R"(\p{N}{1,3})", Scanner::kUpToThreeNumbers},
    {"[0-9][0-9][0-9]", Scanner::kThreeAsciiDigits},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+", Scanner::kCjkOrKana},
    {R"([\p{P}\$\+<=>\^~\|]+)", Scanner::kPunctuationRun},
    {R"([\r\n])", Scanner::kOneNewline},
    {"\\s?[!-/"
     ":-~\xEF\xBC\x81-\xEF\xBC\x8F\xEF\xBC\x9A-\xEF\xBD\x9E\xE2\x80\x98-\xE2\x80\x9F\xE3\x80\x80-\xE3\x80\x82]+",
     Scanner::kDeepseekLlmPunctuation},
    {"[\xE4\xB8\x80-\xE9\xBE\xA5\xE0\xA0\x80-\xE4\xB8\x80\xEA\xB0\x80-\xED\x9F\xBF]+", Scanner::kDeepseekLlmCjk},
    {R"(\s+$)", Scanner::kTrailingSpaces},
    {R"(\s)", Scanner::kOneSpace},
};

#undef LLORCH_WORDS_END
#undef LLORCH_EITHER_CASE
#undef LLORCH_FOLD
#undef LLORCH_WORD_1
#undef LLORCH_WORD_2
#undef LLORCH_CASED_END

}  // namespace

std::span<const KnownPattern> known_patterns() { return kKnownPatterns; }

std::optional<Match> find(Scanner scanner, std::string_view text, std::size_t from) {
  if (scanner == Scanner::kTrailingSpaces) return find_trailing_spaces(text, from);
  while (from < text.size()) {
    const std::size_t end = match_at(scanner, text, from);
    if (end > from) return Match{from, end};
    from += next_char(text.substr(from)).bytes;
  }
  return std::nullopt;
}

}  // namespace llorch::text::pre_tokenizer
