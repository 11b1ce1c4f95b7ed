#include "engine/models/gguf_export/slabs.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"

namespace llorch::engine::models {

SlabReader read_slabs(std::vector<BoundTensor> pieces) {
  return [pieces = std::move(pieces)](const SlabSink& sink) -> base::Result<> {
    std::vector<std::byte> slab;
    for (const BoundTensor& piece : pieces) {
      const plan::StoredTensor& stored = piece.stored;
      const std::uint64_t row = stored.shape[stored.rank - 1U], rows = piece.elements_count() / row;
      const std::uint64_t row_bytes = piece.bytes_count() / rows;
      const std::uint64_t at_once = std::max<std::uint64_t>(1, kSlabElements / row);
      for (std::uint64_t begin = 0; begin < rows; begin += at_once) {
        slab.resize(std::min(at_once, rows - begin) * row_bytes);
        TRY(piece.read(begin * row_bytes, slab));
        TRY(sink({stored.dtype, slab}));
      }
    }
    return {};
  };
}

BoundTensor with_pairs_as_neighbours(BoundTensor tensor, const HeadRows& rows) {
  ASSERT(tensor.parts.size() == 1, "{} has several parts", tensor.name);
  TensorPart whole = tensor.parts[0];
  if (whole.counts[0] == 1 && whole.counts[1] == 1) {  // a vector: every element is a row
    whole.counts = {1, whole.counts[2], 1};
    whole.strides = {0, whole.strides[2], 1};
  }
  const std::uint64_t group = whole.counts[1];  // rows that follow each other
  const std::uint64_t all = std::uint64_t{rows.heads} * rows.head_rows;
  ASSERT(whole.counts[0] * group == all && group % rows.head_rows == 0, "{} has {} groups of {} rows, not {} of {}",
         tensor.name, whole.counts[0], group, rows.heads, rows.head_rows);
  const std::uint64_t step = whole.strides[1];
  const std::uint64_t cols = whole.counts[2];
  tensor.parts.clear();
  const auto add = [&](std::uint64_t row, std::array<std::uint64_t, 3> counts, std::array<std::uint64_t, 3> strides) {
    if (counts[0] * counts[1] == 0) return;
    TensorPart part = whole;
    part.offset += row / group * whole.strides[0] + row % group * step;
    part.counts = counts;
    part.strides = strides;
    tensor.parts.push_back(part);
  };
  const std::uint64_t half = rows.dims / 2;
  for (std::uint64_t head = 0; head < rows.heads; ++head) {
    const std::uint64_t first = head * rows.head_rows;
    add(first, {1, rows.first, cols}, {0, step, whole.strides[2]});
    add(first + rows.first, {half, 2, cols}, {step, half * step, whole.strides[2]});
    const std::uint64_t behind = rows.first + rows.dims;
    add(first + behind, {1, rows.head_rows - behind, cols}, {0, step, whole.strides[2]});
  }
  return tensor;
}

}  // namespace llorch::engine::models
