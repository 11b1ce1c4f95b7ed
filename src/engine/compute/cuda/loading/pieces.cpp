#include "engine/compute/cuda/loading/pieces.h"

#include <algorithm>

#include "base/assert.h"
#include "engine/compute/cuda/weights.h"
#include "engine/compute/stored_weight.h"

namespace llorch::engine::compute::cuda::loading {
namespace {

using contract::StoredTensor;

void cut_vector(const StoredTensor& tensor, const Piece& whole, std::uint64_t piece_bytes, std::vector<Piece>& pieces) {
  ASSERT(contract::dtype_info(tensor.dtype).block_elements == 1, "a vector of {}",
         contract::dtype_info(tensor.dtype).name);
  const std::uint64_t count = elements_of(tensor), element = stored_bytes(tensor) / count;
  const std::uint64_t at_once = std::max<std::uint64_t>(1, piece_bytes / element);
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
  const std::uint64_t row_bytes = stored_bytes(tensor) / stack_count(tensor) / shape.rows, of_unit = unit_rows(shape);
  const std::uint64_t at_once = std::max<std::uint64_t>(1, piece_bytes / (of_unit * row_bytes)) * of_unit;
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

}  // namespace llorch::engine::compute::cuda::loading
