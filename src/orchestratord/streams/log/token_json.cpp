#include "orchestratord/streams/log/token_json.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/utf8.h"

namespace llorch::orchestratord::streams {
namespace {

void append_escaped(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  for (const char c : text) {
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += "\\u00";
          out += kHex[(c >> 4) & 0xf];
          out += kHex[c & 0xf];
        } else {
          out += c;
        }
    }
  }
}

// What the letter after a backslash stands for; 0 for \u and what is no escape.
char unescaped(char letter) {
  switch (letter) {
    case '"': return '"';
    case '\\': return '\\';
    case '/': return '/';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'n': return '\n';
    case 'r': return '\r';
    case 't': return '\t';
    default: return 0;
  }
}

// Appends the text of a JSON string and returns where its closing quote is; npos if it is not that simple.
std::size_t read_string(std::string_view json, std::size_t at, std::string& text) {
  const std::size_t begin = text.size();
  while (at < json.size() && json[at] != '"') {
    char c = json[at++];
    if (static_cast<unsigned char>(c) < 0x20) return std::string_view::npos;
    if (c == '\\') c = at < json.size() ? unescaped(json[at++]) : 0;
    if (c == 0) return std::string_view::npos;
    text += c;
  }
  const bool whole = at < json.size() && base::is_valid_utf8(std::string_view(text).substr(begin));
  return whole ? at : std::string_view::npos;
}

}  // namespace

void append_token_json(std::string& out, const TokenData& token) {
  out.append("{\"t\":\"");
  append_escaped(out, token.t);
  out.append("\",\"i\":");
  std::array<char, 20> digits;
  out.append(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), token.i).ptr);
  if (!token.logprobs.empty()) out.append(",\"logprobs\":").append(token.logprobs);
  out += '}';
}

std::optional<std::int64_t> read_token_json(std::string_view json, std::string& text) {
  constexpr std::string_view kText = "{\"t\":\"", kIndex = "\",\"i\":";
  const std::size_t before = text.size();
  const std::size_t quote = json.starts_with(kText) ? read_string(json, kText.size(), text) : std::string_view::npos;
  if (quote != std::string_view::npos && json.substr(quote).starts_with(kIndex)) {
    const char* const digits = json.data() + quote + kIndex.size();
    const char* const last = json.data() + json.size() - 1;
    std::int64_t index = 0;
    const auto [end, error] = std::from_chars(digits, std::max(digits, last), index);
    const bool canonical = digits < last && *digits != '-' && (*digits != '0' || end == digits + 1);
    if (error == std::errc() && end == last && *last == '}' && canonical) return index;
  }
  text.resize(before);
  return std::nullopt;
}

}  // namespace llorch::orchestratord::streams
