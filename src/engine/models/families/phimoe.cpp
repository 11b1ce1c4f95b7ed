// Phi-3.5-MoE: LayerNorm, biases, two experts that a sparse mixer chooses one after the other.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::phimoe {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kMoeBlock};
constexpr std::array kOthers{
    bias_row(NormVariant::kAttention, "blk.{}.attn_norm.bias", "layers.{}.input_layernorm.bias"),
    bias_row(NormVariant::kFfn, "blk.{}.ffn_norm.bias", "layers.{}.post_attention_layernorm.bias"),
    bias_row(NormVariant::kOutput, "output_norm.bias", "norm.bias"),
    optional(head_bias_row("output.bias", "^lm_head.bias")),
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.gate.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kOthers, kMixtralExperts);
constexpr std::array<std::string_view, 1> kNames{"phimoe"};
constexpr std::array<std::string_view, 2> kClaimed{"rope_factors_short.weight", "rope_factors_long.weight"};

// How far an expert may be behind and still count, which GGUF has no key for.
constexpr float kJitter = 0.01F;

void finish(float jitter, ModelConfig& config) {
  config.norm_kind = plan::NormKind::kLayerNorm;
  config.moe.gate = plan::MoeGate::kSparseMixer;
  config.moe.reach = 2 * jitter;
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  TRY(read_gguf_moe(keys, config));
  finish(kJitter, config);
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.kv_heads = 8, .eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  TRY(demand_if(keys, "lm_head_bias", false, Opcode::kLmHead, {slot_number(LmHeadSlot::kBias)}, config));
  TRY(demand_number(keys, "num_experts_per_tok", 2));
  config.moe.experts = TRY(keys.count("num_local_experts"));
  config.moe.experts_used = TRY(check_count(keys.key("num_local_experts, to choose two of"), 2, config.moe.experts));
  config.moe.ffn_expert = config.layers[0].ffn;
  const float jitter = TRY(keys.text().f32_or("router_jitter_noise", kJitter));
  finish(TRY(check_eps(keys.key("router_jitter_noise"), jitter)), config);
  const std::uint32_t window = TRY(read_hf_window(keys, 0));
  for (LayerConfig& layer : config.layers) layer.window = window;
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 1e6, .magnitudes = true}, config));
  return config;
}

}  // namespace

const Family kPhiMoe{
    .name = "phimoe",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .gguf_others = "attention.sliding_window",
    .hf_others = "input_jitter_noise original_max_position_embeddings",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::phimoe
