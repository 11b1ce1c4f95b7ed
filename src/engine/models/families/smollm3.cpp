// SmolLM3: layers without rotation in between.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::smollm3 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"smollm3"};

// GGUF has no key for it.
constexpr std::uint32_t kUnrotatedEvery = 4;

void unrotate(std::uint32_t every, ModelConfig& config) {
  for (std::size_t n = 0; n < config.layers.size(); ++n) {
    if ((n + 1) % every == 0) config.layers[n].rope = kNoRope;
  }
}

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  unrotate(kUnrotatedEvery, config);
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.heads = 16, .kv_heads = 4, .eps = 1e-6F, .tied = true}));
  TRY(demand_attention_biases(keys, config));
  TRY(refuse_if(keys, "mlp_bias"));
  const bool windowed = TRY(keys.text().boolean_or("use_sliding_window", false));
  TRY(windowed ? read_hf_layer_windows(keys, 0, config) : demand_full_attention(keys, config));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 2e6}, config));
  if (!keys.has("no_rope_layers")) {
    unrotate(TRY(keys.count_or("no_rope_layer_interval", kUnrotatedEvery)), config);
    return config;
  }
  // 1 where a layer rotates.
  const std::vector<std::uint32_t> rotates = TRY(keys.per_layer("no_rope_layers", config.layers.size()));
  for (std::size_t n = 0; n < rotates.size(); ++n) {
    if (rotates[n] == 0) config.layers[n].rope = kNoRope;
  }
  return config;
}

}  // namespace

const Family kSmolLm3{
    .name = "smollm3",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others = "no_rope_layer_interval sliding_window max_window_layers",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::smollm3
