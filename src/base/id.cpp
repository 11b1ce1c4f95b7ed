#include "base/id.h"

#include <array>
#include <cstddef>

#include "base/entropy.h"

namespace llorch::base {

bool is_valid_identifier(std::string_view text, std::size_t length_max) {
  if (text.empty() || text.size() > length_max) return false;
  for (const char c : text) {
    const bool ok = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    if (!ok) return false;
  }
  return true;
}

std::string uuid_v4(Entropy& entropy) {
  std::array<std::byte, 16> b;
  entropy.fill(b);
  b[6] = (b[6] & std::byte{0x0f}) | std::byte{0x40};
  b[8] = (b[8] & std::byte{0x3f}) | std::byte{0x80};
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  out.reserve(36);
  for (std::size_t i = 0; i < b.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) out += '-';
    out += kHex[std::to_integer<int>(b[i]) >> 4];
    out += kHex[std::to_integer<int>(b[i]) & 15];
  }
  return out;
}

bool is_uuid(std::string_view text) {
  if (text.size() != 36) return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool dash = i == 8 || i == 13 || i == 18 || i == 23;
    const bool hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
    if (dash ? c != '-' : !hex) return false;
  }
  return true;
}

}  // namespace llorch::base
