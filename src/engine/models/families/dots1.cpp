// dots.llm1: Qwen3's attention, dense layers first, then experts that a sigmoid chooses beside shared ones.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::dots1 {
namespace {

enum : std::uint8_t { kDense, kSparse };
constexpr std::array<LayerTemplate, 2> kLayerTemplates{kDenseBlock, kMoeBlock};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights, kRoutedExperts);
constexpr std::array<std::string_view, 1> kNames{"dots1"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_ffn(keys, config));
  TRY(read_gguf_routed_experts(keys, config));
  TRY(read_gguf_dense_first(keys, {}, config));
  return config;
}

// By layer_types, or the layers from max_window_layers on.
base::Result<> read_windows(const HfKeys& keys, ModelConfig& config) {
  if (keys.has("layer_types")) return read_hf_layer_windows(keys, 4096, config);
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const std::uint32_t first = TRY(keys.number_or("max_window_layers", 62));
  for (std::size_t n = first; n < config.layers.size(); ++n) config.layers[n].window = window;
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {}));
  TRY(read_hf_heads(keys, {}, config));
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(read_windows(keys, config));
  TRY(read_hf_dense_first(keys, {}, config));
  TRY(read_hf_routed_experts(keys, config));
  config.moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", false));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kDots1{
    .name = "dots1",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others =
        "intermediate_size max_window_layers moe_layer_freq=1 scoring_func=\"noaux_tc\" scoring_func=\"sigmoid\" "
        "topk_method=\"noaux_tc\" "
        "use_sliding_window",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::dots1
