#pragma once
// Checkpoints whose weights a quantizer saved as several tensors each: GPTQ, AWQ, compressed-tensors, NVFP4, FP8 with a scale a row,
// MXFP4 and FP8 as DeepSeek V4 names them. Each becomes one tensor under the name that the unquantized model has, so that nobody else knows of them.
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/io/file_tensor.h"
#include "engine/io/huggingface/hf_config.h"

namespace llorch::engine::io {

// What a joined tensor's name and data are views of.
struct JoinedTensor {
  std::string name;
  std::unique_ptr<DerivedBytes> bytes;  // null: the bytes of a tensor of another name
};

// Puts joined tensors in the place of what they are made of, and leaves out scales of activations, which this engine quantizes
// in its own way. Reads the order of columns (g_idx) and shapes that the tensors say of themselves, no weights.
// Errors: UNSUPPORTED_QUANT_TYPE (a method or layout that is not among these), MISSING_WEIGHT (a part), WEIGHT_SHAPE_MISMATCH,
// WEIGHT_DTYPE_UNSUPPORTED, CONFIG_KEY_*, CORRUPT_FILE, IO_ERROR.
base::Result<std::vector<std::unique_ptr<JoinedTensor>>> join_quantized(const HfConfig& config,
                                                                        std::vector<FileTensor>& tensors);

}  // namespace llorch::engine::io
