#pragma once
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cuda::adapters {

// Types of matrices: every one but the integers.
inline constexpr std::uint64_t kMatrixTypes =
    ((std::uint64_t{1} << contract::kDTypesCount) - 1) & ~contract::dtype_bit(contract::DType::kI32);

extern const contract::AdapterTables kCudaTables;

}  // namespace llorch::engine::compute::cuda::adapters
