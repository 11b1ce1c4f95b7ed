#include "text/jinja/value/number.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "text/jinja/value/characters.h"

namespace llorch::text::jinja {
namespace {

int digit_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'z') return c - 'a' + 10;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 10;
  return 36;
}

// Without underscores; no value where one stands elsewhere than between two digits.
std::optional<std::string> without_underscores(std::string_view text, int base) {
  std::string digits;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const bool inside =
        i > 0 && i + 1 < text.size() && digit_value(text[i - 1]) < base && digit_value(text[i + 1]) < base;
    if (!inside) return std::nullopt;
  }
  return digits;
}

bool has_prefix_of(std::string_view text, int base) {
  if (text.size() < 2 || text[0] != '0') return false;
  const char letter = static_cast<char>(text[1] | 0x20);
  return (base == 16 && letter == 'x') || (base == 8 && letter == 'o') || (base == 2 && letter == 'b');
}

}  // namespace

std::string print_int(Int value) { return fmt::format("{}", value); }

std::string print_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
  const std::string_view shortest(buffer, static_cast<std::size_t>(end - buffer));
  const std::size_t e = shortest.find('e');
  const int exponent = std::stoi(std::string(shortest.substr(e + 1)));
  if (exponent < -4 || exponent >= 16) return std::string(shortest);
  char fixed[64];
  const auto stop = std::to_chars(fixed, fixed + sizeof fixed, value, std::chars_format::fixed).ptr;
  std::string text(fixed, stop);
  if (text.find('.') == std::string::npos) text += ".0";
  return text;
}

std::optional<Int> parse_int(std::string_view text, int base) {
  text = trim_white_space(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  if (base == 0) {
    base = 10;
    for (const int prefixed : {2, 8, 16}) {
      if (has_prefix_of(text, prefixed)) base = prefixed;
    }
    if (base == 10 && text.size() > 1 && text[0] == '0' && text.find_first_not_of("0_") != std::string_view::npos)
      return std::nullopt;
  }
  if (has_prefix_of(text, base)) {
    text.remove_prefix(2);
    if (text.starts_with('_')) text.remove_prefix(1);
  }
  const auto digits = without_underscores(text, base);
  if (!digits || digits->empty()) return std::nullopt;
  Int value = 0;
  for (const char c : *digits) {
    const int digit = digit_value(c);
    if (digit >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) || __builtin_add_overflow(value, Int{digit}, &value))
      return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<double> parse_float(std::string_view text) {
  text = trim_white_space(text);
  const auto digits = without_underscores(text, 10);
  if (!digits || digits->empty()) return std::nullopt;
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return std::nullopt;
  if (rest.find('(') != std::string_view::npos) return std::nullopt;  // nan(...), which from_chars reads
  double value = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) {
    // from_chars leaves the value alone: too large for a double, or too small.
    const std::size_t e = rest.find_first_of("eE");
    const bool tiny = e != std::string_view::npos ? rest.substr(e + 1).starts_with('-') : rest.starts_with("0");
    value = tiny ? 0.0 : HUGE_VAL;
  } else if (error != std::errc()) {
    return std::nullopt;
  }
  return negative ? -value : value;
}

std::optional<Int> truncate_float(double value) {
  if (!(std::fabs(value) < 1e38)) return std::nullopt;
  return static_cast<Int>(value);
}

}  // namespace llorch::text::jinja
