#pragma once
// Integers and floats as Python computes and prints them.
#include <optional>
#include <string>
#include <string_view>

namespace llorch::text::jinja {

// Python's integers have no bound; these hold every 64-bit one, signed or not, and the template stops where they end.
__extension__ using Int = __int128;

std::string print_int(Int value);
// Shortest text that reads back as the same number: "1.0", "1e+16", "inf", "nan".
std::string print_float(double value);
// int(text, base) and float(text): surrounding white space, signs, underscores between digits. No value: not a number,
// or an integer out of range. REQUIRES base 0 or 2..36.
std::optional<Int> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);
// The integer part; no value: out of range or no number.
std::optional<Int> truncate_float(double value);

}  // namespace llorch::text::jinja
