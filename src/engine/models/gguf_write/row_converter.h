#pragma once
// Stored rows of one type to rows of another.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/models/gguf_export/slabs.h"
#include "engine/plan/dtype.h"

namespace llorch::engine::models {

struct RowFormat {
  plan::DType type{};      // of the result
  std::uint64_t cols = 0;  // elements of a row
  float offset = 0;        // added to every element
};

// Not thread-safe; uses up to `threads` threads of its own. Memory grows to that of the largest slab's result.
class RowConverter {
 public:
  explicit RowConverter(unsigned threads) : threads_(threads) {}

  // The rows of a slab in another format; of the slab's own type without an offset, its own bytes. Valid until the next call.
  // Errors: WEIGHT_VALUE_UNSUPPORTED. REQUIRES: a slab of whole rows, or of floats that stay floats.
  base::Result<std::span<const std::byte>> convert(const Slab& slab, const RowFormat& format);

 private:
  unsigned threads_;
  std::vector<std::byte> result_;
};

}  // namespace llorch::engine::models
