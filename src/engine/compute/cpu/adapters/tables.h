#pragma once
// The contract's opcodes on this device.
#include "engine/plan/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

// Types of matrices: every one but the integers and FP8, which becomes BF16 before it comes here.
inline constexpr std::uint64_t kMatrixTypes =
    ((std::uint64_t{1} << plan::kDTypesCount) - 1) &
    ~(plan::dtype_bit(plan::DType::kI32) | plan::dtype_bit(plan::DType::kF8_E4M3));

extern const plan::AdapterTables kCpuTables;

}  // namespace llorch::engine::compute::cpu::adapters
