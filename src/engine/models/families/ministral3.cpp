// Ministral 3 and Mistral Small 4: queries that grow with the position.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::ministral3 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kFfnWeights);
constexpr std::array<std::string_view, 1> kGguf{"mistral3"};
constexpr std::array<std::string_view, 1> kHf{"ministral3"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kInterleaved));
  config.attention.temperature.factor = TRY(keys.real_or("attention.temperature_scale", 0));
  if (config.attention.temperature.factor != 0) {
    config.attention.temperature.length =
        TRY(keys.has("attention.temperature_length") ? keys.count("attention.temperature_length", kContextMax)
                                                     : keys.count("rope.scaling.original_context_length", kContextMax));
  }
  const float per_log = TRY(keys.real_or("rope.scaling.yarn_log_multiplier", 0));
  if (config.ropes[0].kind == RopeKind::kYarn && per_log != 0) config.ropes[0].attn_factor = 1.0F;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_dense(keys, {.heads = 32, .kv_heads = 8, .head_dim = 128, .eps = 1e-5F}));
  TRY(demand_attention_biases(keys, config));
  const std::uint32_t window = TRY(read_hf_window(keys, 0));
  for (LayerConfig& layer : config.layers) layer.window = window;
  if (const auto rope = TRY(keys.rope_dictionary())) {
    config.attention.temperature.factor = TRY(rope->f32_or("llama_4_scaling_beta", 0));
    if (config.attention.temperature.factor != 0) {
      config.attention.temperature.length = TRY(check_count(
          "original_max_position_embeddings", TRY(rope->u32("original_max_position_embeddings")), kContextMax));
    }
  }
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {.theta_absent = 1e6}, config));
  return config;
}

}  // namespace

const Family kMinistral3{
    .name = "ministral3",
    .gguf = kGguf,
    .hf = kHf,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others = "rope_parameters.max_position_embeddings",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::ministral3
