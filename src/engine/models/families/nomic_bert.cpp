// Nomic's BERT: rotated rows that see all of their sequence, gated feed-forwards, LayerNorm behind each branch.
#include <fmt/format.h>

#include <algorithm>

#include "engine/models/families/encoder.h"
#include "engine/models/families/families.h"

namespace llorch::engine::models::families::nomic_bert {
namespace {

constexpr std::array kOwnWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embeddings.word_embeddings.weight"),
    optional_row(PositionEmbeddingSlot::kTypes, "token_types.weight", "embeddings.token_type_embeddings.weight"),
    row(NormVariant::kEmbedding, "token_embd_norm.weight", "emb_ln.weight"),
    bias_row(NormVariant::kEmbedding, "token_embd_norm.bias", "emb_ln.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "encoder.layers.{}.attn.out_proj.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_output_norm.weight", "encoder.layers.{}.norm1.weight"),
    bias_row(NormVariant::kAttention, "blk.{}.attn_output_norm.bias", "encoder.layers.{}.norm1.bias"),
    row(FfnSlot::kGate, "blk.{}.ffn_gate.weight", "encoder.layers.{}.mlp.fc12.weight"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "encoder.layers.{}.mlp.fc11.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "encoder.layers.{}.mlp.fc2.weight"),
    row(NormVariant::kFfn, "blk.{}.layer_output_norm.weight", "encoder.layers.{}.norm2.weight"),
    bias_row(NormVariant::kFfn, "blk.{}.layer_output_norm.bias", "encoder.layers.{}.norm2.bias"),
};
constexpr auto kWeights =
    concat(kOwnWeights,
           fused_qkv(Source("encoder.layers.{}.attn.Wqkv.weight", Load::kRows, AttentionSlot::kQ, AttentionSlot::kV)));

constexpr std::array<std::string_view, 1> kGguf{"nomic-bert"};
constexpr std::array<std::string_view, 1> kHf{"nomic_bert"};
constexpr std::array<std::string_view, 2> kEncoderPrefixes{"", "bert."};
constexpr std::array<std::string_view, 4> kClaimed{"embeddings.position_ids", "pooler.dense.weight",
                                                   "pooler.dense.bias", "^cls.*"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_encoder(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_ffn(keys, config));
  return config;
}

// The class that the authors wrote, in the words of GPT-2. Past the length that a model was trained for its rotation would be
// stretched by how long a text is, which is not built.
base::Result<ModelConfig> read_first_spelling(const HfKeys& keys) {
  ModelConfig config;
  config.architecture = TRY(text_model_type(keys.root()));
  const std::uint32_t longest = TRY(keys.count("n_positions", kContextMax));
  config.context_tokens = std::min(longest, TRY(keys.count_or("max_trained_positions", longest)));
  config.vocab = TRY(keys.number_or("vocab_size", 0));
  config.width = TRY(keys.count("n_embd"));
  config.layers.resize(TRY(keys.count("n_layer", kLayersMax)));
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.norm_eps =
      TRY(check_eps(keys.key("layer_norm_epsilon"), TRY(keys.text().f32_or("layer_norm_epsilon", 1e-12F))));
  config.attention.causal = false;
  config.token_types = TRY(keys.number_or("type_vocab_size", 2));
  const std::uint32_t heads = TRY(keys.count("n_head", config.width)), ffn = TRY(keys.count("n_inner"));
  if (config.width % heads != 0)
    return impossible(keys.key("n_head"), fmt::to_string(heads), fmt::format("must divide n_embd = {}", config.width));
  config.attention.d_qk = config.attention.d_v = config.width / heads;
  for (LayerConfig& layer : config.layers) layer = {.rope = 0, .heads = heads, .kv_heads = heads, .ffn = ffn};
  TRY(demand_word(keys, "activation_function", "swiglu"));
  config.attention.rope_layout = plan::RopeLayout::kHalf;
  config.ropes = {{.dims = config.attention.d_qk, .base = TRY(keys.text().f32_or("rotary_emb_base", 10000.0F))}};
  TRY(finish_attention(config, keys.names()));
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  if (keys.has("n_embd")) return read_first_spelling(keys);
  ModelConfig config = TRY(read_hf_encoder(keys, 1e-12F));
  TRY(read_hf_ffn(keys, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 1000.0}, config));
  return config;
}

// Of the first spelling: what the class does the usual way, and what only training reads.
constexpr OtherKeys kOthers =
    "sentence_transformers causal=false dense_seq_output fused_bias_fc fused_dropout_add_ln mlp_fc1_bias=false "
    "mlp_fc2_bias=false "
    "pad_vocab_size_multiple parallel_block=false parallel_block_tied_norm prenorm=false qkv_proj_bias=false "
    "reorder_and_upcast_attn rotary_emb_fraction=1 rotary_emb_fraction=1.0 rotary_emb_interleaved=false "
    "rotary_scaling_factor "
    "scale_attn_by_inverse_layer_idx=false scale_attn_weights=true summary_activation summary_first_dropout "
    "summary_proj_to_labels summary_type summary_use_proj use_flash_attn use_rms_norm=false use_xentropy";

}  // namespace

const Family kNomicBert{
    .name = "nomic_bert",
    .gguf = kGguf,
    .hf = kHf,
    .before = kEncoderBefore,
    .layer_templates = kEncoderTemplates,
    .after = kEncoderAfter,
    .weights = kWeights,
    .hf_prefixes = kEncoderPrefixes,
    .hf_claimed = kClaimed,
    .hf_others = kOthers,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::nomic_bert
