#include "engine/compute/stored_weight.h"

#include <fmt/core.h>

#include <cstring>
#include <string>

#include "engine/compute/half.h"

namespace llorch::engine::compute {

using base::ErrorCode;
using base::fail;
using base::Result;
using plan::DType;
using plan::StoredTensor;

namespace {
bool has_use(const StoredTensor& tensor, plan::WeightUse use) {
  return (tensor.uses & static_cast<std::uint8_t>(use)) != 0;
}
}  // namespace

bool is_vector(const StoredTensor& tensor) { return has_use(tensor, plan::WeightUse::kVector); }

std::uint64_t elements_of(const StoredTensor& tensor) {
  std::uint64_t count = 1;
  for (std::size_t i = 0; i < tensor.rank; ++i) count *= tensor.shape[i];
  return count;
}

cpu::MatrixShape matrix_shape(const StoredTensor& tensor) {
  return {.dtype = tensor.dtype, .rows = tensor.shape[tensor.rank - 2u], .cols = tensor.shape[tensor.rank - 1u]};
}
std::uint32_t stack_count(const StoredTensor& tensor) { return tensor.rank == 3 ? tensor.shape[0] : 1; }

std::uint64_t stored_bytes(const StoredTensor& tensor) {
  if (tensor.rank == 0) return plan::row_bytes(tensor.dtype, 1);
  const std::uint64_t cols = tensor.shape[tensor.rank - 1u];
  return cols == 0 ? 0 : elements_of(tensor) / cols * plan::row_bytes(tensor.dtype, cols);
}

base::Error named(const StoredTensor& tensor, base::Error error) {
  if (!tensor.name.empty()) error.message = fmt::format("tensor {}: {}", tensor.name, error.message);
  return error;
}

namespace {
std::string describe(const StoredTensor& tensor) {
  std::string shape;
  for (std::size_t i = 0; i < tensor.rank; ++i) shape += fmt::format("{}{}", i == 0 ? "" : " x ", tensor.shape[i]);
  return fmt::format("a {} tensor of {}", plan::dtype_info(tensor.dtype).name, shape);
}

}  // namespace

Result<> check_tensor(const StoredTensor& tensor, const TensorTaker& taker) {
  const std::string_view device = taker.device;
  const auto info = plan::dtype_info(tensor.dtype);
  if (is_vector(tensor)) {
    if (tensor.uses != static_cast<std::uint8_t>(plan::WeightUse::kVector) || info.block_elements != 1 ||
        tensor.dtype == DType::kI32)
      return fail(ErrorCode::kWeightDTypeUnsupported,
                  fmt::format("the {} device reads element by element only F32, F16 and BF16, and such a tensor has no "
                              "other use; this is {} with uses {:#x}",
                              device, describe(tensor), tensor.uses));
  } else {
    const bool stack = tensor.rank == 3 && tensor.uses == static_cast<std::uint8_t>(plan::WeightUse::kMatrix);
    if (tensor.rank != 2 && !stack)
      return fail(ErrorCode::kWeightShapeMismatch,
                  fmt::format("the {} device takes matrices of rank 2, and stacks of rank 3 of which no rows are "
                              "looked up; this is {} with uses {:#x}",
                              device, describe(tensor), tensor.uses));
    if ((taker.matrix_types & plan::dtype_bit(tensor.dtype)) == 0)
      return fail(ErrorCode::kWeightDTypeUnsupported, fmt::format("no {} kernel takes {}", device, describe(tensor)));
    if (!plan::may_end_in_a_block(tensor.dtype) && tensor.shape[tensor.rank - 1u] % info.block_elements != 0)
      return fail(ErrorCode::kWeightShapeMismatch,
                  fmt::format("rows of {} elements do not fill blocks of {}: {}", tensor.shape[tensor.rank - 1u],
                              info.block_elements, describe(tensor)));
  }
  if (elements_of(tensor) == 0 || (tensor.source == nullptr && tensor.bytes.size() != stored_bytes(tensor)))
    return fail(ErrorCode::kWeightShapeMismatch, fmt::format("{} takes {} bytes, {} are given", describe(tensor),
                                                             stored_bytes(tensor), tensor.bytes.size()));
  return {};
}

void widen(DType dtype, std::span<const std::byte> stored, float* out) {
  if (dtype == DType::kF32) {
    std::memcpy(out, stored.data(), stored.size());
    return;
  }
  for (std::uint64_t i = 0; i < stored.size() / sizeof(std::uint16_t); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, stored.data() + i * sizeof bits, sizeof bits);
    out[i] = dtype == DType::kF16 ? half_to_float(bits) : bfloat_to_float(bits);
  }
}

}  // namespace llorch::engine::compute
