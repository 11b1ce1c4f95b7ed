#pragma once
// From configuration to parameter blocks: what each operation of a layer gets as numbers.
#include <cstdint>

#include "engine/contract/params.h"
#include "engine/contract/plan.h"
#include "engine/models/config/model_config.h"

namespace llorch::engine::models {

// Which optional weights of an instruction the file holds, by slot number.
using SlotsPresent = std::uint32_t;
template <class Slot>
constexpr bool has(SlotsPresent present, Slot slot) {
  return (present >> static_cast<unsigned>(slot) & 1) != 0;
}

// `layer` is contract::kNoLayer outside the layers. Where a layer's cache or state lies is the compiler's to fill in.
contract::EmbeddingParams embedding_params(const ModelConfig& config);
contract::RmsNormParams norm_params(const ModelConfig& config, std::uint16_t layer);
contract::AttentionParams attention_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present);
contract::MlaAttentionParams mla_params(const ModelConfig& config, std::uint16_t layer);
contract::SwigluParams ffn_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present);
contract::MoeParams moe_params(const ModelConfig& config, SlotsPresent present);
contract::MambaMixerParams mamba_params(const ModelConfig& config, std::uint16_t layer);
contract::ShortconvParams shortconv_params(const ModelConfig& config, std::uint16_t layer);
contract::ResidualAddParams add_params(const ModelConfig& config);
contract::LmHeadParams head_params(const ModelConfig& config, bool tied);

// The tower as a model of its own: what the functions above need to know of its blocks.
ModelConfig tower_config(const ModelConfig& config);
contract::VisionPatchEmbedParams patch_embed_params(const VisionConfig& vision);
contract::VisionSpatialMergeParams spatial_merge_params(const VisionConfig& vision);
// `extraction` is the place in VisionConfig::extractions.
contract::VisionDeepstackExtractParams deepstack_extract_params(const VisionConfig& vision, std::uint32_t extraction);
contract::VisionScatterParams scatter_params(const VisionConfig& vision, std::uint32_t part);

}  // namespace llorch::engine::models
