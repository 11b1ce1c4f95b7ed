// Phi 1, 1.5 and 2: attention beside dense behind one LayerNorm, partly rotated, without gates; biases, of the head too.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::phi {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kOneNormBlock};

constexpr std::array kOthers{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embed_tokens.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "final_layernorm.weight"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "final_layernorm.bias"),
    head_row("output.weight", "^lm_head.weight"),
    head_bias_row("output.bias", "^lm_head.bias"),
    kBlockNorms[0],
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"),
    kAttentionWeights[0],
    kAttentionWeights[1],
    kAttentionWeights[2],
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.self_attn.dense.weight"),
    row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.self_attn.dense.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.mlp.fc1.weight"),
    row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.fc1.bias"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.mlp.fc2.weight"),
    row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.fc2.bias"),
};
// In one matrix as the first converter wrote them.
constexpr auto kWeights = concat(required(kQkvBiases), kOthers, fused_qkv(""), fused_qkv_biases(""));
constexpr std::array<std::string_view, 1> kGguf{"phi2"};
constexpr std::array<std::string_view, 1> kHf{"phi"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.ffn.activation = plan::Activation::kGeluTanh;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config =
      TRY(read_hf_dense(keys, {.eps = 1e-5F, .eps_key = "layer_norm_eps", .activation = plan::Activation::kGeluTanh}));
  config.norm_kind = plan::NormKind::kLayerNorm;
  TRY(refuse_if(keys, "qk_layernorm"));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.partial = true, .partial_absent = 0.5F}, config));
  return config;
}

}  // namespace

const Family kPhi{
    .name = "phi",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::phi
