// GPT-NeoX and Pythia: LayerNorm and biases everywhere, attention and dense side by side or in turn, without gates.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gpt_neox {
namespace {

enum : std::uint8_t { kInTurn, kSideBySide };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kSideBySideBlock};

constexpr std::array kOwnWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embed_in.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "final_layer_norm.weight"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "final_layer_norm.bias"),
    head_row("output.weight", "^embed_out.weight"),
    kBlockNorms[0],
    kBlockNorms[1],
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"),
    bias_row(NormVariant::kFfn, "blk.{}.ffn_norm.bias", "layers.{}.post_attention_layernorm.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.attention.dense.weight"),
    optional_row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.attention.dense.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.mlp.dense_h_to_4h.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.mlp.dense_4h_to_h.weight"),
    row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "layers.{}.mlp.dense_h_to_4h.bias"),
    row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "layers.{}.mlp.dense_4h_to_h.bias"),
};
constexpr auto kWeights =
    concat(kOwnWeights,
           fused_qkv(Source("layers.{}.attention.query_key_value.weight", Load::kKeyGroups, AttentionSlot::kQ,
                            AttentionSlot::kV)),
           optional_all(fused_qkv_biases(Source("layers.{}.attention.query_key_value.bias", Load::kKeyGroups,
                                                AttentionSlot::kQBias, AttentionSlot::kVBias))));
constexpr std::array<std::string_view, 1> kGguf{"gptneox"};
constexpr std::array<std::string_view, 1> kHf{"gpt_neox"};
constexpr std::array<std::string_view, 2> kPrefix{"gpt_neox.", ""};
// Masks and frequencies that early files have as tensors.
constexpr std::array<std::string_view, 3> kClaimed{"layers.{}.attention.bias", "layers.{}.attention.masked_bias",
                                                   "layers.{}.attention.rotary_emb.inv_freq"};

void finish(bool side_by_side, ModelConfig& config) {
  config.norm_kind = plan::NormKind::kLayerNorm;
  for (LayerConfig& layer : config.layers) layer.layer_template = side_by_side ? kSideBySide : kInTurn;
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.ffn.activation = plan::Activation::kGeluErf;
  finish(TRY(keys.flag_or("use_parallel_residual", true)), config);
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config =
      TRY(read_hf_dense(keys, {.eps = 1e-5F, .eps_key = "layer_norm_eps", .activation = plan::Activation::kGeluErf}));
  TRY(demand_attention_biases(keys, config, "attention_bias", true));
  finish(TRY(keys.text().boolean_or("use_parallel_residual", true)), config);
  const float share = TRY(keys.text().f32_or("rotary_pct", 0.25F));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf,
                       {.theta_key = "rotary_emb_base", .partial = true, .partial_absent = share}, config));
  return config;
}

}  // namespace

const Family kGptNeox{
    .name = "gpt_neox",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kPrefix,
    .hf_claimed = kClaimed,
    .hf_others = "rotary_emb_base",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::gpt_neox
