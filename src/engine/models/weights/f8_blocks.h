#pragma once
#include "engine/models/weights/bound_tensor.h"

namespace llorch::engine::models {

// Makes a tensor of E4M3 parts, described as BF16, one of F8_E4M3 blocks (wire/quant_blocks.h), if it can be one: every 128
// columns of its rows, counted from the row's begin, have one scale. Others stay as they are. Reads nothing.
void keep_f8(BoundTensor& tensor);

}  // namespace llorch::engine::models
