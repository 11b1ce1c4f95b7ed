#pragma once
// Stored blocks of the quantised element types, byte for byte as GGUF files hold them (little-endian, no padding between
// blocks). A row of K elements is K / 32 consecutive blocks. Element e of a block:
//   Q8_0: d * qs[e]
//   Q4_0: d * (nibble - 8), nibble = e < 16 ? qs[e] & 15 : qs[e - 16] >> 4
// d is an IEEE binary16 bit pattern.
#include <cstdint>

namespace llorch::engine::contract {

inline constexpr std::uint32_t kQuantBlockElements = 32;

struct BlockQ8_0 {
  std::uint16_t d;
  std::int8_t qs[32];
};
static_assert(sizeof(BlockQ8_0) == 34 && alignof(BlockQ8_0) == 2);

struct BlockQ4_0 {
  std::uint16_t d;
  std::uint8_t qs[16];
};
static_assert(sizeof(BlockQ4_0) == 18 && alignof(BlockQ4_0) == 2);

}  // namespace llorch::engine::contract
