// GLM 4.5 to 4.7, mixtures: dense layers first, then experts that a sigmoid chooses.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::glm4_moe {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

// GGUF calls the second norm by the place it stands in.
constexpr std::array kOthers{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    optional(kHeadNorms[0]),
    optional(kHeadNorms[1]),
};
constexpr auto kWeights = concat(kGlobalWeights, kOthers, kAttentionWeights, kAttentionBiases, kFfnWeights,
                                 kRoutedExperts, kPredictorPastLast);
constexpr Predictor kPredictor{.hf_prefix = "", .hands_on_unnormed = true};
constexpr std::array<std::string_view, 1> kGguf{"glm4moe"};
constexpr std::array<std::string_view, 1> kHf{"glm4_moe"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_routed_experts(keys, config));
  TRY(read_gguf_dense_first(keys, {}, config));
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.eps = 1e-5F};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_qkv_biases(keys, config));
  TRY(demand_if(keys, "use_qk_norm", false, Opcode::kMultiheadAttention,
                {slot_number(AttentionSlot::kQNorm), slot_number(AttentionSlot::kKNorm)}, config));
  TRY(read_hf_dense_first(keys, {}, config));
  TRY(read_hf_routed_experts(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.partial = true, .partial_absent = 0.5F}, config));
  return config;
}

}  // namespace

const Family kGlm4Moe{
    .name = "glm4_moe",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .predictor = &kPredictor,
    .ignores_layers_past_end = true,
    .hf_others = "num_nextn_predict_layers",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::glm4_moe
