#pragma once
// How stored matrices lie on the device (kernels/matmul/matmul.h, Matrix), and how many bytes they take there. kernels/packing
// brings them into this order when they are loaded.
//
// F32: rows as stored, zero-padded to eight elements. F16, BF16: groups of sixteen rows in the order tensor cores take them
// (kernels/matmul/mma.h, half_index), BF16 as F16 with a power of two per row. FP8: likewise, its codes with factors (f8.h there).
// Quantized types: groups of sixteen rows as the CPU device packs them (compute/cpu/pack.h): a repack, never a requantization.
// Unit: a row, or a group.
#include <cstddef>

#include "engine/compute/cpu/pack.h"

namespace llorch::engine::compute::cuda {

// Pure functions; REQUIRES that check_tensor() took the tensor.
std::size_t unit_rows(const cpu::MatrixShape& shape);
std::size_t units_of(const cpu::MatrixShape& shape);
std::size_t unit_bytes(const cpu::MatrixShape& shape);
inline std::size_t matrix_bytes(const cpu::MatrixShape& shape) { return units_of(shape) * unit_bytes(shape); }

}  // namespace llorch::engine::compute::cuda
