#pragma once
// Activation rows as matrix kernels take them: int8 blocks of 32 for quantized weights, F16 for F16 and BF16 ones.
#include "engine/compute/cuda/kernels/matmul/mma.h"
#include "engine/compute/cuda/kernels/matmul/packed_row.h"

namespace llorch::engine::compute::cuda::kernels {

// x ~ scale * q, scale = max|x| / 127 of a block to 22 bits, q in [-127, 127].
struct ByteRows {
  std::int8_t* q = nullptr;       // [rows, width]
  float* scales = nullptr;        // [rows, width / 32]
  std::uint32_t* sums = nullptr;  // [rows, width / 32]: of q over elements 0 .. 15 (low half, signed) and 16 .. 31
  std::uint32_t width = 0;        // a multiple of 32
  bool operator==(const ByteRows&) const = default;
};
LLORCH_KERNEL float half_sum(std::uint32_t sums, std::uint32_t half) {
  return static_cast<float>(static_cast<std::int16_t>(sums >> (16 * half) & 0xFFFFu));
}

// x ~ scale * value in F16; the scale is a power of two, with which the row's largest value is in [2^14, 2^15).
struct HalfRows {
  std::uint16_t* values = nullptr;  // [rows, stride], zeros from the row's width on
  float* scales = nullptr;          // [rows]
  std::uint32_t width = 0;
  std::uint32_t stride = 0;  // padded_columns(width)
  bool operator==(const HalfRows&) const = default;
};

// A source row has `parts` parts of the width, inner_stride apart; they become consecutive rows of what is written.
struct SourceRows {
  const float* x = nullptr;  // row stride x_stride
  std::uint64_t x_stride = 0;
  std::uint32_t inner_stride = 0;
  std::uint32_t parts = 1;
  bool operator==(const SourceRows&) const = default;

  LLORCH_KERNEL const float* part(std::uint32_t row, std::uint32_t part) const {
    return x + row * x_stride + std::uint64_t{part} * inner_stride;
  }
};

// A kernel that has made a row may leave it in either form; null = not wanted.
struct NarrowedRows {
  ByteRows bytes;
  HalfRows halves;
  bool operator==(const NarrowedRows&) const = default;
};

// Block b of a row of `out`, from its elements.
LLORCH_KERNEL void quantize_block(const float* x, const ByteRows& out, std::uint64_t row, std::uint32_t b) {
  std::int8_t* q = out.q + row * out.width + b * kBlockElements;
  std::uint32_t largest = 0;
  for (std::uint32_t i = 0; i < kBlockElements; ++i) largest = larger(largest, bits_of(x[i]) & 0x7FFFFFFFu);
  const float amax = float_of(largest);
  constexpr std::uint32_t kTooLarge = 0x71800000u;  // 2^100
  const bool small = largest < kTooLarge, usable = small && amax >= 0x1p-100f;
  const float inverse = usable ? divide(127.0f, amax) : 0.0f;
  std::int32_t sums[2] = {0, 0};
  LLORCH_UNROLL
  for (std::uint32_t i = 0; i < kBlockElements; ++i) {
    const std::int32_t value = usable ? static_cast<std::int32_t>(round_even(x[i] * inverse)) : 0;
    q[i] = static_cast<std::int8_t>(value);
    sums[i / 16] += value;
  }
  const std::uint64_t at = row * (out.width / kBlockElements) + b;
  const float scale = float_of((bits_of(divide(amax, 127.0f)) + 2u) & ~3u);
  out.scales[at] = usable ? scale : small ? 0.0f : float_of(0x7FC00000u);
  out.sums[at] = (static_cast<std::uint32_t>(sums[0]) & 0xFFFFu) | static_cast<std::uint32_t>(sums[1]) << 16;
}

// Grid: blocks of a part / kThreads, rows, parts of a row.
struct QuantizeArgs {
  SourceRows from;
  ByteRows out;
  bool operator==(const QuantizeArgs&) const = default;
};
struct Quantize {
  using Args = QuantizeArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 128;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t b = block.x() * kThreads + thread;
      if (b >= args.out.width / kBlockElements) return;
      quantize_block(args.from.part(block.y(), block.z()) + b * kBlockElements, args.out,
                     std::uint64_t{block.y()} * args.from.parts + block.z(), b);
    });
  }
};

// The exponent n of the power of two that brings `largest`, the greatest bits of a magnitude in a row, into [2^14, 2^15). Rows of
// zeros and of what is no number stay as they are.
constexpr std::int32_t narrowing_exponent(std::uint32_t largest) {
  const auto exponent = static_cast<std::int32_t>(largest >> 23);
  if (exponent == 0 || exponent == 255) return 0;
  const std::int32_t n = 127 + 14 - exponent;
  return n > 126 ? 126 : n;
}

template <std::uint32_t kThreads>
struct NarrowShared {
  static constexpr std::uint32_t kSome = 16;
  std::uint32_t largest[kThreads];
  std::uint32_t of_some[kSome];
};
// Row `row` of `out`, from its elements.
template <class Block>
LLORCH_KERNEL void narrow_row(Block& block, NarrowShared<Block::kThreads>& shared, const float* x, const HalfRows& out,
                              std::uint64_t row) {
  constexpr std::uint32_t kSome = NarrowShared<Block::kThreads>::kSome;
  block.each([&](std::uint32_t thread) {
    std::uint32_t largest = 0;
    for (std::uint32_t i = thread; i < out.width; i += Block::kThreads)
      largest = larger(largest, bits_of(x[i]) & 0x7FFFFFFFu);
    shared.largest[thread] = largest;
  });
  block.each([&](std::uint32_t thread) {
    if (thread >= kSome) return;
    std::uint32_t largest = 0;
    for (std::uint32_t i = thread; i < Block::kThreads; i += kSome) largest = larger(largest, shared.largest[i]);
    shared.of_some[thread] = largest;
  });
  block.own([&](std::uint32_t thread) {
    std::uint32_t largest = 0;
    for (std::uint32_t i = 0; i < kSome; ++i) largest = larger(largest, shared.of_some[i]);
    const std::int32_t n = narrowing_exponent(largest);
    const float factor = power_of_two(n);
    for (std::uint32_t i = thread; i < out.stride; i += Block::kThreads)
      out.values[row * out.stride + i] = i < out.width ? half_bits(x[i] * factor) : std::uint16_t{0};
    if (thread == 0) out.scales[row] = power_of_two(-n);
  });
}
// A row that the block has written, in the forms that are wanted.
template <class Block>
LLORCH_KERNEL void leave_row(Block& block, NarrowShared<Block::kThreads>& shared, const float* x,
                             const NarrowedRows& out, std::uint64_t row) {
  if (out.halves.values != nullptr) narrow_row(block, shared, x, out.halves, row);
  if (out.bytes.q == nullptr) return;
  block.own([&](std::uint32_t thread) {
    for (std::uint32_t b = thread; b < out.bytes.width / kBlockElements; b += Block::kThreads)
      quantize_block(x + b * kBlockElements, out.bytes, row, b);
  });
}

// Grid: rows, parts of a row.
struct NarrowArgs {
  SourceRows from;
  HalfRows out;
  bool operator==(const NarrowArgs&) const = default;
};
struct Narrow {
  using Args = NarrowArgs;
  static constexpr std::uint32_t kThreads = 256;
  using Shared = NarrowShared<kThreads>;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    narrow_row(block, shared, args.from.part(block.x(), block.y()), args.out,
               std::uint64_t{block.x()} * args.from.parts + block.y());
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
