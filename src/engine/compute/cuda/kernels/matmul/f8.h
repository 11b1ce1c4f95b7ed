#pragma once
// E4M3 weights on their way to tensor cores, two at a time: a code becomes F16, which holds each of them exactly, and is multiplied
// by the F16 factor of its row and its 128 columns, with one rounding. 9.0 and 8.9 have an instruction for the first step, 8.0 has
// not and a processor neither: both ways give the same bits.
#include "engine/compute/cuda/kernels/matmul/mma.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kF8Columns = 128;  // that share a factor
inline constexpr std::uint32_t kF8NanCode = 0x7F, kF8NanFactor = 0x7E00;
static_assert(kF8Columns == kHalfColumns, "padded columns are whole blocks of factors");

// Of a group of sixteen rows: codes as half_index() says, a byte each; factors [columns / kF8Columns][16]; f32 scales [16].
constexpr std::uint64_t f8_code_bytes(std::uint32_t columns) {
  return std::uint64_t{padded_columns(columns)} * kMmaRows;
}
constexpr std::uint64_t f8_factor_bytes(std::uint32_t columns) {
  return std::uint64_t{padded_columns(columns)} / kF8Columns * kMmaRows * sizeof(std::uint16_t);
}
constexpr std::uint64_t f8_group_bytes(std::uint32_t columns) {
  return f8_code_bytes(columns) + f8_factor_bytes(columns) + kMmaRows * sizeof(float);
}

// Both halves of two words, each product rounded to nearest even.
LLORCH_KERNEL std::uint32_t half_products(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDACC__)
  std::uint32_t product;
  asm("mul.rn.f16x2 %0, %1, %2;" : "=r"(product) : "r"(a), "r"(b));
  return product;
#else
  const auto half = [&](std::uint32_t shift) -> std::uint32_t {
    return half_bits(half_value(static_cast<std::uint16_t>(a >> shift)) *
                     half_value(static_cast<std::uint16_t>(b >> shift)));
  };
  return half(0) | half(16) << 16;
#endif
}

// Codes 2 pair and 2 pair + 1 of a word as F16. What a NaN becomes is the machine's affair: its block has a NaN for a factor.
LLORCH_KERNEL std::uint32_t f8_values(std::uint32_t codes, std::uint32_t pair) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  std::uint32_t values;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(values) : "h"(static_cast<unsigned short>(codes >> (16 * pair))));
  return values;
#else
  // Sign, exponent and mantissa in their places are the value times 2^-8, as the exponents' biases differ by 8.
  constexpr std::uint32_t kTimes256 = 0x5C005C00u;
  const std::uint32_t high = choose_bytes(codes, 0, pair == 0 ? 0x1404u : 0x3424u);
  return half_products((high & 0x80008000u) | (high >> 1 & 0x3F803F80u), kTimes256);
#endif
}

// Both codes' weights; `factors` is the factor twice.
LLORCH_KERNEL std::uint32_t f8_weights(std::uint32_t codes, std::uint32_t pair, std::uint32_t factors) {
  return half_products(f8_values(codes, pair), factors);
}

// The scales of a row's blocks as one of the row, in f32, and a factor each. With the largest at 128 the largest code becomes
// 57344, and what the smallest scales lose is below 2^-32 of what the largest makes. `largest` has no sign.
LLORCH_KERNEL float f8_row_scale(float largest) {
  const float scale = largest * 0x1p-7f;
  return scale < 0x1p-126f ? 0x1p-126f : scale;
}
LLORCH_KERNEL std::uint16_t f8_factor(float scale, float row_scale) {
  return scale != scale ? static_cast<std::uint16_t>(kF8NanFactor) : half_bits(divide(scale, row_scale));
}

}  // namespace llorch::engine::compute::cuda::kernels
