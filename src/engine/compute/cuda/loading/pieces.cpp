#include "engine/compute/cuda/loading/pieces.h"

#include <algorithm>

#include "base/assert.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cuda::loading {
namespace {

using plan::StoredTensor;

// Elements of a vector in a piece.
std::uint64_t elements_at_once(const StoredTensor& tensor, std::uint64_t piece_bytes) {
  ASSERT(plan::dtype_info(tensor.dtype).block_elements == 1, "a vector of {}", plan::dtype_info(tensor.dtype).name);
  return std::max<std::uint64_t>(1, piece_bytes / (stored_bytes(tensor) / elements_of(tensor)));
}

std::uint64_t stored_row_bytes(const StoredTensor& tensor) {
  return stored_bytes(tensor) / stack_count(tensor) / matrix_shape(tensor).rows;
}

// Rows of a matrix in a piece.
std::uint64_t rows_at_once(const StoredTensor& tensor, std::uint64_t piece_bytes) {
  const std::uint64_t of_unit = unit_rows(matrix_shape(tensor));
  return std::max<std::uint64_t>(1, piece_bytes / (of_unit * stored_row_bytes(tensor))) * of_unit;
}

void cut_vector(const StoredTensor& tensor, const Piece& whole, std::uint64_t piece_bytes, std::vector<Piece>& pieces) {
  const std::uint64_t count = elements_of(tensor), element = stored_bytes(tensor) / count;
  const std::uint64_t at_once = elements_at_once(tensor, piece_bytes);
  for (std::uint64_t begin = 0; begin < count; begin += at_once) {
    Piece piece = whole;
    piece.packed_begin = begin * sizeof(float);
    piece.pack.rows = 1;
    piece.pack.columns = static_cast<std::uint32_t>(std::min(at_once, count - begin));
    piece.stored_begin = begin * element;
    piece.stored_bytes = piece.pack.columns * element;
    pieces.push_back(piece);
  }
}

void cut_matrices(const StoredTensor& tensor, const Piece& whole, std::uint64_t piece_bytes,
                  std::vector<Piece>& pieces) {
  const cpu::MatrixShape shape = matrix_shape(tensor);
  const std::uint64_t row_bytes = stored_row_bytes(tensor), of_unit = unit_rows(shape);
  const std::uint64_t at_once = rows_at_once(tensor, piece_bytes);
  for (std::uint64_t i = 0; i < stack_count(tensor); ++i)
    for (std::uint64_t row = 0; row < shape.rows; row += at_once) {
      Piece piece = whole;
      piece.pack.unit_bytes = unit_bytes(shape);
      piece.packed_begin = i * matrix_bytes(shape) + row / of_unit * piece.pack.unit_bytes;
      piece.pack.rows = static_cast<std::uint32_t>(std::min(at_once, shape.rows - row));
      piece.pack.columns = shape.cols;
      piece.stored_begin = (i * shape.rows + row) * row_bytes;
      piece.stored_bytes = piece.pack.rows * row_bytes;
      pieces.push_back(piece);
    }
}

}  // namespace

std::vector<Piece> cut(std::span<const StoredTensor> tensors, std::uint64_t piece_bytes) {
  std::vector<Piece> pieces;
  for (std::uint32_t t = 0; t < tensors.size(); ++t) {
    const Piece whole{.tensor = t, .pack = {}};
    if (is_vector(tensors[t])) {
      cut_vector(tensors[t], whole, piece_bytes, pieces);
    } else {
      cut_matrices(tensors[t], whole, piece_bytes, pieces);
    }
  }
  return pieces;
}

std::uint64_t pieces_count(std::span<const StoredTensor> tensors, std::uint64_t piece_bytes) {
  std::uint64_t pieces = 0;
  for (const StoredTensor& tensor : tensors) {
    const bool vector = is_vector(tensor);
    const std::uint64_t count = vector ? elements_of(tensor) : matrix_shape(tensor).rows;
    const std::uint64_t at_once = vector ? elements_at_once(tensor, piece_bytes) : rows_at_once(tensor, piece_bytes);
    pieces += (vector ? 1 : stack_count(tensor)) * ((count - 1) / at_once + 1);
  }
  return pieces;
}

std::uint64_t largest_piece_bytes(std::span<const StoredTensor> tensors, std::uint64_t piece_bytes) {
  std::uint64_t largest = 0;
  for (const StoredTensor& tensor : tensors) {
    const std::uint64_t count = is_vector(tensor) ? elements_of(tensor) : matrix_shape(tensor).rows;
    const std::uint64_t at_once =
        is_vector(tensor) ? elements_at_once(tensor, piece_bytes) : rows_at_once(tensor, piece_bytes);
    const std::uint64_t each = is_vector(tensor) ? stored_bytes(tensor) / count : stored_row_bytes(tensor);
    largest = std::max(largest, std::min(at_once, count) * each);
  }
  return largest;
}

}  // namespace llorch::engine::compute::cuda::loading
