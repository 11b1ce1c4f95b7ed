#pragma once
// What every device asks of a stored tensor before it takes it.
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.h"
#include "engine/compute/cpu/pack.h"
#include "engine/plan/backend.h"

namespace llorch::engine::compute {

// Read element by element, as f32.
bool is_vector(const plan::StoredTensor& tensor);
std::uint64_t elements_of(const plan::StoredTensor& tensor);
// Of one matrix; a tensor of rank 3 is a stack of them. REQUIRES: rank 2 or 3.
cpu::MatrixShape matrix_shape(const plan::StoredTensor& tensor);
std::uint32_t stack_count(const plan::StoredTensor& tensor);

// Bytes of the whole tensor as stored.
std::uint64_t stored_bytes(const plan::StoredTensor& tensor);
// The error with the tensor's name before it.
base::Error named(const plan::StoredTensor& tensor, base::Error error);

struct TensorTaker {
  std::string_view device;         // "CPU", "CUDA"
  std::uint64_t matrix_types = 0;  // bit 1 << DType
};
// Errors: WEIGHT_DTYPE_UNSUPPORTED, WEIGHT_SHAPE_MISMATCH.
base::Result<> check_tensor(const plan::StoredTensor& tensor, const TensorTaker& taker);

// Elements of a plain type as f32. REQUIRES: room for as many as `stored` has.
void widen(plan::DType dtype, std::span<const std::byte> stored, float* out);

}  // namespace llorch::engine::compute
