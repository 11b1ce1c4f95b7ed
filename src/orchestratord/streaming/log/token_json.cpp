#include "orchestratord/streaming/log/token_json.h"

#include <fmt/format.h>

#include <iterator>

namespace llorch::orchestratord::streaming {
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

}  // namespace

void write_token_json(std::string& out, const TokenData& token) {
  out.assign("{\"t\":\"");
  append_escaped(out, token.t);
  fmt::format_to(std::back_inserter(out), "\",\"i\":{}", token.i);
  if (!token.logprobs.empty()) out.append(",\"logprobs\":").append(token.logprobs);
  out += '}';
}

}  // namespace llorch::orchestratord::streaming
