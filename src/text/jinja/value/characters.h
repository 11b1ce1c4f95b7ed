#pragma once
// What Python's str knows about characters. All functions take well-formed UTF-8.
#include <cstddef>
#include <string>
#include <string_view>

namespace llorch::text::jinja {

// str.isspace, which is also what strip() and the regular expression \s take.
bool is_white_space(char32_t c);
// Length in bytes of the white space at the start or at the end.
std::size_t leading_white_space(std::string_view text);
std::size_t trailing_white_space(std::string_view text);
std::string_view trim_white_space(std::string_view text);

bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_upper(char32_t c);
bool is_lower(char32_t c);
bool is_title(char32_t c);
// Shown as itself by repr().
bool is_printable(char32_t c);
// A boundary of splitlines().
bool is_line_break(char32_t c);

// The code point at `at`, which is moved behind it. REQUIRES at < text.size().
char32_t take_code_point(std::string_view text, std::size_t& at);
void append_utf8(std::string& out, char32_t c);

enum class Case { kUpper, kLower, kTitle };
// Full mappings: one character may become three. `next_to` decides the final sigma of kLower.
struct Neighbours {
  bool cased_before = false, cased_after = false;
};
void append_mapped(std::string& out, char32_t c, Case to, Neighbours next_to = {});
// Whether the sigma at `at` of `text` has cased characters before and after it, ignorable ones skipped.
Neighbours neighbours_of(std::string_view text, std::size_t at);

}  // namespace llorch::text::jinja
