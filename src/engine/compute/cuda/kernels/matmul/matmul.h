#pragma once
// y[m, n] = sum_k w[n, k] x[m, k] (+ bias[n]), what all of its kernels share, and rows of w looked up.
//
// A kernel computes tiles of y: some rows of one matrix of w, some rows of x that meet it. The order of a sum is fixed by k
// alone (plain.h, half.h, quantized.h: one for each way weights are stored), so a row's result never depends
// on how many rows there are or how they are cut into tiles.
#include "engine/compute/cuda/kernels/matmul/activations.h"
#include "engine/compute/cuda/kernels/matmul/f8.h"

namespace llorch::engine::compute::cuda::kernels {

using plan::DType;

// A stack of matrices of one shape on the device; laid out as cuda/weights.h says. F32: rows of row_bytes, sixteen-byte aligned,
// zero-padded. Every other type: groups of sixteen rows, row_bytes apart.
struct Matrix {
  const std::byte* data = nullptr;
  std::uint64_t row_bytes = 0;
  std::uint64_t stack_bytes = 0;  // from one matrix of the stack to the next
  std::uint32_t n = 0;            // rows
  std::uint32_t k = 0;            // columns
  bool operator==(const Matrix&) const = default;
};

// Of a group of BF16 or FP8 rows.
LLORCH_KERNEL const float* row_scales(const Matrix& w, const std::byte* group) {
  return reinterpret_cast<const float*>(group + w.row_bytes) - kMmaRows;
}

// One of several that share x.
struct MatmulTarget {
  Matrix w;
  float* y = nullptr;           // row stride y_stride, from matrix to matrix y_stack_stride
  const float* bias = nullptr;  // [matrices, n] or null
  bool operator==(const MatmulTarget&) const = default;
};

// Rows of x that meet one matrix of a stack.
struct RowTile {
  std::uint32_t matrix = 0;
  std::uint32_t first = 0;  // place
  std::uint32_t count = 0;
};

// Division by a number that the host knows, as a multiplication. REQUIRES: dividend * divisor <= 2^31.
struct Divisor {
  std::uint32_t inverse = 1u << 31;  // 2^31 / divisor, rounded up
  bool operator==(const Divisor&) const = default;

  static constexpr Divisor of(std::uint32_t divisor) { return {((1u << 31) + divisor - 1) / divisor}; }
  LLORCH_KERNEL std::uint32_t quotient(std::uint32_t dividend) const {
    return static_cast<std::uint32_t>(std::uint64_t{dividend} * inverse >> 31);
  }
};

// Rows have places: tiles are cut from consecutive places. Row r is at place r, or at the one that `row_at` gives it.
struct MatmulArgs {
  static constexpr std::uint32_t kTargetsMax = 4;
  MatmulTarget targets[kTargetsMax];
  std::uint32_t targets_count = 0;
  SourceRows x;  // F32 weights; part z for matrix z of the grid
  ByteRows bytes;
  HalfRows halves;
  Divisor rows_per_x;  // that many rows in turn share a row of x
  std::uint64_t y_stride = 0;
  std::uint64_t y_stack_stride = 0;
  std::uint32_t rows = 0;
  const RowTile* tiles = nullptr;                // [grid.y] or null: consecutive rows, matrix z of the grid
  const std::uint32_t* row_at = nullptr;         // [rows] or null
  const std::uint32_t* matrix_of_row = nullptr;  // [rows] or null: tiles are single rows
  bool operator==(const MatmulArgs&) const = default;
};

// Rows of x find their matrix in what an earlier kernel wrote.
LLORCH_KERNEL bool follows_choice(const MatmulArgs& args) {
  return args.tiles != nullptr || args.matrix_of_row != nullptr;
}

// What a block has to do: rows from first_row on of one target, and a tile of x.
struct MatmulWork {
  const MatmulArgs& args;
  const MatmulTarget& target;
  const std::byte* w;  // the matrix
  RowTile tile;
  std::uint32_t first_row;
  std::uint32_t part;

  LLORCH_KERNEL std::uint32_t row(std::uint32_t i) const {  // i < tile.count
    return args.row_at != nullptr ? args.row_at[tile.first + i] : tile.first + i;
  }
  LLORCH_KERNEL std::uint32_t x_row(std::uint32_t i) const { return args.rows_per_x.quotient(row(i)); }
  // Among rows whose parts are rows of their own.
  LLORCH_KERNEL std::uint64_t x_part(std::uint32_t i) const { return std::uint64_t{x_row(i)} * args.x.parts + part; }
  LLORCH_KERNEL float* y_row(std::uint32_t i) const {
    return target.y + row(i) * args.y_stride + part * args.y_stack_stride;
  }
  LLORCH_KERNEL float biased(std::uint32_t n, float sum) const {
    return target.bias != nullptr ? sum + target.bias[std::uint64_t{tile.matrix} * target.w.n + n] : sum;
  }
  LLORCH_KERNEL void store(std::uint32_t i, std::uint32_t n, float sum) const { y_row(i)[n] = biased(n, sum); }
};

// Grid: blocks of rows_of_w rows of every target in turn, tiles, matrices.
template <class Block>
LLORCH_KERNEL MatmulWork matmul_work(const Block& block, const MatmulArgs& args, std::uint32_t rows_of_w,
                                     std::uint32_t rows_of_x) {
  std::uint32_t at = block.x(), which = 0;
  for (; which + 1 < args.targets_count; ++which) {
    const std::uint32_t blocks = (args.targets[which].w.n + rows_of_w - 1) / rows_of_w;
    if (at < blocks) break;
    at -= blocks;
  }
  RowTile tile;
  if (args.tiles != nullptr) {
    tile = args.tiles[block.y()];
  } else if (args.matrix_of_row != nullptr) {
    tile = {args.matrix_of_row[block.y()], block.y(), 1};
  } else {
    tile = {block.z(), block.y() * rows_of_x, smaller(args.rows - block.y() * rows_of_x, rows_of_x)};
  }
  const MatmulTarget& target = args.targets[which];
  return {args, target, target.w.data + tile.matrix * target.w.stack_bytes, tile, at * rows_of_w, block.z()};
}

// y[r] = scale * row row_ids[r] of w, dequantized exactly. Grid: columns / kThreads, rows.
struct GatherArgs {
  Matrix w;
  const std::uint32_t* row_ids = nullptr;  // each < w.n
  float* y = nullptr;                      // [rows, columns]
  float scale = 1;
  std::uint32_t first_column = 0;
  std::uint32_t columns = 0;
  bool operator==(const GatherArgs&) const = default;
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
      if (k >= args.columns) return;
      const std::uint32_t row = args.row_ids[block.y()];
      args.y[std::uint64_t{block.y()} * args.columns + k] = args.scale * value(args.w, row, args.first_column + k);
    });
  }

 private:
  static LLORCH_KERNEL float value(const Matrix& w, std::uint32_t row, std::uint32_t k) {
    if constexpr (plan::is_quantized(kType)) {
      return PackedRow<kType>(w.data + row / kPackRows * w.row_bytes, w.k / kBlockElements, row % kPackRows).value(k);
    } else if constexpr (kType == DType::kF8_E4M3) {
      const std::byte* group = w.data + row / kMmaRows * w.row_bytes;
      const auto* factors = reinterpret_cast<const std::uint16_t*>(group + f8_code_bytes(w.k));
      const std::uint32_t code = static_cast<std::uint32_t>(group[half_index(row % kMmaRows, k)]);
      const std::uint32_t factor = factors[k / kF8Columns * kMmaRows + row % kMmaRows];
      return half_value(static_cast<std::uint16_t>(f8_weights(code, 0, factor))) * row_scales(w, group)[row % kMmaRows];
    } else {
      constexpr bool kGrouped = kType != DType::kF32;
      const std::byte* at = w.data + (kGrouped ? row / kMmaRows : row) * w.row_bytes;
      using Stored = typename Element<kGrouped ? DType::kF16 : DType::kF32>::Stored;
      const float stored = Element < kGrouped ? DType::kF16
                                              : DType::kF32 > ::value(reinterpret_cast<const Stored*>(
                                                                  at)[kGrouped ? half_index(row % kMmaRows, k) : k]);
      return kType == DType::kBF16 ? stored * row_scales(w, at)[row % kMmaRows] : stored;
    }
  }
};

}  // namespace llorch::engine::compute::cuda::kernels
