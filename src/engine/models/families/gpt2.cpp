// GPT-2: learned positions, LayerNorm and biases everywhere, without gates; matrices stored [in, out].
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gpt2 {
namespace {

constexpr std::array kEmbeddings{embedding(), position_embedding()};
constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

template <class Slot>
constexpr Source columns(const char* name, Slot first, Slot last) {
  return Source(name, Load::kTransposedRows, first, last);
}
constexpr std::array kOwnWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "wte.weight"),
    row(PositionEmbeddingSlot::kPositions, "position_embd.weight", "wpe.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "ln_f.weight"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "ln_f.bias"),
    head_row("output.weight", "^lm_head.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "h.{}.ln_1.weight"),
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "h.{}.ln_1.bias"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "h.{}.ln_2.weight"),
    bias_row(NormVariant::kFfn, "blk.{}.ffn_norm.bias", "h.{}.ln_2.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight",
        columns("h.{}.attn.c_proj.weight", AttentionSlot::kO, AttentionSlot::kO)),
    row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "h.{}.attn.c_proj.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", columns("h.{}.mlp.c_fc.weight", FfnSlot::kUp, FfnSlot::kUp)),
    row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "h.{}.mlp.c_fc.bias"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", columns("h.{}.mlp.c_proj.weight", FfnSlot::kDown, FfnSlot::kDown)),
    row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "h.{}.mlp.c_proj.bias"),
};
constexpr auto kWeights = concat(
    kOwnWeights, fused_qkv(columns("h.{}.attn.c_attn.weight", AttentionSlot::kQ, AttentionSlot::kV)),
    fused_qkv_biases(Source("h.{}.attn.c_attn.bias", Load::kRows, AttentionSlot::kQBias, AttentionSlot::kVBias)));
constexpr std::array<std::string_view, 1> kNames{"gpt2"};
constexpr std::array<std::string_view, 2> kPrefix{"transformer.", ""};
// Masks that early files have as tensors.
constexpr std::array<std::string_view, 2> kClaimed{"h.{}.attn.bias", "h.{}.attn.masked_bias"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kNone));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.ffn.activation = plan::Activation::kGeluTanh;
  config.positions = config.context_tokens;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.eps = 1e-5F,
                            .eps_key = "layer_norm_epsilon",
                            .context_key = "n_positions",
                            .width_key = "n_embd",
                            .layers_key = "n_layer",
                            .heads_key = "n_head",
                            .tied = true};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.ffn.activation = TRY(read_hf_activation(keys, "activation_function", plan::Activation::kGeluTanh));
  config.positions = config.context_tokens;
  const std::uint32_t ffn = TRY(check_count(keys.key("n_inner"), TRY(keys.number_or("n_inner", 4 * config.width))));
  for (LayerConfig& layer : config.layers) layer.ffn = ffn;
  if (!TRY(keys.text().boolean_or("scale_attn_weights", true))) config.attention.scale = 1;
  TRY(refuse_if(keys, "scale_attn_by_inverse_layer_idx"));
  TRY(finish_attention(config, keys.names()));
  return config;
}

}  // namespace

const Family kGpt2{
    .name = "gpt2",
    .gguf = kNames,
    .hf = kNames,
    .before = kEmbeddings,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_prefixes = kPrefix,
    .hf_claimed = kClaimed,
    .hf_others =
        "_num_labels n_ctx reorder_and_upcast_attn summary_activation summary_first_dropout summary_proj_to_labels "
        "summary_type summary_use_proj",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::gpt2
