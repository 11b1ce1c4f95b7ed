#pragma once
// Which tensors the GGUF file of a model has: the family's layer template and weight table, read towards GGUF.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/models/config/model_config.h"
#include "engine/models/family.h"
#include "engine/models/weights/names.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// What a tensor is to the rules that choose its type.
enum class TensorRole : std::uint8_t {
  kMatrix,     // right operand of a product; stacks of experts too
  kRouter,     // scores of experts: small, and every error moves tokens to other experts
  kEmbedding,  // rows looked up by id
  kHead,       // logits are read off it; an embedding table that is also the head
  kFloats,     // vectors, norms, convolutions: read element by element
};

TensorRole tensor_role(const plan::WeightKey& key, bool head_is_stored);

struct GgufTensorShape {
  std::string name;
  std::vector<std::uint64_t> dims;  // ne0 first
  TensorRole role = TensorRole::kMatrix;
  std::vector<plan::WeightKey> slots;  // whose rows it holds, one slot behind the other
};

// Whether the model has a weight. A head that is the embedding table is none.
using SlotPresence = std::function<bool(const plan::WeightKey&)>;

// In the order of the layer template. `names`: those of the directory that it is made of. Errors: FORMAT_CANNOT_EXPRESS (a weight that GGUF has no name for in this family).
base::Result<std::vector<GgufTensorShape>> gguf_tensors(const Family& family, const ModelConfig& config,
                                                        const SlotPresence& present,
                                                        const WeightNames* names = nullptr);

// Whether a layer's layer template holds an operation.
bool layer_has(const Family& family, const LayerConfig& layer, OpType type);

}  // namespace llorch::engine::models
