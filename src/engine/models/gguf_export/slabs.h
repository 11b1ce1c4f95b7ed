#pragma once
// A stored tensor in pieces of bounded size, whatever it is made of.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/models/weights/bound_tensor.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::models {

struct Slab {
  plan::DType dtype = plan::DType::kF32;
  std::span<const std::byte> bytes;  // valid during the call that gets them
};
using SlabSink = std::function<base::Result<>(const Slab&)>;
// Gives a tensor's elements in order, whole rows of a matrix at a time.
using SlabReader = std::function<base::Result<>(const SlabSink&)>;

// At most as many elements has one slab, unless a row has more.
inline constexpr std::uint64_t kSlabElements = 1U << 20;

// Reads `pieces`, one behind the other. REQUIRES: their files stay open.
SlabReader read_slabs(std::vector<BoundTensor> pieces);

// Where the rows of each head stand that a rotation turns in pairs: [first, first + dims) of head_rows.
struct HeadRows {
  std::uint32_t heads = 0;
  std::uint32_t head_rows = 0;
  std::uint32_t first = 0;
  std::uint32_t dims = 0;  // even
};
// The tensor with rows (or elements of a vector) x[i] and x[i + dims/2] of every head moved side by side, as x[2i] and
// x[2i + 1]. REQUIRES: one part, of a matrix or a vector of heads * head_rows rows, or of
// groups of whole heads.
BoundTensor with_pairs_as_neighbours(BoundTensor tensor, const HeadRows& rows);

}  // namespace llorch::engine::models
