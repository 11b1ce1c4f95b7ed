#include "base/utf8.h"

#include <cstdint>

namespace llorch::base {

Utf8Step next_code_point(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t b0 = byte(0);
  if (b0 < 0x80) return {Utf8Status::kComplete, 1, b0};
  std::size_t length = 0;
  std::uint8_t low = 0x80, high = 0xBF;  // legal range of the second byte
  if (b0 >= 0xC2 && b0 <= 0xDF) {
    length = 2;
  } else if (b0 >= 0xE0 && b0 <= 0xEF) {
    length = 3;
    if (b0 == 0xE0) low = 0xA0;
    if (b0 == 0xED) high = 0x9F;
  } else if (b0 >= 0xF0 && b0 <= 0xF4) {
    length = 4;
    if (b0 == 0xF0) low = 0x90;
    if (b0 == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::kInvalid, 1, 0xFFFD};
  }
  char32_t code_point = b0 & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {Utf8Status::kIncomplete, i, 0xFFFD};
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, i, 0xFFFD};
    code_point = (code_point << 6) | (byte(i) & 0x3F);
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kComplete, length, code_point};
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = next_code_point(text);
    if (step.status != Utf8Status::kComplete) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

}  // namespace llorch::base
