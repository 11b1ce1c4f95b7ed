// BERT and RoBERTa: learned positions, types of tokens, LayerNorm behind each branch, rows that see all of their sequence.
#include "engine/models/families/encoder.h"
#include "engine/models/families/families.h"

namespace llorch::engine::models::families::bert {
namespace {

constexpr std::array kEmbeddings{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "embeddings.word_embeddings.weight"),
    row(PositionEmbeddingSlot::kPositions, "position_embd.weight", "embeddings.position_embeddings.weight"),
    optional_row(PositionEmbeddingSlot::kTypes, "token_types.weight", "embeddings.token_type_embeddings.weight"),
};
constexpr std::array kNorms{
    row(NormVariant::kEmbedding, "token_embd_norm.weight", "embeddings.LayerNorm.weight"),
    bias_row(NormVariant::kEmbedding, "token_embd_norm.bias", "embeddings.LayerNorm.bias"),
    row(NormVariant::kAttention, "blk.{}.attn_output_norm.weight",
        "encoder.layer.{}.attention.output.LayerNorm.weight"),
    bias_row(NormVariant::kAttention, "blk.{}.attn_output_norm.bias",
             "encoder.layer.{}.attention.output.LayerNorm.bias"),
    row(NormVariant::kFfn, "blk.{}.layer_output_norm.weight", "encoder.layer.{}.output.LayerNorm.weight"),
    bias_row(NormVariant::kFfn, "blk.{}.layer_output_norm.bias", "encoder.layer.{}.output.LayerNorm.bias"),
    // As the first files call them.
    row(NormVariant::kEmbedding, "", "embeddings.LayerNorm.gamma"),
    bias_row(NormVariant::kEmbedding, "", "embeddings.LayerNorm.beta"),
    row(NormVariant::kAttention, "", "encoder.layer.{}.attention.output.LayerNorm.gamma"),
    bias_row(NormVariant::kAttention, "", "encoder.layer.{}.attention.output.LayerNorm.beta"),
    row(NormVariant::kFfn, "", "encoder.layer.{}.output.LayerNorm.gamma"),
    bias_row(NormVariant::kFfn, "", "encoder.layer.{}.output.LayerNorm.beta"),
};
constexpr std::array kBranches{
    row(AttentionSlot::kQ, "blk.{}.attn_q.weight", "encoder.layer.{}.attention.self.query.weight"),
    row(AttentionSlot::kQBias, "blk.{}.attn_q.bias", "encoder.layer.{}.attention.self.query.bias"),
    row(AttentionSlot::kK, "blk.{}.attn_k.weight", "encoder.layer.{}.attention.self.key.weight"),
    row(AttentionSlot::kKBias, "blk.{}.attn_k.bias", "encoder.layer.{}.attention.self.key.bias"),
    row(AttentionSlot::kV, "blk.{}.attn_v.weight", "encoder.layer.{}.attention.self.value.weight"),
    row(AttentionSlot::kVBias, "blk.{}.attn_v.bias", "encoder.layer.{}.attention.self.value.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "encoder.layer.{}.attention.output.dense.weight"),
    row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "encoder.layer.{}.attention.output.dense.bias"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "encoder.layer.{}.intermediate.dense.weight"),
    row(FfnSlot::kUpBias, "blk.{}.ffn_up.bias", "encoder.layer.{}.intermediate.dense.bias"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "encoder.layer.{}.output.dense.weight"),
    row(FfnSlot::kDownBias, "blk.{}.ffn_down.bias", "encoder.layer.{}.output.dense.bias"),
};
constexpr auto kWeights = concat(kEmbeddings, kNorms, kBranches);

constexpr std::array<std::string_view, 1> kGguf{"bert"};
constexpr std::array<std::string_view, 2> kHf{"bert", "roberta"};
constexpr std::array<std::string_view, 3> kEncoderPrefixes{"", "bert.", "roberta."};
// A head of another task than the one that is run, and tables that follow from their shapes.
constexpr std::array<std::string_view, 6> kClaimed{"embeddings.position_ids",
                                                   "embeddings.token_type_ids",
                                                   "pooler.dense.weight",
                                                   "pooler.dense.bias",
                                                   "^cls.*",
                                                   "^lm_head.*"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_encoder(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kNone, config));
  TRY(read_gguf_ffn(keys, config));
  config.positions = config.context_tokens;
  config.ffn.activation = plan::Activation::kGeluErf;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_encoder(keys, 1e-12F));
  TRY(read_hf_ffn(keys, config));
  config.positions = config.context_tokens;
  // RoBERTa numbers positions from behind the token that fills up.
  if (config.architecture == "roberta") config.first_position = TRY(keys.number_or("pad_token_id", 1)) + 1;
  if (config.first_position >= config.positions)
    return impossible(keys.key("pad_token_id"), "no room", "leaves no positions of max_position_embeddings");
  config.context_tokens -= config.first_position;
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kGeluErf));
  TRY(demand_word(keys, "position_embedding_type", "absolute"));
  TRY(finish_attention(config, keys.names()));
  return config;
}

}  // namespace

const Family kBert{
    .name = "bert",
    .gguf = kGguf,
    .hf = kHf,
    .before = kEncoderBefore,
    .layer_templates = kEncoderTemplates,
    .after = kEncoderAfter,
    .weights = kWeights,
    .hf_prefixes = kEncoderPrefixes,
    .hf_claimed = kClaimed,
    .hf_others = "sentence_transformers",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::bert
