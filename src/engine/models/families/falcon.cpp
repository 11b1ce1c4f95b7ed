// Falcon: LayerNorm, attention beside dense without gates, behind one norm or one each; queries, keys and values in one matrix.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"
#include "engine/models/weights/names.h"

namespace llorch::engine::models::families::falcon {
namespace {

enum : std::uint8_t { kInTurn, kOneNorm, kTwoNorms };
constexpr std::array<LayerTemplate, 3> kLayerTemplates{kDenseBlock, kOneNormBlock, kSideBySideBlock};

// GGUF calls attention's norm the second where there are two.
constexpr std::array kOwnWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "word_embeddings.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "ln_f.weight"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "ln_f.bias"),
    head_row("output.weight", "^lm_head.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm_2.weight", "h.{}.ln_attn.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "h.{}.input_layernorm.weight"),
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm_2.bias", "h.{}.ln_attn.bias"),
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "h.{}.input_layernorm.bias"),
    row(NormVariant::kFfn, "blk.{}.attn_norm.weight", "h.{}.ln_mlp.weight"),
    row(NormVariant::kFfn, "", "h.{}.post_attention_layernorm.weight"),
    bias_row(NormVariant::kFfn, "blk.{}.attn_norm.bias", "h.{}.ln_mlp.bias"),
    bias_row(NormVariant::kFfn, "", "h.{}.post_attention_layernorm.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "h.{}.self_attention.dense.weight"),
    optional_row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "h.{}.self_attention.dense.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "h.{}.mlp.dense_h_to_4h.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "h.{}.mlp.dense_4h_to_h.weight"),
    optional_row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "h.{}.mlp.dense_h_to_4h.bias"),
    optional_row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "h.{}.mlp.dense_4h_to_h.bias"),
};
constexpr auto kWeights =
    concat(kOwnWeights,
           fused_qkv(Source("h.{}.self_attention.query_key_value.weight", Load::kKeyGroups, AttentionSlot::kQ,
                            AttentionSlot::kV)),
           optional_all(fused_qkv_biases(Source("h.{}.self_attention.query_key_value.bias", Load::kKeyGroups,
                                                AttentionSlot::kQBias, AttentionSlot::kVBias))));
constexpr std::array<std::string_view, 1> kNames{"falcon"};
constexpr std::array<std::string_view, 2> kPrefix{"transformer.", ""};

void finish(std::uint8_t layer_template, ModelConfig& config) {
  config.norm_kind = plan::NormKind::kLayerNorm;
  for (LayerConfig& layer : config.layers) layer.layer_template = layer_template;
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.ffn.activation = plan::Activation::kGeluErf;
  const bool two = keys.files().find_tensor(tensor_name("blk.{}.attn_norm_2.weight", 0)) != nullptr;
  finish(two ? kTwoNorms : kOneNorm, config);
  return config;
}

// Of the second architecture num_kv_heads counts; the first has one key head or one per query head.
base::Result<> read_layers(const HfKeys& keys, ModelConfig& config) {
  const bool second = TRY(keys.text().boolean_or("new_decoder_architecture", false));
  const bool one_key = TRY(keys.text().boolean_or("multi_query", true));
  const bool side_by_side = TRY(keys.text().boolean_or("parallel_attn", true));
  const std::uint32_t norms = TRY(keys.number_or("num_ln_in_parallel_attn", second ? 2 : 1));
  if (norms < 1 || norms > 2 || (norms == 2 && !second) || (second && !side_by_side))
    return impossible(keys.key("num_ln_in_parallel_attn"), std::to_string(norms), "does not fit the architecture");
  finish(!side_by_side ? kInTurn : norms == 2 ? kTwoNorms : kOneNorm, config);
  const std::uint32_t heads = config.layers[0].heads;
  const std::uint32_t key_heads = second ? TRY(keys.count_or("num_kv_heads", heads)) : one_key ? 1 : heads;
  const std::uint32_t ffn = TRY(keys.count_or("ffn_hidden_size", 4 * config.width));
  for (LayerConfig& layer : config.layers) {
    layer.kv_heads = key_heads;
    layer.ffn = ffn;
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.context = 2048, .eps = 1e-5F, .eps_key = "layer_norm_epsilon", .tied = true};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(read_layers(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "activation", plan::Activation::kGeluErf));
  TRY(refuse_if(keys, "alibi"));
  TRY(demand_attention_biases(keys, config, "bias"));
  TRY(demand_if(keys, "bias", false, Opcode::kSwiglu, {slot_number(FfnSlot::kUpBias), slot_number(FfnSlot::kDownBias)},
                config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kFalcon{
    .name = "falcon",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kPrefix,
    .hf_others = "apply_residual_connection_post_layernorm=false ff_factor num_kv_heads",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::falcon
