// Qwen 1.5 and 2 mixtures: a shared expert whose output is weighed.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen2_moe {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kQkvBiases, kFfnWeights,
                                 kSoftmaxExperts, kGatedSharedExpert);
constexpr std::array<std::string_view, 1> kGguf{"qwen2moe"};
constexpr std::array<std::string_view, 1> kHf{"qwen2_moe"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_moe(keys, config));
  config.moe.ffn_shared = TRY(keys.count("expert_shared_feed_forward_length"));
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_qkv_biases(keys, config, "qkv_bias", true));
  MoeConfig& moe = config.moe;
  TRY(read_hf_experts_chosen(keys, moe));
  moe.ffn_shared = TRY(keys.count("shared_expert_intermediate_size"));
  moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", false));
  TRY(read_hf_sparse_layers(keys, {}, config));
  const bool windowed = TRY(keys.text().boolean_or("use_sliding_window", false));
  TRY(windowed ? read_hf_layer_windows(keys, 4096, config) : demand_full_attention(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kQwen2Moe{
    .name = "qwen2_moe",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "feed_forward_length",
    .hf_others = "intermediate_size max_window_layers sliding_window",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::qwen2_moe
