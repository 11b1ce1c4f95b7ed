// ERNIE 4.5: dense, and mixtures that a softmax and a selection bias choose.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::ernie4_5 {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

// Experts as others have them, but for the selection bias.
constexpr std::array kSelection{
    row(MoeSlot::kSelectionBias, "blk.{}.exp_probs_b.bias",
        Source("layers.{}.mlp.moe_statics.e_score_correction_bias", Load::kReshaped)),
    row(MoeSlot::kSelectionBias, "", Source("layers.{}.mlp.gate.moe_statics.e_score_correction_bias", Load::kReshaped)),
};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kFfnWeights, kSelection, kRoutedExperts);
constexpr std::array<std::string_view, 2> kGguf{"ernie4_5", "ernie4_5-moe"};
constexpr std::array<std::string_view, 2> kHf{"ernie4_5", "ernie4_5_moe"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  if (config.architecture == "ernie4_5") return config;
  TRY(read_gguf_moe(keys, config));
  config.moe.norm_topk = true;
  config.moe.ffn_shared = TRY(keys.number_or("expert_shared_feed_forward_length", 0));
  const std::uint32_t dense = TRY(keys.number_or("leading_dense_block_count", 0));
  const std::uint32_t step = TRY(keys.count_or("interleave_moe_layer_step", 1));
  for (std::size_t n = dense; n < config.layers.size(); ++n) {
    if ((n + 1) % step == 0) config.layers[n].layer_template = kSparse;
  }
  return config;
}

base::Result<> read_hf_experts(const HfKeys& keys, ModelConfig& config) {
  MoeConfig& moe = config.moe;
  moe.experts = TRY(keys.count("moe_num_experts"));
  moe.experts_used = TRY(keys.count("moe_k", moe.experts));
  moe.ffn_expert = TRY(keys.count("moe_intermediate_size"));
  const std::uint64_t shared = std::uint64_t{TRY(keys.number_or("moe_num_shared_experts", 2))} * moe.ffn_expert;
  moe.ffn_shared = TRY(check_count(keys.key("moe_num_shared_experts"), static_cast<std::uint32_t>(shared)));
  moe.norm_topk = true;
  const std::uint32_t first = TRY(keys.number_or("moe_layer_start_index", 1));
  const std::uint32_t step = TRY(keys.count_or("moe_layer_interval", 1));
  const auto last = TRY(keys.text().f32_or("moe_layer_end_index", -1));
  for (std::size_t n = first; n < config.layers.size(); ++n) {
    if ((n + 1) % step == 0 && (last < 0 || static_cast<float>(n) <= last)) config.layers[n].layer_template = kSparse;
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.eps = 1e-5F, .tied = true}));
  TRY(demand_attention_biases(keys, config));
  TRY(refuse_if(keys, "use_bias"));
  if (config.architecture == "ernie4_5_moe") TRY(read_hf_experts(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kInterleaved, {.theta_absent = 5e5}, config));
  return config;
}

}  // namespace

const Family kErnie45{
    .name = "ernie4_5",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .ignores_layers_past_end = true,
    .hf_others = "moe_norm_min=1e-12 compression_ratio=1 moe_capacity moe_gate=\"topk\" moe_use_aux_free=true",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::ernie4_5
