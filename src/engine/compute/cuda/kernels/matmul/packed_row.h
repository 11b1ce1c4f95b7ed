#pragma once
// Quantized weights as they lie in packed groups of sixteen rows (compute/cpu/quant_layout.h), a group one record, taken apart word
// by word. A word is four codes, those of elements 4g .. 4g + 3 of a block, and one register of a ByteMma.
#include "engine/compute/cpu/quant_layout.h"
#include "engine/compute/cuda/kernels/scalar.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kPackRows = cpu::kPackRows;
inline constexpr std::uint32_t kBlockElements = plan::kQuantBlockElements;

// One row of a packed group. Blocks of 32 elements are numbered along the row.
template <plan::DType kType>
class PackedRow {
  // Device code may use a constant's value, not the object: all of the layout that it needs stands here as numbers.
  static constexpr cpu::QuantLayout kLayout = cpu::quant_layout(kType);
  static constexpr cpu::SmallScale kSmall = kLayout.small;
  static constexpr std::uint32_t kCodeBytes = static_cast<std::uint32_t>(kLayout.code_bytes());
  static constexpr std::uint32_t kSmallBytes = static_cast<std::uint32_t>(kLayout.small_bytes());
  static constexpr std::uint32_t kFactorBytes = static_cast<std::uint32_t>(kLayout.factor_bytes());
  static constexpr std::uint32_t kFactorBlocks = static_cast<std::uint32_t>(kLayout.factor_blocks);
  static constexpr bool kExponent = kLayout.exponent_factor;
  static constexpr bool kLevels = kLayout.has_levels;
  static constexpr std::uint32_t kOffset = static_cast<std::uint32_t>(kLayout.offset);

 public:
  LLORCH_KERNEL PackedRow(const std::byte* group, std::uint32_t blocks, std::uint32_t row)
      : factors_(reinterpret_cast<const std::uint8_t*>(group) + row * (kExponent ? 1u : 2u)),
        small_(reinterpret_cast<const std::uint8_t*>(group) + header_bytes(blocks, 0) + row),
        codes_(reinterpret_cast<const std::uint8_t*>(group) + header_bytes(blocks, kSmallBytes) + 4 * row) {}

  // The signed integers of word g (0 .. 7), one to a byte.
  LLORCH_KERNEL std::uint32_t integers(std::uint32_t block, std::uint32_t g) const {
    const std::uint8_t* plane = codes_ + std::uint64_t{block} * kCodeBytes;
    std::uint32_t codes = 0, shift = 0;
    if constexpr (kLayout.byte_plane) codes = word(plane, g);
    if constexpr (kLayout.nibble_plane) {
      codes = word(plane, g % 4) >> (g / 4 * 4) & 0x0F0F0F0Fu;
      plane += 256, shift = 4;
    }
    if constexpr (kLayout.pair_plane) {
      codes |= (word(plane, g / 4) >> (g % 4 * 2) & 0x03030303u) << shift;
      plane += 128, shift += 2;
    }
    if constexpr (kLayout.bit_plane) codes |= (word(plane, 0) >> g & 0x01010101u) << shift;
    if constexpr (kLevels) return levels(codes);
    // Bytewise minus offset: the high bit keeps bytes from borrowing of each other, and comes off again.
    if constexpr (kOffset == 128) return codes ^ 0x80808080u;
    return ((codes | 0x80808080u) - 0x01010101u * kOffset) ^ 0x80808080u;
  }

  static constexpr bool kHalves = kLayout.has_halves();  // the halves of a block have scales of their own

  // Small scale and min of a half (16 elements) of a block; 1 where the type has none.
  LLORCH_KERNEL std::int32_t scale(std::uint32_t block, std::uint32_t half) const {
    const std::uint8_t* small = small_ + std::uint64_t{block} * kSmallBytes;
    switch (kSmall) {
      case cpu::SmallScale::kNone: return 1;
      case cpu::SmallScale::kSigned: return static_cast<std::int8_t>(small[0]);
      case cpu::SmallScale::kSignedHalves: return static_cast<std::int8_t>(small[half * kPackRows]);
      case cpu::SmallScale::kUnsignedMin: return small[0];
      case cpu::SmallScale::kHalvesWithMins: return small[half * kPackRows] & 15;
    }
    return 1;
  }
  LLORCH_KERNEL std::int32_t min(std::uint32_t block, std::uint32_t half) const {
    const std::uint8_t* small = small_ + std::uint64_t{block} * kSmallBytes;
    if constexpr (kSmall == cpu::SmallScale::kUnsignedMin) return small[kPackRows];
    if constexpr (kSmall == cpu::SmallScale::kHalvesWithMins) return small[half * kPackRows] >> 4;
    return 1;
  }

  // What multiplies the integers, and what multiplies the mins: subtracted where the type has small mins, else added.
  static constexpr bool kHasMin = kLayout.has_min;
  static constexpr bool kMinSubtracted = kSmall != cpu::SmallScale::kNone;
  LLORCH_KERNEL float factor(std::uint32_t block) const {
    const std::uint8_t* unit = factors_ + std::uint64_t{block / kFactorBlocks} * kFactorBytes;
    if constexpr (kExponent)
      return float_of(*unit < 2 ? 0x00200000u << *unit : static_cast<std::uint32_t>(*unit - 1) << 23);
    return half_value(*reinterpret_cast<const std::uint16_t*>(unit));
  }
  LLORCH_KERNEL float min_factor(std::uint32_t block) const {
    const std::uint8_t* unit = factors_ + std::uint64_t{block / kFactorBlocks} * kFactorBytes;
    return half_value(*reinterpret_cast<const std::uint16_t*>(unit + 2 * kPackRows));
  }

  // One element, dequantized as numerics.md says under `gather`.
  LLORCH_KERNEL float value(std::uint32_t element) const {
    const std::uint32_t block = element / 32, e = element % 32;
    const auto integer = static_cast<std::int8_t>(integers(block, e / 4) >> (e % 4 * 8) & 0xFF);
    const float scaled = factor(block) * static_cast<float>(scale(block, e / 16)) * static_cast<float>(integer);
    if constexpr (!kHasMin) {
      return scaled;
    } else {
      const float part = min_factor(block) * static_cast<float>(min(block, e / 16));
      return kMinSubtracted ? scaled - part : scaled + part;
    }
  }

 private:
  static LLORCH_KERNEL std::uint64_t header_bytes(std::uint32_t blocks, std::uint32_t small_bytes) {
    return std::uint64_t{blocks / kFactorBlocks} * kFactorBytes + std::uint64_t{blocks} * small_bytes;
  }
  static LLORCH_KERNEL std::uint32_t word(const std::uint8_t* plane, std::uint32_t index) {
    return *reinterpret_cast<const std::uint32_t*>(plane + index * (4 * kPackRows));
  }
  // Levels 4w .. 4w + 3 as the bytes of a constant.
  template <std::uint32_t kWord>
  static constexpr std::uint32_t kLevelWord =
      static_cast<std::uint32_t>(static_cast<std::uint8_t>(kLayout.levels[4 * kWord])) |
      static_cast<std::uint32_t>(static_cast<std::uint8_t>(kLayout.levels[4 * kWord + 1])) << 8 |
      static_cast<std::uint32_t>(static_cast<std::uint8_t>(kLayout.levels[4 * kWord + 2])) << 16 |
      static_cast<std::uint32_t>(static_cast<std::uint8_t>(kLayout.levels[4 * kWord + 3])) << 24;
  // Of four codes, a byte each: looked up by their low three bits in both halves of the levels, then the fourth decides.
  static LLORCH_KERNEL std::uint32_t levels(std::uint32_t codes) {
    std::uint32_t selector = codes & 0x07070707u;
    selector = (selector | selector >> 4) & 0x00FF00FFu;
    selector = (selector | selector >> 8) & 0xFFFFu;
    const std::uint32_t low = choose_bytes(kLevelWord<0>, kLevelWord<1>, selector),
                        high = choose_bytes(kLevelWord<2>, kLevelWord<3>, selector);
    const std::uint32_t mask = (codes >> 3 & 0x01010101u) * 0xFFu;
    return (high & mask) | (low & ~mask);
  }

  const std::uint8_t* factors_;
  const std::uint8_t* small_;
  const std::uint8_t* codes_;
};

}  // namespace llorch::engine::compute::cuda::kernels
