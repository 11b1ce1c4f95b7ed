#pragma once
// Matrices of small integers with a scale per group of a row, as quantizers save them for Hugging Face's library, read as if
// they were stored in the blocks of GGUF files, or in 16-bit floats.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/io/file_tensor.h"

namespace llorch::engine::io {

// How codes lie. N rows, K columns; a word is a little-endian u32 that holds W = 32 / bits codes, the lowest bits first.
enum class IntegerLayout : std::uint8_t {
  kGptq,  // codes [K / W, N] of W rows; scales [groups, N]; zeros [groups, N / W]; columns may have groups in any order
  kAwq,   // codes [K, N / 8] of bits 4, whose nibbles are columns 0, 2, 4, 6, 1, 3, 5, 7; scales and zeros as above
  kRows,  // codes [N, K / W]; scales [N, groups]; zeros [N / W, groups]
  kBytes,  // codes [N, K], i8 around zero; scales [N, groups]
};

struct IntegerMatrix {
  IntegerLayout layout = IntegerLayout::kRows;
  std::uint32_t bits = 4;  // 2, 4 or 8
  std::uint64_t rows = 0, columns = 0;
  std::uint64_t groups = 1, columns_per_group = 0;  // of a row; the last group may be cut short
  FileTensor codes, scales;                         // scales: F16, BF16 or F32
  std::optional<FileTensor> zeros;                  // absent: 2^(bits - 1) everywhere
  bool zeros_less_one = false;                      // words of zeros lack 1 in every code
  bool symmetric = false;                           // all zeros are 2^(bits - 1), which is checked as they are read
  std::vector<std::uint32_t> group_of;              // by column; empty: columns_per_group neighbours each
};

// What the matrix is read as. An element is (code - zero) * scale.
//   Q4_0, Q5_0, Q8_0  where blocks of 32 have one scale, and code - zero fits. The scale becomes an F16: exact if it is one or
//                     if it is a BF16 of 2^-17 to 65504, else the nearest.
//   F16, BF16         otherwise: rounded once, to the type of the scales (F16 for F32), as the quantizers' libraries do.
StoredType stored_type_of(const IntegerMatrix& matrix);

// The bytes of the matrix in that type. Memory beside what is asked for: as much again. Errors of reading: IO_ERROR;
// WEIGHT_VALUE_UNSUPPORTED (an infinite scale, one beyond F16, a matrix that is not symmetric as its configuration says).
std::unique_ptr<DerivedBytes> as_stored(IntegerMatrix matrix, std::string name);

// The shapes that the layout asks for. Errors: WEIGHT_SHAPE_MISMATCH, WEIGHT_DTYPE_UNSUPPORTED, naming the tensor.
base::Result<> check_integer_matrix(const IntegerMatrix& matrix);

}  // namespace llorch::engine::io
