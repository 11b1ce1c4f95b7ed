// MiniMax M2: norms over all heads of a row, experts that a sigmoid chooses.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::minimax_m2 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kMoeBlock};

constexpr std::array kRouting{
    row(MoeSlot::kRouter, "blk.{}.ffn_gate_inp.weight", "layers.{}.block_sparse_moe.gate.weight"),
    row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias", "layers.{}.block_sparse_moe.e_score_correction_bias"),
};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kHeadNorms, kRouting, kMixtralExperts);
constexpr std::array<std::string_view, 1> kGguf{"minimax-m2"};
constexpr std::array<std::string_view, 1> kHf{"minimax_m2"};

// Weights of the chosen experts add up to one.
void choose_by_sigmoid(ModelConfig& config) {
  config.moe.gate = plan::MoeGate::kSigmoid;
  config.moe.norm_topk = true;
  config.attention.qk_norm = plan::QkNorm::kPerRow;
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_moe(keys, config));
  choose_by_sigmoid(config);
  return config;
}

// The share of a head that rotates is also spelled as its size.
base::Result<float> read_share(const HfKeys& keys, const ModelConfig& config) {
  const std::uint32_t dims = TRY(keys.number_or("rotary_dim", config.attention.d_qk));
  return static_cast<float>(dims) / static_cast<float>(config.attention.d_qk);
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(read_hf_experts_chosen(keys, config.moe, "intermediate_size"));
  choose_by_sigmoid(config);
  const HfRopeRules rules{.theta_absent = 5e6, .partial = true, .partial_absent = TRY(read_share(keys, config))};
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, rules, config));
  return config;
}

}  // namespace

const Family kMiniMaxM2{
    .name = "minimax_m2",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .ignores_layers_past_end = true,
    .gguf_others = "feed_forward_length",
    .hf_others =
        "attn_type_list qk_norm_type=\"per_layer\" use_qk_norm=true use_routing_bias=true scoring_func=\"sigmoid\" "
        "shared_intermediate_size=0 shared_moe_mode use_mtp num_mtp_modules mtp_transformer_layers",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::minimax_m2
