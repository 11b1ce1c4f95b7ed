// GLM 4, dense: norms before and behind each branch, gate and up rows in one matrix, neighbours in half a head rotate.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::glm4 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBetweenNorms};

constexpr std::array kNorms{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kPostAttention, "blk.{}.post_attention_norm.weight", "layers.{}.post_self_attn_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(NormVariant::kPostFfn, "blk.{}.post_ffw_norm.weight", "layers.{}.post_mlp_layernorm.weight"),
};
constexpr WeightRow gate_up(FfnSlot slot) {
  return row(slot, Source("blk.{}.ffn_up.weight", Load::kRows, FfnSlot::kGate, FfnSlot::kUp),
             Source("layers.{}.mlp.gate_up_proj.weight", Load::kRows, FfnSlot::kGate, FfnSlot::kUp));
}
constexpr std::array kFfn{gate_up(FfnSlot::kGate), gate_up(FfnSlot::kUp), kFfnWeights[2]};
constexpr auto kWeights = concat(kGlobalWeights, kNorms, kAttentionWeights, kQkvBiases, kFfn);
constexpr std::array<std::string_view, 1> kNames{"glm4"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  return read_gguf_dense(keys, plan::RopeLayout::kInterleaved);
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.head_dim = 128, .eps = 1.5625e-7F}));
  TRY(demand_qkv_biases(keys, config, "attention_bias", true));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kInterleaved, {.partial = true, .partial_absent = 0.5F}, config));
  return config;
}

}  // namespace

const Family kGlm4{
    .name = "glm4",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::glm4
