#include "engine/compute/cuda/weights.h"

#include "engine/compute/cuda/kernels/matmul/f8.h"
#include "engine/compute/cuda/kernels/matmul/plain.h"

namespace llorch::engine::compute::cuda {

using plan::is_quantized;

namespace {

static_assert(cpu::kPackRows == kernels::kMmaRows);

std::size_t half_group_bytes(const cpu::MatrixShape& shape) {
  if (shape.dtype == plan::DType::kF8_E4M3) return kernels::f8_group_bytes(shape.cols);
  const std::size_t scales = shape.dtype == plan::DType::kBF16 ? kernels::kMmaRows * sizeof(float) : 0;
  return std::size_t{kernels::padded_columns(shape.cols)} * kernels::kMmaRows * sizeof(std::uint16_t) + scales;
}

}  // namespace

std::size_t unit_rows(const cpu::MatrixShape& shape) {
  return shape.dtype == plan::DType::kF32 ? 1 : kernels::kMmaRows;
}

std::size_t units_of(const cpu::MatrixShape& shape) { return (shape.rows + unit_rows(shape) - 1) / unit_rows(shape); }

std::size_t unit_bytes(const cpu::MatrixShape& shape) {
  if (is_quantized(shape.dtype)) return cpu::packed_group_bytes(shape);
  if (shape.dtype != plan::DType::kF32) return half_group_bytes(shape);
  const std::size_t chunks = (shape.cols + kernels::kFloatChunk - 1) / kernels::kFloatChunk;
  return chunks * kernels::kFloatChunk * sizeof(float);
}

}  // namespace llorch::engine::compute::cuda
