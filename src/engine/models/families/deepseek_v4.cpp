// DeepSeek V4: hyper-connections around attention to the last rows and to entries of earlier ones, and around experts.
#include <cmath>

#include "engine/models/families/compressed.h"
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::deepseek_v4 {
namespace {

using plan::CompressedAttentionSlot;
using plan::CompressorSlot;
using plan::HyperSlot;

constexpr std::array kIn{hyper_collapse(HyperVariant::kAttention), post_norm(NormVariant::kAttention)};
constexpr std::array kOut{compressed_attention(),
                          hyper_add(HyperVariant::kAttention),
                          hyper_collapse(HyperVariant::kFfn),
                          post_norm(NormVariant::kFfn),
                          moe(),
                          hyper_add(HyperVariant::kFfn)};
constexpr auto kWindowed = concat(kIn, kOut);
constexpr auto kCompressed = concat(kIn, std::array{compressor()}, kOut);
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kWindowed, kCompressed};
constexpr std::array kEnd{hyper_collapse(HyperVariant::kOutput), post_norm(NormVariant::kOutput), lm_head()};

constexpr std::array<WeightRow, 3> hyper(HyperVariant which, const char* fn, const char* base, const char* scale) {
  std::array rows{weight(Opcode::kHyperCollapse, HyperSlot::kFn, "", fn),
                  weight(Opcode::kHyperCollapse, HyperSlot::kBase, "", base),
                  weight(Opcode::kHyperCollapse, HyperSlot::kScale, "", scale)};
  for (WeightRow& row : rows) row.variant = static_cast<std::uint8_t>(which);
  return rows;
}
constexpr auto kAround = concat(
    hyper(HyperVariant::kAttention, "layers.{}.hc_attn_fn", "layers.{}.hc_attn_base", "layers.{}.hc_attn_scale"),
    hyper(HyperVariant::kFfn, "layers.{}.hc_ffn_fn", "layers.{}.hc_ffn_base", "layers.{}.hc_ffn_scale"),
    hyper(HyperVariant::kOutput, "hc_head.hc_fn", "hc_head.hc_base", "hc_head.hc_scale"),
    hyper(HyperVariant::kOutput, "hc_head_fn", "hc_head_base", "hc_head_scale"));  // as DeepSeek's own files have them
// Both ends of a branch read the same weights.
constexpr auto of_add(std::array<WeightRow, kAround.size()> rows) {
  for (WeightRow& row : rows) row.opcode = Opcode::kHyperAdd;
  return rows;
}

constexpr WeightRow entry(CompressorSlot slot, const char* hf) { return weight(Opcode::kCompressor, slot, "", hf); }
constexpr WeightRow attend(CompressedAttentionSlot slot, Source hf) {
  return weight(Opcode::kCompressedAttention, slot, "", hf);
}
constexpr std::array kAttention{
    entry(CompressorSlot::kKv, "layers.{}.attn.compressor.wkv.weight"),
    entry(CompressorSlot::kGate, "layers.{}.attn.compressor.wgate.weight"),
    entry(CompressorSlot::kBias, "layers.{}.attn.compressor.ape"),
    entry(CompressorSlot::kNorm, "layers.{}.attn.compressor.norm.weight"),
    optional(entry(CompressorSlot::kIndexKv, "layers.{}.attn.indexer.compressor.wkv.weight")),
    optional(entry(CompressorSlot::kIndexGate, "layers.{}.attn.indexer.compressor.wgate.weight")),
    optional(entry(CompressorSlot::kIndexBias, "layers.{}.attn.indexer.compressor.ape")),
    optional(entry(CompressorSlot::kIndexNorm, "layers.{}.attn.indexer.compressor.norm.weight")),
    attend(CompressedAttentionSlot::kQA, "layers.{}.attn.wq_a.weight"),
    attend(CompressedAttentionSlot::kQANorm, "layers.{}.attn.q_norm.weight"),
    attend(CompressedAttentionSlot::kQB, "layers.{}.attn.wq_b.weight"),
    attend(CompressedAttentionSlot::kKv, "layers.{}.attn.wkv.weight"),
    attend(CompressedAttentionSlot::kKvNorm, "layers.{}.attn.norm.weight"),
    attend(CompressedAttentionSlot::kKvNorm, "layers.{}.attn.kv_norm.weight"),  // DeepSeek's
    attend(CompressedAttentionSlot::kSinks, "layers.{}.attn.attn_sink"),
    attend(CompressedAttentionSlot::kOA, Source("layers.{}.attn.wo_a.weight", Load::kReshaped)),
    attend(CompressedAttentionSlot::kOB, "layers.{}.attn.wo_b.weight"),
    optional(attend(CompressedAttentionSlot::kIndexQ, "layers.{}.attn.indexer.wq_b.weight")),
    optional(attend(CompressedAttentionSlot::kIndexWeights, "layers.{}.attn.indexer.weights_proj.weight")),
};
constexpr std::array kOthers{
    row(EmbeddingSlot::kWeight, "", "embed_tokens.weight"),
    row(EmbeddingSlot::kWeight, "", "embed.weight"),  // DeepSeek's
    head_row("", "^head.weight"),
    row(NormVariant::kOutput, "", "norm.weight"),
    row(NormVariant::kAttention, "", "layers.{}.attn_norm.weight"),
    row(NormVariant::kFfn, "", "layers.{}.ffn_norm.weight"),
    row(MoeSlot::kRouter, "", "layers.{}.ffn.gate.weight"),
    row(MoeSlot::kGate, "", Source("layers.{}.ffn.experts.{}.w1.weight", Load::kStack)),
    row(MoeSlot::kUp, "", Source("layers.{}.ffn.experts.{}.w3.weight", Load::kStack)),
    row(MoeSlot::kDown, "", Source("layers.{}.ffn.experts.{}.w2.weight", Load::kStack)),
    optional_row(MoeSlot::kSelectionBias, "", "layers.{}.ffn.gate.bias"),
    optional_row(MoeSlot::kExpertTable, "", Source("layers.{}.ffn.gate.tid2eid", Load::kNumbers)),
    row(MoeSlot::kSharedGate, "", "layers.{}.ffn.shared_experts.w1.weight"),
    row(MoeSlot::kSharedUp, "", "layers.{}.ffn.shared_experts.w3.weight"),
    row(MoeSlot::kSharedDown, "", "layers.{}.ffn.shared_experts.w2.weight"),
};
constexpr auto kWeights = concat(kAround, of_add(kAround), kAttention, kOthers);
constexpr std::array<std::string_view, 1> kHf{"deepseek_v4"};

// Each row of each layer is balanced so often.
constexpr std::uint32_t kIterationsMax = 1000;

base::Result<> read_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count_or("n_routed_experts", 256));
  moe.experts_used = TRY(keys.count_or("num_experts_per_tok", 6));
  moe.ffn_expert = moe.ffn_shared = TRY(keys.count_or("moe_intermediate_size", 2048));
  moe.weights_scale = TRY(keys.text().f32_or("routed_scaling_factor", 1.5F));
  moe.norm_topk = true;
  const std::string_view gate = TRY(keys.text().string_or("scoring_func", "sqrtsoftplus"));
  moe.gate = gate == "sigmoid" ? plan::MoeGate::kSigmoid : plan::MoeGate::kSqrtSoftplus;
  if (gate != "sqrtsoftplus" && gate != "sigmoid")
    return impossible(keys.key("scoring_func"), std::string(gate), "must be sqrtsoftplus or sigmoid");
  config.ffn = {.activation = plan::Activation::kSiluClamped, .limit = TRY(keys.text().f32_or("swiglu_limit", 10))};
  TRY(check_positive(keys.key("swiglu_limit"), config.ffn.limit));
  return check_moe(moe, keys.key("n_routed_experts"));
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.context = 1048576}));
  const std::uint32_t d_head = TRY(keys.count_or("head_dim", 512));
  config.compressed = {.q_lora = TRY(keys.count_or("q_lora_rank", 1024)),
                       .d_head = d_head,
                       .groups = TRY(keys.count_or("o_groups", 8)),
                       .o_rank = TRY(keys.count_or("o_lora_rank", 1024))};
  config.hyper = {.streams = TRY(keys.count_or("hc_mult", 4)),
                  .iterations = TRY(check_count(keys.key("hc_sinkhorn_iters"),
                                                TRY(keys.count_or("hc_sinkhorn_iters", 20)), kIterationsMax)),
                  .floor_eps = TRY(keys.text().f32_or("hc_eps", 1e-6F))};
  config.index = {.heads = TRY(keys.count_or("index_n_heads", 64)),
                  .d_index = TRY(keys.count_or("index_head_dim", 128)),
                  .top_k = TRY(keys.count_or("index_topk", 512))};
  config.attention.scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(d_head)));
  TRY(demand_word(keys, "hidden_act", "silu"));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(read_hf_compressed_layers(keys, config));
  TRY(read_hf_hashed_layers(keys, config));
  TRY(read_hf_compressed_ropes(keys, d_head, config));
  TRY(read_experts(keys, config));
  TRY(check_compressed(keys.names(), config));
  return config;
}

}  // namespace

const Family kDeepseekV4{
    .name = "deepseek_v4",
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .after = kEnd,
    .weights = kWeights,
    .ignores_layers_past_end = true,
    .hf_others =
        "attention_bias=false compress_rope_theta n_shared_experts=1 norm_topk_prob=true num_hash_layers "
        "num_key_value_heads=1 num_nextn_predict_layers partial_rotary_factor qk_rope_head_dim rope_theta "
        "topk_method=\"noaux_tc\" expert_dtype=\"fp4\" expert_dtype=\"fp8\"",  // the types of tensors say it too
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::deepseek_v4
