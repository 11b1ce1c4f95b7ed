#pragma once
// NVFP4: four-bit floats with an E4M3 scale per 16 of a row and a scale of the whole matrix, read as if they were BF16.
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/io/file_tensor.h"

namespace llorch::engine::io {

struct Nvfp4Matrix {
  FileTensor codes;         // U8 [N, K / 2]: element 2i in the low nibble of byte i, e2m1
  FileTensor scales;        // F8_E4M3 [N, K / 16]
  FileTensor global_scale;  // F32, one element
  bool divides = false;     // by the scale of the matrix, instead of multiplying with it
};

// Elements are code * scale * global scale, rounded once. Errors of reading: IO_ERROR; WEIGHT_VALUE_UNSUPPORTED (a scale that is
// no number, or a global one that is zero or infinite).
std::unique_ptr<DerivedBytes> as_bf16(Nvfp4Matrix matrix, std::string name);

// Errors: WEIGHT_SHAPE_MISMATCH, WEIGHT_DTYPE_UNSUPPORTED, naming the tensor.
base::Result<> check_nvfp4_matrix(const Nvfp4Matrix& matrix);

}  // namespace llorch::engine::io
