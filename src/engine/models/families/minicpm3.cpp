// MiniCPM 3: latent attention whose halves rotate, dense; embeddings, branches and logits are scaled.
#include <cmath>

#include "engine/models/families/families.h"
#include "engine/models/families/latent.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::minicpm3 {
namespace {

constexpr std::array kBlock = block(mla_attention(), ffn());
constexpr std::array<LayerTemplate, 1> kLayerTemplates{kBlock};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kLatentAttention, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"minicpm3"};
constexpr std::array<std::string_view, 2> kClaimed{"rope_factors_short.weight", "rope_factors_long.weight"};

// What the class has where a file says nothing, which GGUF has no keys for.
constexpr float kEmbeddingScale = 12, kDepthScale = 1.4F, kBaseWidth = 256;

void set_scales(float embedding, float depth, float base_width, ModelConfig& config) {
  config.embedding_scale = embedding;
  config.residual_scale = depth / std::sqrt(static_cast<float>(config.layers.size()));
  config.logit_mul = base_width / static_cast<float>(config.width);
}

// Neither format names the size of values in every file, nor does GGUF name the context that factors stretch.
std::uint32_t value_size(std::uint32_t heads, const ModelConfig& config) { return config.width / heads; }

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  const std::uint32_t heads = TRY(keys.count("attention.head_count"));
  TRY(read_gguf_latent(keys, config, {.d_v = value_size(heads, config), .original_context = config.context_tokens}));
  config.mla.norm_eps = kLatentNormEps;
  config.attention.rope_layout = plan::RopeLayout::kHalf;
  TRY(read_gguf_ffn(keys, config));
  set_scales(kEmbeddingScale, kDepthScale, kBaseWidth, config);
  TRY(finish_latent(keys.names(), heads, config));
  return config;
}

// Null is no scale.
base::Result<float> read_scale(const HfKeys& keys, std::string_view name, float absent, float none) {
  return keys.text().is_null(name) ? none : TRY(keys.text().f32_or(name, absent));
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F, .tied = true}));
  const std::uint32_t heads = TRY(keys.count("num_attention_heads"));
  TRY(read_hf_latent(keys, config, {.d_v = value_size(heads, config)}));
  config.attention.rope_layout = plan::RopeLayout::kHalf;
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(refuse_if(keys, "mlp_bias"));
  TRY(demand_latent_weights(keys, config));
  TRY(read_hf_ffn(keys, config));
  const float depth =
      TRY(read_scale(keys, "scale_depth", kDepthScale, std::sqrt(static_cast<float>(config.layers.size()))));
  const float base_width = TRY(read_scale(keys, "dim_model_base", kBaseWidth, static_cast<float>(config.width)));
  set_scales(TRY(keys.text().f32_or("scale_emb", kEmbeddingScale)), depth, base_width, config);
  TRY(finish_latent(keys.names(), heads, config));
  return config;
}

}  // namespace

const Family kMiniCpm3{
    .name = "minicpm3",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_claimed = kClaimed,
    .gguf_others = "attention.head_count_kv",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::minicpm3
