#pragma once
// Weights stored in 8-bit floats with scales beside them, as some Hugging Face models come, and what they become at load.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/io/file_tensor.h"

namespace llorch::engine::io {

// Exact. E4M3 is the variant without infinities: +-448 is the largest value, 0x7f and 0xff are NaN.
float f8_e4m3_to_f32(std::uint8_t bits);
float f8_e5m2_to_f32(std::uint8_t bits);
// 2^(bits - 127); 0xff is NaN.
float f8_e8m0_to_f32(std::uint8_t bits);

// To nearest, ties to even, in one step: a rounding to f32 on the way would be another one.
std::uint16_t f64_to_bf16(double value);

// Elements that share a scale; the last block of a row or column may be cut short.
struct Fp8BlockShape {
  std::uint64_t rows = 128;
  std::uint64_t cols = 128;
  // Of a matrix that was cut into pieces of so many rows, each with blocks of its own; 0: it was not.
  std::uint64_t piece_rows = 0;

  // Of the block that holds row `row`, its number along the column.
  std::uint64_t block_of(std::uint64_t row) const {
    if (piece_rows == 0) return row / rows;
    return row / piece_rows * ((piece_rows + rows - 1) / rows) + row % piece_rows / rows;
  }
  // Of a matrix of `count` rows.
  std::uint64_t blocks_of(std::uint64_t count) const { return count == 0 ? 0 : block_of(count - 1) + 1; }
};

// An FP8 matrix with one scale per block; its elements stay where they are stored.
struct Fp8Matrix {
  StoredType type = StoredType::kF8_E4M3;  // or kF8_E5M2
  std::uint64_t rows = 0, cols = 0;
  Fp8BlockShape block;
  std::vector<float> scales;  // [block.blocks_of(rows), ceil(cols / block.cols)]
};

// From `weight` [rows, cols] and its `weight_scale_inv` (F32, BF16, F16 or E8M0 of the shape above; despite the name it is what a
// value is multiplied by). One scale for the whole matrix is a block as large as the matrix: a tensor of one element, of
// any rank. Reads the scales. Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH, IO_ERROR.
base::Result<Fp8Matrix> fp8_matrix(const FileTensor& weight, const FileTensor& scale_inv, Fp8BlockShape block);
// Whether they go together, by what the header says: nothing is read. Errors: the first two.
base::Result<> check_fp8_matrix(const FileTensor& weight, const FileTensor& scale_inv, Fp8BlockShape block);

// The elements from `first` on, row after row, whose stored bytes are `stored`, as bfloat16: value * scale with a single
// rounding, to nearest, ties to even. (The product has up to 28 significant bits, so rounding to f32 on the way would round
// twice.) REQUIRES: stored.size() == out.size(), all of them elements of the matrix.
void fp8_to_bf16(const Fp8Matrix& matrix, std::uint64_t first, std::span<const std::byte> stored,
                 std::span<std::uint16_t> out);

}  // namespace llorch::engine::io
