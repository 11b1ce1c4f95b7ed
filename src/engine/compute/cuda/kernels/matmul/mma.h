#pragma once
// Matrix multiply-accumulate of a warp: c += a b for a 16 x K tile of weights (a), K x 8 of activations (b) and 16 x 8 of sums.
//
// Lane = 4 g + t holds of a: rows g and g + 8; of b: column g; of c: rows g and g + 8, columns 2t and 2t + 1, in the order
// (g, 2t), (g, 2t + 1), (g + 8, 2t), (g + 8, 2t + 1). Which k a lane holds is written with each.
//
// Integer sums are exact, so both machines give the same bits. Of float sums a device says only that an element of c depends on
// its own row, its own column and itself, always in the same way; how it rounds between the sixteen products is its own affair
// (it aligns and cuts off instead of rounding). The host adds the products in double precision, then c, and rounds once.
#include "engine/compute/cuda/kernels/scalar.h"

namespace llorch::engine::compute::cuda::kernels {

inline constexpr std::uint32_t kMmaRows = 16;
inline constexpr std::uint32_t kMmaColumns = 8;

// K = 16 of F16, sums in f32. Words are two elements, the lower k in the lower half: a = {row g, row g + 8: k = 2t, 2t + 1; then
// the same of k = 2t + 8, 2t + 9}, b likewise.
struct HalfMma {
  struct Operands {
    const std::uint32_t* a = nullptr;  // 4
    const std::uint32_t* b = nullptr;  // 2
    float* c = nullptr;                // 4
  };
#if defined(__CUDACC__)
  static LLORCH_KERNEL void run(const Operands& o) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                 : "+f"(o.c[0]), "+f"(o.c[1]), "+f"(o.c[2]), "+f"(o.c[3])
                 : "r"(o.a[0]), "r"(o.a[1]), "r"(o.a[2]), "r"(o.a[3]), "r"(o.b[0]), "r"(o.b[1]));
  }
#else
  static void run_warp(const Operands (&lanes)[32]) {
    constexpr std::uint32_t kK = 16;
    double a[kMmaRows][kK], b[kK][kMmaColumns];
    const auto spread = [](std::uint32_t word, double& low, double& high) {
      low = half_value(static_cast<std::uint16_t>(word));
      high = half_value(static_cast<std::uint16_t>(word >> 16));
    };
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t g = lane / 4, t = lane % 4;
      for (std::uint32_t i = 0; i < 4; ++i) {
        double* row = &a[g + i % 2 * 8][2 * t + i / 2 * 8];
        spread(lanes[lane].a[i], row[0], row[1]);
      }
      for (std::uint32_t i = 0; i < 2; ++i) spread(lanes[lane].b[i], b[2 * t + i * 8][g], b[2 * t + i * 8 + 1][g]);
    }
    for (std::uint32_t row = 0; row < kMmaRows; ++row) {
      double sums[kMmaColumns] = {};
      for (std::uint32_t k = 0; k < kK; ++k)
        for (std::uint32_t n = 0; n < kMmaColumns; ++n) sums[n] += a[row][k] * b[k][n];
      for (std::uint32_t n = 0; n < kMmaColumns; ++n) {
        float& c = lanes[row % 8 * 4 + n / 2].c[row / 8 * 2 + n % 2];
        c = static_cast<float>(c + sums[n]);
      }
    }
  }
#endif
};

// K = 16 or 32 signed bytes, exact. Words are four elements, the lowest k in the lowest byte: a = {row g, row g + 8: k = 4t .. 4t + 3;
// with K = 32 then the same of k = 16 + 4t ..}, b likewise.
template <std::uint32_t kK>
struct ByteMma {
  static_assert(kK == 16 || kK == 32);
  struct Operands {
    const std::uint32_t* a = nullptr;  // kK / 8
    const std::uint32_t* b = nullptr;  // kK / 16
    std::int32_t* c = nullptr;         // 4
  };
#if defined(__CUDACC__)
  static LLORCH_KERNEL void run(const Operands& o) {
    if constexpr (kK == 32) {
      asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                   : "+r"(o.c[0]), "+r"(o.c[1]), "+r"(o.c[2]), "+r"(o.c[3])
                   : "r"(o.a[0]), "r"(o.a[1]), "r"(o.a[2]), "r"(o.a[3]), "r"(o.b[0]), "r"(o.b[1]));
    } else {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
                   : "+r"(o.c[0]), "+r"(o.c[1]), "+r"(o.c[2]), "+r"(o.c[3])
                   : "r"(o.a[0]), "r"(o.a[1]), "r"(o.b[0]));
    }
  }
#else
  static void run_warp(const Operands (&lanes)[32]) {
    std::int16_t a[kMmaRows][kK], b[kMmaColumns][kK];
    const auto spread = [](std::uint32_t word, std::int16_t* out) {
      for (std::uint32_t i = 0; i < 4; ++i) out[i] = static_cast<std::int8_t>(word >> (8 * i) & 0xFF);
    };
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t g = lane / 4, t = lane % 4;
      for (std::uint32_t i = 0; i < kK / 8; ++i) spread(lanes[lane].a[i], &a[g + i % 2 * 8][4 * t + i / 2 * 16]);
      for (std::uint32_t i = 0; i < kK / 16; ++i) spread(lanes[lane].b[i], &b[g][4 * t + i * 16]);
    }
    for (std::uint32_t row = 0; row < kMmaRows; ++row)
      for (std::uint32_t n = 0; n < kMmaColumns; ++n) {
        std::int32_t sum = 0;
        for (std::uint32_t k = 0; k < kK; ++k) sum += a[row][k] * b[n][k];
        lanes[row % 8 * 4 + n / 2].c[row / 8 * 2 + n % 2] += sum;
      }
  }
#endif
};

// Where F16 and BF16 matrices keep their elements: groups of sixteen rows, columns padded with zeros to kHalfColumns. In a
// group the columns go by 32, two HalfMma steps each: lane 4 g + t holds columns 8t .. 8t + 7, four for either step, so that
// a lane's activations are sixteen bytes of a row as it stands, and its weights sixteen bytes a step.
//
// BF16 elements are kept as F16 too, their rows brought into its range by powers of two, whose inverses (f32, one a row) stand
// behind the group: F16 has more bits, and activations have use for them. An element keeps its value, unless it is smaller than
// 2^-28 of the row's largest; then 2^-39 of that may be lost.
inline constexpr std::uint32_t kHalfColumns = 128;  // two halves of whole stages (half.h)
inline constexpr std::uint32_t kHalfStep = 32;      // columns
inline constexpr std::uint32_t kHalfStepElements = kMmaRows * kHalfStep;

constexpr std::uint32_t padded_columns(std::uint32_t columns) {
  return (columns + kHalfColumns - 1) / kHalfColumns * kHalfColumns;
}
// Of an element of a group, in elements. row < 16.
constexpr std::uint64_t half_index(std::uint32_t row, std::uint32_t column) {
  const std::uint32_t in_step = column % kHalfStep, t = in_step / 8, mma = in_step % 8 / 4, pair = in_step % 4 / 2;
  const std::uint32_t lane = row % 8 * 4 + t, word = pair * 2 + row / 8;
  return std::uint64_t{column / kHalfStep} * kHalfStepElements + mma * 256 + lane * 8 + word * 2 + column % 2;
}

}  // namespace llorch::engine::compute::cuda::kernels
