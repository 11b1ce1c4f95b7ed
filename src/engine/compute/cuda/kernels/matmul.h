#pragma once
// y[m, n] = sum_k w[n, k] x[m, k] (+ bias[n]), and rows of w looked up.
//
// The order of a sum is fixed by k alone, so a row's result never depends on how many rows there are or how they are cut
// into tiles. Float weights: lane (k / 8) mod 32 adds its products with k increasing, one FMA each; then the tree of 32.
// The row is padded with zeros to eights. Quantised weights: the order of the CPU device (blocks increasing, exact integer
// sums inside), hence its bits.
#include "engine/compute/cuda/kernels/quant.h"

namespace llorch::engine::compute::cuda::kernels {

using contract::DType;

inline constexpr std::uint32_t kFloatChunk = 8;  // elements of a row that one lane takes at a time

// A stack of matrices of one shape on the device; packed by cuda/weights.h. Float: rows of row_bytes, sixteen-byte aligned,
// zero-padded. Quantised: groups of sixteen rows, row_bytes apart.
struct Matrix {
  const std::byte* data = nullptr;
  std::uint64_t row_bytes = 0;
  std::uint64_t stack_bytes = 0;  // from one matrix of the stack to the next
  std::uint32_t n = 0;            // rows
  std::uint32_t k = 0;            // columns
};

// Which matrix of a stack a row meets: that of the grid's z, or the one `matrix_of_row` names (then tiles have one row).
struct MatmulArgs {
  Matrix w;
  const float* x = nullptr;  // float weights: row stride x_stride, from matrix to matrix x_stack_stride
  std::uint64_t x_stride = 0;
  std::uint64_t x_stack_stride = 0;
  QuantisedRows xq;  // quantised weights: row r and matrix z is row r * xq_parts + z
  std::uint32_t xq_parts = 1;
  std::uint32_t rows_per_x = 1;  // that many rows in turn share a row of x
  float* y = nullptr;            // row stride y_stride, from matrix to matrix y_stack_stride
  std::uint64_t y_stride = 0;
  std::uint64_t y_stack_stride = 0;
  const float* bias = nullptr;                   // [matrices, n] or null
  const std::uint32_t* matrix_of_row = nullptr;  // [rows] or null
  std::uint32_t rows = 0;

  LLORCH_KERNEL std::uint32_t matrix(std::uint32_t z, std::uint32_t row) const {
    return matrix_of_row != nullptr ? matrix_of_row[row] : z;
  }
  LLORCH_KERNEL void store(std::uint32_t z, std::uint32_t row, std::uint32_t column, float sum) const {
    if (bias != nullptr) sum = sum + bias[std::uint64_t{matrix(z, row)} * w.n + column];
    y[row * y_stride + z * y_stack_stride + column] = sum;
  }
};

// Grid: rows of w / kRows, rows / kTile, matrices. A warp takes a row of w.
template <DType kType, std::uint32_t kTile>
struct FloatMatmul {
  using Args = MatmulArgs;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kRows = kThreads / 32;
  static constexpr std::uint32_t kStaged = kTile == 1 ? 4096 : 1024;  // columns at a time, a multiple of 32 chunks
  struct alignas(16) Shared {
    float x[kTile][kStaged];
  };
  struct alignas(16) Chunk {
    typename Element<kType>::Stored w[kFloatChunk];
  };
  struct alignas(16) Quad {
    float x[4];
  };
  struct Sums {
    float tile[kTile];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t first = block.y() * kTile, columns = (args.w.k + kFloatChunk - 1) / kFloatChunk * kFloatChunk;
    const std::byte* w = args.w.data + args.matrix(block.z(), first) * args.w.stack_bytes;
    typename Block::template PerThread<Sums> sums;
    for (std::uint32_t k = 0; k < columns; k += kStaged) {
      const std::uint32_t staged = smaller(columns - k, kStaged);
      block.each([&](std::uint32_t thread) { stage(block, shared, args, first, k, staged, thread); });
      block.each([&](std::uint32_t thread) {
        const std::uint32_t n = block.x() * kRows + thread / 32;
        if (n >= args.w.n) return;
        const std::byte* row = w + n * args.w.row_bytes + std::uint64_t{k} * sizeof(typename Element<kType>::Stored);
        Sums own = sums[thread];
        for (std::uint32_t at = thread % 32 * kFloatChunk; at < staged; at += 32 * kFloatChunk)
          add_chunk(own, reinterpret_cast<const Chunk*>(row)[at / kFloatChunk], shared, at);
        sums[thread] = own;
      });
    }
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m)
      block.template sum_tree<32>(sums, [m](Sums& own) -> float& { return own.tile[m]; });
    block.each([&](std::uint32_t thread) {
      const std::uint32_t n = block.x() * kRows + thread / 32, lane = thread % 32;
      if (n >= args.w.n || lane != 0) return;
      LLORCH_UNROLL
      for (std::uint32_t m = 0; m < kTile; ++m)
        if (first + m < args.rows) args.store(block.z(), first + m, n, sums[thread].tile[m]);
    });
  }

 private:
  template <class Block>
  static LLORCH_KERNEL void stage(Block& block, Shared& shared, const Args& args, std::uint32_t first, std::uint32_t k,
                                  std::uint32_t staged, std::uint32_t thread) {
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m) {
      const bool real = first + m < args.rows;
      const float* x = args.x + (first + m) / args.rows_per_x * args.x_stride + block.z() * args.x_stack_stride + k;
      for (std::uint32_t i = thread; i < staged; i += kThreads) shared.x[m][i] = real && k + i < args.w.k ? x[i] : 0.0f;
    }
  }
  static LLORCH_KERNEL void add_chunk(Sums& own, const Chunk& chunk, const Shared& shared, std::uint32_t at) {
    float w[kFloatChunk];
    LLORCH_UNROLL
    for (std::uint32_t i = 0; i < kFloatChunk; ++i) w[i] = Element<kType>::value(chunk.w[i]);
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m) {
      const Quad low = *reinterpret_cast<const Quad*>(&shared.x[m][at]);
      const Quad high = *reinterpret_cast<const Quad*>(&shared.x[m][at + 4]);
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) own.tile[m] = fma(w[i], low.x[i], own.tile[m]);
      LLORCH_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) own.tile[m] = fma(w[i + 4], high.x[i], own.tile[m]);
    }
  }
};

// Grid: groups of sixteen rows of w, rows / kTile, matrices. All threads make the terms of some blocks, each for one row of
// w; then one thread per output adds them in order.
template <DType kType, std::uint32_t kTile>
struct QuantMatmul {
  using Args = MatmulArgs;
  using Row = PackedRow<kType>;
  static constexpr std::uint32_t kThreads = 256;
  static constexpr std::uint32_t kBlocks = kTile == 1 ? 64 : 16;  // at a time
  struct Term {
    float scale, sum;
  };
  struct Shared {
    Term terms[kBlocks][kTile][kPackRows];
    Term mins[Row::kHasMin ? kBlocks : 1][kTile][kPackRows];
  };

  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared& shared, const Args& args) {
    const std::uint32_t first = block.y() * kTile, blocks = args.w.k / kBlockElements;
    const std::byte* group =
        args.w.data + args.matrix(block.z(), first) * args.w.stack_bytes + block.x() * args.w.row_bytes;
    typename Block::template PerThread<float> sums;
    for (std::uint32_t b = 0; b < blocks; b += kBlocks) {
      const std::uint32_t count = smaller(blocks - b, kBlocks);
      block.each([&](std::uint32_t thread) {
        const Row row(group, blocks, thread % kPackRows);
        for (std::uint32_t i = thread / kPackRows; i < count; i += kThreads / kPackRows)
          make_terms(block, shared, args, row, first, b, i, thread % kPackRows);
      });
      block.each([&](std::uint32_t thread) {
        if (thread >= kPackRows * kTile) return;
        const std::uint32_t m = thread / kPackRows, lane = thread % kPackRows;
        float sum = sums[thread];
        for (std::uint32_t i = 0; i < count; ++i) {
          sum = fma(shared.terms[i][m][lane].scale, shared.terms[i][m][lane].sum, sum);
          if constexpr (Row::kHasMin) sum = fma(shared.mins[i][m][lane].scale, shared.mins[i][m][lane].sum, sum);
        }
        sums[thread] = sum;
      });
    }
    block.each([&](std::uint32_t thread) {
      if (thread >= kPackRows * kTile) return;
      const std::uint32_t m = first + thread / kPackRows, n = block.x() * kPackRows + thread % kPackRows;
      if (m < args.rows && n < args.w.n) args.store(block.z(), m, n, sums[thread]);
    });
  }

 private:
  template <class Block>
  static LLORCH_KERNEL void make_terms(Block& block, Shared& shared, const Args& args, const Row& row,
                                       std::uint32_t first, std::uint32_t b, std::uint32_t i, std::uint32_t lane) {
    const std::uint32_t blocks = args.w.k / kBlockElements, at = b + i;
    std::uint32_t w[8];
    LLORCH_UNROLL
    for (std::uint32_t g = 0; g < 8; ++g) w[g] = row.integers(at, g);
    const std::int32_t scales[2] = {row.scale(at, 0), row.scale(at, 1)};
    const float factor = row.factor(at);
    LLORCH_UNROLL
    for (std::uint32_t m = 0; m < kTile; ++m) {
      const std::uint32_t source = smaller(first + m, args.rows - 1) / args.rows_per_x;
      const std::uint64_t x_row = std::uint64_t{source} * args.xq_parts + block.z();
      const auto* x = reinterpret_cast<const std::uint32_t*>(args.xq.q + x_row * args.xq.width + at * kBlockElements);
      const float x_scale = args.xq.scales[x_row * blocks + at];
      std::int32_t halves[2] = {0, 0};
      LLORCH_UNROLL
      for (std::uint32_t g = 0; g < 8; ++g) halves[g / 4] = dot4(w[g], x[g], halves[g / 4]);
      shared.terms[i][m][lane] = {factor * x_scale, static_cast<float>(scales[0] * halves[0] + scales[1] * halves[1])};
      if constexpr (Row::kHasMin) {
        std::int32_t plain[2] = {0, 0};
        LLORCH_UNROLL
        for (std::uint32_t g = 0; g < 8; ++g) plain[g / 4] = dot4(0x01010101u, x[g], plain[g / 4]);
        const float scale = row.min_factor(at) * x_scale;
        shared.mins[i][m][lane] = {Row::kMinSubtracted ? -scale : scale,
                                   static_cast<float>(row.min(at, 0) * plain[0] + row.min(at, 1) * plain[1])};
      }
    }
  }
};

// y[r] = scale * row row_ids[r] of w, dequantised exactly. Grid: columns / kThreads, rows.
struct GatherArgs {
  Matrix w;
  const std::uint32_t* row_ids = nullptr;  // each < w.n
  float* y = nullptr;                      // [rows, w.k]
  float scale = 1;
};
template <DType kType>
struct Gather {
  using Args = GatherArgs;
  using Shared = Nothing;
  static constexpr std::uint32_t kThreads = 256;
  template <class Block>
  static LLORCH_KERNEL void run(Block& block, Shared&, const Args& args) {
    block.each([&](std::uint32_t thread) {
      const std::uint32_t k = block.x() * kThreads + thread;
      if (k >= args.w.k) return;
      const std::uint32_t row = args.row_ids[block.y()];
      args.y[std::uint64_t{block.y()} * args.w.k + k] = args.scale * value(args.w, row, k);
    });
  }

 private:
  static LLORCH_KERNEL float value(const Matrix& w, std::uint32_t row, std::uint32_t k) {
    if constexpr (contract::is_quantised(kType)) {
      return PackedRow<kType>(w.data + row / kPackRows * w.row_bytes, w.k / kBlockElements, row % kPackRows).value(k);
    } else {
      const std::byte* at = w.data + row * w.row_bytes;
      return Element<kType>::value(reinterpret_cast<const typename Element<kType>::Stored*>(at)[k]);
    }
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
