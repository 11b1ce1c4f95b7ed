#include "engine/models/gguf_export/tensor_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/models/plan_compiler/opcode_map.h"
#include "engine/models/plan_compiler/params.h"
#include "engine/models/weights/names.h"
#include "engine/plan/slots.h"

namespace llorch::engine::models {
namespace {

using base::Result;
using plan::MambaSlot;
using plan::Opcode;
using plan::SlotSpec;
using plan::WeightKey;
using Shape = std::vector<std::uint64_t>;

template <plan::ParamStruct P>
Shape exported_shape_of(const SlotSpec& slot, const P& params) {
  alignas(plan::kParamBlockAlign) const P aligned = params;
  const plan::ParamBlock block{plan::kParamBlockVersion, P::kOpcode, std::as_bytes(std::span(&aligned, 1))};
  Shape shape;
  for (std::uint8_t d = 0; d < slot.rank; ++d) shape.push_back(*plan::dim_value(slot.dims[d], block));
  return shape;
}

// Row-major. REQUIRES: an operation with weights.
Shape exported_shape_of(const SlotSpec& slot, OpType type, std::uint16_t layer, const ModelConfig& config) {
  switch (type) {
    case OpType::kEmbedding: return exported_shape_of(slot, embedding_params(config));
    case OpType::kNorm: return exported_shape_of(slot, norm_params(config, layer));
    case OpType::kAttention: return exported_shape_of(slot, attention_params(config, layer, 0));
    case OpType::kMlaAttention: return exported_shape_of(slot, mla_params(config, layer));
    case OpType::kFfn: return exported_shape_of(slot, ffn_params(config, layer, 0));
    case OpType::kMoe: return exported_shape_of(slot, moe_params(config, layer, 0));
    case OpType::kMambaMixer: return exported_shape_of(slot, mamba_params(config, layer));
    case OpType::kShortconv: return exported_shape_of(slot, shortconv_params(config, layer));
    case OpType::kGatedDelta: return exported_shape_of(slot, gated_delta_params(config, layer));
    case OpType::kLightningIndex: return exported_shape_of(slot, lightning_index_params(config, layer));
    case OpType::kLayerInput: return exported_shape_of(slot, layer_input_params(config, layer));
    case OpType::kLmHead: return exported_shape_of(slot, head_params(config, false));
    case OpType::kPositionEmbedding: return exported_shape_of(slot, position_embedding_params(config));
    default: break;
  }
  ASSERT(false, "operation {} has no weights of a text model", static_cast<int>(type));
}

// The converters store these with a further dimension, or what norms all heads.
Shape stored_shape(const WeightKey& key, Shape shape, const ModelConfig& config) {
  if (key.opcode == Opcode::kMultiheadAttention && plan::has_weights_of_all_heads(config.attention.qk_norm)) {
    const LayerConfig& layer = config.layers[key.layer];
    const auto norm = static_cast<plan::AttentionSlot>(key.slot);
    if (norm != plan::AttentionSlot::kQNorm && norm != plan::AttentionSlot::kKNorm) return shape;
    const std::uint64_t heads = norm == plan::AttentionSlot::kQNorm ? layer.heads : layer.kv_heads;
    if (config.attention.qk_norm == plan::QkNorm::kPerRow) return {heads * shape[0]};
    return {heads, shape[0]};
  }
  if (key.opcode != Opcode::kMambaMixer) return shape;
  const auto slot = static_cast<MambaSlot>(key.slot);
  if (slot == MambaSlot::kA || slot == MambaSlot::kDSkip) return {shape[0], 1};
  if (slot == MambaSlot::kNorm) return {config.mamba.groups, shape[0] / config.mamba.groups};
  return shape;
}

class Lister {
 public:
  Lister(const Family& family, const ModelConfig& config, const SlotPresence& present, const WeightNames* names)
      : family_(family),
        config_(config),
        present_(present),
        names_(names),
        head_is_stored_(present({.opcode = Opcode::kLmHead})) {}

  Result<std::vector<GgufTensorShape>> run() {
    for (const LayerOp& op : family_.before) TRY(add(op, plan::kNoLayer));
    for (const LayerOp& op : family_.after) TRY(add(op, plan::kNoLayer));
    for (std::size_t n = 0; n < config_.layers.size(); ++n) {
      for (const LayerOp& op : family_.layer_templates[config_.layers[n].layer_template])
        TRY(add(op, static_cast<std::uint16_t>(n)));
    }
    return std::move(tensors_);
  }

 private:
  // The name beside the one that the slot's tensor has, else the first that GGUF has for it: files are written the way current ones are.
  const Source* source_of(const WeightKey& key) const {
    const auto found = names_ != nullptr ? names_->find(key) : std::nullopt;
    const Source* first = nullptr;
    for (const WeightRow& row : family_.weights) {
      if (row.opcode != key.opcode || row.slot != key.slot || row.variant != key.variant || row.gguf.name.empty())
        continue;
      if (found && found->source == &row.hf) return &row.gguf;
      if (first == nullptr) first = &row.gguf;
    }
    return first;
  }

  Result<> add(const LayerOp& op, std::uint16_t layer) {
    const std::span<const SlotSpec> slots = *plan::weight_slots(opcode_of(op.type));
    for (std::size_t s = 0; s < slots.size(); ++s) {
      const WeightKey key{layer, opcode_of(op.type), static_cast<std::uint8_t>(s), op.variant};
      if (present_(key)) TRY(add(key, slots[s], op.type));
    }
    return {};
  }

  Result<> add(const WeightKey& key, const SlotSpec& slot, OpType type) {
    const Source* source = source_of(key);
    if (source == nullptr ||
        (source->load != Load::kWhole && source->load != Load::kReshaped && source->load != Load::kRows)) {
      return base::fail(base::ErrorCode::kFormatCannotExpress,
                        fmt::format("GGUF's architecture {} has no tensor for the weight {} of {}{}", family_.gguf[0],
                                    slot.name, plan::opcode_name(key.opcode),
                                    key.layer == plan::kNoLayer ? "" : fmt::format(" in layer {}", key.layer)));
    }
    Shape shape = stored_shape(key, exported_shape_of(slot, type, key.layer, config_), config_);
    std::ranges::reverse(shape);
    const std::string name = tensor_name(source->name, key.layer);
    const auto [at, is_new] = numbers_.try_emplace(name, tensors_.size());
    if (is_new) {
      tensors_.push_back({name, std::move(shape), tensor_role(key, head_is_stored_), {key}});
    } else {
      tensors_[at->second].dims.back() += shape.back();
      tensors_[at->second].slots.push_back(key);
    }
    return {};
  }

  const Family& family_;
  const ModelConfig& config_;
  const SlotPresence& present_;
  const WeightNames* names_;  // of a directory, or null
  const bool head_is_stored_;
  std::vector<GgufTensorShape> tensors_;
  std::map<std::string, std::size_t, std::less<>> numbers_;
};

}  // namespace

Result<std::vector<GgufTensorShape>> gguf_tensors(const Family& family, const ModelConfig& config,
                                                  const SlotPresence& present, const WeightNames* names) {
  return Lister(family, config, present, names).run();
}

TensorRole tensor_role(const WeightKey& key, bool head_is_stored) {
  if (key.opcode == Opcode::kEmbedding) return head_is_stored ? TensorRole::kEmbedding : TensorRole::kHead;
  const SlotSpec& slot = (*plan::weight_slots(key.opcode))[key.slot];
  if (key.opcode == Opcode::kLmHead && slot.use == plan::WeightUse::kMatrix) return TensorRole::kHead;
  const auto of_moe = static_cast<plan::MoeSlot>(key.slot);
  if (key.opcode == Opcode::kMoe && (of_moe == plan::MoeSlot::kRouter || of_moe == plan::MoeSlot::kSharedRouter))
    return TensorRole::kRouter;
  return slot.use == plan::WeightUse::kVector ? TensorRole::kFloats : TensorRole::kMatrix;
}

bool layer_has(const Family& family, const LayerConfig& layer, OpType type) {
  return std::ranges::any_of(family.layer_templates[layer.layer_template],
                             [&](const LayerOp& op) { return op.type == type; });
}

}  // namespace llorch::engine::models
