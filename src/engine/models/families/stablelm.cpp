// StableLM: LayerNorm, partly rotated heads.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::stablelm {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr std::array kNormBiases{
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"),
    bias_row(NormVariant::kFfn, "blk.{}.ffn_norm.bias", "layers.{}.post_attention_layernorm.bias"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "norm.bias"),
};
constexpr WeightRow head_norm(AttentionSlot slot, const char* gguf, const char* hf) {
  return optional_row(slot, Source(gguf, Load::kReshaped), Source(hf, Load::kHeads));
}
constexpr std::array kNormsOfHeads{
    head_norm(AttentionSlot::kQNorm, "blk.{}.attn_q_norm.weight", "layers.{}.self_attn.q_layernorm.norms.{}.weight"),
    head_norm(AttentionSlot::kKNorm, "blk.{}.attn_k_norm.weight", "layers.{}.self_attn.k_layernorm.norms.{}.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kNormBiases, kNormsOfHeads, kAttentionWeights, kQkvBiases, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"stablelm"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.attention.qk_norm = plan::QkNorm::kCenteredPerHead;
  if (TRY(keys.flag_or("use_parallel_residual", false)) && keys.files().find_tensor("blk.0.ffn_norm.weight") == nullptr)
    return impossible(keys.key("use_parallel_residual"), "true", "this build cannot run the family so");
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F, .eps_key = "layer_norm_eps"}));
  config.norm_kind = plan::NormKind::kLayerNorm;
  TRY(demand_qkv_biases(keys, config, "use_qkv_bias"));
  config.attention.qk_norm = plan::QkNorm::kCenteredPerHead;
  TRY(demand_if(keys, "qk_layernorm", false, Opcode::kMultiheadAttention,
                {slot_number(AttentionSlot::kQNorm), slot_number(AttentionSlot::kKNorm)}, config));
  TRY(refuse_if(keys, "use_parallel_residual"));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.partial = true, .partial_absent = 0.25F}, config));
  return config;
}

}  // namespace

const Family kStableLm{
    .name = "stablelm",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::stablelm
