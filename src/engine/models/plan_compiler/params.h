#pragma once
// From configuration to parameter blocks: what each operation of a layer gets as numbers.
#include <cstdint>

#include "engine/models/config/model_config.h"
#include "engine/plan/params.h"
#include "engine/plan/plan.h"

namespace llorch::engine::models {

// Which optional weights of an instruction the file holds, by slot number.
using SlotsPresent = std::uint32_t;
template <class Slot>
constexpr bool has(SlotsPresent present, Slot slot) {
  return (present >> static_cast<unsigned>(slot) & 1) != 0;
}

// `layer` is plan::kNoLayer outside the layers. Where a layer's cache or state lies is the compiler's to fill in.
plan::EmbeddingParams embedding_params(const ModelConfig& config);
plan::RmsNormParams norm_params(const ModelConfig& config, std::uint16_t layer);
plan::AttentionParams attention_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present);
plan::MlaAttentionParams mla_params(const ModelConfig& config, std::uint16_t layer);
plan::SwigluParams ffn_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present);
plan::MoeParams moe_params(const ModelConfig& config, std::uint16_t layer, SlotsPresent present);
plan::MambaMixerParams mamba_params(const ModelConfig& config, std::uint16_t layer);
plan::GatedDeltaParams gated_delta_params(const ModelConfig& config, std::uint16_t layer);
plan::ShortconvParams shortconv_params(const ModelConfig& config, std::uint16_t layer);
plan::ResidualAddParams add_params(const ModelConfig& config, std::uint16_t layer, bool scaled);
plan::LightningIndexParams lightning_index_params(const ModelConfig& config, std::uint16_t layer);
// `variant`: LayerOp's; what the model ends with puts nothing back.
plan::HyperCollapseParams hyper_collapse_params(const ModelConfig& config, std::uint8_t variant, bool is_spread);
plan::HyperAddParams hyper_add_params(const ModelConfig& config, bool is_spread);
plan::CompressorParams compressor_params(const ModelConfig& config, std::uint16_t layer);
plan::CompressedAttentionParams compressed_attention_params(const ModelConfig& config, std::uint16_t layer);
plan::LayerInputParams layer_input_params(const ModelConfig& config, std::uint16_t layer);
plan::PredictorInputParams predictor_input_params(const ModelConfig& config);
plan::LmHeadParams head_params(const ModelConfig& config, bool tied);
plan::PoolParams pool_params(const ModelConfig& config);
plan::PositionEmbeddingParams position_embedding_params(const ModelConfig& config);
plan::DenseParams dense_params(const ModelConfig& config, std::uint8_t number);

// The layer that predicts a further token as a model of its own: it is like the last of the model that attends.
ModelConfig predictor_config(const ModelConfig& config);
// The tower as a model of its own: what the functions above need to know of its blocks.
ModelConfig tower_config(const ModelConfig& config);
plan::VisionPatchEmbedParams patch_embed_params(const VisionConfig& vision);
plan::VisionSpatialMergeParams spatial_merge_params(const VisionConfig& vision);
// `extraction` is the place in VisionConfig::extractions.
plan::VisionDeepstackExtractParams deepstack_extract_params(const VisionConfig& vision, std::uint32_t extraction);
plan::VisionScatterParams scatter_params(const VisionConfig& vision, std::uint32_t part);

}  // namespace llorch::engine::models
