#pragma once
// The contract's opcodes on this device.
#include "engine/contract/adapter.h"

namespace llorch::engine::compute::cpu::adapters {

// Types of matrices: every one but the integers and FP8, which becomes BF16 before it comes here.
inline constexpr std::uint64_t kMatrixTypes =
    ((std::uint64_t{1} << contract::kDTypesCount) - 1) &
    ~(contract::dtype_bit(contract::DType::kI32) | contract::dtype_bit(contract::DType::kF8_E4M3));

extern const contract::AdapterTables kCpuTables;

}  // namespace llorch::engine::compute::cpu::adapters
