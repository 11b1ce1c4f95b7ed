#include "engine/models/weights/slice.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "base/assert.h"

namespace llorch::engine::models {
namespace {

// A dimension of a strided view.
struct Extent {
  std::uint64_t count = 1;
  std::uint64_t stride = 0;
};

// Splits one of the dimensions so that those ahead of the boundary hold `boundary` elements together.
void split_at(std::uint64_t boundary, std::vector<Extent>& view) {
  std::uint64_t before = 1;
  for (std::size_t i = 0; i < view.size(); before *= view[i].count, ++i) {
    if (before >= boundary || before * view[i].count <= boundary) continue;
    const std::uint64_t ahead = boundary / before;
    const std::uint64_t behind = view[i].count / ahead;
    ASSERT(ahead * before == boundary && behind * ahead == view[i].count, "{} of {} x {}", boundary, before,
           view[i].count);
    view.insert(view.begin() + static_cast<std::ptrdiff_t>(i), {.count = ahead, .stride = behind * view[i].stride});
    view[i + 1].count = behind;
    return;
  }
}

// The view with as few dimensions as describe it.
void join(std::vector<Extent>& view) {
  std::vector<Extent> joined;
  for (const Extent& extent : view) {
    if (extent.count == 1) continue;
    if (!joined.empty() && joined.back().stride == extent.count * extent.stride) {
      joined.back() = {.count = joined.back().count * extent.count, .stride = extent.stride};
    } else {
      joined.push_back(extent);
    }
  }
  view = std::move(joined);
}

// Of a dimension that is groups of rows, whole groups, or rows of one.
base::Result<> cut_groups(const TensorShare& share, const std::string_view name, Extent& groups, Extent& rows,
                          std::uint64_t& offset) {
  const std::uint64_t first = share.begin % rows.count;
  offset += share.begin / rows.count * groups.stride + first * rows.stride;
  if (first == 0 && share.count % rows.count == 0) {
    groups.count = share.count / rows.count;
    return {};
  }
  if (first + share.count > rows.count) {
    return base::fail(base::ErrorCode::kModelIncompatible,
                      fmt::format("{}: the {} rows of a device from {} on are parts of several groups of {}; use fewer "
                                  "devices",
                                  name, share.count, share.begin, rows.count));
  }
  groups.count = 1;
  rows.count = share.count;
  return {};
}

// Of a part that holds `outer` x `length` x anything elements.
base::Result<> cut_part(const TensorShare& share, std::uint64_t outer, std::uint64_t length, TensorPart& part) {
  std::vector<Extent> view;
  for (std::size_t d = 0; d < 3; ++d) view.push_back({.count = part.counts[d], .stride = part.strides[d]});
  split_at(outer, view);
  split_at(outer * length, view);
  std::uint64_t before = 1;
  for (std::size_t i = 0; i < view.size(); ++i) {
    Extent& extent = view[i];
    if (before == outer && extent.count == length) {
      part.offset += share.begin * extent.stride;
      extent.count = share.count;
      break;
    }
    if (before == outer && i + 1 < view.size() && extent.count * view[i + 1].count == length) {
      TRY(cut_groups(share, part.source->name, extent, view[i + 1], part.offset));
      break;
    }
    before *= extent.count;
    ASSERT(before <= outer, "the cut dimension of {} is in several pieces", part.source->name);
  }
  join(view);
  // A last dimension with gaps stays the last: block types and copies count on its stride.
  ASSERT(view.size() <= 3, "a slice of {} has {} dimensions", part.source->name, view.size());
  part.counts = {1, 1, 1};
  part.strides = {0, 0, 1};
  for (std::size_t d = 0; d < view.size(); ++d) {
    part.counts[3 - view.size() + d] = view[d].count;
    part.strides[3 - view.size() + d] = view[d].stride;
  }
  return {};
}

}  // namespace

base::Result<> cut(const TensorShare& share, BoundTensor& tensor) {
  if (share.kind == TensorShare::Kind::kWhole) return {};
  tensor.elements_whole_count = tensor.elements_count();
  if (share.kind == TensorShare::Kind::kZeros) {
    tensor.step = TensorStep::kZeros;
    tensor.stored.dtype = plan::DType::kF32;
    tensor.parts.clear();
    return {};
  }
  std::span<std::uint32_t> shape = std::span(tensor.stored.shape).first(tensor.stored.rank);
  ASSERT(share.axis < shape.size() && share.begin + share.count <= shape[share.axis], "{}..+{} of axis {} of {}",
         share.begin, share.count, share.axis, tensor.name);
  const std::uint64_t unit =
      share.axis + std::size_t{1} == shape.size() ? plan::dtype_info(tensor.stored.dtype).block_elements : 1;
  if (share.begin % unit != 0 || share.count % unit != 0) {
    return base::fail(
        base::ErrorCode::kModelIncompatible,
        fmt::format("{}: {} of {} columns per device do not end with a block of {}, which holds {}; use "
                    "fewer devices, or a file of another type",
                    tensor.name, share.count, shape[share.axis], plan::dtype_info(tensor.stored.dtype).name, unit));
  }
  // MXFP4 as Hugging Face stores it counts in blocks.
  const std::uint64_t counted = tensor.step == TensorStep::kMxfp4 ? unit : 1;
  const TensorShare in_parts{.kind = share.kind,
                             .axis = share.axis,
                             .begin = static_cast<std::uint32_t>(share.begin / counted),
                             .count = static_cast<std::uint32_t>(share.count / counted)};
  const bool is_stack = tensor.parts.size() > 1;
  if (is_stack && shape.size() == 1) {  // vectors one behind the other, of which the share are whole ones
    const auto each = static_cast<std::uint32_t>(shape[0] / tensor.parts.size());
    ASSERT(share.begin % each == 0 && share.count % each == 0, "{}: {} + {} cut one of {}", tensor.name, share.begin,
           share.count, each);
    const auto first = tensor.parts.begin() + share.begin / each;
    tensor.parts = std::vector<TensorPart>(first, first + share.count / each);
    shape[0] = share.count;
    return {};
  }
  ASSERT(!is_stack || (share.axis > 0 && tensor.parts.size() == shape[0]), "{}: {} parts", tensor.name,
         tensor.parts.size());
  std::uint64_t outer = 1;
  for (std::size_t d = is_stack ? 1 : 0; d < share.axis; ++d) outer *= shape[d];
  for (TensorPart& part : tensor.parts) TRY(cut_part(in_parts, outer, shape[share.axis] / counted, part));
  shape[share.axis] = share.count;
  return {};
}

}  // namespace llorch::engine::models
