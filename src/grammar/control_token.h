#pragma once
// Control tokens in grammars. They have no text, so a grammar names them by id, as bytes that no text has.
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/token_id.h"

namespace llorch::grammar {

// UTF-8 never has these bytes, so no text, whatever tokens spell it, is read as a control token.
inline constexpr unsigned kFirstControlByte = 0xF5;
inline constexpr std::size_t kControlTokenDigits = 8;  // octal, which is every id of a vocabulary: 2^24 tokens

inline bool is_control_byte(char c) { return static_cast<unsigned char>(c) >= kFirstControlByte; }

// 0xFF and the id's digits: all of one length, so none is the beginning of another.
class ControlTokenBytes {
 public:
  explicit ControlTokenBytes(base::TokenId id) {
    bytes_[0] = static_cast<char>(0xFF);
    for (std::size_t i = 0; i < kControlTokenDigits; ++i) {
      bytes_[i + 1] = static_cast<char>(kFirstControlByte + (base::index(id) >> 3 * i & 7));
    }
  }
  std::string_view view() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::array<char, 1 + kControlTokenDigits> bytes_{};
};

inline std::bitset<256> control_bytes() {
  std::bitset<256> out;
  for (unsigned byte = kFirstControlByte; byte < 256; ++byte) out.set(byte);
  return out;
}

}  // namespace llorch::grammar
