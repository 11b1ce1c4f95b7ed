// Qwen3-Next and Qwen 3.5: three layers of gated delta rule to one of gated attention, dense or experts.
#include "engine/models/families/families.h"
#include "engine/models/families/layers.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen3_next {
namespace {

constexpr std::array kDeltaFfn = block(gated_delta(), ffn());
constexpr std::array kDeltaMoe = block(gated_delta(), moe());
constexpr std::array<LayerTemplate, 4> kLayerTemplates{kDeltaFfn, kDeltaMoe, kDenseBlock, kMoeBlock};
constexpr Source query_or_gate(const char* name) {
  return Source(name, Load::kHeadRows, AttentionSlot::kQ, AttentionSlot::kGate);
}
constexpr Source groups(const char* name) { return Source(name, Load::kDeltaGroups); }
// Queries and gates take turns, head by head. The mixer's projections are stored together, or apart.
constexpr std::array kOthers{
    row(NormVariant::kAttention, "blk.{}.attn_norm.weight", "layers.{}.input_layernorm.weight"),
    row(NormVariant::kFfn, "blk.{}.post_attention_norm.weight", "layers.{}.post_attention_layernorm.weight"),
    row(AttentionSlot::kQ, query_or_gate("blk.{}.attn_q.weight"), query_or_gate("layers.{}.self_attn.q_proj.weight")),
    row(AttentionSlot::kGate, query_or_gate("blk.{}.attn_q.weight"),
        query_or_gate("layers.{}.self_attn.q_proj.weight")),
    kAttentionWeights[1],
    kAttentionWeights[2],
    kAttentionWeights[3],
    row(GatedDeltaSlot::kQkv, "blk.{}.attn_qkv.weight", "layers.{}.linear_attn.in_proj_qkv.weight"),
    row(GatedDeltaSlot::kQkv, "", groups("layers.{}.linear_attn.in_proj_qkvz.weight")),
    row(GatedDeltaSlot::kZ, "blk.{}.attn_gate.weight", "layers.{}.linear_attn.in_proj_z.weight"),
    row(GatedDeltaSlot::kZ, "", groups("layers.{}.linear_attn.in_proj_qkvz.weight")),
    row(GatedDeltaSlot::kBeta, "blk.{}.ssm_beta.weight", "layers.{}.linear_attn.in_proj_b.weight"),
    row(GatedDeltaSlot::kBeta, groups("blk.{}.ssm_ba.weight"), groups("layers.{}.linear_attn.in_proj_ba.weight")),
    row(GatedDeltaSlot::kDecay, "blk.{}.ssm_alpha.weight", "layers.{}.linear_attn.in_proj_a.weight"),
    row(GatedDeltaSlot::kDecay, groups("blk.{}.ssm_ba.weight"), groups("layers.{}.linear_attn.in_proj_ba.weight")),
    row(GatedDeltaSlot::kConvWeight, "blk.{}.ssm_conv1d.weight",
        Source("layers.{}.linear_attn.conv1d.weight", Load::kReshaped)),
    row(GatedDeltaSlot::kA, Source("blk.{}.ssm_a", Load::kReshaped),
        Source("layers.{}.linear_attn.A_log", Load::kNegExp)),
    row(GatedDeltaSlot::kDtBias, "blk.{}.ssm_dt.bias", "layers.{}.linear_attn.dt_bias"),
    row(GatedDeltaSlot::kNorm, "blk.{}.ssm_norm.weight", "layers.{}.linear_attn.norm.weight"),
    row(GatedDeltaSlot::kOutProj, "blk.{}.ssm_out.weight", "layers.{}.linear_attn.out_proj.weight"),
};
constexpr std::array kPredictorWeights{
    row(plan::PredictorInputSlot::kEmbeddingNorm, "blk.{}.nextn.enorm.weight", "^mtp.pre_fc_norm_embedding.weight"),
    row(plan::PredictorInputSlot::kHiddenNorm, "blk.{}.nextn.hnorm.weight", "^mtp.pre_fc_norm_hidden.weight"),
    row(plan::PredictorInputSlot::kWeight, "blk.{}.nextn.eh_proj.weight", "^mtp.fc.weight"),
    row(NormVariant::kPredictor, "blk.{}.nextn.shared_head_norm.weight", "^mtp.norm.weight"),
};
constexpr Predictor kPredictor{.hf_prefix = "mtp."};
constexpr auto kWeights =
    concat(kGlobalWeights, kOthers, kHeadNorms, kFfnWeights, kSoftmaxExperts, kGatedSharedExpert, kPredictorWeights);
constexpr std::array<std::string_view, 3> kGguf{"qwen3next", "qwen35", "qwen35moe"};
constexpr std::array<std::string_view, 5> kHf{"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe",
                                              "qwen3_5_moe_text"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(drop_gguf_prediction_layers(keys, config));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  config.attention.gate = plan::AttentionGate::kPerElement;
  const bool sparse = TRY(keys.number_or("expert_count", 0)) != 0;
  if (sparse) {
    TRY(read_gguf_moe(keys, config));
    config.moe.norm_topk = true;
    config.moe.ffn_shared = TRY(keys.count("expert_shared_feed_forward_length"));
  } else {
    TRY(read_gguf_ffn(keys, config));
  }
  DeltaConfig& delta = config.delta;
  delta.d_k = TRY(keys.count("ssm.state_size"));
  delta.key_heads = TRY(keys.count("ssm.group_count"));
  delta.value_heads = TRY(keys.count("ssm.time_step_rank"));
  delta.d_v = TRY(keys.count("ssm.inner_size")) / delta.value_heads;
  delta.d_conv = TRY(keys.count("ssm.conv_kernel"));
  delta.keys_take_turns = config.architecture != "qwen3next";  // the converter sorts the value heads of the others
  TRY(check_delta(delta, keys.key("ssm.time_step_rank")));
  const std::uint32_t every = TRY(keys.count_or("full_attention_interval", 4));
  const bool listed = keys.has("attention.recurrent_layers");
  const auto recurrent = TRY(keys.per_layer("attention.recurrent_layers", config.layers.size(), 0));
  std::vector<bool> attends;
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    attends.push_back(listed ? recurrent[n] == 0 : (n + 1) % every == 0);
    config.layers[n].layer_template = sparse ? 1 : 0;
  }
  place_attention(attends, config);
  return config;
}

base::Result<> read_hf_layers(const HfKeys& keys, ModelConfig& config) {
  const std::uint32_t every = TRY(keys.count_or("full_attention_interval", 4));
  std::vector<bool> attends(config.layers.size());
  for (std::size_t n = 0; n < attends.size(); ++n) attends[n] = (n + 1) % every == 0;
  place_attention(TRY(read_hf_attending(keys, attends.size())).value_or(attends), config);
  return {};
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  TRY(read_hf_experts_chosen(keys, moe));
  moe.ffn_shared = TRY(keys.count("shared_expert_intermediate_size"));
  moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", true));
  return read_hf_sparse_layers(keys, {}, config);
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  const HfDefaults defaults{.head_dim = 256};
  ModelConfig config = TRY(read_hf_basics(keys, defaults));
  TRY(read_hf_heads(keys, defaults, config));
  TRY(demand_word(keys, "hidden_act", "silu"));  // of the convolutions too
  TRY(demand_attention_biases(keys, config));
  config.norm_offset = 1.0F;
  config.attention.gate = plan::AttentionGate::kPerElement;
  if (keys.has("num_experts")) {
    TRY(read_hf_experts(keys, config));
  } else {
    TRY(read_hf_ffn(keys, config));
  }
  TRY(read_hf_layers(keys, config));
  config.delta = {.key_heads = TRY(keys.count_or("linear_num_key_heads", 16)),
                  .value_heads = TRY(keys.count_or("linear_num_value_heads", 32)),
                  .d_k = TRY(keys.count_or("linear_key_head_dim", 128)),
                  .d_v = TRY(keys.count_or("linear_value_head_dim", 128)),
                  .d_conv = TRY(keys.count_or("linear_conv_kernel_dim", 4))};
  TRY(check_delta(config.delta, keys.key("linear_num_value_heads")));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.partial = true, .partial_absent = 0.25F}, config));
  return config;
}

}  // namespace

const Family kQwen3Next{
    .name = "qwen3_next",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .predictor = &kPredictor,
    .ignores_layers_past_end = true,
    .gguf_others = "feed_forward_length rope.dimension_sections",
    .hf_others =
        "intermediate_size mtp_num_hidden_layers mtp_use_dedicated_embeddings=false attn_output_gate=true "
        "mamba_ssm_dtype=float32",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::qwen3_next
