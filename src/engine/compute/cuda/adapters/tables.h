#pragma once
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

// Types of matrices: every one but the integers.
inline constexpr std::uint64_t kMatrixTypes =
    ((std::uint64_t{1} << plan::kDTypesCount) - 1) & ~plan::dtype_bit(plan::DType::kI32);

extern const plan::AdapterTables kCudaTables;

}  // namespace llorch::engine::compute::cuda::adapters
