#pragma once
// How quantized weights lie in a packed group of sixteen rows (pack.h). A row is cut into blocks of 32 elements, a block
// into eight groups of four; codes are unsigned, sixteen rows side by side:
//   byte plane    [block][g = 0..7][row][4]: the code of element 4g + i
//   nibble plane  [block][g = 0..3][row][4]: low four bits of elements 4g + i (low nibble) and 16 + 4g + i (high nibble)
//   pair plane    [block][h = 0..1][row][4]: the next two bits of element 16h + 4j + i at bits 2j
//   bit plane     [block][row][4]: the last bit of element 4g + i at bit g
// Blocks lie in records: the factors of its blocks, their small scales, then their codes. A group is records one after the
// other, the last of what blocks are left. Nothing is requantized: the value of an element is the stored one.
#include <array>
#include <cstddef>
#include <cstdint>

#include "engine/plan/dtype.h"
#include "engine/plan/quant_blocks.h"

namespace llorch::engine::compute::cpu {

inline constexpr std::size_t kPackRows = 16;

// What scales the integers of a block before its factor does.
enum class SmallScale : std::uint8_t {
  kNone,
  kSigned,          // int8 [block][row]
  kSignedHalves,    // int8 [block][half][row], a half is 16 elements
  kUnsignedMin,     // u8 [block][scale, min][row]
  kHalvesWithMins,  // u8 [block][half][row], scale in the low nibble, min in the high one
};

// Value of an element: factor * small scale * integer, then - or + its min.
struct QuantLayout {
  bool byte_plane = false;
  bool nibble_plane = false;
  bool pair_plane = false;
  bool bit_plane = false;
  bool has_levels = false;  // the integer is levels[code], else code - offset
  int offset = 0;
  std::array<std::int8_t, 16> levels{};
  SmallScale small = SmallScale::kNone;
  bool exponent_factor = false;  // one byte e for 2^(e - 128), else binary16
  bool has_min = false;          // a second factor: added times 1 (no small scales), or subtracted times the small mins
  std::size_t factor_blocks = 1;  // blocks that share their factors

  constexpr std::size_t code_bytes() const {  // of a block, all rows
    return (byte_plane ? 512 : 0) + (nibble_plane ? 256 : 0) + (pair_plane ? 128 : 0) + (bit_plane ? 64 : 0);
  }
  constexpr std::size_t small_bytes() const {
    return small == SmallScale::kNone ? 0 : small == SmallScale::kSigned ? kPackRows : 2 * kPackRows;
  }
  constexpr std::size_t factor_bytes() const { return exponent_factor ? kPackRows : (has_min ? 4 : 2) * kPackRows; }
  [[gnu::always_inline]] constexpr std::size_t group_bytes(std::size_t blocks) const {
    return blocks * (code_bytes() + small_bytes()) + blocks / factor_blocks * factor_bytes();
  }
  // Blocks of a record of the CPU's: the fewest that fill whole cache lines. A kernel then reads a group end to end, a walk that
  // every processor fetches ahead by itself; the three planes of a whole group read side by side got half of the bandwidth.
  [[gnu::always_inline]] constexpr std::size_t record_blocks() const {
    std::size_t blocks = factor_blocks;
    while (group_bytes(blocks) % 64 != 0) blocks += factor_blocks;
    return blocks;
  }
  // Where a block lies in a group of `blocks`, in bytes from its begin.
  struct Place {
    std::size_t factors, small, codes;
  };
  [[gnu::always_inline]] constexpr Place place(std::size_t block, std::size_t blocks, std::size_t record) const {
    const std::size_t inside = block % record, first = block - inside;
    const std::size_t count = record < blocks - first ? record : blocks - first;
    const std::size_t factors = group_bytes(first), scales = factors + count / factor_blocks * factor_bytes();
    return {.factors = factors + inside / factor_blocks * factor_bytes(),
            .small = scales + inside * small_bytes(),
            .codes = scales + count * small_bytes() + inside * code_bytes()};
  }
  constexpr bool has_halves() const {
    return small == SmallScale::kSignedHalves || small == SmallScale::kHalvesWithMins;
  }
  // Largest magnitude of the integer, when it is unsigned before the offset is taken off.
  constexpr int code_max() const {
    return (1 << ((byte_plane ? 8 : 0) + (nibble_plane ? 4 : 0) + (pair_plane ? 2 : 0) + (bit_plane ? 1 : 0))) - 1;
  }
};

// REQUIRES: is_quantized(dtype).
// Inlined always: kernels of several instruction sets use it, and share no symbol.
[[gnu::always_inline]] constexpr QuantLayout quant_layout(plan::DType dtype) {
  using plan::DType;
  switch (dtype) {
    case DType::kQ8_0: return {.byte_plane = true, .offset = 128};
    case DType::kQ4_0: return {.nibble_plane = true, .offset = 8};
    case DType::kQ4_1: return {.nibble_plane = true, .has_min = true};
    case DType::kQ5_0: return {.nibble_plane = true, .bit_plane = true, .offset = 16};
    case DType::kQ5_1: return {.nibble_plane = true, .bit_plane = true, .has_min = true};
    case DType::kIQ4_NL: return {.nibble_plane = true, .has_levels = true, .levels = plan::kIq4Values};
    case DType::kMXFP4:
      return {.nibble_plane = true, .has_levels = true, .levels = plan::kMxfp4Doubled, .exponent_factor = true};
    case DType::kQ2_K:
      return {.pair_plane = true, .small = SmallScale::kHalvesWithMins, .has_min = true, .factor_blocks = 8};
    case DType::kQ3_K:
      return {
          .pair_plane = true, .bit_plane = true, .offset = 4, .small = SmallScale::kSignedHalves, .factor_blocks = 8};
    case DType::kQ4_K:
      return {.nibble_plane = true, .small = SmallScale::kUnsignedMin, .has_min = true, .factor_blocks = 8};
    case DType::kQ5_K:
      return {.nibble_plane = true,
              .bit_plane = true,
              .small = SmallScale::kUnsignedMin,
              .has_min = true,
              .factor_blocks = 8};
    case DType::kQ6_K:
      return {.nibble_plane = true,
              .pair_plane = true,
              .offset = 32,
              .small = SmallScale::kSignedHalves,
              .factor_blocks = 8};
    case DType::kIQ4_XS:
      return {.nibble_plane = true,
              .has_levels = true,
              .levels = plan::kIq4Values,
              .small = SmallScale::kSigned,
              .factor_blocks = 8};
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
    case DType::kF8_E4M3:
    case DType::kI32: break;
  }
  return {};
}

}  // namespace llorch::engine::compute::cpu
