#include "engine/io/printable.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/utf8.h"

namespace llorch::engine::io {

bool is_printable_utf8(std::string_view text) {
  return base::is_valid_utf8(text) &&
         std::none_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string printable(std::string_view text) {
  std::string out = "'";
  for (const unsigned char c : text.substr(0, 64)) {
    out += c >= 0x20 && c < 0x7f ? std::string(1, static_cast<char>(c)) : fmt::format("\\x{:02x}", c);
  }
  return out + (text.size() > 64 ? "...'" : "'");
}

}  // namespace llorch::engine::io
