// Qwen3 mixtures of experts.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen3_moe {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};

constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights, kSoftmaxExperts);

constexpr std::array<std::string_view, 1> kGguf{"qwen3moe"};
constexpr std::array<std::string_view, 1> kHf{"qwen3_moe"};

// GGUF has no dense layers here and always renormalises.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_moe(keys, config));
  config.moe.norm_topk = true;
  for (LayerConfig& layer : config.layers) layer.layer_template = kSparse;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(read_hf_experts_chosen(keys, config.moe));
  config.moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", false));
  TRY(read_hf_sparse_layers(keys, {}, config));
  if (TRY(keys.text().boolean_or("use_sliding_window", false))) {
    const std::uint32_t window = TRY(read_hf_window(keys, 4096));
    for (LayerConfig& layer : config.layers) layer.window = window;
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kQwen3Moe{
    .name = "qwen3_moe",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "feed_forward_length",
    .hf_others = "intermediate_size max_window_layers sliding_window",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::qwen3_moe
