#include "text/jinja/value/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "base/assert.h"
#include "base/utf8.h"

namespace llorch::text::jinja {
namespace {

struct SpecialCase {
  char32_t from;
  std::array<char32_t, 3> title, upper;  // 0 fills up
};

constexpr SpecialCase kSpecialCases[] = {
#include "text/jinja/value/special_casing.inc"
};

constexpr char32_t kCapitalSigma = 0x3A3;
constexpr char32_t kCapitalDottedI = 0x130;

struct CodePointRange {
  char32_t first, last;
};

// Numeric_Type=Digit without the decimals (UnicodeData.txt, field 7 without field 6).
constexpr CodePointRange kOtherDigits[] = {
    {0xB2, 0xB3},     {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},   {0x2070, 0x2070},
    {0x2074, 0x2079}, {0x2080, 0x2089},   {0x2460, 0x2468},   {0x2474, 0x247C},   {0x2488, 0x2490},
    {0x24EA, 0x24EA}, {0x24F5, 0x24FD},   {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},
    {0x278A, 0x2792}, {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
};

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Case_Ignorable (UAX 44): marks, formats, modifiers and the word-inner punctuation.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  constexpr char32_t kMidWord[] = {0x27,   0x2E,   0x3A,   0xB7,   0x387,  0x55F,  0x5F4,  0x2018, 0x2019,
                                   0x2024, 0x2027, 0xFE13, 0xFE52, 0xFE55, 0xFF07, 0xFF0E, 0xFF1A};
  return std::find(std::begin(kMidWord), std::end(kMidWord), c) != std::end(kMidWord);
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_line_break(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

char32_t take_code_point(std::string_view text, std::size_t& at) {
  const base::Utf8Step step = base::next_code_point(text.substr(at));
  ASSERT(step.status == base::Utf8Status::kComplete, "at={}", at);
  at += step.bytes;
  return step.code_point;
}

std::size_t leading_white_space(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::size_t next = at;
    if (!is_white_space(take_code_point(text, next))) break;
    at = next;
  }
  return at;
}

std::size_t trailing_white_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    std::size_t at = begin;
    if (!is_white_space(take_code_point(text, at))) break;
    end = begin;
  }
  return text.size() - end;
}

std::string_view trim_white_space(std::string_view text) {
  text.remove_prefix(leading_white_space(text));
  text.remove_suffix(trailing_white_space(text));
  return text;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) {
  const auto holds = [c](const CodePointRange& r) { return c >= r.first && c <= r.last; };
  return is_decimal(c) || std::any_of(std::begin(kOtherDigits), std::end(kOtherDigits), holds);
}
bool is_numeric(char32_t c) {
  const auto k = category(c);
  return k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_NL || k == UTF8PROC_CATEGORY_NO;
}
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || c == 0xAA || c == 0xBA; }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

bool is_printable(char32_t c) {
  if (c == ' ') return true;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

void append_utf8(std::string& out, char32_t c) {
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3F)); };
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    tail(0);
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

void append_mapped(std::string& out, char32_t c, Case to, Neighbours next_to) {
  if (c < 0x80) {
    const bool lower = c >= 'a' && c <= 'z', upper = c >= 'A' && c <= 'Z';
    if (to == Case::kLower ? upper : lower) c ^= 0x20;
    out += static_cast<char>(c);
    return;
  }
  if (to == Case::kLower) {
    if (c == kCapitalSigma && next_to.cased_before && !next_to.cased_after) return append_utf8(out, 0x3C2);
    if (c == kCapitalDottedI) {
      out += 'i';
      return append_utf8(out, 0x307);
    }
    return append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  const auto special = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                                        [](const SpecialCase& s, char32_t wanted) { return s.from < wanted; });
  if (special != std::end(kSpecialCases) && special->from == c) {
    for (const char32_t mapped : to == Case::kTitle ? special->title : special->upper) {
      if (mapped != 0) append_utf8(out, mapped);
    }
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  append_utf8(out, static_cast<char32_t>(to == Case::kTitle ? utf8proc_totitle(code) : utf8proc_toupper(code)));
}

Neighbours neighbours_of(std::string_view text, std::size_t at) {
  Neighbours found;
  std::size_t before = at;
  while (before > 0) {
    do {
      --before;
    } while ((static_cast<unsigned char>(text[before]) & 0xC0) == 0x80);
    std::size_t next = before;
    const char32_t c = take_code_point(text, next);
    if (is_case_ignorable(c)) continue;
    found.cased_before = is_cased(c);
    break;
  }
  std::size_t after = at;
  take_code_point(text, after);
  while (after < text.size()) {
    const char32_t c = take_code_point(text, after);
    if (is_case_ignorable(c)) continue;
    found.cased_after = is_cased(c);
    break;
  }
  return found;
}

}  // namespace llorch::text::jinja
