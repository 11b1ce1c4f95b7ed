// Granite mixtures: multipliers everywhere, experts that a softmax over the chosen ones weighs, with a shared one or none.
#include "engine/models/families/families.h"
#include "engine/models/families/granite.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::granite_moe {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kMoeBlock};

constexpr WeightRow shared(MoeSlot slot, const char* gguf) {
  return optional_row(
      slot, gguf,
      Source("layers.{}.shared_mlp.input_linear.weight", Load::kRows, MoeSlot::kSharedGate, MoeSlot::kSharedUp));
}
constexpr std::array kSharedExpert{
    shared(MoeSlot::kSharedGate, "blk.{}.ffn_gate_shexp.weight"),
    shared(MoeSlot::kSharedUp, "blk.{}.ffn_up_shexp.weight"),
    optional_row(MoeSlot::kSharedDown, "blk.{}.ffn_down_shexp.weight", "layers.{}.shared_mlp.output_linear.weight"),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kGraniteExperts, kSharedExpert);
constexpr std::array<std::string_view, 1> kGguf{"granitemoe"};
constexpr std::array<std::string_view, 2> kHf{"granitemoe", "granitemoeshared"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kInterleaved, config));
  TRY(read_gguf_moe(keys, config));
  config.moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
  config.moe.norm_topk = false;
  config.moe.ffn_shared = TRY(keys.number_or("expert_shared_feed_forward_length", 0));
  TRY(read_gguf_multipliers(keys, config));
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count_or("num_local_experts", 8));
  moe.experts_used = TRY(keys.count_or("num_experts_per_tok", 2));
  TRY(check_count(keys.key("num_experts_per_tok"), moe.experts_used, moe.experts));
  moe.ffn_expert = TRY(keys.count("intermediate_size"));
  if (config.architecture == "granitemoeshared") moe.ffn_shared = TRY(keys.number_or("shared_intermediate_size", 0));
  moe.gate = plan::MoeGate::kSoftmaxAfterTopk;
  TRY(read_hf_multipliers(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kGraniteMoe{
    .name = "granite_moe",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = kGraniteGgufOthers,
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::granite_moe
