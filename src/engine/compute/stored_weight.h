#pragma once
// What every device asks of a stored tensor before it takes it.
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/compute/cpu/pack.h"
#include "engine/contract/backend.h"

namespace llorch::engine::compute {

// Read element by element, as f32.
bool is_vector(const contract::StoredTensor& tensor);
std::uint64_t elements_of(const contract::StoredTensor& tensor);
// Of one matrix; a tensor of rank 3 is a stack of them. REQUIRES: rank 2 or 3.
cpu::MatrixShape matrix_shape(const contract::StoredTensor& tensor);
std::uint32_t stack_count(const contract::StoredTensor& tensor);

// `device` is "CPU" or "CUDA". Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH.
base::Result<> check_tensor(const contract::StoredTensor& tensor, std::string_view device);

// A plain tensor as f32. REQUIRES: room for elements_of(tensor).
void widen(const contract::StoredTensor& tensor, float* out);

}  // namespace llorch::engine::compute
