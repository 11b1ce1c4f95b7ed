// StarCoder2: LayerNorm and biases everywhere, a feed-forward without gates.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::starcoder2 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

constexpr std::array kOthers{
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"),
    bias_row(NormVariant::kFfn, "blk.{}.ffn_norm.bias", "layers.{}.post_attention_layernorm.bias"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "norm.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.mlp.c_fc.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.mlp.c_proj.weight"),
    optional_row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.c_fc.bias"),
    optional_row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.c_proj.bias"),
};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kOthers, kAttentionWeights, kAttentionBiases);
constexpr std::array<std::string_view, 1> kNames{"starcoder2"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.ffn.activation = plan::Activation::kGeluTanh;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(
      keys, {.eps = 1e-5F, .eps_key = "norm_epsilon", .tied = true, .activation = plan::Activation::kGeluTanh}));
  config.norm_kind = plan::NormKind::kLayerNorm;
  TRY(demand_attention_biases(keys, config, "use_bias", true));
  TRY(demand_if(keys, "use_bias", true, Opcode::kSwiglu,
                {slot_number(FfnSlot::kUpBias), slot_number(FfnSlot::kDownBias)}, config));
  const std::uint32_t window = TRY(read_hf_window(keys, 0));
  for (LayerConfig& layer : config.layers) layer.window = window;
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kStarCoder2{
    .name = "starcoder2",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others =
        "mlp_type=\"default\" norm_type=\"layer_norm\" attention_softmax_in_fp32 scale_attention_softmax_in_fp32 "
        "scale_attn_weights=true",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::starcoder2
