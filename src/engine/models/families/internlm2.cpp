// InternLM 2: Llama's layers under names of their own, queries, keys and values in one matrix by key heads.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::internlm2 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

constexpr WeightRow qkv(AttentionSlot slot, const char* gguf) {
  return row(slot, gguf,
             Source("layers.{}.attention.wqkv.weight", Load::kKeyGroups, AttentionSlot::kQ, AttentionSlot::kV));
}
constexpr WeightRow qkv_bias(AttentionSlot slot, const char* gguf) {
  return optional_row(
      slot, gguf,
      Source("layers.{}.attention.wqkv.bias", Load::kKeyGroups, AttentionSlot::kQBias, AttentionSlot::kVBias));
}
constexpr std::array kWeights{
    row(EmbeddingSlot::kWeight, "token_embd.weight", "tok_embeddings.weight"),
    row(NormVariant::kOutput, "output_norm.weight", "norm.weight"),
    head_row("output.weight", "^output.weight"),
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.attention_norm.weight"),
    row(NormVariant::kFfn, "blk.{}.ffn_norm.weight", "layers.{}.ffn_norm.weight"),
    qkv(AttentionSlot::kQ, "blk.{}.attn_q.weight"),
    qkv(AttentionSlot::kK, "blk.{}.attn_k.weight"),
    qkv(AttentionSlot::kV, "blk.{}.attn_v.weight"),
    qkv_bias(AttentionSlot::kQBias, "blk.{}.attn_q.bias"),
    qkv_bias(AttentionSlot::kKBias, "blk.{}.attn_k.bias"),
    qkv_bias(AttentionSlot::kVBias, "blk.{}.attn_v.bias"),
    row(AttentionSlot::kO, "blk.{}.attn_output.weight", "layers.{}.attention.wo.weight"),
    optional_row(AttentionSlot::kOBias, "blk.{}.attn_output.bias", "layers.{}.attention.wo.bias"),
    row(FfnSlot::kGate, "blk.{}.ffn_gate.weight", "layers.{}.feed_forward.w1.weight"),
    row(FfnSlot::kUp, "blk.{}.ffn_up.weight", "layers.{}.feed_forward.w3.weight"),
    row(FfnSlot::kDown, "blk.{}.ffn_down.weight", "layers.{}.feed_forward.w2.weight"),
};
constexpr std::array<std::string_view, 1> kNames{"internlm2"};

// The converter permutes q and k rows.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  return read_gguf_dense(keys, plan::RopeLayout::kInterleaved);
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {}));
  TRY(demand_attention_biases(keys, config, "bias", true));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kInternLm2{
    .name = "internlm2",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::internlm2
