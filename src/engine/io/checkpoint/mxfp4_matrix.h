#pragma once
// MXFP4 as DeepSeek stores it: two codes a byte and a power of two per 32 of a row, read as GGUF's blocks.
#include <memory>
#include <string>

#include "base/result.h"
#include "engine/io/file_tensor.h"

namespace llorch::engine::io {

struct Mxfp4Matrix {
  FileTensor codes;   // I8 [N, K / 2]: element 2i in the low nibble of byte i, e2m1
  FileTensor scales;  // F8_E8M0 [N, K / 32]
};

// No element changes its bits. Errors of reading: IO_ERROR; WEIGHT_VALUE_UNSUPPORTED (a scale that is no number).
std::unique_ptr<DerivedBytes> as_mxfp4(Mxfp4Matrix matrix, std::string name);

// Errors: WEIGHT_SHAPE_MISMATCH, naming the tensors. REQUIRES: the types are these.
base::Result<> check_mxfp4_matrix(const Mxfp4Matrix& matrix);

}  // namespace llorch::engine::io
