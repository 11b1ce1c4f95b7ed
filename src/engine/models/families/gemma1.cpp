// Gemma 1: Llama's layers with scaled embeddings, GELU, and norms whose weights are stored less one.
#include <cmath>

#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::gemma1 {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kDenseBlock};
constexpr auto kWeights = concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kFfnWeights);
constexpr std::array<std::string_view, 1> kNames{"gemma"};

// Converters add the one.
base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_dense(keys, plan::RopeLayout::kHalf));
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  config.ffn.activation = plan::Activation::kGeluTanh;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  constexpr HfDefaults kDefaults{.heads = 16, .kv_heads = 16, .head_dim = 256, .tied = true};
  ModelConfig config = TRY(read_hf_dense(keys, kDefaults));
  TRY(demand_attention_biases(keys, config));
  if (!keys.has("hidden_act") || TRY(keys.text().string("hidden_act")) == "gelu")  // which means the other GELU here
    config.ffn.activation = plan::Activation::kGeluTanh;
  TRY(refuse_if(keys, "use_bidirectional_attention"));
  config.norm_offset = 1.0F;
  config.embedding_scale = std::sqrt(static_cast<float>(config.width));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kGemma1{
    .name = "gemma",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .hf_others = "hidden_activation=\"gelu_pytorch_tanh\"",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::gemma1
