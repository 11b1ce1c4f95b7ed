#pragma once
// Which rows of a step the rows of a pool are made of.
#include <algorithm>
#include <cstdint>

#include "engine/plan/context.h"
#include "engine/plan/params.h"

namespace llorch::engine::compute {

struct PooledRows {
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
};

// REQUIRES: row < ctx.total_rows.
inline PooledRows pooled_rows(const plan::ExecutionContext& ctx, plan::Pooling pooling, std::uint32_t row) {
  if (pooling == plan::Pooling::kLast) return {row, row + 1};
  const std::uint32_t first = *(std::ranges::upper_bound(ctx.row_offsets, row) - 1);
  return {first, pooling == plan::Pooling::kFirst ? first + 1 : row + 1};
}

}  // namespace llorch::engine::compute
