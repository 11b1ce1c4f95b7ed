#include "base/json_text.h"

#include <cstdint>
#include <cstring>
#include <vector>

namespace llorch::base {
namespace {

constexpr std::size_t kDepthMax = 1024;  // deeper than any parser here goes

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out += '"';
  std::size_t plain = 0;  // where the bytes begin that stand for themselves
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (static_cast<unsigned char>(c) >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text, plain, at - plain);
    plain = at + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      default:
        out += "\\u00";
        out += kHex[(c >> 4) & 0xf];
        out += kHex[c & 0xf];
    }
  }
  out.append(text, plain);
  out += '"';
}

std::size_t json_string_end(std::string_view json, std::size_t at) {
  for (std::size_t from = at + 1; from < json.size();) {
    const auto* const found = static_cast<const char*>(std::memchr(json.data() + from, '"', json.size() - from));
    if (found == nullptr) break;
    const auto quote = static_cast<std::size_t>(found - json.data());
    std::size_t backslashes = 0;
    while (json[quote - 1 - backslashes] == '\\') ++backslashes;
    if (backslashes % 2 == 0) return quote + 1;
    from = quote + 1;
  }
  return json.size();
}

std::size_t json_object_end(std::string_view json) {
  std::size_t depth = 0;
  for (std::size_t at = 0; at < json.size();) {
    const char c = json[at];
    at = c == '"' ? json_string_end(json, at) : at + 1;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) return at;
  }
  return json.size();
}

std::uint64_t object_steps(std::string_view json) {
  std::vector<std::uint64_t> members;  // of each value that is open
  std::uint64_t steps = 0;
  for (std::size_t at = 0; at < json.size();) {
    const char c = json[at];
    at = c == '"' ? json_string_end(json, at) : at + 1;
    if (c == '{' || c == '[') {
      if (members.size() == kDepthMax) return steps;  // a parser stops here
      members.push_back(0);
    } else if (c == ':' && !members.empty()) {
      ++members.back();
    } else if ((c == '}' || c == ']') && !members.empty()) {
      steps += members.back() * members.back() / 2;
      members.pop_back();
    }
  }
  return steps;
}

}  // namespace llorch::base
