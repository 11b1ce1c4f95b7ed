#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/models/weights/bound_tensor.h"
#include "engine/models/weights/names.h"
#include "engine/models/weights/slice.h"
#include "engine/plan/params.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {

// The tensors of a model, each described once however many plans and slots use it. A tensor's number (WeightBinding::tensor)
// is its place here: the order in which a plan first uses them, whatever their order in the files.
class TensorTable {
 public:
  // keeps_f8: matrices of FP8 stay FP8 where they can (f8_blocks.h), instead of becoming BF16.
  explicit TensorTable(bool keeps_f8 = false) : keeps_f8_(keeps_f8) {}

  // Describes the tensor of slot `slot` in an instruction with these params and gives its number. Errors:
  // WEIGHT_SHAPE_MISMATCH (naming the tensor and both shapes), MISSING_WEIGHT (an expert, a table of scales),
  // WEIGHT_DTYPE_UNSUPPORTED (a type that cannot be loaded that way), and those of cut(). The params are those of the whole
  // instruction, the part what is wanted of the tensor they describe: the same one whenever a tensor is named again.
  base::Result<std::uint32_t> add(const WeightNames& names, const FoundWeight& found, const plan::WeightKey& key,
                                  const plan::ParamBlock& params, const TensorShare& share = {});

  // Elements of a row of the whole tensor that are stored together, as the device gets it: 256 of Q4_K, 128 of FP8 that stays
  // FP8, 1 of floats. Errors: those of describing it.
  base::Result<std::uint32_t> block_of(const WeightNames& names, const FoundWeight& found, const plan::WeightKey& key,
                                       const plan::ParamBlock& params) const;

  std::span<const BoundTensor> tensors() const { return tensors_; }
  std::vector<BoundTensor> take() { return std::move(tensors_); }

 private:
  bool keeps_f8_;
  std::vector<BoundTensor> tensors_;
  std::map<std::string, std::uint32_t, std::less<>> numbers_;  // by name
};

}  // namespace llorch::engine::models
