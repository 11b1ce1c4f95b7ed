#include "engine/models/weights/f8_blocks.h"

#include <algorithm>

#include "engine/plan/quant_blocks.h"

namespace llorch::engine::models {
namespace {

constexpr std::uint64_t kBlock = sizeof(plan::BlockF8_E4M3::qs);

// Of `count` elements from `begin` on, along an axis of the matrix that changes its scale every `of_scale`.
bool have_one_scale_a_block(std::uint64_t begin, std::uint64_t count, std::uint64_t of_scale) {
  for (std::uint64_t at = 0; at < count; at += kBlock)
    if ((begin + at) / of_scale != (begin + std::min(at + kBlock, count) - 1) / of_scale) return false;
  return true;
}

bool scale_fits(const BoundTensor& tensor, const TensorPart& part, std::uint64_t row) {
  if (part.source->type != io::StoredType::kF8_E4M3 || part.scales == nullptr) return false;
  if (part.scales->elements_count() == 1) return true;
  const std::uint64_t columns = part.source->dims[1];
  const auto& [n0, n1, n2] = part.counts;
  const auto& [s0, s1, s2] = part.strides;
  if (n2 % row != 0 || (n0 > 1 && s0 % columns != 0)) return false;
  const std::uint64_t first_row = part.offset / columns, first_column = part.offset % columns;
  if (s2 == 1) {  // rows of the matrix or pieces of them, all from one column on
    if ((n1 > 1 && s1 % columns != 0) || (n2 > row && row != columns)) return false;
    return have_one_scale_a_block(first_column, row, tensor.scale_block.cols);
  }
  if (s2 != columns || n2 != row || (n1 > 1 && s1 != 1) || tensor.scale_block.piece_rows != 0) return false;
  for (std::uint64_t i = 0; i < n0; ++i)  // columns of the matrix
    if (!have_one_scale_a_block(first_row + i * s0 / columns, row, tensor.scale_block.rows)) return false;
  return true;
}

}  // namespace

void keep_f8(BoundTensor& tensor) {
  if (tensor.step != TensorStep::kWiden || tensor.stored.rank == 0) return;
  const std::uint64_t row = tensor.stored.shape[tensor.stored.rank - 1U];
  if (!std::ranges::all_of(tensor.parts, [&](const TensorPart& part) { return scale_fits(tensor, part, row); })) return;
  tensor.stored.dtype = plan::DType::kF8_E4M3;
  tensor.step = TensorStep::kF8Blocks;
}

}  // namespace llorch::engine::models
