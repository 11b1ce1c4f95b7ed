#pragma once
#include <cstddef>
#include <string_view>

namespace llorch::base {

constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";  // U+FFFD

// Whether `text` is well-formed UTF-8 (Unicode 15, table 3-7: no overlong forms, no surrogates, at most U+10FFFF).
bool is_valid_utf8(std::string_view text);

enum class Utf8Status { kComplete, kIncomplete, kInvalid };
struct Utf8Step {
  Utf8Status status;
  std::size_t bytes;  // complete: length of the code point. incomplete: all that is left. invalid: bytes to replace
  char32_t code_point;
};
// The code point at the start of non-empty `text`. Incomplete means that more bytes could still make it valid; invalid
// covers the longest part that cannot (WHATWG replacement rule).
Utf8Step next_code_point(std::string_view text);

}  // namespace llorch::base
