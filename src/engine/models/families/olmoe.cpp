// OLMoE: experts that a softmax chooses, and one norm over all query heads and one over all key heads of a row.
#include "engine/models/families/families.h"
#include "engine/models/families/standard.h"

namespace llorch::engine::models::families::olmoe {
namespace {

constexpr std::array<LayerTemplate, 1> kLayerTemplates{kMoeBlock};
constexpr auto kWeights =
    concat(kGlobalWeights, kBlockNorms, kAttentionWeights, kAttentionBiases, kHeadNorms, kSoftmaxExperts);
constexpr std::array<std::string_view, 1> kNames{"olmoe"};

base::Result<ModelConfig> read_gguf(const GgufKeys& keys) {
  ModelConfig config = TRY(read_gguf_basics(keys));
  TRY(read_gguf_attention(keys, plan::RopeLayout::kHalf, config));
  TRY(read_gguf_moe(keys, config));
  config.attention.qk_norm = plan::QkNorm::kPerRow;
  return config;
}

base::Result<ModelConfig> read_hf(const HfKeys& keys) {
  ModelConfig config = TRY(read_hf_basics(keys, {.eps = 1e-5F}));
  TRY(read_hf_heads(keys, {}, config));
  config.attention.qk_norm = plan::QkNorm::kPerRow;
  config.ffn.activation = TRY(read_hf_activation(keys, "hidden_act", plan::Activation::kSilu));
  TRY(demand_attention_biases(keys, config));
  TRY(read_hf_experts_chosen(keys, config.moe, "intermediate_size"));
  config.moe.norm_topk = TRY(keys.text().boolean_or("norm_topk_prob", false));
  TRY(read_hf_one_rope(keys, plan::RopeLayout::kHalf, {}, config));
  return config;
}

}  // namespace

const Family kOlmoe{
    .name = "olmoe",
    .gguf = kNames,
    .hf = kNames,
    .layer_templates = kLayerTemplates,
    .weights = kWeights,
    .gguf_others = "feed_forward_length",
    .read_gguf = read_gguf,
    .read_hf = read_hf,
};

}  // namespace llorch::engine::models::families::olmoe
