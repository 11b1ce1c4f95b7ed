#pragma once
// Rows as files store them, into the order matrix kernels read them in (matmul/matmul.h, Matrix). The host reference is
// packing_reference.cpp; both give the same bytes. Runs while weights are loaded, never in a step.
//
// What a unit has besides stored elements (rows and columns that do not exist, padding) is not written: weights begin as
// zeros.
#include "engine/compute/cuda/kernels/matmul/activations.h"
#include "engine/compute/cuda/kernels/matmul/f8.h"
#include "engine/compute/cuda/kernels/packing/stored_codes.h"

namespace llorch::engine::compute::cuda::kernels {

struct PackArgs {
  const std::byte* stored = nullptr;  // rows behind each other, aligned to 256 bytes
  std::byte* packed = nullptr;        // the first row's unit
  std::uint64_t unit_bytes = 0;       // from unit to unit
  std::uint32_t rows = 0;
  std::uint32_t columns = 0;
};

// Rows of floats, one to a unit. Grid: rows.
template <plan::DType kType>
struct PackFloats {
  using Args = PackArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.own([&](std::uint32_t thread) {
      auto* out = reinterpret_cast<float*>(args.packed + block.x() * args.unit_bytes);
      const std::uint64_t first = std::uint64_t{block.x()} * args.columns;
      for (std::uint32_t k = thread; k < args.columns; k += kThreads) out[k] = value(args.stored, first + k);
    });
  }

 private:
  static LLORCH_KERNEL float value(const std::byte* stored, std::uint64_t i) {
    if constexpr (kType == plan::DType::kF32)
      return reinterpret_cast<const float*>(stored)[i];
    else if constexpr (kType == plan::DType::kF16)
      return half_value(reinterpret_cast<const std::uint16_t*>(stored)[i]);
    else
      return float_of(static_cast<std::uint32_t>(reinterpret_cast<const std::uint16_t*>(stored)[i]) << 16);
  }
};

// BF16 bits of x times 2^n as F16 bits. Nearly all are shifted bits: the exponent moves, three zeros follow.
LLORCH_KERNEL std::uint16_t scaled_half(std::uint32_t bits, std::int32_t n) {
  const std::int32_t exponent = static_cast<std::int32_t>(bits >> 7 & 0xFFu) - 127 + 15 + n;
  if (exponent >= 1 && exponent <= 30)
    return static_cast<std::uint16_t>((bits & 0x8000u) | static_cast<std::uint32_t>(exponent) << 10 |
                                      (bits & 0x7Fu) << 3);
  return half_bits(float_of(bits << 16) * power_of_two(n));
}

// Rows of F16 or BF16, sixteen to a unit, in the order of fragments (half_index). Grid: units.
template <plan::DType kType>
struct PackHalf {
  using Args = PackArgs;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kPerRow = kThreads / kMmaRows;
  static constexpr bool kScaled = kType == plan::DType::kBF16;
  struct Shared {
    std::uint32_t largest[kMmaRows][kPerRow];
    std::int32_t exponent[kMmaRows];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t first = block.x() * kMmaRows, rows = smaller(args.rows - first, kMmaRows);
    const auto* stored = reinterpret_cast<const std::uint16_t*>(args.stored) + std::uint64_t{first} * args.columns;
    std::byte* unit = args.packed + block.x() * args.unit_bytes;
    if constexpr (kScaled) {
      block.each([&](std::uint32_t thread) {
        const std::uint32_t row = thread / kPerRow, part = thread % kPerRow;
        std::uint32_t largest = 0;
        for (std::uint32_t k = part; row < rows && k < args.columns; k += kPerRow)
          largest = larger(largest, stored[std::uint64_t{row} * args.columns + k] & 0x7FFFu);
        shared.largest[row][part] = largest;
      });
      block.each([&](std::uint32_t thread) {
        if (thread >= kMmaRows) return;
        std::uint32_t largest = 0;
        for (std::uint32_t i = 0; i < kPerRow; ++i) largest = larger(largest, shared.largest[thread][i]);
        const std::int32_t n = narrowing_exponent(largest << 16);
        shared.exponent[thread] = n;
        if (thread < rows) (reinterpret_cast<float*>(unit + args.unit_bytes) - kMmaRows)[thread] = power_of_two(-n);
      });
    }
    block.own([&](std::uint32_t thread) {
      const std::uint32_t pieces = padded_columns(args.columns) / kHalfStep * 32;
      for (std::uint32_t i = thread; i < pieces; i += kThreads)
        put_piece(shared, args, stored, reinterpret_cast<Words4*>(unit), rows, i);
    });
  }

 private:
  // What lane i % 32 holds of columns [i / 32 * 32, ... + 32): of two rows eight columns, in two pieces.
  static LLORCH_KERNEL void put_piece(const Shared& shared, const Args& args, const std::uint16_t* stored, Words4* unit,
                                      std::uint32_t rows, std::uint32_t i) {
    const std::uint32_t step = i / 32, g = i % 32 / 4, column = step * kHalfStep + i % 4 * 8;
    std::uint32_t pairs[2][4] = {};
    LLORCH_UNROLL
    for (std::uint32_t high = 0; high < 2; ++high) {
      const std::uint32_t row = g + 8 * high;
      if (row >= rows) continue;
      LLORCH_UNROLL
      for (std::uint32_t k = 0; k < 8; ++k) {
        if (column + k >= args.columns) continue;
        std::uint32_t bits = stored[std::uint64_t{row} * args.columns + column + k];
        if constexpr (kScaled) bits = scaled_half(bits, shared.exponent[row]);
        pairs[high][k / 2] |= bits << (16 * (k % 2));
      }
    }
    LLORCH_UNROLL
    for (std::uint32_t mma = 0; mma < 2; ++mma) {
      const Words4 words{{pairs[0][2 * mma], pairs[1][2 * mma], pairs[0][2 * mma + 1], pairs[1][2 * mma + 1]}};
      unit[step * (kHalfStepElements / 8) + mma * 32 + i % 32] = words;
    }
  }
};

// Rows of E4M3 blocks, sixteen to a unit (matmul/f8.h). Grid: units.
struct PackF8 {
  using Args = PackArgs;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kPerRow = kThreads / kMmaRows;
  struct Shared {
    float largest[kMmaRows][kPerRow];
    float scale[kMmaRows];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t blocks = padded_columns(args.columns) / kF8Columns;
    const Unit unit{reinterpret_cast<const Stored*>(args.stored) + std::uint64_t{block.x()} * kMmaRows * blocks, blocks,
                    smaller(args.rows - block.x() * kMmaRows, kMmaRows), args.packed + block.x() * args.unit_bytes};
    block.each([&](std::uint32_t thread) {
      const std::uint32_t row = thread / kPerRow, part = thread % kPerRow;
      float largest = 0;
      for (std::uint32_t b = part; row < unit.rows && b < blocks; b += kPerRow) {
        const float scale = magnitude(unit.at(row, b).d);
        if (scale > largest && scale <= 0x1.fffffep+127f) largest = scale;
      }
      shared.largest[row][part] = largest;
    });
    block.each([&](std::uint32_t thread) {
      if (thread >= unit.rows) return;
      float largest = 0;
      for (const float of_part : shared.largest[thread]) largest = of_part > largest ? of_part : largest;
      shared.scale[thread] = f8_row_scale(largest);
      (reinterpret_cast<float*>(unit.packed + args.unit_bytes) - kMmaRows)[thread] = shared.scale[thread];
    });
    block.own([&](std::uint32_t thread) {
      auto* factors = reinterpret_cast<std::uint16_t*>(unit.packed + f8_code_bytes(args.columns));
      for (std::uint32_t i = thread; i < blocks * kMmaRows; i += kThreads) {
        const std::uint32_t row = i % kMmaRows;
        if (row < unit.rows) factors[i] = factor_of(unit.at(row, i / kMmaRows), shared.scale[row]);
      }
      for (std::uint32_t i = thread; i < padded_columns(args.columns) / kHalfStep * 32; i += kThreads)
        put_piece(unit, i);
    });
  }

 private:
  using Stored = plan::BlockF8_E4M3;
  struct Unit {
    const Stored* stored;  // [rows, blocks]
    std::uint32_t blocks, rows;
    std::byte* packed;
    LLORCH_KERNEL const Stored& at(std::uint32_t row, std::uint32_t b) const {
      return stored[std::uint64_t{row} * blocks + b];
    }
  };

  // A NaN among the codes is one for the sum of the whole row, whatever it meets: the factor is where it is kept.
  static LLORCH_KERNEL std::uint16_t factor_of(const Stored& stored, float row_scale) {
    bool has_nan = false;
    for (const std::uint8_t code : stored.qs) has_nan = has_nan || (code & 0x7Fu) == kF8NanCode;
    return has_nan ? static_cast<std::uint16_t>(kF8NanFactor) : f8_factor(stored.d, row_scale);
  }

  // What lane i % 32 holds of columns [i / 32 * 32, ... + 32): of two rows eight columns, four to a mma.
  static LLORCH_KERNEL void put_piece(const Unit& unit, std::uint32_t i) {
    const std::uint32_t step = i / 32, g = i % 32 / 4, column = step * kHalfStep + i % 4 * 8;
    std::uint32_t codes[2][2] = {};  // [row][mma]
    LLORCH_UNROLL
    for (std::uint32_t high = 0; high < 2; ++high) {
      if (g + 8 * high >= unit.rows) continue;
      const auto& qs = unit.at(g + 8 * high, column / kF8Columns).qs;
      LLORCH_UNROLL
      for (std::uint32_t k = 0; k < 8; ++k)
        codes[high][k / 4] |= std::uint32_t{qs[column % kF8Columns + k]} << (8 * (k % 4));
    }
    auto* packed = reinterpret_cast<std::uint32_t*>(unit.packed) + step * (kHalfStepElements / 4) + i % 32 * 2;
    LLORCH_UNROLL
    for (std::uint32_t mma = 0; mma < 2; ++mma) {
      packed[mma * 64] = choose_bytes(codes[0][mma], codes[1][mma], 0x5410u);
      packed[mma * 64 + 1] = choose_bytes(codes[0][mma], codes[1][mma], 0x7632u);
    }
  }
};

// Rows of blocks, sixteen to a unit of one record (compute/cpu/quant_layout.h). A thread takes a stored block. Grid: units.
template <plan::DType kType>
struct PackQuant {
  using Args = PackArgs;
  using Shared = Nothing;
  using Stored = typename StoredBlock<kType>::Type;
  static constexpr std::uint32_t kThreads = 128;

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.own([&](std::uint32_t thread) {
      const std::uint32_t first = block.x() * kRows, rows = smaller(args.rows - first, kRows);
      const std::uint32_t stored_blocks = args.columns / (kInner * plan::kQuantBlockElements);
      auto* unit = reinterpret_cast<std::uint8_t*>(args.packed + block.x() * args.unit_bytes);
      for (std::uint32_t i = thread; i < stored_blocks * kRows; i += kThreads) {
        const std::uint32_t row = i % kRows, s = i / kRows;
        if (row >= rows) continue;
        const auto* stored = reinterpret_cast<const Stored*>(args.stored);
        put_block(stored[std::uint64_t{first + row} * stored_blocks + s], unit, stored_blocks, s, row);
      }
    });
  }

 private:
  static constexpr cpu::QuantLayout kLayout = cpu::quant_layout(kType);
  static constexpr std::uint32_t kRows = static_cast<std::uint32_t>(cpu::kPackRows);
  static constexpr std::uint32_t kInner =
      plan::dtype_info(kType).block_elements / plan::kQuantBlockElements;  // blocks of 32 in a stored one
  static constexpr std::uint32_t kCodeBytes = static_cast<std::uint32_t>(kLayout.code_bytes());
  static constexpr std::uint32_t kSmallBytes = static_cast<std::uint32_t>(kLayout.small_bytes());
  static constexpr std::uint32_t kFactorBytes = static_cast<std::uint32_t>(kLayout.factor_bytes());
  static constexpr bool kBytes = kLayout.byte_plane, kNibbles = kLayout.nibble_plane, kPairs = kLayout.pair_plane;
  static constexpr bool kBits = kLayout.bit_plane, kExponent = kLayout.exponent_factor, kHasMin = kLayout.has_min;

  static LLORCH_KERNEL void put_block(const Stored& stored, std::uint8_t* unit, std::uint32_t stored_blocks,
                                      std::uint32_t s, std::uint32_t row) {
    const std::uint32_t blocks = stored_blocks * kInner;
    std::uint8_t* factors = unit + std::uint64_t{s} * kFactorBytes;
    std::uint8_t* small = unit + std::uint64_t{stored_blocks} * kFactorBytes;
    std::uint8_t* codes = small + std::uint64_t{blocks} * kSmallBytes;
    for (std::uint32_t b = 0; b < kInner; ++b) {
      const std::uint32_t block = s * kInner + b;
      put_codes(stored, b * plan::kQuantBlockElements, codes + std::uint64_t{block} * kCodeBytes + 4 * row);
      if constexpr (kSmallBytes != 0) {
        LLORCH_UNROLL
        for (std::uint32_t i = 0; i < kSmallBytes / kRows; ++i)
          small[std::uint64_t{block} * kSmallBytes + i * kRows + row] = small_of(stored, b * (kSmallBytes / kRows) + i);
      }
    }
    if constexpr (kExponent) {
      factors[row] = stored.e;
    } else {
      reinterpret_cast<std::uint16_t*>(factors)[row] = stored.d;
      if constexpr (kHasMin) reinterpret_cast<std::uint16_t*>(factors)[kRows + row] = min_factor_of(stored);
    }
  }

  // Words of the planes for elements [first, first + 32).
  static LLORCH_KERNEL void put_codes(const Stored& stored, std::uint32_t first, std::uint8_t* plane) {
    std::uint32_t codes[8];  // four codes each
    LLORCH_UNROLL
    for (std::uint32_t g = 0; g < 8; ++g) {
      codes[g] = 0;
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) codes[g] |= code_of(stored, first + 4 * g + i) << (8 * i);
    }
    std::uint32_t shift = 0;
    if constexpr (kBytes) {
      LLORCH_UNROLL
      for (std::uint32_t g = 0; g < 8; ++g) word(plane, g) = codes[g];
    }
    if constexpr (kNibbles) {
      LLORCH_UNROLL
      for (std::uint32_t g = 0; g < 4; ++g)
        word(plane, g) = (codes[g] & 0x0F0F0F0Fu) | (codes[g + 4] & 0x0F0F0F0Fu) << 4;
      plane += 256, shift = 4;
    }
    if constexpr (kPairs) {
      LLORCH_UNROLL
      for (std::uint32_t h = 0; h < 2; ++h) {
        std::uint32_t all = 0;
        LLORCH_UNROLL
        for (std::uint32_t j = 0; j < 4; ++j) all |= (codes[4 * h + j] >> shift & 0x03030303u) << (2 * j);
        word(plane, h) = all;
      }
      plane += 128, shift += 2;
    }
    if constexpr (kBits) {
      std::uint32_t all = 0;
      LLORCH_UNROLL
      for (std::uint32_t g = 0; g < 8; ++g) all |= (codes[g] >> shift & 0x01010101u) << g;
      word(plane, 0) = all;
    }
  }
  static LLORCH_KERNEL std::uint32_t& word(std::uint8_t* plane, std::uint32_t index) {
    return *reinterpret_cast<std::uint32_t*>(plane + index * (4 * kRows));
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
