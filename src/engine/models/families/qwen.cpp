// Qwen2 and Qwen3, dense: the one with biases on q, k and v, the other with norms on q and k heads.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::qwen {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};

constexpr auto kQwen2Weights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, required(kQkvBiases), kOutputBias, kFfnWeights);
constexpr auto kQwen3Weights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kFfnWeights);

constexpr std::array<std::string_view, 1> kQwen2Names{"qwen2"};
constexpr std::array<std::string_view, 1> kQwen3Names{"qwen3"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) { return read_gguf_dense(keys, plan::RopeLayout::kHalf); }

// No window unless use_sliding_window; then by layer_types, else on the layers from max_window_layers on.
base::Result<> read_windows(const HfKeys& keys, ModelConfig& config) {
  if (!TRY(keys.text().boolean_or("use_sliding_window", false))) return demand_full_attention(keys, config);
  const std::uint32_t window = TRY(read_hf_window(keys, 4096));
  const auto types = TRY(read_hf_layer_types(keys, "layer_types", config.layers.size()));
  const std::uint32_t first = TRY(keys.number_or("max_window_layers", 28));
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    const bool windowed = types ? (*types)[n] == HfLayerType::kWindow : n >= first;
    if (windowed) config.layers[n].window = window;
  }
  return {};
}

base::Result<ModelConfig> read_hf(const HfKeys& keys, const HfDefaults& defaults) {
  ModelConfig config = TRY(read_hf_dense(keys, defaults));
  TRY(demand_attention_biases(keys, config));
  TRY(read_windows(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}
base::Result<ModelConfig> read_hf_qwen2(const HfKeys& keys) { return read_hf(keys, {}); }
base::Result<ModelConfig> read_hf_qwen3(const HfKeys& keys) { return read_hf(keys, {.head_dim = 128}); }

constexpr OtherKeys kHfOthers = "max_window_layers sliding_window use_mrope=false";

}  // namespace

const Family kQwen2{
    .name = "qwen2",
    .gguf = kQwen2Names,
    .hf = kQwen2Names,
    .layer_templates = kLayerTemplates,
    .weights = kQwen2Weights,
    .hf_others = kHfOthers,
    .read_gguf = read_gguf,
    .read_hf = read_hf_qwen2,
};

const Family kQwen3{
    .name = "qwen3",
    .gguf = kQwen3Names,
    .hf = kQwen3Names,
    .layer_templates = kLayerTemplates,
    .weights = kQwen3Weights,
    .hf_others = kHfOthers,
    .read_gguf = read_gguf,
    .read_hf = read_hf_qwen3,
};

}  // namespace llorch::engine::models::families::qwen
