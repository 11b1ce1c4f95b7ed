#pragma once
// The character classes that tokenizers name.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace llorch::text::unicode {

// A set of classes; every character is in exactly one.
using CharSet = std::uint16_t;
inline constexpr CharSet kLu = 1, kLl = 2, kLt = 4, kLm = 8, kLo = 16;  // \p{Lu} \p{Ll} \p{Lt} \p{Lm} \p{Lo}
inline constexpr CharSet kMark = 32, kNumber = 64, kPunctuation = 128, kSymbol = 256;  // \p{M} \p{N} \p{P} \p{S}
inline constexpr CharSet kSpace = 512;                                                 // \s: the property White_Space
inline constexpr CharSet kOther = 1024;                          // the rest: controls, unassigned; ill-formed bytes too
inline constexpr CharSet kLetter = kLu | kLl | kLt | kLm | kLo;  // \p{L}

inline constexpr char32_t kIllFormed = 0xFFFFFFFF;

struct Char {
  CharSet char_class;  // one bit
  std::size_t bytes;
  char32_t code_point;  // kIllFormed for a byte that is no part of a character
};

// The character at the start of non-empty `text`; an ill-formed byte stands alone.
Char next_char(std::string_view text);

}  // namespace llorch::text::unicode
