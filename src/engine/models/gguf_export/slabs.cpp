#include "engine/models/gguf_export/slabs.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "engine/contract/quant_blocks.h"

namespace llorch::engine::models {
namespace {

std::uint64_t elements_of(const TensorPart& part, TensorStep step) {
  const std::uint64_t per_count = step == TensorStep::kMxfp4 ? contract::kQuantBlockElements : 1;
  return part.counts[0] * part.counts[1] * part.counts[2] * per_count;
}

// Cuts a part between rows.
std::vector<TensorPart> cut(const TensorPart& part, TensorStep step) {
  const auto& [n0, n1, n2] = part.counts;
  const std::uint64_t row = elements_of(part, step) / (n0 * n1);
  const std::uint64_t rows_max = std::max<std::uint64_t>(1, kSlabElements / row);
  const std::uint64_t i_step = std::max<std::uint64_t>(1, rows_max / n1);
  const std::uint64_t j_step = std::min(n1, rows_max);
  std::vector<TensorPart> pieces;
  for (std::uint64_t i = 0; i < n0; i += i_step) {
    for (std::uint64_t j = 0; j < n1; j += j_step) {
      TensorPart piece = part;
      piece.offset += i * part.strides[0] + j * part.strides[1];
      piece.counts = {std::min(i_step, n0 - i), std::min(j_step, n1 - j), n2};
      pieces.push_back(piece);
    }
  }
  return pieces;
}

// Parts that are fetched together.
class Batches {
 public:
  explicit Batches(const BoundTensor& tensor) : tensor_(tensor) {
    for (const TensorPart& part : tensor.parts) {
      if (tensor.step == TensorStep::kWiden) {
        // Widening takes the whole source: once for all parts of it.
        if (!batch_.empty() && batch_.back().source != part.source) flush();
        add(part);
      } else if (tensor.step == TensorStep::kNegExp) {
        add(part);
      } else {
        for (const TensorPart& piece : cut(part, tensor.step)) {
          if (elements_ != 0 && elements_ + elements_of(piece, tensor.step) > kSlabElements) flush();
          add(piece);
        }
      }
    }
    flush();
  }
  std::vector<BoundTensor> take() { return std::move(batches_); }

 private:
  void add(const TensorPart& part) {
    batch_.push_back(part);
    elements_ += elements_of(part, tensor_.step);
  }
  void flush() {
    if (batch_.empty()) return;
    BoundTensor piece;
    piece.name = tensor_.name;
    piece.step = tensor_.step;
    piece.scale_block = tensor_.scale_block;
    piece.stored.dtype = tensor_.stored.dtype;
    piece.stored.rank = 1;
    piece.stored.shape[0] = static_cast<std::uint32_t>(std::exchange(elements_, 0));
    piece.parts = std::exchange(batch_, {});
    batches_.push_back(std::move(piece));
  }

  const BoundTensor& tensor_;
  std::vector<TensorPart> batch_;
  std::uint64_t elements_ = 0;
  std::vector<BoundTensor> batches_;
};

}  // namespace

SlabReader read_slabs(std::vector<BoundTensor> pieces) {
  return [pieces = std::move(pieces)](const SlabSink& sink) -> base::Result<> {
    FetchScratch scratch;
    for (const BoundTensor& piece : pieces) {
      for (const BoundTensor& batch : Batches(piece).take()) {
        const contract::StoredTensor stored = batch.fetch(scratch);
        TRY(sink({stored.dtype, stored.bytes}));
      }
    }
    return {};
  };
}

BoundTensor with_pairs_as_neighbours(BoundTensor tensor, const HeadRows& rows) {
  ASSERT(tensor.parts.size() == 1 && tensor.parts[0].counts[0] == 1, "{} has several parts", tensor.name);
  TensorPart whole = tensor.parts[0];
  if (whole.counts[1] == 1) {  // a vector: every element is a row
    whole.counts = {1, whole.counts[2], 1};
    whole.strides = {0, whole.strides[2], 1};
  }
  const std::uint64_t all = std::uint64_t{rows.heads} * rows.head_rows;
  ASSERT(whole.counts[1] == all, "{} has {} rows, not {}", tensor.name, whole.counts[1], all);
  const std::uint64_t step = whole.strides[1];
  const std::uint64_t cols = whole.counts[2];
  tensor.parts.clear();
  const auto add = [&](std::uint64_t row, std::array<std::uint64_t, 3> counts, std::array<std::uint64_t, 3> strides) {
    if (counts[0] * counts[1] == 0) return;
    TensorPart part = whole;
    part.offset += row * step;
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
