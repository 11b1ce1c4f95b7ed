#pragma once
#include <cstdint>

#include "base/result.h"
#include "engine/models/weights/bound_tensor.h"

namespace llorch::engine::models {

// What one device holds of a tensor.
struct TensorShare {
  enum class Kind : std::uint8_t {
    kWhole,
    kSlice,  // `count` of one dimension from `begin` on
    kZeros,  // an addend that another device holds
  };
  Kind kind = Kind::kWhole;
  std::uint8_t axis = 0;
  std::uint32_t begin = 0;
  std::uint32_t count = 0;
};

// Makes a tensor its share. Reads nothing: the parts of a slice are views of the same stored tensors.
// Errors: MODEL_INCOMPATIBLE (a slice of a row does not begin and end with a block of its type).
// REQUIRES: the slice lies in the tensor; the parts of a tensor of several parts are a stack, and the slice cuts each,
// or vectors of one length, and the slice cuts none.
base::Result<> cut(const TensorShare& share, BoundTensor& tensor);

}  // namespace llorch::engine::models
